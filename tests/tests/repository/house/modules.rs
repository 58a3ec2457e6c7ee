//! The modules of a crate: which file holds each, which items it defines and which names it imports.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Expr, ExprLit, Item, ItemMod, Lit, Meta};

use super::imports::{Import, imports_of_items};
use super::test_only::{attributes, is_test_only};

/// The number of a module in its crate; the crate's root is the first.
pub type Id = usize;

pub const ROOT: Id = 0;

/// Returns a file's text if the file exists.
pub type Read<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A crate, read from its root file on.
#[derive(Default)]
pub struct Crate {
    pub files: Vec<SourceFile>,
    pub modules: Vec<Module>,
    /// Files that are compiled for tests only.
    pub test_files: BTreeSet<String>,
    /// The modules that define a macro of this name by `macro_rules!`.
    pub macros: BTreeMap<String, Vec<Id>>,
    /// The macros that others name from the root of the crate.
    pub exported_macros: BTreeMap<String, Id>,
}

/// A file that holds a module, and perhaps more of them inline.
pub struct SourceFile {
    pub path: String,
    pub text: String,
}

/// A module outside of tests.
#[derive(Default)]
pub struct Module {
    /// The place of its file in [`Crate::files`].
    pub file: usize,
    pub items: Vec<Item>,
    pub imports: Vec<Import>,
    pub parent: Option<Id>,
    /// More than one of a name if each needs another feature.
    pub children: BTreeMap<String, Vec<Id>>,
    /// The names of the items that it defines itself.
    pub defined: BTreeSet<String>,
}

impl Crate {
    /// Reads the crate whose root is the file `root`.
    ///
    /// # Panics
    /// If a file is missing or is no Rust.
    pub fn read(root: &str, read: Read<'_>) -> Self {
        let mut read_crate = Crate::default();
        let text = read(root).unwrap_or_else(|| panic!("no file {root}"));
        let folder = parent_of(root);
        read_crate.add_file(root, text, None, &folder, read);
        read_crate
    }

    /// Adds the module that a file holds; `folder` is where the files of its children are.
    fn add_file(
        &mut self,
        path: &str,
        text: String,
        parent: Option<Id>,
        folder: &str,
        read: Read<'_>,
    ) -> Id {
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let file = self.files.len();
        self.files.push(SourceFile {
            path: path.to_owned(),
            text,
        });
        self.add_module(file, parsed.items, parent, folder, read)
    }

    fn add_module(
        &mut self,
        file: usize,
        mut items: Vec<Item>,
        parent: Option<Id>,
        folder: &str,
        read: Read<'_>,
    ) -> Id {
        let id = self.modules.len();
        self.modules.push(Module {
            file,
            parent,
            ..Module::default()
        });
        let path = self.files[file].path.clone();
        for item in &mut items {
            let Item::Mod(module) = item else { continue };
            let child = self.add_child(id, module, &path, folder, read);
            let children = &mut self.modules[id].children;
            let of_name = children.entry(module.ident.to_string()).or_default();
            of_name.extend(child);
        }
        items.retain(|item| !matches!(item, Item::Mod(_)) && !is_test_only(attributes(item)));
        for item in &items {
            if let Some(name) = name_of(item) {
                self.modules[id].defined.insert(name);
            }
            if let Item::Macro(definition) = item
                && let Some(name) = &definition.ident
            {
                self.macros.entry(name.to_string()).or_default().push(id);
                let mut attributes = definition.attrs.iter();
                if attributes.any(|attribute| attribute.path().is_ident("macro_export")) {
                    self.exported_macros.insert(name.to_string(), id);
                }
            }
        }
        self.modules[id].imports = imports_of_items(&items);
        self.modules[id].items = items;
        id
    }

    /// Adds the module that `mod name;` or `mod name { … }` declares; `None` if it is one of tests.
    fn add_child(
        &mut self,
        parent: Id,
        module: &mut ItemMod,
        path: &str,
        folder: &str,
        read: Read<'_>,
    ) -> Option<Id> {
        let name = module.ident.to_string();
        let is_test = is_test_only(&module.attrs);
        if let Some((_, items)) = module.content.take() {
            let (file, folder) = (self.modules[parent].file, format!("{folder}/{name}"));
            return (!is_test).then(|| self.add_module(file, items, Some(parent), &folder, read));
        }
        let given = path_attribute(module);
        let files = match &given {
            Some(given) => vec![format!("{}/{given}", parent_of(path))],
            None => vec![
                format!("{folder}/{name}.rs"),
                format!("{folder}/{name}/mod.rs"),
            ],
        };
        let mut found = files
            .into_iter()
            .filter_map(|file| Some((read(&file)?, file)));
        let (text, file) = found
            .next()
            .unwrap_or_else(|| panic!("{path}: no file of mod {name}"));
        let folder = match given.is_some() || file.ends_with("/mod.rs") {
            true => parent_of(&file),
            false => file.trim_end_matches(".rs").to_owned(),
        };
        if is_test {
            self.add_test_files(&file, text, &folder, read);
            return None;
        }
        Some(self.add_file(&file, text, Some(parent), &folder, read))
    }

    /// Adds the file of a test module, and the files of its children.
    fn add_test_files(&mut self, path: &str, text: String, folder: &str, read: Read<'_>) {
        let mut tests = Crate::default();
        tests.add_file(path, text, None, folder, read);
        let files = tests.files.into_iter().map(|file| file.path);
        self.test_files.extend(files.chain(tests.test_files));
    }

    /// Whether a module only declares modules and hands on what they define.
    pub fn is_facade(&self, id: Id) -> bool {
        let mut items = self.modules[id].items.iter();
        items.all(|item| matches!(item, Item::Use(_) | Item::ExternCrate(_)))
    }
}

/// Returns the folder of a file.
fn parent_of(path: &str) -> String {
    path.rsplit_once('/')
        .expect("a file in a folder")
        .0
        .to_owned()
}

/// The file that `#[path = "…"]` names.
fn path_attribute(module: &ItemMod) -> Option<String> {
    let mut attributes = module.attrs.iter();
    let named = attributes.find(|attribute| attribute.path().is_ident("path"))?;
    match &named.meta {
        Meta::NameValue(pair) => match &pair.value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(path),
                ..
            }) => Some(path.value()),
            _ => None,
        },
        _ => None,
    }
}

/// The name under which others find an item.
fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

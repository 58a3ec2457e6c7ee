//! The modules of a crate as its files have them, and the items that paths name.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenTree};
use syn::{Item, UseTree, Visibility};

use super::text::{is_cfg, is_public};

/// A module, with its imports.
pub struct Module {
    /// `["operation", "fold"]`
    pub path: Vec<String>,
    pub items: Vec<Item>,
    pub modules: BTreeMap<String, Module>,
    pub uses: Vec<Use>,
    /// The modules that `diesel::table!` makes.
    pub tables: Vec<String>,
}

/// `use a::b as name`
pub struct Use {
    pub name: String,
    pub of: Vec<String>,
    pub public: bool,
    pub attributes: Vec<syn::Attribute>,
}

/// The target of a path: a module, or an item by its module and name.
#[derive(Clone)]
pub enum Named {
    Module(Vec<String>),
    Item(Vec<String>, String),
    /// Of another crate.
    Foreign(String),
}

impl Module {
    pub fn read_crate(root: &Path) -> Self {
        let folder = root.parent().unwrap().to_owned();
        Module::read(vec![], root, &folder)
    }

    fn read(path: Vec<String>, file: &Path, folder: &Path) -> Self {
        let text = fs::read_to_string(file).unwrap();
        let parsed = syn::parse_file(&text).unwrap();
        Module::of(path, parsed.items, folder)
    }

    /// `folder` holds the files of the modules inside.
    fn of(path: Vec<String>, items: Vec<Item>, folder: &Path) -> Self {
        let mut module = Module {
            path,
            items: vec![],
            modules: BTreeMap::new(),
            uses: vec![],
            tables: vec![],
        };
        for item in items {
            match item {
                Item::Mod(inner) => {
                    if is_cfg(&inner.attrs, "test") || is_cfg(&inner.attrs, "doc") {
                        continue;
                    }
                    let name = inner.ident.to_string();
                    let path = [module.path.clone(), vec![name.clone()]].concat();
                    let folder = folder.join(&name);
                    let read = match &inner.content {
                        Some((_, items)) => Module::of(path, items.clone(), &folder),
                        None => Module::read(path, &file_of(&folder), &folder),
                    };
                    module.modules.insert(name, read);
                    module.items.push(Item::Mod(inner));
                }
                Item::Use(import) => {
                    let public = is_public(&import.vis);
                    let mut leaves = vec![];
                    leaves_of(&import.tree, &mut vec![], &mut leaves);
                    for (name, of) in leaves {
                        let attributes = import.attrs.clone();
                        module.uses.push(Use {
                            name,
                            of,
                            public,
                            attributes,
                        });
                    }
                }
                Item::Macro(call)
                    if call
                        .mac
                        .path
                        .segments
                        .last()
                        .is_some_and(|s| s.ident == "table") =>
                {
                    module.tables.extend(table_of(call.mac.tokens));
                }
                // Methods in both ways to a connection, as the crate's own macro takes them.
                Item::Macro(call) if call.mac.path.is_ident("paired") => {
                    let file: syn::File = syn::parse2(call.mac.tokens).unwrap();
                    module.items.extend(file.items);
                }
                item => module.items.push(item),
            }
        }
        module
    }

    /// The module at this path.
    pub fn at(&self, path: &[String]) -> &Module {
        path.iter().fold(self, |module, name| &module.modules[name])
    }

    /// The target of `path` in the module at `from`, through all imports.
    pub fn resolve(&self, from: &[String], path: &[String]) -> Option<Named> {
        let mut at = from.to_vec();
        let mut rest = path;
        loop {
            match rest.first()?.as_str() {
                "crate" => at = vec![],
                "self" => {}
                "super" => drop(at.pop()),
                _ => break,
            }
            rest = &rest[1..];
            if rest.is_empty() {
                return Some(Named::Module(at));
            }
        }
        let began_here = rest.len() == path.len();
        let (name, rest) = rest.split_first()?;
        let module = self.at(&at);
        let named = if module.modules.contains_key(name) {
            Named::Module([at.clone(), vec![name.clone()]].concat())
        } else if let Some(import) = module.uses.iter().find(|import| import.name == *name) {
            match self.resolve(&at, &import.of) {
                Some(named) => named,
                None => Named::Foreign(import.of.join("::")),
            }
        } else if module.tables.contains(name)
            || module
                .items
                .iter()
                .any(|item| name_of(item).as_ref() == Some(name))
        {
            Named::Item(at.clone(), name.clone())
        } else if began_here {
            return None;
        } else {
            panic!(
                "`{}` in `{}` names nothing",
                path.join("::"),
                from.join("::")
            );
        };
        match (named, rest) {
            (named, []) => Some(named),
            (Named::Module(module), rest) => {
                let path = [vec!["self".to_owned()], rest.to_vec()].concat();
                self.resolve(&module, &path)
            }
            (named, _) => Some(named),
        }
    }

    /// This module and all that are inside of it.
    pub fn all(&self) -> Vec<&Module> {
        let inside = self.modules.values().flat_map(Module::all);
        std::iter::once(self).chain(inside).collect()
    }
}

fn file_of(folder: &Path) -> PathBuf {
    let beside = folder.with_extension("rs");
    match beside.exists() {
        true => beside,
        false => folder.join("mod.rs"),
    }
}

fn leaves_of(tree: &UseTree, path: &mut Vec<String>, leaves: &mut Vec<(String, Vec<String>)>) {
    match tree {
        UseTree::Path(inner) => {
            path.push(inner.ident.to_string());
            leaves_of(&inner.tree, path, leaves);
            path.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            leaves.push((path.last().unwrap().clone(), path.clone()));
        }
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            leaves.push((name.clone(), [path.clone(), vec![name]].concat()));
        }
        UseTree::Rename(rename) => {
            let of = [path.clone(), vec![rename.ident.to_string()]].concat();
            leaves.push((rename.rename.to_string(), of));
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                leaves_of(tree, path, leaves);
            }
        }
        UseTree::Glob(_) => {}
    }
}

/// The name before the key: `counters (name) { .. }`.
fn table_of(tokens: proc_macro2::TokenStream) -> Option<String> {
    let tokens: Vec<_> = tokens.into_iter().collect();
    tokens.windows(2).find_map(|pair| match pair {
        [TokenTree::Ident(name), TokenTree::Group(key)]
            if key.delimiter() == Delimiter::Parenthesis =>
        {
            Some(name.to_string())
        }
        _ => None,
    })
}

pub fn name_of(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

pub fn visibility_of(item: &Item) -> Option<(&Visibility, &[syn::Attribute])> {
    Some(match item {
        Item::Const(item) => (&item.vis, &item.attrs),
        Item::Enum(item) => (&item.vis, &item.attrs),
        Item::Fn(item) => (&item.vis, &item.attrs),
        Item::Mod(item) => (&item.vis, &item.attrs),
        Item::Static(item) => (&item.vis, &item.attrs),
        Item::Struct(item) => (&item.vis, &item.attrs),
        Item::Trait(item) => (&item.vis, &item.attrs),
        Item::Type(item) => (&item.vis, &item.attrs),
        _ => return None,
    })
}

//! The items that the crate's root reaches, line by line.

use std::collections::BTreeSet;

use syn::{Fields, GenericArgument, Generics, ImplItem, Item, PathArguments, TraitItem, Type};

use super::modules::{Module, Named, name_of, visibility_of};
use super::text::{is_doc, is_public, line};

/// The number of root items, and a line for each public item and each public part of it, in the order of their paths.
pub fn listing(root: &Module) -> String {
    let mut lines = BTreeSet::new();
    Reach {
        root,
        lines: &mut lines,
    }
    .module(root, "diesel_sharded", &mut vec![]);
    let of_root = |kind: &str| {
        let of_kind = |line: &&String| {
            let path = line.split([' ', '(']).next().unwrap_or_default();
            let depth = path.matches("::").count();
            depth == 1 && (line.split(' ').nth(1) == Some("mod")) == (kind == "mod")
        };
        lines.iter().filter(of_kind).count()
    };
    let head = format!(
        "# The crate's root has {} items and {} modules.\n",
        of_root("item"),
        of_root("mod")
    );
    let lines: Vec<String> = lines.into_iter().collect();
    head + &lines.join("\n") + "\n"
}

struct Reach<'a> {
    root: &'a Module,
    lines: &'a mut BTreeSet<String>,
}

impl Reach<'_> {
    fn add(&mut self, path: &str, signature: &str) {
        self.lines.insert(format!("{path} {signature}"));
    }

    /// `within` holds the modules above this one: a module that exports one of them is not entered again.
    fn module(&mut self, module: &Module, path: &str, within: &mut Vec<Vec<String>>) {
        if within.contains(&module.path) {
            return;
        }
        within.push(module.path.clone());
        for item in &module.items {
            match item {
                Item::Mod(item) if is_public(&item.vis) && !is_doc(&item.attrs, "hidden") => {
                    let name = item.ident.to_string();
                    let path = format!("{path}::{name}");
                    self.add(&path, "mod");
                    self.module(&module.modules[&name], &path, within);
                }
                item => {
                    if let Some((visibility, attributes)) = visibility_of(item)
                        && is_public(visibility)
                        && !is_doc(attributes, "hidden")
                        && !matches!(item, Item::Mod(_))
                    {
                        self.item(module, item, &format!("{path}::{}", name_of(item).unwrap()));
                    }
                }
            }
        }
        for import in &module.uses {
            if !import.public || is_doc(&import.attributes, "hidden") {
                continue;
            }
            let path = format!("{path}::{}", import.name);
            match self.root.resolve(&module.path, &import.of) {
                Some(Named::Module(at)) => {
                    self.add(&path, "mod");
                    self.module(self.root.at(&at), &path, within);
                }
                Some(Named::Item(at, name)) => {
                    let home = self.root.at(&at);
                    for item in &home.items {
                        if name_of(item).as_ref() == Some(&name) {
                            self.item(home, item, &path);
                        }
                    }
                    if home.tables.contains(&name) {
                        self.add(&path, "mod of diesel::table!");
                    }
                }
                Some(Named::Foreign(of)) => self.add(&path, &format!("use {of}")),
                None => self.add(&path, &format!("use {}", import.of.join("::"))),
            }
        }
        if module.path.is_empty() {
            self.exported_macros(path);
        }
        within.pop();
    }

    fn exported_macros(&mut self, path: &str) {
        for module in self.root.all() {
            for item in &module.items {
                if let Item::Macro(item) = item
                    && item.attrs.iter().any(|a| a.path().is_ident("macro_export"))
                    && !is_doc(&item.attrs, "hidden")
                {
                    self.add(
                        &format!("{path}::{}!", item.ident.as_ref().unwrap()),
                        "macro",
                    );
                }
            }
        }
    }

    fn item(&mut self, home: &Module, item: &Item, path: &str) {
        match item {
            Item::Const(item) => self.add(path, &format!("const: {}", line(&item.ty))),
            Item::Static(item) => self.add(path, &format!("static: {}", line(&item.ty))),
            Item::Fn(item) => self.add(path, &line(&item.sig)),
            Item::Type(item) => {
                let signature = format!("type{} = {}", generics(&item.generics), line(&item.ty));
                self.add(path, &signature);
            }
            Item::Struct(item) => {
                self.add(path, &format!("struct{}", generics(&item.generics)));
                self.fields(&item.fields, path, true);
                self.methods(home, &item.ident.to_string(), path);
            }
            Item::Enum(item) => {
                self.add(path, &format!("enum{}", generics(&item.generics)));
                for variant in &item.variants {
                    let path = format!("{path}::{}", variant.ident);
                    self.add(&path, "variant");
                    self.fields(&variant.fields, &path, false);
                }
                self.methods(home, &item.ident.to_string(), path);
            }
            Item::Trait(item) => {
                let bounds = match item.supertraits.is_empty() {
                    true => String::new(),
                    false => format!(": {}", line(&item.supertraits)),
                };
                self.add(path, &format!("trait{}{bounds}", generics(&item.generics)));
                for part in &item.items {
                    let (name, attributes, signature) = match part {
                        TraitItem::Const(part) => (
                            &part.ident,
                            &part.attrs,
                            format!("const: {}", line(&part.ty)),
                        ),
                        TraitItem::Fn(part) => (&part.sig.ident, &part.attrs, line(&part.sig)),
                        TraitItem::Type(part) => (
                            &part.ident,
                            &part.attrs,
                            format!("type: {}", line(&part.bounds)),
                        ),
                        _ => continue,
                    };
                    if !is_doc(attributes, "hidden") {
                        self.add(&format!("{path}::{name}"), signature.trim_end_matches(": "));
                    }
                }
            }
            _ => {}
        }
    }

    fn fields(&mut self, fields: &Fields, path: &str, only_public: bool) {
        for (i, field) in fields.iter().enumerate() {
            if (is_public(&field.vis) || !only_public) && !is_doc(&field.attrs, "hidden") {
                let name = field
                    .ident
                    .as_ref()
                    .map_or(i.to_string(), ToString::to_string);
                self.add(
                    &format!("{path}::{name}"),
                    &format!("field: {}", line(&field.ty)),
                );
            }
        }
    }

    /// The public methods and constants of the type `name` of the module `home`, wherever they are written.
    fn methods(&mut self, home: &Module, name: &str, path: &str) {
        for module in self.root.all() {
            for item in &module.items {
                let Item::Impl(block) = item else { continue };
                let Type::Path(of) = &*block.self_ty else {
                    continue;
                };
                if block.trait_.is_some() || !self.is_of(module, &of.path, home, name) {
                    continue;
                }
                let state = state(&of.path, &block.generics);
                for part in &block.items {
                    self.method(part, &state, path);
                }
            }
        }
    }

    fn method(&mut self, part: &ImplItem, state: &str, path: &str) {
        let (name, attributes, visibility, signature) = match part {
            ImplItem::Fn(part) => (&part.sig.ident, &part.attrs, &part.vis, line(&part.sig)),
            ImplItem::Const(part) => {
                let signature = format!("const: {}", line(&part.ty));
                (&part.ident, &part.attrs, &part.vis, signature)
            }
            ImplItem::Macro(part) => {
                return self.add(path, &format!("{}{state}", line(&part.mac)));
            }
            _ => return,
        };
        if is_public(visibility) && !is_doc(attributes, "hidden") {
            self.add(&format!("{path}::{name}"), &format!("{signature}{state}"));
        }
    }

    /// Whether `path`, written in `module`, names the type `name` of `home`.
    fn is_of(&self, module: &Module, path: &syn::Path, home: &Module, name: &str) -> bool {
        let path: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        path.last().is_some_and(|last| last == name)
            && matches!(
                self.root.resolve(&module.path, &path),
                Some(Named::Item(at, item)) if at == home.path && item == name
            )
    }
}

/// ` on <Query, Values, Ret, NoInsert, Run>`, or nothing for methods that a type has with all arguments.
fn state(of: &syn::Path, generics: &Generics) -> String {
    let arguments = &of.segments.last().unwrap().arguments;
    let PathArguments::AngleBracketed(list) = arguments else {
        return String::new();
    };
    let is_parameter = |argument: &GenericArgument| {
        let text = line(argument);
        generics
            .type_params()
            .any(|parameter| parameter.ident == text)
    };
    match list.args.iter().all(is_parameter) {
        true => String::new(),
        false => format!(" on {}", line(arguments)),
    }
}

/// `<C: Column>`, or nothing.
fn generics(generics: &Generics) -> String {
    match line(&generics.params) {
        params if params.is_empty() => params,
        params => format!("<{params}>"),
    }
}

//! The names that a module imports.

use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Ident, Item, ItemExternCrate, ItemMod, ItemUse, UseTree, Visibility};

use super::test_only::is_test_only;

/// A name, or all names of a module, that a `use` brings into a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    pub path: Vec<String>,
    /// `None` for `*`.
    pub name: Option<String>,
    /// Whether others may import the name from here.
    pub is_reexport: bool,
    pub line: usize,
}

impl Import {
    pub fn is_named(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name)
    }
}

/// The names that the items of a module import, also those inside functions.
pub fn imports_of_items(items: &[Item]) -> Vec<Import> {
    let mut imports = Imports(vec![]);
    items.iter().for_each(|item| imports.visit_item(item));
    imports.0
}

struct Imports(Vec<Import>);

impl Visit<'_> for Imports {
    fn visit_item_use(&mut self, item: &ItemUse) {
        let is_reexport = !matches!(item.vis, Visibility::Inherited);
        if !is_test_only(&item.attrs) && item.leading_colon.is_none() {
            self.0.extend(imports_of(&item.tree, is_reexport));
        }
    }

    fn visit_item_mod(&mut self, _: &ItemMod) {}

    /// `extern crate self as name`.
    fn visit_item_extern_crate(&mut self, item: &ItemExternCrate) {
        if let Some((_, name)) = &item.rename
            && item.ident == "self"
        {
            self.0.push(Import {
                path: vec!["crate".to_owned()],
                name: Some(name.to_string()),
                is_reexport: false,
                line: name.span().start().line,
            });
        }
    }
}

/// The names that a tree imports.
pub fn imports_of(tree: &UseTree, is_reexport: bool) -> Vec<Import> {
    let mut imports = vec![];
    walk(tree, &[], is_reexport, &mut imports);
    imports
}

fn walk(tree: &UseTree, before: &[String], is_reexport: bool, imports: &mut Vec<Import>) {
    let longer = |name: &Ident| [before, &[name.to_string()]].concat();
    let (path, name) = match tree {
        UseTree::Path(part) => return walk(&part.tree, &longer(&part.ident), is_reexport, imports),
        UseTree::Group(group) => {
            let trees = group.items.iter();
            return trees.for_each(|tree| walk(tree, before, is_reexport, imports));
        }
        UseTree::Name(name) if name.ident == "self" => (before.to_vec(), before.last().cloned()),
        UseTree::Name(name) => (longer(&name.ident), Some(name.ident.to_string())),
        UseTree::Rename(name) if name.ident == "self" => {
            (before.to_vec(), Some(name.rename.to_string()))
        }
        UseTree::Rename(name) => (longer(&name.ident), Some(name.rename.to_string())),
        UseTree::Glob(_) => (before.to_vec(), None),
    };
    imports.push(Import {
        path,
        name,
        is_reexport,
        line: tree.span().start().line,
    });
}

//! The arrows between the files of a crate: from a file to each file whose items it uses.

use std::collections::BTreeMap;

use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{
    Attribute, ImplItemFn, Item, ItemMod, ItemUse, Macro, Meta, Path, UseTree, VisRestricted,
};

use super::imports::imports_of;
use super::modules::{Crate, Id};
use super::test_only::{attributes, is_test_only};

/// The arrows by the files at their ends, each with the first line that draws it.
pub type Arrows = BTreeMap<(String, String), Line>;

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub number: usize,
    pub text: String,
}

/// Finds the arrows between the files of a crate.
///
/// A re-export draws no arrow. An import through it draws its arrow to the file that defines the item.
pub fn arrows_of(of: &Crate) -> Arrows {
    let mut arrows = Arrows::new();
    for (id, module) in of.modules.iter().enumerate() {
        let mut uses = Uses {
            of,
            id,
            arrows: &mut arrows,
        };
        module.items.iter().for_each(|item| uses.visit_item(item));
    }
    arrows
}

/// Draws the arrows of one module.
struct Uses<'a> {
    of: &'a Crate,
    id: Id,
    arrows: &'a mut Arrows,
}

impl Uses<'_> {
    /// Draws an arrow from this module's file to another's, by the line of this number.
    fn draw(&mut self, to: Id, number: usize) {
        // Items that are used through a facade draw arrows of their own.
        let is_facade = self.of.is_facade(to);
        let file = |id: Id| &self.of.files[self.of.modules[id].file];
        let (from, to) = (file(self.id), file(to));
        if from.path == to.path || is_facade {
            return;
        }
        let text = from.text.lines().nth(number - 1).unwrap_or_default();
        let line = Line {
            number,
            text: text.trim().to_owned(),
        };
        let ends = (from.path.clone(), to.path.clone());
        self.arrows.entry(ends).or_insert(line);
    }

    /// Draws the arrows of a private `use`.
    fn import(&mut self, tree: &UseTree) {
        for import in imports_of(tree, false) {
            for definer in self.of.definers(self.id, &import.path) {
                self.draw(definer, import.line);
            }
        }
    }

    /// Draws the arrows of a path in code.
    ///
    /// A single name needs none if a private `use` imports it, since that `use` has drawn the arrow. It needs one if it comes from a
    /// re-export or from a glob.
    fn path(&mut self, path: &[String], line: usize) {
        let Some(first) = path.first() else { return };
        let imports = &self.of.modules[self.id].imports;
        let is_handed_on = |name: &str| {
            let mut imports = imports.iter().filter(|import| import.is_reexport);
            imports.any(|import| import.is_named(name))
        };
        if path.len() > 1 || is_handed_on(first) || self.of.has_by_glob(self.id, first) {
            for definer in self.of.definers(self.id, path) {
                self.draw(definer, line);
            }
        }
    }

    /// Draws the arrow of a macro's name, which may be known without an import.
    fn macro_name(&mut self, name: &Path) {
        let Some(name) = name.get_ident() else { return };
        let mut imports = self.of.modules[self.id].imports.iter();
        let is_imported = imports.any(|import| import.is_named(&name.to_string()));
        if !is_imported
            && let Some([definer]) = self.of.macros.get(&name.to_string()).map(Vec::as_slice)
        {
            self.draw(*definer, name.span().start().line);
        }
    }

    /// Draws the arrows of the paths and imports among a macro's tokens.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        let mut path: Vec<String> = vec![];
        let mut line = 0;
        // A method or a field follows one dot, and any expression follows two.
        let mut dots = 0;
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(word) if word == "use" => {
                    let rest = tokens.by_ref();
                    let is_inside = |token: &TokenTree| !matches!(token, TokenTree::Punct(p) if p.as_char() == ';');
                    let tree: TokenStream = rest.take_while(is_inside).collect();
                    if let Ok(tree) = syn::parse2::<UseTree>(tree) {
                        self.import(&tree);
                    }
                }
                TokenTree::Ident(word) => {
                    if path.is_empty() {
                        line = word.span().start().line;
                    }
                    path.push(word.to_string());
                    let goes_on = matches!(tokens.peek(), Some(TokenTree::Punct(p)) if p.as_char() == ':' && p.spacing() == Spacing::Joint);
                    if goes_on {
                        tokens.next();
                        tokens.next();
                    }
                    let ends = !goes_on || !matches!(tokens.peek(), Some(TokenTree::Ident(_)));
                    if ends {
                        let is_path = path.len() > 1 || path[0].starts_with(char::is_uppercase);
                        if is_path && dots != 1 {
                            self.path(&path, line);
                        }
                        path.clear();
                        dots = 0;
                    }
                }
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Punct(punct) if punct.as_char() == '.' => dots += 1,
                TokenTree::Punct(_) => dots = 0,
                TokenTree::Literal(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test_only(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, _: &'ast ItemMod) {}

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_test_only(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if matches!(item.vis, syn::Visibility::Inherited) && item.leading_colon.is_none() {
            self.import(&item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.leading_colon.is_none() {
            let names: Vec<_> = path
                .segments
                .iter()
                .map(|part| part.ident.to_string())
                .collect();
            self.path(&names, path.segments[0].ident.span().start().line);
        }
        visit::visit_path(self, path);
    }

    /// `pub(in path)` uses nothing.
    fn visit_vis_restricted(&mut self, _: &'ast VisRestricted) {}

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.macro_name(&call.path);
        visit::visit_macro(self, call);
        self.tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        visit::visit_attribute(self, attribute);
        if let Meta::List(list) = &attribute.meta {
            self.tokens(list.tokens.clone());
        }
    }
}

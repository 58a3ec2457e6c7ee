//! The public API is the one that `tests/public_api.txt` lists, so that a reviewer sees each change of it.
//!
//! The listing has what is `pub` below `src/`, and not `#[doc(hidden)]`, with all features: other items are `pub(crate)`.
//! `UPDATE_PUBLIC_API=1 cargo test -p diesel_sharded_tests --test repository` writes it anew.

use std::collections::BTreeSet;
use std::fs;

use diesel_sharded_tests::documents::file;
use quote::ToTokens;
use syn::punctuated::Punctuated;
use syn::visit_mut::{VisitMut, visit_item_struct_mut, visit_trait_item_fn_mut};
use syn::{Attribute, ImplItem, Item, ItemStruct, TraitItemFn, Visibility};

use super::documents::below;

const LISTING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/public_api.txt");

#[test]
fn the_public_api_is_the_one_that_is_listed() {
    let source = file("src");
    let mut lines = BTreeSet::new();
    for file in below(&source, &[".rs"]) {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(&source).unwrap().to_string_lossy();
        let mut listed = Listed {
            name: &name,
            lines: &mut lines,
        };
        if !name.ends_with("tests.rs") && name != "test_schema.rs" {
            listed.items(syn::parse_file(&text).unwrap().items);
        }
    }
    let is: String = lines.iter().map(|line| format!("{line}\n")).collect();
    if std::env::var_os("UPDATE_PUBLIC_API").is_some() {
        fs::write(LISTING, &is).unwrap();
    }
    let listed = fs::read_to_string(LISTING).unwrap();
    let only = |here: &str, there: &str| {
        let there: BTreeSet<_> = there.lines().collect();
        let lines = here.lines().filter(|line| !there.contains(line));
        lines.collect::<Vec<_>>().join("\n")
    };
    assert!(
        is == listed,
        "the public API differs from tests/public_api.txt. It lacks:\n{}\nIt has:\n{}\n\
         If it should, write the listing anew: UPDATE_PUBLIC_API=1 cargo test -p diesel_sharded_tests --test repository",
        only(&listed, &is),
        only(&is, &listed),
    );
}

/// The items of a file.
struct Listed<'a> {
    name: &'a str,
    lines: &'a mut BTreeSet<String>,
}

impl Listed<'_> {
    fn add(&mut self, of: &str, item: impl ToTokens) {
        self.lines
            .insert(format!("{}: {of}{}", self.name, line(&item)));
    }

    fn items(&mut self, items: Vec<Item>) {
        for mut item in items {
            match &mut item {
                Item::Mod(module) if is_listed(None, &module.attrs) => {
                    if let Visibility::Public(_) = module.vis {
                        self.add("mod ", &module.ident);
                    }
                    self.items(module.content.take().unwrap_or_default().1);
                }
                // Methods in both ways to a connection, as the crate's own macro takes them.
                Item::Macro(call) if call.mac.path.is_ident("paired") => {
                    let blocks = with_their_methods(call.mac.tokens.clone());
                    let both: syn::File = syn::parse2(blocks.into_iter().collect()).unwrap();
                    self.items(both.items);
                }
                Item::Macro(call)
                    if call.attrs.iter().any(|a| a.path().is_ident("macro_export"))
                        && is_listed(None, &call.attrs) =>
                {
                    self.add("macro ", &call.ident)
                }
                Item::Impl(block) if block.trait_.is_none() => {
                    let of = format!("{} ", line(&block.self_ty));
                    for part in &block.items {
                        match part {
                            ImplItem::Fn(part) if is_listed(Some(&part.vis), &part.attrs) => {
                                self.add(&of, &part.sig)
                            }
                            ImplItem::Const(part) if is_listed(Some(&part.vis), &part.attrs) => {
                                self.add(&of, &part.ident)
                            }
                            ImplItem::Macro(part) => self.add(&of, &part.mac),
                            _ => {}
                        }
                    }
                }
                Item::Fn(function) if is_listed(Some(&function.vis), &function.attrs) => {
                    self.add("", &function.sig)
                }
                Item::Const(item) if is_listed(Some(&item.vis), &item.attrs) => {
                    self.add(&format!("{}: ", item.ident), &item.ty)
                }
                Item::Static(item) if is_listed(Some(&item.vis), &item.attrs) => {
                    self.add(&format!("{}: ", item.ident), &item.ty)
                }
                Item::Enum(syn::ItemEnum { vis, attrs, .. })
                | Item::Struct(ItemStruct { vis, attrs, .. })
                | Item::Trait(syn::ItemTrait { vis, attrs, .. })
                | Item::Type(syn::ItemType { vis, attrs, .. })
                | Item::Use(syn::ItemUse { vis, attrs, .. })
                    if is_listed(Some(vis), attrs) =>
                {
                    Bare.visit_item_mut(&mut item);
                    self.add("", &item);
                }
                _ => {}
            }
        }
    }
}

/// The blocks of a `paired!`, in which heads with a `;` in between share the methods that follow.
fn with_their_methods<Token: Clone + ToString>(
    tokens: impl IntoIterator<Item = Token>,
) -> Vec<Token> {
    let (mut heads, mut blocks) = (vec![vec![]], vec![]);
    for token in tokens {
        match token.to_string().as_str() {
            ";" => heads.push(vec![]),
            methods if methods.starts_with('{') => {
                for head in std::mem::replace(&mut heads, vec![vec![]]) {
                    blocks.extend(head);
                    blocks.push(token.clone());
                }
            }
            _ => heads.last_mut().unwrap().push(token),
        }
    }
    blocks
}

/// Whether it is public, is compiled for users and is documented.
fn is_listed(visibility: Option<&Visibility>, attributes: &[Attribute]) -> bool {
    let is_left_out = |attribute: &Attribute| {
        let text = attribute.meta.to_token_stream().to_string();
        let tests = ["cfg (test)", "cfg (doc)", "cfg (all (test", "doc (hidden)"];
        tests.iter().any(|left_out| text.starts_with(left_out))
    };
    visibility.is_none_or(|it| matches!(it, Visibility::Public(_)))
        && !attributes.iter().any(is_left_out)
}

/// Leaves out documentation, private fields and the bodies of methods.
struct Bare;

impl VisitMut for Bare {
    fn visit_attributes_mut(&mut self, attributes: &mut Vec<Attribute>) {
        attributes.clear();
    }

    fn visit_item_struct_mut(&mut self, item: &mut ItemStruct) {
        let fields = match &mut item.fields {
            syn::Fields::Named(fields) => &mut fields.named,
            syn::Fields::Unnamed(fields) => &mut fields.unnamed,
            syn::Fields::Unit => &mut Punctuated::new(),
        };
        let all = std::mem::take(fields).into_iter();
        let is_public = |field: &syn::Field| matches!(field.vis, Visibility::Public(_));
        *fields = all.filter(is_public).collect();
        visit_item_struct_mut(self, item);
    }

    fn visit_trait_item_fn_mut(&mut self, item: &mut TraitItemFn) {
        item.default = None;
        visit_trait_item_fn_mut(self, item);
    }
}

/// The tokens on one line, with a space only where one is read.
fn line(item: &impl ToTokens) -> String {
    let mut text = item.to_token_stream().to_string().replace('\n', " ");
    for (written, read) in [
        (" ,", ","),
        (" :: ", "::"),
        (":: ", "::"),
        (" ::", "::"),
        (" : ", ": "),
        (" ;", ";"),
        (" < ", "<"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        ("-> ", " -> "),
        ("->", " ->"),
        ("  ->", " ->"),
        ("& ", "&"),
        ("' ", "'"),
        ("? ", "?"),
        (",>", ">"),
        (",)", ")"),
        (" (", "("),
        (",(", ", ("),
        ("=(", "= ("),
        ("  ", " "),
    ] {
        text = text.replace(written, read);
    }
    text
}

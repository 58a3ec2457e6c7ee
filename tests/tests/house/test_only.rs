//! Code that is compiled for tests only.

use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, File, Item, ItemMod, Meta, Token};

/// Whether something is compiled for tests only.
pub fn is_test_only(attrs: &[Attribute]) -> bool {
    let mut conditions = attrs.iter().filter(|attr| attr.path().is_ident("cfg"));
    conditions.any(|attr| {
        attr.parse_args()
            .is_ok_and(|condition| needs_test(&condition))
    })
}

fn needs_test(condition: &Meta) -> bool {
    let Meta::List(list) = condition else {
        return condition.path().is_ident("test");
    };
    let conditions = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
    let Ok(conditions) = conditions else {
        return false;
    };
    match list.path.get_ident().map(ToString::to_string).as_deref() {
        Some("all") => conditions.iter().any(needs_test),
        Some("any") => conditions.iter().all(needs_test),
        _ => false,
    }
}

/// The lines of a file's test modules.
pub fn test_lines(file: &File) -> usize {
    let mut lines = TestLines(0);
    lines.visit_file(file);
    lines.0
}

struct TestLines(usize);

impl Visit<'_> for TestLines {
    fn visit_item_mod(&mut self, module: &ItemMod) {
        if !is_test_only(&module.attrs) {
            visit::visit_item_mod(self, module);
        } else if module.content.is_some() {
            let span = module.span();
            self.0 += span.end().line - span.start().line + 1;
        }
    }
}

pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

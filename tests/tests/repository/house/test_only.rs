//! Code that is compiled for tests only.

use syn::punctuated::Punctuated;
use syn::{Attribute, Item, Meta, Token};

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

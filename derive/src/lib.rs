//! `#[derive(ShardedField)]` of `diesel_sharded`, where it is documented.

#![deny(missing_docs)]

mod ast;
mod attr;
mod expand;
mod valid;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Declares sharded fields of a table; documented in `diesel_sharded`.
#[proc_macro_derive(ShardedField, attributes(sharded, diesel))]
pub fn derive_sharded_field(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand::derive(&input).into()
}

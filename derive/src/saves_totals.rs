//! Refuses models that Diesel could save with their totals.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{DeriveInput, Ident};

use crate::ast::{Field, Struct};

/// The models that a derive reports.
#[derive(PartialEq, Eq)]
pub enum Reported {
    Always,
    /// The other derive reports a model that reads totals.
    UnlessItReadsTotals,
}

/// Refuses a model that derives `AsChangeset` with its sharded fields, unless it has `saves_totals`.
pub fn refuse_to_save(
    input: &DeriveInput,
    model: &Struct,
    sharded: &[(Ident, &Field)],
    reported: Reported,
) -> Option<TokenStream> {
    let saved = sharded.iter().any(|(_, field)| !field.attrs.skip_update);
    if model.attrs.saves_totals.is_some() || !saved {
        return None;
    }
    let ident = model.ident;
    let (impl_generics, ty_generics, where_clause) = input.generics.split_for_impl();
    let module = quote!(__diesel_sharded::model::saves_totals);
    let first = (reported == Reported::UnlessItReadsTotals)
        .then(|| quote!(use #module::IfReadsTotals as _;));
    let import = model.import();
    let model = quote!(#module::Model::<#ident #ty_generics>::NEW);
    let saves_totals = quote_spanned!(ident.span()=> (&&#model).saves_totals());
    Some(quote! {
        const _: () = {
            #import

            #[allow(dead_code)]
            fn model #impl_generics () #where_clause {
                use #module::{IfNotSaved as _, IfSaved as _};
                #first
                #saves_totals
            }
        };
    })
}

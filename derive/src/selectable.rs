//! Diesel's `Queryable` and `Selectable` for a model whose sharded fields are read as totals.
//!
//! A twin of the struct has Diesel's derives, and the struct forwards to it. So Diesel's attributes keep their meaning, and only the
//! sharded fields differ: they select a total, and accept nothing else (`FromTotal`).

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{
    Attribute, Data, DeriveInput, Error, Generics, Ident, Index, Member, Path, Result, parse_quote,
};

use crate::ast::{Field, Struct};
use crate::attr::unraw;
use crate::saves_totals::{Reported, refuse_to_save};

pub fn derive(input: &DeriveInput) -> TokenStream {
    try_derive(input).unwrap_or_else(|error| error.to_compile_error())
}

fn try_derive(input: &DeriveInput) -> Result<TokenStream> {
    let model = Struct::read(input)?;
    if let Some(no_totals) = model.attrs.no_totals {
        let message =
            "`ShardedSelectable` reads totals: leave out either the derive or `no_totals`";
        return Err(Error::new(no_totals, message));
    }
    let sharded = model.sharded_fields()?;
    let table = model.table()?;
    let fields: Vec<TokenStream> = model
        .fields
        .iter()
        .map(|field| {
            let sharded = sharded
                .iter()
                .find(|(_, other)| std::ptr::eq(*other, field));
            twin_field(&table, field, sharded.map(|(column, _)| column))
        })
        .collect();
    let mut code = expand(input, &model, &table, &fields);
    code.extend(refuse_to_save(input, &model, &sharded, Reported::Always));
    Ok(code)
}

/// The field in the twin. `sharded` is its column if it is a sharded field.
fn twin_field(table: &Path, field: &Field, sharded: Option<&Ident>) -> TokenStream {
    let attrs = diesels(&field.source.attrs);
    let ty = &field.source.ty;
    let name = field.source.ident.iter();
    let total = sharded.filter(|_| !field.attrs.says_what_is_read);
    let total = total.map(|column| {
        let span = column.span();
        let column = quote_spanned!(span=> #table::#column);
        let read_as = match &field.attrs.deserialize_as {
            Some(read_as) => read_as.to_token_stream(),
            None => ty.to_token_stream(),
        };
        quote_spanned! {span=>
            #[diesel(
                select_expression = __diesel_sharded::__TotalInRow::of(#column),
                select_expression_type = __diesel_sharded::__TotalInRow<#column>,
                deserialize_as = __diesel_sharded::model::FromTotal<#read_as>,
            )]
        }
    });
    quote!(#(#attrs)* #total #(#name:)* #ty)
}

fn expand(
    input: &DeriveInput,
    model: &Struct,
    table: &Path,
    fields: &[TokenStream],
) -> TokenStream {
    let ident = model.ident;
    let twin = Ident::new(&format!("__{}WithTotals", unraw(ident)), ident.span());
    let (impl_generics, ty_generics, where_clause) = input.generics.split_for_impl();
    let twin_struct = twin_struct(input, model, table, &twin, fields);

    let diesel = quote!(__diesel_sharded::__diesel);
    let selectable = quote!(#diesel::expression::Selectable<__DB>);
    let queryable = quote!(#diesel::deserialize::Queryable<__ST, __DB>);
    let (selectable_generics, queryable_generics) = (
        with_backend(&input.generics, &twin, &selectable),
        with_sql_type(with_backend(&input.generics, &twin, &queryable)),
    );
    let (selectable_impl, _, selectable_where) = selectable_generics.split_for_impl();
    let (queryable_impl, _, queryable_where) = queryable_generics.split_for_impl();
    let import = model.import();
    let members = members(model);
    let values: Vec<Ident> = (0..members.len())
        .map(|i| format_ident!("field_{i}"))
        .collect();

    quote! {
        const _: () = {
            #import

            #twin_struct

            impl #selectable_impl #selectable for #ident #ty_generics #selectable_where {
                type SelectExpression = <#twin #ty_generics as #selectable>::SelectExpression;

                fn construct_selection() -> Self::SelectExpression {
                    <#twin #ty_generics as #selectable>::construct_selection()
                }
            }

            impl #queryable_impl #queryable for #ident #ty_generics #queryable_where {
                type Row = <#twin #ty_generics as #queryable>::Row;

                fn build(row: Self::Row) -> #diesel::deserialize::Result<Self> {
                    let #twin { #(#members: #values),* } = <#twin #ty_generics as #queryable>::build(row)?;
                    ::std::result::Result::Ok(Self { #(#members: #values),* })
                }
            }

            impl #impl_generics __diesel_sharded::model::ReadsTotals for #ident #ty_generics #where_clause {}
        };
    }
}

/// The struct with Diesel's derives. It is as visible as the model, because the model's associated types contain it, but it has no name
/// outside.
fn twin_struct(
    input: &DeriveInput,
    model: &Struct,
    table: &Path,
    twin: &Ident,
    fields: &[TokenStream],
) -> TokenStream {
    let attrs = diesels(&input.attrs);
    // Diesel would guess the table from the twin's name.
    let table_name = match model.attrs.table {
        Some(_) => None,
        None => Some(quote!(#[diesel(table_name = #table)])),
    };
    let (vis, generics) = (&input.vis, &input.generics);
    let where_clause = &generics.where_clause;
    let body = match &input.data {
        Data::Struct(data) if matches!(data.fields, syn::Fields::Unnamed(_)) => {
            quote!((#(#fields),*) #where_clause;)
        }
        _ => quote!(#where_clause { #(#fields),* }),
    };
    quote! {
        #[derive(__diesel_sharded::__diesel::Queryable, __diesel_sharded::__diesel::Selectable)]
        #(#attrs)*
        #table_name
        #[allow(dead_code, non_camel_case_types, unreachable_pub)]
        #[doc(hidden)]
        #vis struct #twin #generics #body
    }
}

/// Diesel's own attributes.
fn diesels(attrs: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attrs.iter().filter(|attr| attr.path().is_ident("diesel"))
}

/// The fields' names, or their indices in a tuple struct.
fn members(model: &Struct) -> Vec<Member> {
    let names = model.fields.iter().map(|field| field.source.ident.clone());
    let member = |(i, name): (usize, Option<Ident>)| match name {
        Some(name) => Member::Named(name),
        None => Member::Unnamed(Index::from(i)),
    };
    names.enumerate().map(member).collect()
}

/// The struct's generics with a backend `__DB` for which the twin implements `bound`.
fn with_backend(generics: &Generics, twin: &Ident, bound: &TokenStream) -> Generics {
    let (_, ty_generics, _) = generics.split_for_impl();
    let mut with = generics.clone();
    with.params
        .push(parse_quote!(__DB: __diesel_sharded::__diesel::backend::Backend));
    let bound = parse_quote!(#twin #ty_generics: #bound);
    with.make_where_clause().predicates.push(bound);
    with
}

/// The generics with the SQL type of a row, `__ST`.
fn with_sql_type(mut generics: Generics) -> Generics {
    generics.params.push(parse_quote!(__ST));
    generics
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::derive;

    fn text(input: syn::DeriveInput) -> String {
        derive(&input).to_string()
    }

    #[test]
    fn sharded_fields_alone_are_totals() {
        let text = text(parse_quote! {
            #[derive(Debug)]
            #[diesel(table_name = videos, check_for_backend(Sqlite))]
            #[sharded(shards = 4)]
            struct Video {
                id: i64,
                #[serde(rename = "v")]
                #[sharded(sql_type = "BIGINT")]
                #[diesel(column_name = views, deserialize_as = Own)]
                number: i64,
                #[sharded]
                #[diesel(select_expression = own(), select_expression_type = Own)]
                likes: i32,
            }
        });
        assert!(text.contains("FromTotal < Own >"), "{text}");
        assert!(text.contains("__TotalInRow < videos :: views >"), "{text}");
        assert!(!text.contains("videos :: likes"), "{text}");
        assert!(
            !text.contains("serde") && !text.contains("sharded ("),
            "{text}"
        );
        assert!(text.contains("check_for_backend (Sqlite)"), "{text}");
        assert_eq!(text.matches("table_name").count(), 1, "{text}");
    }

    #[test]
    fn the_table_is_guessed_from_the_model() {
        let text = text(parse_quote! {
            struct Video<'a, T>(
                #[diesel(column_name = id)] i64,
                #[sharded] #[diesel(column_name = views)] i64,
                #[diesel(column_name = title)] std::borrow::Cow<'a, T>,
            ) where T: Clone;
        });
        assert!(text.contains("table_name = videos"), "{text}");
        assert!(text.contains("__VideoWithTotals < 'a , T >"), "{text}");
        assert!(
            text.contains("{ 0 : field_0 , 1 : field_1 , 2 : field_2 }"),
            "{text}"
        );
    }
}

//! The impls that the derive writes for a struct.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{DeriveInput, GenericParam, Ident, Index, Path, Result, parse_quote};

use crate::ast::{Field, Struct};
use crate::saves_totals::{Reported, refuse_to_save};
use crate::valid::Valid;

pub fn derive(input: &DeriveInput) -> TokenStream {
    try_derive(input).unwrap_or_else(|error| error.to_compile_error())
}

fn try_derive(input: &DeriveInput) -> Result<TokenStream> {
    let model = Struct::read(input)?;
    let valid = model.validate()?;
    let mut code = expand(&model, &model.table()?, &valid);
    code.extend(reads_totals(input, &model, &valid));
    if model.attrs.no_totals.is_none() {
        code.extend(refuse_to_save(
            input,
            &model,
            &valid.fields,
            Reported::UnlessItReadsTotals,
        ));
    }
    Ok(code)
}

/// Refuses a model that can be read but shows its sharded fields without their shards, unless it has `no_totals`.
///
/// Diesel implements `Queryable` for a model only if its fields can be read from the row. So the generated function assumes that they can.
fn reads_totals(input: &DeriveInput, model: &Struct, valid: &Valid) -> Option<TokenStream> {
    let mut sharded = valid.fields.iter();
    if model.attrs.no_totals.is_some() || sharded.all(|(_, field)| field.attrs.says_what_is_read) {
        return None;
    }
    let ident = model.ident;
    let diesel = quote!(__diesel_sharded::__diesel);
    let read_as = model
        .fields
        .iter()
        .map(|field| field.attrs.deserialize_as.as_ref().unwrap_or(field.ty));
    let sql_types: Vec<Ident> = (0..model.fields.len())
        .map(|i| format_ident!("__ST{i}"))
        .collect();
    let row = quote!((#(#sql_types,)*));

    let (_, ty_generics, _) = input.generics.split_for_impl();
    let mut generics = input.generics.clone();
    generics
        .params
        .push(parse_quote!(__DB: #diesel::backend::Backend));
    generics.params.extend(
        sql_types
            .iter()
            .map(|name| -> GenericParam { parse_quote!(#name) }),
    );
    let can_be_read =
        parse_quote!((#(#read_as,)*): #diesel::deserialize::FromStaticSqlRow<#row, __DB>);
    generics.make_where_clause().predicates.push(can_be_read);
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let import = model.import();
    let model = quote!(__diesel_sharded::model::reads_totals::Model::<#ident #ty_generics, #row, __DB>::NEW);
    let reads_totals = quote_spanned!(ident.span()=> (&#model).reads_totals());
    Some(quote! {
        const _: () = {
            #import

            #[allow(dead_code)]
            fn model #impl_generics () #where_clause {
                use __diesel_sharded::model::reads_totals::{IfNotRead as _, IfRead as _};
                #reads_totals
            }
        };
    })
}

fn expand(
    model: &Struct,
    module: &Path,
    Valid {
        shards,
        key,
        fields,
    }: &Valid,
) -> TokenStream {
    let table = quote!(#module::table);
    let shards_table = shards_table(model, module);

    let key_types = key.iter().map(|(_, field)| field.ty);
    let key_type = match key.as_slice() {
        [(_, field)] => field.ty.to_token_stream(),
        _ => quote!((#(#key_types),*)),
    };
    let key_columns = key.iter().map(|(column, _)| quote!(#module::#column));
    let primary_key = match key.as_slice() {
        [(column, _)] => quote!(#module::#column),
        _ => quote!((#(#key_columns),*)),
    };
    let own_types = own_types(key);
    let mut key_filters = ordered_filters(&table, module, &own_types);
    if key.len() == 2 {
        key_filters.push(chained(&table, module, own_types.iter().rev()));
    }
    // Only filters in the key's order: for a key in reverse order, the values would be shown like those of another key.
    let shown_filters: Vec<_> = shown_types(key)
        .iter()
        .flat_map(|types| ordered_filters(&table, module, types))
        .collect();
    let key_parts: Vec<_> = key.iter().map(|(_, field)| field.ty).collect();
    let (key_after_type, key_after) = key_after(module, key);
    let (key_values_type, key_values) = key_values(module, key);

    let key_descriptions = key.iter().map(|item| description(module, item, "key"));
    let field_descriptions = fields.iter().map(
        |(column, _)| quote!(<#module::#column as __diesel_sharded::model::TotalColumn>::FIELD),
    );
    let columns = fields.iter().map(|item| {
        let (column, field) = item;
        let (kind, marker) = match &field.attrs.peak {
            Some(peak) if peak == "max" => ("max", Some(quote!(MaxColumn))),
            Some(_) => ("min", Some(quote!(MinColumn))),
            None => ("field", None),
        };
        let description = description(module, item, kind);
        let span = field.type_span();
        let value = field.number().map(|number| {
            quote_spanned!(span=> const _: () = __diesel_sharded::model::assert_value::<#module::#column, #number>();)
        });
        let changes = match marker {
            Some(marker) => {
                quote_spanned!(span=> impl __diesel_sharded::model::#marker for #module::#column {})
            }
            None => quote_spanned! {span=>
                impl __diesel_sharded::model::ShardedColumn for #module::#column {}
                #value
            },
        };
        quote_spanned! {span=>
            impl __diesel_sharded::model::TotalColumn for #module::#column {
                const FIELD: __diesel_sharded::model::ShardsColumn = #description;
            }
            #changes
        }
    });

    let import = model.import();
    quote! {
        const _: () = {
            #import
            use __diesel_sharded::__diesel as diesel;

            impl __diesel_sharded::model::ShardedTable for #table {
                type Key = #key_type;
                type KeyAfter = #key_after_type;
                type KeyValues = #key_values_type;
                const TABLE: &'static Self = &#table;
                const SHARDS_TABLE: __diesel_sharded::model::TableName<'static> = #shards_table;
                const SHARDS: u16 = #shards;
                const KEY: &'static [__diesel_sharded::model::ShardsColumn] = &[#(#key_descriptions),*];
                const FIELDS: &'static [__diesel_sharded::model::ShardsColumn] = &[#(#field_descriptions),*];

                fn key_after(key: &Self::Key) -> Self::KeyAfter {
                    use diesel::{BoolExpressionMethods, ExpressionMethods};
                    #key_after
                }

                fn key_values(key: &Self::Key) -> Self::KeyValues {
                    #key_values
                }

                fn is_key_filter(where_clause: ::std::any::TypeId) -> bool {
                    #(
                        <<#key_filters as diesel::query_builder::IntoUpdateTarget>::WhereClause
                            as diesel::query_builder::QueryId>::query_id()
                            == ::std::option::Option::Some(where_clause)
                    )||*
                }

                fn shows_key_filter(where_clause: ::std::any::TypeId) -> bool {
                    Self::shows_keys()
                        && [#(
                            __diesel_sharded::model::type_id::<
                                <#shown_filters as diesel::query_builder::IntoUpdateTarget>::WhereClause,
                            >()
                        ),*]
                        .contains(&where_clause)
                }

                fn shows_keys() -> bool {
                    #(__diesel_sharded::model::shows_key::<#key_parts>())&&*
                }
            }

            const _: () = __diesel_sharded::model::assert_schema::<#table>(
                <#table as __diesel_sharded::model::ShardedTable>::SHARDS_TABLE,
            );

            // Fails to compile if the struct's key is not the table's.
            const _: fn(<#table as diesel::Table>::PrimaryKey) -> #primary_key = |key| key;

            #(#columns)*
        };
    }
}

/// The name of the shards table: the one in the attribute, or the table's own name with `_shards`. The name of a table inside a schema is
/// not a constant, so there the attribute has to name the shards table.
fn shards_table(model: &Struct, module: &Path) -> TokenStream {
    let path = quote!(__diesel_sharded::model);
    match (&model.attrs.shards_table, &model.attrs.schema) {
        (Some(name), Some(schema)) => {
            let (schema, name) = (schema.value(), name.value());
            let (text, length) = (format!("{schema}.{name}"), schema.len());
            quote!(#path::TableName::in_schema(#text, #length))
        }
        (Some(name), None) => quote!(#path::TableName::new(#name)),
        (None, _) => quote!({
            const PARENT: &str = #path::own_name::<#module::table>();
            const NAME: [u8; PARENT.len() + #path::SUFFIX.len()] = #path::with_suffix(PARENT);
            match ::std::str::from_utf8(&NAME) {
                ::std::result::Result::Ok(name) => #path::TableName::new(name),
                ::std::result::Result::Err(_) => ::std::unreachable!(),
            }
        }),
    }
}

/// The columns of a key, each with the type of the value that it is compared with.
type KeyTypes<'a> = Vec<(&'a Ident, TokenStream)>;

/// The key's columns with the types of the struct's fields.
fn own_types<'a>(key: &'a [(Ident, &Field)]) -> KeyTypes<'a> {
    let column = |(column, field): &'a (Ident, &Field)| (column, field.ty.to_token_stream());
    key.iter().map(column).collect()
}

/// The key's columns with each type that a query may pass for a field's: the same, a reference to it, and for a `String` a `&str`. Empty if
/// the key has types other than numbers, text, bytes and UUIDs: their `Debug` may show another value than the database gets.
fn shown_types<'a>(key: &'a [(Ident, &Field)]) -> Vec<KeyTypes<'a>> {
    type Form = fn(&Field) -> TokenStream;
    let forms: [Form; 3] = [
        |field| field.ty.to_token_stream(),
        |field| {
            let ty = field.ty;
            quote!(&'static #ty)
        },
        |field| match field.is_named(&["String"]) {
            true => quote!(&'static str),
            false => field.ty.to_token_stream(),
        },
    ];
    const SHOWN: &[&str] = &["i16", "i32", "i64", "String", "Vec", "Uuid"];
    let has_text = key.iter().any(|(_, field)| field.is_named(&["String"]));
    let forms = if has_text { &forms[..] } else { &forms[..2] };
    if !key.iter().all(|(_, field)| field.is_named(SHOWN)) {
        return vec![];
    }
    let with = |form: &Form| {
        key.iter()
            .map(|(column, field)| (column, form(field)))
            .collect()
    };
    forms.iter().map(with).collect()
}

/// The queries whose `WHERE` clauses name the whole key in its order: `find`, and chained filters if their type differs.
fn ordered_filters(
    table: &TokenStream,
    module: &Path,
    key: &[(&Ident, TokenStream)],
) -> Vec<TokenStream> {
    let types = key.iter().map(|(_, ty)| ty);
    let mut filters = vec![match key {
        [(_, ty)] => quote!(diesel::dsl::Find<#table, #ty>),
        _ => quote!(diesel::dsl::Find<#table, (#(#types),*)>),
    }];
    if key.len() > 2 {
        filters.push(chained(table, module, key.iter()));
    }
    filters
}

/// The query with a filter for each column of the key, one after the other.
fn chained<'a>(
    table: &TokenStream,
    module: &Path,
    key: impl Iterator<Item = &'a (&'a Ident, TokenStream)>,
) -> TokenStream {
    key.fold(table.clone(), |query, (column, ty)| {
        quote!(diesel::dsl::Filter<#query, diesel::dsl::Eq<#module::#column, #ty>>)
    })
}

/// The value of the key's `i`th column, in code in which `key` is the key.
fn key_value(key: &[(Ident, &Field)], i: usize) -> TokenStream {
    match key.len() {
        1 => quote!(::std::clone::Clone::clone(key)),
        _ => {
            let i = Index::from(i);
            quote!(::std::clone::Clone::clone(&key.#i))
        }
    }
}

/// The type and the code of the values of `key` as expressions: one, or a tuple.
fn key_values(module: &Path, key: &[(Ident, &Field)]) -> (TokenStream, TokenStream) {
    let (types, values): (Vec<_>, Vec<_>) = key
        .iter()
        .enumerate()
        .map(|(i, (column, field))| {
            let (ty, value) = (field.ty, key_value(key, i));
            let sql_type = quote!(diesel::dsl::SqlTypeOf<#module::#column>);
            (
                quote!(diesel::dsl::AsExprOf<#ty, #sql_type>),
                quote!(diesel::expression::AsExpression::<#sql_type>::as_expression(#value)),
            )
        })
        .unzip();
    match types.len() {
        1 => (quote!(#(#types)*), quote!(#(#values)*)),
        _ => (quote!((#(#types),*)), quote!((#(#values),*))),
    }
}

/// The type and the code of the predicate that a key comes after `key`: `a >= key.0 AND (a > key.0 OR (a = key.0 AND b > key.1))`. The
/// first condition follows from the second, but it is the one for which PostgreSQL and SQLite use the index.
fn key_after(module: &Path, key: &[(Ident, &Field)]) -> (TokenStream, TokenStream) {
    let value = |i: usize| key_value(key, i);
    let columns = key.iter().enumerate().rev();
    let after = columns.fold(None, |rest, (i, (column, field))| {
        let (ty, value, column) = (field.ty, value(i), quote!(#module::#column));
        let greater = quote!(diesel::dsl::Gt<#column, #ty>);
        Some(match rest {
            None => (greater, quote!(#column.gt(#value))),
            Some((rest_type, rest)) => (
                quote!(diesel::dsl::Or<#greater, diesel::dsl::And<diesel::dsl::Eq<#column, #ty>, #rest_type>>),
                quote!(#column.gt(#value).or(#column.eq(#value).and(#rest))),
            ),
        })
    });
    let (after_type, after) = after.unwrap_or_default();
    match key {
        [(column, field), _, ..] => {
            let (ty, value, column) = (field.ty, value(0), quote!(#module::#column));
            let from = quote!(diesel::dsl::GtEq<#column, #ty>);
            (
                quote!(diesel::dsl::And<#from, #after_type>),
                quote!(#column.ge(#value).and(#after)),
            )
        }
        _ => (after_type, after),
    }
}

/// The description of a column. A key column whose SQL type is declared may have a type that the library does not know.
fn description(module: &Path, (column, field): &(Ident, &Field), kind: &str) -> TokenStream {
    if let ("key", Some(sql_type)) = (kind, &field.attrs.sql_type) {
        return quote_spanned! {field.type_span()=> {
            #[allow(unused_imports)]
            use __diesel_sharded::model::AnyKey as _;
            __diesel_sharded::model::ShardsColumn::declared_key::<#module::#column>(
                __diesel_sharded::model::DeclaredKey::<#module::#column>::COLUMN,
                #sql_type,
            )
        }};
    }
    let kind = Ident::new(kind, field.span);
    let sql_type = field
        .attrs
        .sql_type
        .as_ref()
        .map(|sql_type| quote!(.sql_type(#sql_type)));
    let span = field.type_span();
    quote_spanned!(span=> __diesel_sharded::model::ShardsColumn::#kind::<#module::#column>() #sql_type)
}

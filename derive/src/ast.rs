//! The struct as the application wrote it, with its attributes read.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, Ident, Path, Result, Type, parse_quote};

use crate::attr::{FieldAttrs, TableAttrs, unraw};

pub struct Struct<'a> {
    pub ident: &'a Ident,
    pub attrs: TableAttrs,
    pub fields: Vec<Field<'a>>,
}

pub struct Field<'a> {
    /// The field as the application wrote it.
    pub source: &'a syn::Field,
    pub attrs: FieldAttrs,
    /// The column's name, if the field has a name or an attribute for it.
    pub column: Option<Ident>,
    pub ty: &'a Type,
    pub span: Span,
}

impl<'a> Struct<'a> {
    pub fn read(input: &'a DeriveInput) -> Result<Self> {
        let data = match &input.data {
            Data::Struct(data) => data,
            Data::Enum(data) => return Err(Error::new_spanned(data.enum_token, NOT_A_STRUCT)),
            Data::Union(data) => return Err(Error::new_spanned(data.union_token, NOT_A_STRUCT)),
        };
        let fields = match &data.fields {
            Fields::Named(fields) => fields.named.iter(),
            Fields::Unnamed(fields) => fields.unnamed.iter(),
            Fields::Unit => {
                return Err(Error::new_spanned(
                    &input.ident,
                    "a sharded model has fields",
                ));
            }
        };
        Ok(Struct {
            ident: &input.ident,
            attrs: TableAttrs::read(&input.attrs)?,
            fields: fields.map(Field::read).collect::<Result<_>>()?,
        })
    }

    /// The table's module: `#[diesel(table_name = ..)]`, or Diesel's guess from the struct's name.
    pub fn table(&self) -> Result<Path> {
        if let Some(table) = &self.attrs.table {
            return Ok(table.clone());
        }
        let name = plural_snake_case(&unraw(self.ident));
        match syn::parse_str::<Ident>(&name) {
            Ok(_) => Ok(Ident::new(&name, self.ident.span()).into()),
            Err(_) => {
                let message = format!(
                    "no table can be named `{name}`: name it by `#[diesel(table_name = ..)]`"
                );
                Err(Error::new_spanned(self.ident, message))
            }
        }
    }

    /// Imports the library under the name by which the generated code knows it: `#[sharded(crate = ..)]`, or its own.
    pub fn import(&self) -> TokenStream {
        let own_name = || parse_quote!(::diesel_sharded);
        let library = self.attrs.library.clone().unwrap_or_else(own_name);
        quote!(use #library as __diesel_sharded;)
    }

    /// The columns of the primary key: `#[diesel(primary_key(..))]`, or `id`.
    pub fn primary_key(&self) -> Vec<Ident> {
        match &self.attrs.primary_key {
            Some(columns) => columns.clone(),
            None => vec![Ident::new("id", self.ident.span())],
        }
    }
}

const NOT_A_STRUCT: &str = "only a struct that models a table's row can have sharded fields";

impl<'a> Field<'a> {
    fn read(field: &'a syn::Field) -> Result<Self> {
        let attrs = FieldAttrs::read(&field.attrs)?;
        Ok(Field {
            source: field,
            column: attrs.column.clone().or_else(|| field.ident.clone()),
            attrs,
            ty: &field.ty,
            span: field.ident.as_ref().map_or(field.ty.span(), Ident::span),
        })
    }

    /// The field's type if it is a plain number: the type of the values that are added to the column. An application's own type may
    /// represent a number too; then only the column knows the type of these values.
    pub fn number(&self) -> Option<&'a Type> {
        let is_number = self.is_named(&[
            "i16",
            "i32",
            "i64",
            "u16",
            "u32",
            "u64",
            "f64",
            "BigDecimal",
        ]);
        is_number.then_some(self.ty)
    }

    /// Whether the type's path ends with one of these names: `std::primitive::i64` ends with `i64`.
    pub fn is_named(&self, names: &[&str]) -> bool {
        let last = match self.ty {
            Type::Path(path) => path.path.segments.last(),
            _ => None,
        };
        last.is_some_and(|last| names.iter().any(|name| last.ident == name))
    }

    /// The span of the type's first token.
    pub fn type_span(&self) -> Span {
        let first = self.ty.to_token_stream().into_iter().next();
        first.map_or(self.span, |token| token.span())
    }
}

/// `VideoStatistic` → `video_statistics`
fn plural_snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 2);
    for (i, c) in name.char_indices() {
        if c.is_uppercase() && i > 0 {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake.push('s');
    snake
}

#[cfg(test)]
mod tests {
    use super::plural_snake_case;

    #[test]
    fn a_table_is_guessed_as_diesel_does() {
        assert_eq!(plural_snake_case("Video"), "videos");
        assert_eq!(plural_snake_case("VideoStatistic"), "video_statistics");
    }
}

//! Validates structs and fields, and tells why one is refused.

use syn::{Error, Ident, Result, Type};

use crate::ast::{Field, Struct};
use crate::attr::unraw;

/// The column of a shards table with the shard's number.
const SHARD: &str = "shard";

/// `ENUM('a', 'b')`
fn is_mysqls_enum(sql_type: &str) -> bool {
    let name = sql_type.split('(').next().unwrap_or_default();
    sql_type.contains('(') && name.trim().eq_ignore_ascii_case("enum")
}

/// A struct that has everything that the impls need.
pub struct Valid<'a> {
    pub shards: u16,
    pub key: Vec<(Ident, &'a Field<'a>)>,
    pub fields: Vec<(Ident, &'a Field<'a>)>,
}

impl Struct<'_> {
    pub fn validate(&self) -> Result<Valid<'_>> {
        let fields = self.sharded_fields()?;
        let key = self.key_fields()?;
        for (column, field) in &fields {
            if key.iter().any(|(key, _)| key == column) {
                let message =
                    format!("`{column}` is part of the primary key: a key cannot be counted");
                return Err(Error::new(
                    field.attrs.sharded().unwrap_or(field.span),
                    message,
                ));
            }
        }
        for (column, field) in key.iter().chain(&fields) {
            if unraw(column) == SHARD {
                let message = "a shards table has its own column `shard`: rename this one";
                return Err(Error::new(field.span, message));
            }
        }
        if let (Some(schema), None) = (&self.attrs.schema, &self.attrs.shards_table) {
            let message =
                "inside a schema, name the shards table too, as in `table_name = videos_shards`";
            return Err(Error::new_spanned(schema, message));
        }
        Ok(Valid {
            shards: self.shards()?,
            key,
            fields,
        })
    }

    fn shards(&self) -> Result<u16> {
        let Some(shards) = &self.attrs.shards else {
            return Ok(128);
        };
        match shards.base10_parse::<u16>() {
            Ok(number @ 1..=4096) => Ok(number),
            _ => Err(Error::new_spanned(
                shards,
                "`shards` is a number from 1 to 4096",
            )),
        }
    }

    /// The sharded fields with their columns.
    pub fn sharded_fields(&self) -> Result<Vec<(Ident, &Field<'_>)>> {
        let key = self.primary_key();
        let mut fields = vec![];
        for field in &self.fields {
            let in_key = || {
                field
                    .column
                    .as_ref()
                    .is_some_and(|column| key.contains(column))
            };
            if field.attrs.sharded().is_none() && (field.attrs.sql_type.is_none() || in_key()) {
                continue;
            }
            let Some(column) = &field.column else {
                let message = "name the column of this field: `#[diesel(column_name = ..)]`";
                return Err(Error::new(field.span, message));
            };
            if field.is_named(&["String", "str", "bool", "Vec"]) {
                let message = match &field.attrs.peak {
                    Some(_) => {
                        "a field with a greatest or a least value is a number, a date or a time"
                    }
                    None => "a sharded field is a number",
                };
                return Err(Error::new_spanned(field.ty, message));
            }
            if field.is_named(&["Option"]) && field.attrs.peak.is_none() {
                let message = "a sharded field cannot be nullable, since NULL + 1 is NULL: make the column NOT NULL DEFAULT 0 \
                               and the field a plain number";
                return Err(Error::new_spanned(field.ty, message));
            }
            fields.push((column.clone(), field));
        }
        if fields.is_empty() {
            let embeds = self
                .fields
                .iter()
                .any(|field| field.attrs.says_what_is_read);
            let message = match embeds {
                true => {
                    "no field of this model is sharded: an embedded model reads its totals by itself, so derive Diesel's `Queryable` and \
                     `Selectable` here"
                }
                false => "no field is sharded: put `#[sharded]` on the fields to count",
            };
            return Err(Error::new_spanned(self.ident, message));
        }
        Ok(fields)
    }

    fn key_fields(&self) -> Result<Vec<(Ident, &Field<'_>)>> {
        let columns = self.primary_key();
        if columns.is_empty() {
            return Err(Error::new_spanned(
                self.ident,
                "`primary_key` names no column",
            ));
        }
        columns
            .into_iter()
            .map(|column| {
                let Some(field) = self.fields.iter().find(|field| field.column.as_ref() == Some(&column)) else {
                    let message = format!(
                        "the primary key `{column}` is no field of this struct: add the field, or name the key with \
                         `#[diesel(primary_key(..))]`"
                    );
                    return Err(Error::new_spanned(&column, message));
                };
                let declared = field.attrs.sql_type.as_ref();
                if let Some(sql_type) = declared.filter(|declared| is_mysqls_enum(&declared.value())) {
                    let message = "MySQL sorts an ENUM by its position, but compares it by its text, so a fold would leave rows out: make \
                                   this key column a VARCHAR or a SMALLINT";
                    return Err(Error::new_spanned(sql_type, message));
                }
                if let Type::Reference(_) = field.ty {
                    let message = "a key field of a sharded model owns its value: `String` instead of `&str`";
                    return Err(Error::new_spanned(field.ty, message));
                }
                Ok((column, field))
            })
            .collect()
    }
}

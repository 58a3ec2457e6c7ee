//! Values of fields, whose types are known only at run time, as the library's own queries read them.

use std::fmt;

use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql, QueryableByName};
use diesel::row::{Field, NamedRow, Row};
use diesel::sql_types::{Double, Text};

use super::amount::Amount;
use super::column::ColumnType;

/// The name under which a query selects a double. Any other value is selected as a text.
pub(crate) const DOUBLE: &str = "double";

/// A value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldValue {
    /// Of a number.
    Number(Amount),
    /// Of a date or a time, for which not every backend has a Rust type without a further dependency. Equal values have equal texts.
    Text(String),
}

impl FieldValue {
    /// The value as one of a column of this type. Integers and decimals are read as their digits: of the types that every backend reads,
    /// none holds a sum of 64-bit integers. `None` if it is no number, and the column is for numbers.
    pub(crate) fn of_type(self, column: ColumnType) -> Option<Self> {
        let number = match (self, column) {
            (date, ColumnType::Date | ColumnType::Timestamp | ColumnType::Timestamptz) => {
                return Some(date);
            }
            (FieldValue::Text(digits), _) => Amount::parse(&digits, column).ok(),
            (FieldValue::Number(number), _) => number.of_type(column),
        };
        number.map(FieldValue::Number)
    }
}

impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldValue::Number(number) => f.write_str(&number.plain()),
            FieldValue::Text(text) => f.write_str(text),
        }
    }
}

/// A row of values, as many as a table's fields ask for; `None` for a `NULL`.
#[derive(Debug)]
pub struct FieldValues(pub(crate) Vec<Option<FieldValue>>);

impl<DB> QueryableByName<DB> for FieldValues
where
    DB: Backend,
    f64: FromSql<Double, DB>,
    String: FromSql<Text, DB>,
{
    fn build<'a>(row: &impl NamedRow<'a, DB>) -> deserialize::Result<Self> {
        let values = (0..row.field_count()).map(|column| {
            let field = Row::get(row, column).ok_or("a row is shorter than its fields")?;
            let Some(value) = field.value() else {
                return Ok(None);
            };
            Ok(Some(match field.field_name() {
                Some(DOUBLE) => FieldValue::Number(Amount::Double(f64::from_sql(value)?)),
                _ => FieldValue::Text(String::from_sql(value)?),
            }))
        });
        values.collect::<deserialize::Result<_>>().map(FieldValues)
    }
}

//! Sums of a field, whatever its type.

use std::fmt;
use std::ops::AddAssign;

use diesel::result::{Error as DieselError, QueryResult};

use crate::dialect::ColumnType;

/// A sum over many rows of a field, in a type that is wider than the field's own.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Amount {
    /// Of an integer field.
    Integer(i128),
    /// Of a `Double`.
    Double(f64),
    /// Of a `Numeric`.
    #[cfg(feature = "numeric")]
    Numeric(bigdecimal::BigDecimal),
}

impl Amount {
    pub(crate) fn zero(column: ColumnType) -> Self {
        match column {
            ColumnType::Double => Amount::Double(0.0),
            #[cfg(feature = "numeric")]
            ColumnType::Numeric => Amount::Numeric(Default::default()),
            _ => Amount::Integer(0),
        }
    }

    /// Reads what the database shows.
    pub(crate) fn parse(text: &str, column: ColumnType) -> QueryResult<Self> {
        let amount = match column {
            ColumnType::Double => text.parse().map(Amount::Double).ok(),
            #[cfg(feature = "numeric")]
            ColumnType::Numeric => text.parse().map(Amount::Numeric).ok(),
            _ => text.parse().map(Amount::Integer).ok(),
        };
        amount.ok_or_else(|| {
            let message = format!("`{text}` is no number of the type {column:?}");
            DieselError::DeserializationError(message.into())
        })
    }
}

/// Adds up amounts of one field. Those of fields of other types are left out.
impl AddAssign<&Amount> for Amount {
    fn add_assign(&mut self, other: &Amount) {
        match (self, other) {
            (Amount::Integer(sum), Amount::Integer(n)) => *sum = sum.saturating_add(*n),
            (Amount::Double(sum), Amount::Double(n)) => *sum += n,
            #[cfg(feature = "numeric")]
            (Amount::Numeric(sum), Amount::Numeric(n)) => *sum += n,
            _ => {}
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Integer(n) => n.fmt(f),
            Amount::Double(n) => n.fmt(f),
            #[cfg(feature = "numeric")]
            Amount::Numeric(n) => n.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_read_and_added_up() {
        let mut sum = Amount::parse("9223372036854775807", ColumnType::BigInt).unwrap();
        sum += &Amount::parse("1", ColumnType::BigInt).unwrap();
        assert_eq!(sum, Amount::Integer(9_223_372_036_854_775_808));
        assert_eq!(sum.to_string(), "9223372036854775808");
        assert_eq!(
            Amount::parse("-1.5", ColumnType::Double),
            Ok(Amount::Double(-1.5))
        );
        assert!(Amount::parse("x", ColumnType::Integer).is_err());
    }
}

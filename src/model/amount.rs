//! Sums of a field, whatever its type.

use std::fmt;
use std::ops::AddAssign;

use diesel::result::{Error as DieselError, QueryResult};

use super::column::ColumnType;

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

impl Amount {
    /// Whether both are the same number. Where sums round, they may be as far apart as sums of numbers of the size of `among`
    /// come to differ by the order in which a database adds them up.
    pub(crate) fn agrees(&self, other: &Amount, among: &[&Amount], rounds: bool) -> bool {
        if !rounds {
            return self == other;
        }
        let size = |largest: f64, amount: &&Amount| largest.max(amount.to_f64().abs());
        let largest = among.iter().fold(0.0, size);
        (self.to_f64() - other.to_f64()).abs() <= largest * 1e-12
    }

    fn to_f64(&self) -> f64 {
        match self {
            Amount::Integer(n) => *n as f64,
            Amount::Double(n) => *n,
            #[cfg(feature = "numeric")]
            Amount::Numeric(n) => bigdecimal::ToPrimitive::to_f64(n).unwrap_or(f64::INFINITY),
        }
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

    #[test]
    fn only_what_rounds_may_differ() {
        let double = Amount::Double;
        assert!(double(0.1 + 0.2).agrees(&double(0.3), &[&double(0.3)], true));
        assert!(!double(0.1 + 0.2).agrees(&double(0.3), &[&double(0.3)], false));
        assert!(!double(1e9).agrees(&double(1e9 + 1.0), &[&double(1e9)], true));
        let integer = Amount::Integer;
        assert!(integer(3).agrees(&integer(3), &[], false));
        assert!(!integer(3).agrees(&integer(4), &[&integer(1 << 60)], false));
    }
}

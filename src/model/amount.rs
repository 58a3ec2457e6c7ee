//! Sums of a field of any type.

use std::fmt;
use std::ops::AddAssign;

use diesel::result::{Error as DieselError, QueryResult};

use super::column::ColumnType;

/// The sum of a field over many rows, in a type that is wider than the field's own.
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
            ColumnType::Float | ColumnType::Double => Amount::Double(0.0),
            #[cfg(feature = "numeric")]
            ColumnType::Numeric => Amount::Numeric(Default::default()),
            _ => Amount::Integer(0),
        }
    }

    /// Reads the database's text for a number.
    #[doc(hidden)]
    pub fn parse(text: &str, column: ColumnType) -> QueryResult<Self> {
        let amount = match column {
            ColumnType::Float | ColumnType::Double => text.parse().map(Amount::Double).ok(),
            #[cfg(feature = "numeric")]
            ColumnType::Numeric => text.parse().map(Amount::Numeric).ok(),
            _ => text.parse().map(Amount::Integer).ok(),
        };
        amount.ok_or_else(|| {
            let message = format!("`{text}` is no number of the type {column:?}");
            DieselError::DeserializationError(message.into())
        })
    }

    /// Reads the `Debug` of a number [that shows it](super::shown::shows_number).
    pub(crate) fn of_shown(value: &impl fmt::Debug, column: ColumnType) -> Option<Self> {
        let text = format!("{value:#?}");
        // A decimal shows itself as `BigDecimal("150e-2")`.
        let digits = text.split('"').nth(1).unwrap_or(&text);
        Amount::parse(digits, column).ok()
    }

    /// Adds shards to a base. Returns the sum as a column of this type holds it, and the rest that is lost in rounding; both together are
    /// exact.
    pub(crate) fn plus(&self, shards: &Amount, column: ColumnType) -> (Amount, Amount) {
        let mut sum = self.clone();
        sum += shards;
        let rest = match (self, shards, &sum) {
            // Knuth's two-sum: it finds the exact rest, whichever of the two is greater.
            (Amount::Double(base), Amount::Double(shards), Amount::Double(sum)) => {
                let of_shards = sum - base;
                let rest = (base - (sum - of_shards)) + (shards - of_shards);
                Amount::Double(if rest.is_finite() { rest } else { 0.0 })
            }
            _ => Amount::zero(column),
        };
        (sum, rest)
    }

    /// Whether it is neither infinite nor a NaN, so that a column can hold it.
    pub(crate) fn is_finite(&self) -> bool {
        !matches!(self, Amount::Double(n) if !n.is_finite())
    }

    /// Whether both are the same number. Where sums round (`rounds`), they may differ a little: decimals by what the order of addition can
    /// change in a sum of numbers as large as those in `among`, doubles by what old versions of SQLite lose as they read digits.
    pub(crate) fn agrees(&self, other: &Amount, among: &[&Amount], rounds: bool) -> bool {
        match (self, other) {
            _ if !rounds => return self == other,
            (Amount::Double(_), _) => return self.is_close_to(other, 4.0 * f64::EPSILON),
            _ => {}
        }
        let size = |largest: f64, amount: &&Amount| largest.max(amount.to_f64().abs());
        let largest = among.iter().fold(0.0, size);
        (self.to_f64() - other.to_f64()).abs() <= largest * 1e-12
    }

    /// Whether the two differ by at most `relative` times the greater of them.
    pub(crate) fn is_close_to(&self, other: &Amount, relative: f64) -> bool {
        let (one, other) = (self.to_f64(), other.to_f64());
        (one - other).abs() <= one.abs().max(other.abs()) * relative
    }

    /// Converts the number for a field of this type. `None` if the field cannot hold it: an integer field has no fractions.
    pub(crate) fn of_type(&self, column: ColumnType) -> Option<Self> {
        match (Amount::zero(column), self) {
            (Amount::Integer(_), amount) => amount.to_integer().map(Amount::Integer),
            (Amount::Double(_), amount) => Some(Amount::Double(amount.to_f64())),
            #[cfg(feature = "numeric")]
            (Amount::Numeric(_), amount) => amount.to_numeric().map(Amount::Numeric),
        }
    }

    /// The difference of two amounts of one field; `None` if an `i128` cannot hold it.
    pub(crate) fn minus(&self, other: &Amount) -> Option<Amount> {
        match (self, other) {
            (Amount::Integer(n), Amount::Integer(other)) => {
                n.checked_sub(*other).map(Amount::Integer)
            }
            (Amount::Double(n), Amount::Double(other)) => Some(Amount::Double(n - other)),
            #[cfg(feature = "numeric")]
            (Amount::Numeric(n), Amount::Numeric(other)) => Some(Amount::Numeric(n - other)),
            _ => None, // never: both belong to one field
        }
    }

    /// The number as an SQL literal, which every database reads as the type of the column that it is added to; `None` if it is not finite.
    #[doc(hidden)]
    pub fn literal(&self) -> Option<String> {
        match self {
            Amount::Integer(n) => Some(n.to_string()),
            Amount::Double(n) => n.is_finite().then(|| format!("{n:e}")),
            #[cfg(feature = "numeric")]
            Amount::Numeric(n) => Some(n.to_plain_string()),
        }
    }

    /// Its digits without the zeros that only show the scale of a column.
    pub(crate) fn plain(&self) -> String {
        match self {
            #[cfg(feature = "numeric")]
            Amount::Numeric(n) => n.normalized().to_plain_string(),
            other => other.to_string(),
        }
    }

    /// The number as an integer, if it is one.
    pub(crate) fn to_integer(&self) -> Option<i128> {
        match self {
            Amount::Integer(n) => Some(*n),
            // An `i128` holds every integral `Double` below this.
            Amount::Double(n) => (n.fract() == 0.0 && n.abs() < 1e38).then_some(*n as i128),
            #[cfg(feature = "numeric")]
            Amount::Numeric(n) => n
                .is_integer()
                .then(|| bigdecimal::ToPrimitive::to_i128(n))
                .flatten(),
        }
    }

    #[cfg(feature = "numeric")]
    fn to_numeric(&self) -> Option<bigdecimal::BigDecimal> {
        match self {
            Amount::Integer(n) => Some((*n).into()),
            Amount::Double(n) => n.to_string().parse().ok(), // the shortest text that identifies it
            Amount::Numeric(n) => Some(n.clone()),
        }
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

/// Adds an amount of the same field. An amount of another type is ignored.
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
    fn a_number_is_read_as_it_is_shown() {
        let shown = |value: &dyn fmt::Debug, column| Amount::of_shown(&value, column);
        assert_eq!(
            shown(&-7_i64, ColumnType::BigInt),
            Some(Amount::Integer(-7))
        );
        for n in [0.1, -1e300, 5e-324, 1e16] {
            assert_eq!(shown(&n, ColumnType::Double), Some(Amount::Double(n)));
        }
        assert_eq!(shown(&Some(7), ColumnType::BigInt), None);
        #[cfg(feature = "numeric")]
        for n in ["-1.50", "12e30", "0", "0.000000000000000000001"] {
            let n: bigdecimal::BigDecimal = n.parse().unwrap();
            assert_eq!(shown(&n, ColumnType::Numeric), Some(Amount::Numeric(n)));
        }
    }

    #[test]
    fn a_sum_of_doubles_leaves_a_rest() {
        let plus = |base, shards| {
            let double = Amount::Double;
            double(base).plus(&double(shards), ColumnType::Double)
        };
        for (base, shards, sum, rest) in [
            (1e17, 17.0, 1e17 + 16.0, 1.0),
            (1.0, 1e17, 1e17, 1.0),
            (1e300, -5e-324, 1e300, -5e-324),
            (
                0.1,
                0.2,
                0.300_000_000_000_000_04,
                -2.775_557_561_562_891_4e-17,
            ),
            (-1e17, 1e17, 0.0, 0.0),
        ] {
            assert_eq!(
                plus(base, shards),
                (Amount::Double(sum), Amount::Double(rest))
            );
        }
        assert!(!plus(1e308, 1e308).0.is_finite());
        let integer = Amount::Integer(7).plus(&Amount::Integer(-9), ColumnType::BigInt);
        assert_eq!(integer, (Amount::Integer(-2), Amount::Integer(0)));
    }

    #[test]
    fn an_integer_field_has_no_fractions() {
        let integer = |amount: Amount| amount.of_type(ColumnType::Integer);
        assert_eq!(integer(Amount::Integer(7)), Some(Amount::Integer(7)));
        assert_eq!(integer(Amount::Double(-7.0)), Some(Amount::Integer(-7)));
        for n in [0.5, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(integer(Amount::Double(n)), None, "{n}");
        }
        let double = Amount::Integer(7).of_type(ColumnType::Double);
        assert_eq!(double, Some(Amount::Double(7.0)));
    }

    #[cfg(feature = "numeric")]
    #[test]
    fn decimals_are_the_numbers_that_they_are() {
        let decimal = |text: &str| Amount::Numeric(text.parse().unwrap());
        let integer = |amount: Amount| amount.of_type(ColumnType::BigInt);
        assert_eq!(integer(decimal("-12.000")), Some(Amount::Integer(-12)));
        assert_eq!(integer(decimal("0.5")), None);
        let numeric = Amount::Double(0.5).of_type(ColumnType::Numeric);
        assert_eq!(numeric, Some(decimal("0.50")));
    }

    #[test]
    fn close_numbers_differ_by_a_part_of_the_greater() {
        let close = |a, b| Amount::Double(a).is_close_to(&Amount::Double(b), 1e-9);
        assert!(close(1e9, 1e9 + 0.5) && close(0.0, 0.0) && close(-3.0, -3.0));
        assert!(!close(1e9, 1e9 + 1.5) && !close(0.0, 1e-12) && !close(1.0, -1.0));
    }

    #[test]
    fn only_what_rounds_may_differ() {
        let double = Amount::Double;
        assert!(double(0.1 + 0.2).agrees(&double(0.3), &[&double(0.3)], true));
        assert!(!double(0.1 + 0.2).agrees(&double(0.3), &[&double(0.3)], false));
        assert!(!double(1e17).agrees(&double(1e17 + 128.0), &[&double(1e17)], true));
        assert!(!double(1.0).agrees(&double(0.0), &[&double(1e17)], true));
        let integer = Amount::Integer;
        assert!(integer(3).agrees(&integer(3), &[], false));
        assert!(!integer(3).agrees(&integer(4), &[&integer(1 << 60)], false));
    }
}

//! Totals that are not as expected.

use diesel::prelude::*;
use diesel::result::Error as DieselError;

use crate::backend::Dialect;
use crate::error::Error;
use crate::model::{Amount, ColumnType, ShardsColumn};

use super::fields::VerifiedFields;

/// A total that is not what it was expected to be: an `i64` (an `i128` of an `Unsigned<BigInt>`), an `f64` or a `BigDecimal`, or a
/// tuple of them where several fields were compared at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drift<K, N = i64> {
    /// The row's key.
    pub key: K,
    /// The total that was found.
    pub total: N,
    /// The total that was expected.
    pub expected: N,
}

/// How far a total of doubles may be from a recount, as a part of the greater of the two: each adds up in an order of its own.
const TOLERANCE: f64 = 1e-9;

/// Whether a total of this type is not as expected.
pub(crate) fn differs(
    dialect: Dialect,
    column: ColumnType,
    total: &Amount,
    expected: &Amount,
) -> bool {
    total != expected && !(dialect.rounds_sums(column) && total.is_close_to(expected, TOLERANCE))
}

/// A row's totals beside the recounted numbers.
pub(super) struct Compared<K> {
    pub(super) key: K,
    pub(super) totals: Vec<Amount>,
    pub(super) expected: Vec<Amount>,
}

impl<K> Compared<K> {
    /// Whether any total is not as expected.
    pub(super) fn differs(&self, dialect: Dialect, fields: &[&ShardsColumn]) -> bool {
        let mut totals = self.totals.iter().zip(&self.expected).zip(fields);
        totals
            .any(|((total, expected), field)| differs(dialect, field.column_type, total, expected))
    }

    /// The differences that have to be added to the totals.
    pub(super) fn lacks(&self) -> QueryResult<Vec<Amount>> {
        let totals = self.totals.iter().zip(&self.expected);
        let lacks = totals.map(|(total, expected)| expected.minus(total));
        let lacks: Option<Vec<_>> = lacks.collect();
        lacks.ok_or_else(beyond)
    }

    pub(super) fn drift<C, Kind>(self) -> QueryResult<Drift<K, C::Total>>
    where
        C: VerifiedFields<Kind>,
    {
        Ok(Drift {
            total: C::from_amounts(&self.totals)?,
            expected: C::from_amounts(&self.expected)?,
            key: self.key,
        })
    }
}

/// The error of a difference that no statement can add.
pub(super) fn beyond() -> DieselError {
    let source = DieselError::SerializationError("a drift beyond any integer".into());
    Error::Overflow { source }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sums_that_round_may_differ_a_little() {
        let differs = |column, total: f64, expected: f64| {
            let [total, expected] = [total, expected].map(Amount::Double);
            differs(Dialect::Postgres, column, &total, &expected)
        };
        assert!(!differs(ColumnType::Double, 1e9, 1e9 + 0.5));
        assert!(differs(ColumnType::Double, 1e9, 1e9 + 1.5));
        assert!(differs(ColumnType::Numeric, 1e9, 1e9 + 0.5));
    }
}

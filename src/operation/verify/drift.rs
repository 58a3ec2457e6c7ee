//! Totals that are not as expected.

use diesel::prelude::*;
use diesel::result::Error as DieselError;

use crate::error::Error;
use crate::model::{Amount, ShardsColumn};

use super::fields::VerifiedFields;

/// A total that is not what it was expected to be: an `i64`, an `f64` or a `BigDecimal`, or a tuple of them where several fields
/// were compared at once.
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
pub(super) const TOLERANCE: f64 = 1e-9;

/// A row's totals beside the recounted numbers.
pub(super) struct Compared<K> {
    pub(super) key: K,
    pub(super) totals: Vec<Amount>,
    pub(super) expected: Vec<Amount>,
}

impl<K> Compared<K> {
    /// Whether any total is not as expected. `rounds`: whether sums of this field round.
    pub(super) fn differs(
        &self,
        rounds: impl Fn(&ShardsColumn) -> bool,
        fields: &[&ShardsColumn],
    ) -> bool {
        let mut totals = self.totals.iter().zip(&self.expected).zip(fields);
        totals.any(|((total, expected), field)| {
            total != expected && !(rounds(field) && total.is_close_to(expected, TOLERANCE))
        })
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
    use crate::model::ShardedTable;
    use crate::test_schema::videos;

    #[test]
    fn only_sums_that_round_may_differ_a_little() {
        let fields: Vec<_> = videos::table::FIELDS.iter().take(1).collect();
        let differs = |total, expected, rounds| {
            let compared = Compared {
                key: 7,
                totals: vec![total],
                expected: vec![expected],
            };
            compared.differs(|_| rounds, &fields)
        };
        let double = Amount::Double;
        assert!(!differs(double(1e9), double(1e9 + 0.5), true));
        assert!(differs(double(1e9), double(1e9 + 0.5), false));
        assert!(differs(double(1e9), double(1e9 + 1.5), true));
        assert!(differs(Amount::Integer(1), Amount::Integer(2), false));
    }
}

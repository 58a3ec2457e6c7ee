//! What callers add to a field of a counter.

use std::ops::{AddAssign, SubAssign};

use crate::model::Amount;
use crate::query_builder::Addend;

/// The sum of amounts of one field.
#[derive(Debug, Clone)]
pub(crate) enum Sum {
    /// Of integers or decimals.
    Exact(Amount),
    /// The doubles, one by one: a sum of them rounds, so that taking one back would leave another sum than the rest has.
    Doubles(Vec<f64>),
}

impl Sum {
    pub(super) fn of(amount: Amount) -> Self {
        match amount {
            Amount::Double(n) => Sum::Doubles(vec![n]),
            exact => Sum::Exact(exact),
        }
    }

    /// The sum as a statement adds it; `None` if none can.
    pub(super) fn addend(&self) -> Option<Addend> {
        Addend::of(match self {
            Sum::Exact(amount) => amount.clone(),
            Sum::Doubles(all) => Amount::Double(all.iter().sum()),
        })
    }
}

impl AddAssign<&Sum> for Sum {
    fn add_assign(&mut self, other: &Sum) {
        match (self, other) {
            (Sum::Exact(sum), Sum::Exact(n)) => *sum += n,
            (Sum::Doubles(all), Sum::Doubles(more)) => all.extend(more),
            _ => {} // never: both belong to one field
        }
    }
}

/// Takes back what was added.
impl SubAssign<&Sum> for Sum {
    fn sub_assign(&mut self, other: &Sum) {
        match (self, other) {
            (Sum::Exact(sum), Sum::Exact(n)) => {
                if let Some(left) = sum.minus(n) {
                    *sum = left;
                }
            }
            (Sum::Doubles(all), Sum::Doubles(taken)) => {
                for n in taken {
                    let at = all.iter().position(|one| one.to_bits() == n.to_bits());
                    at.map(|at| all.swap_remove(at));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_double_that_is_taken_back_leaves_the_others_exactly() {
        let double = |n| Sum::of(Amount::Double(n));
        let mut sum = double(1.0);
        sum += &double(1e17);
        sum += &double(0.25);
        assert_eq!(sum.addend(), Some(Addend::Double(1e17)));
        sum -= &double(1e17);
        assert_eq!(sum.addend(), Some(Addend::Double(1.25)));
    }

    #[test]
    fn what_does_not_fit_is_left_to_its_callers() {
        let fits = |a: Amount, b: Amount| {
            let mut sum = Sum::of(a);
            sum += &Sum::of(b);
            sum.addend().is_some()
        };
        let (integer, double) = (Amount::Integer, Amount::Double);
        assert!(fits(integer(i64::MAX.into()), integer(-1)));
        assert!(!fits(integer(i64::MAX.into()), integer(1)));
        assert!(fits(double(1e308), double(-1.0)));
        assert!(!fits(double(1e308), double(1e308)));
        assert!(!fits(double(f64::NAN), double(1.0)));
    }
}

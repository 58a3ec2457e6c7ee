//! The greatest and least values of parents that are held, before an operation writes and after it.
//!
//! The database compares such values, and not this crate, which cannot order the times of every type. So base and total are read
//! as texts, and a fold has to leave the total that it found, in the base.

use diesel::query_builder::QueryFragment;

use crate::backend::ShardedBackend;
use crate::connection::{Link, LoadIo};
use crate::model::{Amount, ShardsColumn};
use crate::query_builder::{Fields, ReadPeaks, RowKind};
use crate::unfit::Unfit;

use super::locked::{LockError, LockedKeys};

/// A field of one parent, as texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PeakState {
    /// The column itself.
    pub(crate) base: String,
    /// The greatest or the least of the column and its shards, or of the column and the shard that is held.
    pub(crate) total: String,
}

/// The state of some fields of each locked parent, in key order.
pub(crate) type PeakStates = Vec<Vec<PeakState>>;

impl<K, DB> LockedKeys<'_, K, DB>
where
    K: QueryFragment<DB> + Sync,
    DB: ShardedBackend,
{
    /// Reads the bases and totals of `fields`; nothing if there are none.
    ///
    /// # Errors
    /// [`Unfit::Removed`] if not all parents are there.
    pub(crate) async fn peaks<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        fields: &Fields<'_>,
    ) -> Result<PeakStates, LockError>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        if fields.is_empty() {
            return Ok(vec![]);
        }
        let of = self.rows(RowKind::Parents);
        let read = link.load::<Option<String>, _>(ReadPeaks { of, fields });
        let texts = read.await?;
        if texts.len() != self.parents {
            return Err(LockError::Unfit(0, Unfit::Removed));
        }
        let parents = texts.iter();
        Ok(parents.map(|text| parse(text.as_deref())).collect())
    }

    /// Compares the parents with what they have to hold after a fold: the totals of `before`, in bases and totals.
    ///
    /// # Errors
    /// [`LockError::Unfit`] if anything differs, whatever the reason.
    pub(super) async fn check_peaks<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        fields: &Fields<'_>,
        before: &PeakStates,
    ) -> Result<(), LockError>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        let found = self.peaks(link, fields).await?;
        for (parent, (before, found)) in before.iter().zip(&found).enumerate() {
            if before.len() != found.len() {
                return Err(LockError::Unfit(parent, Unfit::Removed));
            }
            let states = fields.iter().zip(before).zip(found);
            for ((field, before), found) in states {
                if let Some(unfit) = difference(field, before, found) {
                    return Err(LockError::Unfit(parent, unfit));
                }
            }
        }
        Ok(())
    }
}

/// Reads what [`ReadPeaks`] gives of one parent.
fn parse(text: Option<&str>) -> Vec<PeakState> {
    let mut values = text.unwrap_or_default().split(' ').map(str::to_owned);
    let mut states = vec![];
    while let (Some(base), Some(total)) = (values.next(), values.next()) {
        states.push(PeakState { base, total });
    }
    states
}

/// The difference between what a base and a total were to hold and what they hold, if there is one.
fn difference(field: &ShardsColumn, before: &PeakState, found: &PeakState) -> Option<Unfit> {
    let is_same = |one: &str, other: &str| one == other || is_same_number(field, one, other);
    let expected = &before.total;
    let name = field.name.to_string();
    if is_same(&found.base, expected) && is_same(&found.total, expected) {
        return None;
    }
    if is_same(&found.base, &before.base) && !is_same(&before.base, expected) {
        return Some(Unfit::NotWritten { field: name });
    }
    let is_base = !is_same(&found.base, expected);
    let found = if is_base { &found.base } else { &found.total };
    Some(Unfit::Altered {
        field: name,
        expected: expected.clone(),
        found: found.clone(),
    })
}

/// Whether both texts show the same number, as `1.50` and `1.5` do.
fn is_same_number(field: &ShardsColumn, one: &str, other: &str) -> bool {
    let number = |text: &str| Amount::parse(text, field.column_type).ok();
    number(one).is_some_and(|one| number(other).as_ref() == Some(&one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ShardedTable;
    use crate::test_schema::players::table as players;

    fn state(base: &str, total: &str) -> PeakState {
        PeakState {
            base: base.to_owned(),
            total: total.to_owned(),
        }
    }

    #[test]
    fn states_are_pairs_of_values() {
        let states = parse(Some("7 9 2026-01-01T10:00:00 NULL"));
        assert_eq!(
            states,
            [state("7", "9"), state("2026-01-01T10:00:00", "NULL")]
        );
        assert_eq!(parse(None), []);
    }

    #[test]
    fn a_fold_leaves_the_total_in_the_base() {
        let fields = players::FIELDS;
        let difference = |field: usize, before, found| difference(&fields[field], &before, &found);
        assert_eq!(difference(1, state("7", "9"), state("9", "9")), None);
        assert_eq!(
            difference(1, state("NULL", "NULL"), state("NULL", "NULL")),
            None
        );
        assert_eq!(
            difference(3, state("NULL", "1.50"), state("1.5", "1.5")),
            None
        );
        assert!(matches!(
            difference(1, state("7", "9"), state("7", "9")),
            Some(Unfit::NotWritten { field }) if field == "best"
        ));
        assert!(matches!(
            difference(2, state("a", "b"), state("c", "c")),
            Some(Unfit::Altered { field, expected, found }) if field == "last_game" && expected == "b" && found == "c"
        ));
        // A shard came to hold more than was folded.
        assert!(matches!(
            difference(1, state("7", "9"), state("9", "11")),
            Some(Unfit::Altered { found, .. }) if found == "11"
        ));
    }
}

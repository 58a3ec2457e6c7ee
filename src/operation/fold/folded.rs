//! The result of a fold.

use std::fmt;

use crate::engine::zeros;
use crate::model::{Amount, ShardedColumn, ShardedTable};

use crate::unfit::Unfit;

/// The result of a fold: counts, amounts, and the parents that it left.
#[non_exhaustive]
pub struct Folded<T: ShardedTable> {
    /// How many parents had something to move.
    pub parents: u64,
    /// How many empty shards were removed.
    pub shards_removed: u64,
    /// The key of the last parent that was looked at, for [`after`](crate::operation::Fold::after).
    pub last: Option<T::Key>,
    /// Whether it came to the end of the rows.
    pub finished: bool,
    /// The keys of parents whose bases do not take what their shards hold, and why: a total out of the column's range, a scale
    /// that is too small, an update that row security or a trigger suppresses. Their totals are as they were.
    pub unfit: Vec<(T::Key, Unfit)>,
    /// The keys of parents some of whose shards others held all the time: fold these again later.
    pub busy: Vec<T::Key>,
    /// For each of `T::FIELDS`.
    pub(super) moved: Vec<Amount>,
}

impl<T: ShardedTable> Folded<T> {
    pub(super) fn nothing(last: Option<T::Key>) -> Self {
        Folded {
            parents: 0,
            shards_removed: 0,
            last,
            finished: false,
            unfit: vec![],
            busy: vec![],
            moved: zeros(T::FIELDS),
        }
    }

    /// How much was moved from the shards of a field to its base, over all parents.
    pub fn moved<C: ShardedColumn<Table = T>>(&self, _field: C) -> Amount {
        let fields = T::FIELDS.iter().zip(&self.moved);
        fields
            .filter(|(field, _)| field.name == C::NAME)
            .map(|(_, amount)| amount.clone())
            .next()
            .unwrap_or(Amount::Integer(0)) // every sharded column is a field
    }

    pub(super) fn add(&mut self, batch: Self) {
        self.parents += batch.parents;
        self.shards_removed += batch.shards_removed;
        self.unfit.extend(batch.unfit);
        self.busy.extend(batch.busy);
        for (sum, moved) in self.moved.iter_mut().zip(&batch.moved) {
            *sum += moved;
        }
    }
}

impl<T: ShardedTable<Key: fmt::Debug>> fmt::Debug for Folded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folded")
            .field("parents", &self.parents)
            .field("shards_removed", &self.shards_removed)
            .field("last", &self.last)
            .field("finished", &self.finished)
            .field("unfit", &self.unfit)
            .field("busy", &self.busy)
            .field("moved", &self.moved)
            .finish()
    }
}

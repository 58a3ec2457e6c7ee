//! The result of a fold.

use std::fmt;
use std::marker::PhantomData;

use crate::engine::{Moved, zeros};
use crate::model::{Amount, ShardedColumn, ShardedTable, ShardsColumn};
use crate::unfit::Unfit;

/// The result of a fold of `T`: counts, amounts, and the parents that it left, by their keys.
#[non_exhaustive]
pub struct Folded<T, K = <T as ShardedTable>::Key> {
    /// How many parents had something to move.
    pub parents: u64,
    /// How many empty shards were removed.
    pub shards_removed: u64,
    /// The key of the last parent that was looked at, for [`after`](crate::operation::Fold::after).
    pub last: Option<K>,
    /// Whether the fold reached the end of the rows.
    pub finished: bool,
    /// The keys of parents whose bases do not accept the values of their shards, and why: a total out of the column's range, a
    /// scale that is too small, an update that row security or a trigger suppresses. Their totals are as they were.
    pub unfit: Vec<(K, Unfit)>,
    /// The keys of parents with shards that others had locked all the time. Fold these parents again later.
    pub busy: Vec<K>,
    /// How many parents were looked at.
    pub(in crate::operation) looked_at: u64,
    /// For each of the fields.
    pub(in crate::operation) moved: Vec<Amount>,
    table: PhantomData<fn() -> T>,
}

impl<T, K> Folded<T, K> {
    pub(in crate::operation) fn nothing(fields: &[ShardsColumn], last: Option<K>) -> Self {
        Folded {
            parents: 0,
            shards_removed: 0,
            last,
            finished: false,
            unfit: vec![],
            busy: vec![],
            looked_at: 0,
            moved: zeros(fields),
            table: PhantomData,
        }
    }

    pub(super) fn add(&mut self, moved: &Moved, removed: usize) {
        self.parents += moved.parents as u64;
        self.shards_removed += removed as u64;
        for (sum, moved) in self.moved.iter_mut().zip(&moved.sums) {
            *sum += moved;
        }
    }
}

impl<T: ShardedTable> Folded<T> {
    /// How much was moved from the shards of a field to its base, over all parents.
    pub fn moved<C: ShardedColumn<Table = T>>(&self, _field: C) -> Amount {
        let fields = T::FIELDS.iter().zip(&self.moved);
        fields
            .filter(|(field, _)| field.name == C::NAME)
            .map(|(_, amount)| amount.clone())
            .next()
            .unwrap_or(Amount::Integer(0)) // every sharded column is a field
    }
}

impl<T, K: fmt::Debug> fmt::Debug for Folded<T, K> {
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

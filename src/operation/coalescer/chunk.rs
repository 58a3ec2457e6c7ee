//! The statements of a batch.

use std::collections::HashSet;

use super::lane::EntryId;
use crate::operation::count_many::Rung;

/// The entries of one lane that one statement counts on.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) lane: usize,
    pub(super) entries: Vec<usize>,
    pub(super) rung: Rung,
}

impl Chunk {
    pub(super) fn new(lane: usize, entries: Vec<usize>) -> Self {
        Chunk {
            lane,
            entries,
            rung: Rung::Together,
        }
    }
}

/// The amount to be added to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntrySum {
    pub(super) entry: usize,
    /// The sum over all callers, whether they wait or not.
    pub(super) sum: i128,
}

impl EntrySum {
    /// The sums as binds of a statement; `None` if one of them is too large for that.
    pub(super) fn as_binds(sums: &[EntrySum]) -> Option<Vec<(usize, i64)>> {
        let bind = |sum: &EntrySum| Some((sum.entry, i64::try_from(sum.sum).ok()?));
        sums.iter().map(bind).collect()
    }
}

/// The entries of these chunks.
pub(super) fn entries_of(part: &[Chunk]) -> HashSet<EntryId> {
    let ids = |chunk: &Chunk| {
        let lane = chunk.lane;
        let id = move |entry| EntryId { lane, entry };
        chunk.entries.clone().into_iter().map(id)
    };
    part.iter().flat_map(ids).collect()
}

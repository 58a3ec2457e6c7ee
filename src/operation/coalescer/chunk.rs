//! The statements of a batch.

use std::collections::HashSet;

use super::lane::EntryId;

/// The entries of one lane that one statement counts on.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) lane: usize,
    pub(super) entries: Vec<usize>,
    pub(super) mode: Mode,
    /// Entries without a row. In every mode each is counted by itself.
    pub(super) alone: HashSet<usize>,
}

impl Chunk {
    pub(super) fn new(lane: usize, entries: Vec<usize>) -> Self {
        Chunk {
            lane,
            entries,
            mode: Mode::Together,
            alone: HashSet::new(),
        }
    }
}

/// How a chunk is counted. Each mode costs more than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// In one statement; all shards exist.
    Together,
    /// In one statement that creates the missing shards, where the batch commits at once; else as [`Creating`](Mode::Creating).
    Upserting,
    /// In one statement, after another one that creates the missing shards.
    Creating,
    /// Each entry by itself, since some row cannot take its amount.
    EachAlone,
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

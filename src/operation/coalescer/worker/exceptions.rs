//! The results that differ from the usual one.

use std::collections::HashMap;

use crate::operation::coalescer::added::CallerResult;
use crate::operation::coalescer::lane::EntryId;
use crate::operation::coalescer::loss::Loss;

/// The results of an attempt that differ from the usual one, which is that an entry counts on one row.
#[derive(Default)]
pub(super) struct Exceptions {
    pub(super) rows: HashMap<EntryId, usize>,
    pub(super) callers: Vec<(usize, CallerResult)>,
    pub(super) losses: Vec<Loss>,
}

impl Exceptions {
    pub(super) fn rows_of(&self, entry: EntryId) -> usize {
        self.rows.get(&entry).copied().unwrap_or(1)
    }
}

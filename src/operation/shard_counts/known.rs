//! The numbers as this process knows them.

use std::collections::HashMap;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use super::number::ShardCount;
use crate::model::ShardedTable;
use crate::per_process::{PerProcess, inherited};

/// The number of shards that an update of `fields` chooses from in this process.
pub(crate) fn known<'f, T: ShardedTable>(fields: impl Iterator<Item = &'f str>) -> u16 {
    let known = known_for_reading();
    if known.numbers.is_empty() {
        return T::SHARDS;
    }
    fields
        .map(|field| {
            known
                .number(T::SHARDS_TABLE.as_str(), field.as_bytes())
                .unwrap_or(T::SHARDS)
        })
        .max()
        .unwrap_or(T::SHARDS)
}

impl ShardCount {
    /// The number that a writer of this process chooses from.
    pub(crate) fn known(&self) -> u16 {
        let known = known_for_reading();
        known
            .number(&self.table, &self.counter)
            .unwrap_or(self.default)
    }

    /// Uses `number` in this process from now on.
    pub(super) fn learn(&self, number: u16) {
        let mut known = known_for_writing();
        known.insert(self.table.as_bytes().into(), self.counter.clone(), number);
        known.changes += 1;
    }

    /// Uses the default in this process from now on.
    pub(super) fn unlearn(&self) {
        if let Some(counters) = known_for_writing().numbers.get_mut(self.table.as_bytes()) {
            counters.remove(&self.counter);
        }
    }
}

/// The numbers in the library's table when it was last read, by shards table and by counter. A number that nobody ever changed
/// takes no room.
#[derive(Clone, Default)]
pub(super) struct Known {
    pub(super) numbers: HashMap<Vec<u8>, HashMap<Vec<u8>, u16>>,
    /// How often one of them was changed here: what was read before that is old.
    pub(super) changes: u64,
    /// When all of them were read, or began to be.
    pub(super) read: Option<Instant>,
}

static KNOWN: PerProcess<RwLock<Known>> =
    PerProcess::new(|parents| RwLock::new(inherited(parents).unwrap_or_default()));

impl Known {
    fn number(&self, table: &str, counter: &[u8]) -> Option<u16> {
        self.numbers.get(table.as_bytes())?.get(counter).copied()
    }

    pub(super) fn insert(&mut self, table: Vec<u8>, counter: Vec<u8>, number: u16) {
        self.numbers
            .entry(table)
            .or_default()
            .insert(counter, number);
    }
}

pub(super) fn known_for_reading() -> RwLockReadGuard<'static, Known> {
    KNOWN.read()
}

pub(super) fn known_for_writing() -> RwLockWriteGuard<'static, Known> {
    KNOWN.write()
}

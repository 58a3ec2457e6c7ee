//! The truth that operations are judged by: which of them took effect, and the totals that follow.

use std::collections::BTreeMap;

use crate::rows::RowId;

/// An operation's intended change of a parent's total, recorded when its transaction writes, and entered when it commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Effect {
    /// The session that acts.
    pub session: usize,
    /// The parent.
    pub parent: RowId,
    /// The change of its total.
    pub change: Change,
}

/// A change of a total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// A count.
    Add(i8),
    /// A count that must not lead below this bound.
    AddWithin(i8, i8),
    /// A new total.
    Set(i8),
}

/// The effects of all committed transactions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Ledger {
    /// The right total of each parent.
    pub totals: BTreeMap<RowId, i8>,
    /// How many effects of each session were committed.
    pub landed: BTreeMap<usize, u8>,
    /// A bounded count was committed that led out of its bounds.
    pub left_bounds: bool,
}

impl Ledger {
    /// Enters a committed effect.
    pub fn enter(&mut self, effect: Effect) {
        let Effect {
            session,
            parent,
            change,
        } = effect;
        *self.landed.entry(session).or_default() += 1;
        let Some(total) = self.totals.get_mut(&parent) else {
            return; // a count on a shard without a parent, which is a fault of its own
        };
        match change {
            Change::Add(n) => *total += n,
            Change::AddWithin(n, least) => {
                *total += n;
                self.left_bounds |= n < 0 && *total < least;
            }
            Change::Set(value) => *total = value,
        }
    }

    /// How many effects of this session were committed.
    pub fn landed(&self, session: usize) -> u8 {
        self.landed.get(&session).copied().unwrap_or(0)
    }
}

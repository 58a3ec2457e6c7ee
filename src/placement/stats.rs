//! How often counts met others, and the warning that more shards would help.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::observe;

/// How often [`Adaptive`](super::ShardChoice::Adaptive) met other counts in this process; see
/// [`ShardChoice::stats`](super::ShardChoice::stats).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ShardChoiceStats {
    /// Counts that found every shard of their key taken by other counts of this process: more shards would help. A warning says
    /// so too, at most once a minute for each shards table. The warning goes to `tracing` if a subscriber listens, else to `log`;
    /// see [`observability`](crate::observability).
    pub crowded: u64,
    /// How often a key became hot: a count on it met another one.
    pub hot: u64,
    /// How often a count asked whether the first shard is locked.
    pub probes: u64,
}

#[derive(Debug, Default)]
pub(super) struct ChoiceCounters {
    pub(super) crowded: AtomicU64,
    pub(super) hot: AtomicU64,
    pub(super) probes: AtomicU64,
}

impl ChoiceCounters {
    pub(super) fn get(&self) -> ShardChoiceStats {
        ShardChoiceStats {
            crowded: self.crowded.load(Ordering::Relaxed),
            hot: self.hot.load(Ordering::Relaxed),
            probes: self.probes.load(Ordering::Relaxed),
        }
    }
}

const INTERVAL: Duration = Duration::from_secs(60);

/// When each shards table was last warned of.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    last: Mutex<HashMap<&'static str, Instant>>,
}

impl Warnings {
    pub(super) fn crowded(&self, table: &'static str, shards: u16, now: Instant) {
        observe::crowded(table);
        if self.is_due(table, now) {
            observe::more_shards_would_help(table, shards);
        }
    }

    fn is_due(&self, table: &'static str, now: Instant) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |warned: &Instant| now.saturating_duration_since(*warned) >= INTERVAL;
        if !last.get(table).is_none_or(is_old) {
            return false;
        }
        last.insert(table, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_a_minute_for_each_table() {
        let (warnings, now) = (Warnings::default(), Instant::now());
        let due = |table, seconds| warnings.is_due(table, now + Duration::from_secs(seconds));
        assert_eq!(
            [due("a", 0), due("b", 1), due("a", 59)],
            [true, true, false]
        );
        assert_eq!(
            [due("a", 60), due("a", 61), due("b", 60)],
            [true, false, false]
        );
    }
}

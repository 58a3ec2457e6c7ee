//! The ways to choose a shard, how often increments met others, and the warning that more shards would help.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::keys::Recent;
use super::process::Process;
use crate::observe;

/// How counting updates choose their shards: for a whole process, or for
/// [one update](crate::operation::UpdateStatement::shard_choice).
///
/// Any choice is right, because readers add up all shards that exist. Processes may choose differently, and the choice may change
/// at any time.
///
/// ```
/// use diesel_sharded::shard_choice::ShardChoice;
///
/// ShardChoice::Striped.set_global();
/// assert_eq!(ShardChoice::global(), ShardChoice::Striped);
/// # ShardChoice::default().set_global();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ShardChoice {
    /// As many shards of a key as it has writers at once; see [`shard_choice`](crate::shard_choice). On SQLite, which has one writer at a time,
    /// the first shard. The default.
    #[default]
    Adaptive,
    /// Each thread keeps to its own shard, the same for all keys, until it meets a conflict. Then it keeps to another. This is
    /// the least work for the process. Each key has as many shards as threads ever counted on it.
    Striped,
    /// A random shard for each attempt, by [`RetryPolicy::with_random`](crate::retry::RetryPolicy::with_random) if that is set.
    /// In the end each key has all its shards.
    Random,
}

static PROCESS_WIDE: AtomicU8 = AtomicU8::new(ShardChoice::Adaptive as u8);

impl ShardChoice {
    /// Makes this the choice of every counting update in this process that has no choice of its own.
    pub fn set_global(self) {
        PROCESS_WIDE.store(self as u8, Ordering::Relaxed);
    }

    /// The choice of counting updates that have no choice of their own.
    pub fn global() -> Self {
        let number = PROCESS_WIDE.load(Ordering::Relaxed);
        [ShardChoice::Striped, ShardChoice::Random]
            .into_iter()
            .find(|choice| *choice as u8 == number)
            .unwrap_or_default()
    }

    /// How often [`Adaptive`](Self::Adaptive) has met other increments in this process so far.
    ///
    /// ```
    /// use diesel_sharded::shard_choice::ShardChoice;
    ///
    /// let before = ShardChoice::stats();
    /// // …
    /// let crowded = ShardChoice::stats().crowded - before.crowded;
    /// assert_eq!(crowded, 0, "more shards would help");
    /// ```
    pub fn stats() -> ShardChoiceStats {
        Process::this().stats.get()
    }
}

/// How often [`Adaptive`](super::ShardChoice::Adaptive) met other increments in this process; see
/// [`ShardChoice::stats`](super::ShardChoice::stats).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ShardChoiceStats {
    /// Increments that found every shard of their key taken by others of this process: more shards would help. A warning says
    /// so too, at most once a minute for each shards table. The warning goes to `tracing` if a subscriber listens, else to `log`;
    /// see [`observability`](crate::observability).
    pub crowded: u64,
    /// How often a key became hot: an increment on it met another one.
    pub hot: u64,
    /// How often an increment asked whether the first shard is locked.
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

const BETWEEN_WARNINGS: Duration = Duration::from_secs(60);

/// The shards tables recently warned about.
#[derive(Debug)]
pub(super) struct Warnings(Mutex<Recent<&'static str, ()>>);

impl Warnings {
    pub(super) fn new() -> Self {
        Warnings(Mutex::new(Recent::new(BETWEEN_WARNINGS)))
    }

    /// Notes that increments met on each shard of a key.
    pub(super) fn crowded(&self, table: &'static str, shards: u16, now: Instant) {
        observe::crowded(table);
        if self.is_due(table, now) {
            observe::more_shards_would_help(table, shards);
        }
    }

    fn is_due(&self, table: &'static str, now: Instant) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.begins(table, (), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_a_minute_for_each_table() {
        let (warnings, now) = (Warnings::new(), Instant::now());
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

//! The ways to choose a shard.

use std::sync::atomic::{AtomicU8, Ordering};

use super::process::Process;
use super::stats::ShardChoiceStats;

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

    /// How often [`Adaptive`](Self::Adaptive) has met other counts in this process so far.
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

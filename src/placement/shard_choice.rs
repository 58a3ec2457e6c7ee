//! The ways to choose a shard.

use std::sync::atomic::{AtomicU8, Ordering};

use super::process::Process;
use super::stats::ShardChoiceStats;

/// How counting updates choose their shards: all of a process, or [one](crate::operation::UpdateStatement::shard_choice).
///
/// Any choice is right, since readers add up whatever shards there are. Processes may differ in it, and it may change at any
/// time.
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
    /// Each thread keeps to a shard of its own, the same for all keys, until it meets a conflict; then it keeps to another. The
    /// least work for the process; each key has as many shards as threads ever counted on it.
    Striped,
    /// A random shard for each attempt, by [`RetryPolicy::with_random`](crate::retry::RetryPolicy::with_random) where that was given. Each
    /// key comes to have all its shards.
    Random,
}

static PROCESS_WIDE: AtomicU8 = AtomicU8::new(ShardChoice::Adaptive as u8);

impl ShardChoice {
    /// Makes this the choice of every counting update in this process that is given none of its own.
    pub fn set_global(self) {
        PROCESS_WIDE.store(self as u8, Ordering::Relaxed);
    }

    /// The choice of counting updates that are given none of their own.
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

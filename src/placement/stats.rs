//! How often counts met others.

use std::sync::atomic::{AtomicU64, Ordering};

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

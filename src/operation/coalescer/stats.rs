//! The statistics of a coalescer.

use std::time::Duration;

/// The contents of a [`Coalescer`](super::Coalescer)'s queue, and its work since it was built.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Counters that wait to be flushed.
    pub queued_counters: usize,
    /// Callers that wait for the next flush, besides those of the one that is under way.
    pub queued_callers: usize,
    /// Flushes that have ended.
    pub flushes: u64,
    /// Counters in all these flushes, each once a flush.
    pub flushed_counters: u64,
    /// Callers of all these flushes.
    pub flushed_callers: u64,
    /// Counters in the largest flush.
    pub largest_flush: usize,
    /// The time that all flushes took.
    pub flush_time: Duration,
    /// The time that the longest one took.
    pub longest_flush: Duration,
    /// Transactions that ended in a conflict and were retried.
    pub conflicts: u64,
    /// Connections that were lost before COMMIT.
    pub connections_lost: u64,
    /// Connections that were lost while COMMIT was in flight, and whose outcome the batch's mark in the database resolved.
    pub commits_resolved: u64,
    /// Counters that lost additions that nobody waited for; see [`on_loss`](super::CoalescerBuilder::on_loss).
    pub losses: u64,
    /// Panics of the worker, which continued after each.
    pub panics: u64,
    /// Why the last failed attempt failed.
    pub last_error: Option<String>,
}

impl Stats {
    pub(super) fn flushed(&mut self, time: Duration, counters: usize, callers: usize) {
        self.flushes += 1;
        self.flushed_counters += counters as u64;
        self.flushed_callers += callers as u64;
        self.largest_flush = self.largest_flush.max(counters);
        self.flush_time += time;
        self.longest_flush = self.longest_flush.max(time);
    }
}

//! Leaving out a cache that failed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Whether a cache is in use, or left out after a failure.
///
/// When a pause is over, one operation tries the cache and the others still leave it out: a cache that answers by timeouts
/// then delays one operation in each pause, not all that happen to come.
#[derive(Debug)]
pub(super) struct Pause {
    start: Instant,
    /// The end of the pause in nanoseconds after `start`, or [`IN_USE`].
    end: AtomicU64,
}

/// No end: nothing failed, or the try after the last failure succeeded.
const IN_USE: u64 = 0;

/// Whether an operation may use the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Use the cache.
    Use,
    /// Use the cache, and report by [`Pause::ended`] if it works again.
    Try,
    /// Leave the cache out.
    LeaveOut,
}

impl Pause {
    pub(super) fn new(now: Instant) -> Self {
        Pause {
            start: now,
            end: AtomicU64::new(IN_USE),
        }
    }

    /// The turn of an operation at `now`; `length` is that of the next pause.
    pub(super) fn turn(&self, now: Instant, length: Duration) -> Turn {
        let end = self.end.load(Ordering::Relaxed);
        if end == IN_USE {
            return Turn::Use;
        }
        let next = self.end_of(now, length);
        let mine = end <= self.nanos(now)
            && self
                .end
                .compare_exchange(end, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if mine { Turn::Try } else { Turn::LeaveOut }
    }

    /// The cache failed at `now`.
    pub(super) fn begin(&self, now: Instant, length: Duration) {
        self.end.store(self.end_of(now, length), Ordering::Relaxed);
    }

    /// The cache works again.
    pub(super) fn ended(&self) {
        self.end.store(IN_USE, Ordering::Relaxed);
    }

    fn end_of(&self, now: Instant, length: Duration) -> u64 {
        let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        self.nanos(now).saturating_add(length).max(IN_USE + 1)
    }

    fn nanos(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.start);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_failure_leaves_the_cache_out_until_it_works_again() {
        let start = Instant::now();
        let pause = Pause::new(start);
        assert_eq!(pause.turn(start, SECOND), Turn::Use);
        pause.begin(start, SECOND);
        let before = start + SECOND.mul_f64(0.99);
        assert_eq!(pause.turn(before, SECOND), Turn::LeaveOut);
        assert_eq!(pause.turn(start + SECOND, SECOND), Turn::Try);
        assert_eq!(pause.turn(start + SECOND, SECOND), Turn::LeaveOut);
        pause.ended();
        assert_eq!(pause.turn(start + SECOND, SECOND), Turn::Use);
    }

    #[test]
    fn an_attempt_that_never_ends_is_followed_by_another() {
        let start = Instant::now();
        let pause = Pause::new(start);
        pause.begin(start, SECOND);
        assert_eq!(pause.turn(start + SECOND, SECOND), Turn::Try);
        assert_eq!(pause.turn(start + 2 * SECOND, SECOND), Turn::Try);
    }

    #[test]
    fn a_pause_may_have_any_length() {
        let start = Instant::now();
        let pause = Pause::new(start);
        pause.begin(start, Duration::ZERO);
        let soon = start + Duration::from_nanos(1);
        assert_eq!(pause.turn(soon, Duration::MAX), Turn::Try);
        pause.begin(soon, Duration::MAX);
        assert_eq!(pause.turn(start + SECOND, SECOND), Turn::LeaveOut);
    }
}

//! Which counts were slow, and how often a count asks why.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The kind of a count that was timed: only times of one kind can be compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CountKind {
    /// It commits by itself.
    pub(crate) commits: bool,
    /// It reads the row too.
    pub(crate) loads: bool,
    /// It claims an idempotency key too.
    pub(crate) claims: bool,
}

impl CountKind {
    /// The number of kinds.
    pub(super) const NUMBER: usize = 8;

    pub(super) fn index(self) -> usize {
        usize::from(self.commits) + 2 * usize::from(self.loads) + 4 * usize::from(self.claims)
    }
}

/// The shortest time that counts take, in nanoseconds. It rises by a thousandth with each longer count, so that it follows a server
/// that became slower. Threads may overwrite each other's values, which are much the same.
#[derive(Debug)]
pub(super) struct ShortestTime(AtomicU64);

/// A count that takes so much longer than the shortest one is never slow: servers and clients lose as much between two tasks.
const TOLERATED: u64 = 200_000;

impl Default for ShortestTime {
    fn default() -> Self {
        ShortestTime(AtomicU64::new(u64::MAX))
    }
}

impl ShortestTime {
    /// Whether a count that took so long may have waited for another one: it took longer than the shortest by half. Two writers
    /// that take turns take twice as long as one.
    pub(super) fn is_exceeded_by(&self, time: Duration) -> bool {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let shortest = self.0.load(Ordering::Relaxed);
        let rises = shortest.saturating_add(shortest / 1024 + 1);
        self.0.store(time.min(rises), Ordering::Relaxed);
        time.saturating_sub(shortest) > (shortest / 2).max(TOLERATED)
    }
}

/// Lets something happen now and then.
#[derive(Debug)]
pub(super) struct Pace {
    epoch: Instant,
    /// In milliseconds since the epoch.
    next: AtomicU64,
}

/// 20 times a second.
const INTERVAL_MILLIS: u64 = 50;

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Pace {
            epoch: now,
            next: AtomicU64::new(0),
        }
    }

    /// Whether it may happen now; if so, the next time is an interval later.
    pub(super) fn take(&self, now: Instant) -> bool {
        let now = now.saturating_duration_since(self.epoch).as_millis() as u64;
        let next = self.next.load(Ordering::Relaxed);
        now >= next
            && self
                .next
                .compare_exchange(
                    next,
                    now + INTERVAL_MILLIS,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_slow_against_the_shortest() {
        let shortest = ShortestTime::default();
        let waited = |micros| shortest.is_exceeded_by(Duration::from_micros(micros));
        assert!(!waited(1000)); // the first
        assert!(!waited(1400));
        assert!(waited(1600));
        assert!(!waited(20));
        assert!(!waited(200)); // ten times as long, and still nothing
        assert!(waited(300));
    }

    #[test]
    fn a_server_that_became_slower_for_good_is_not_slow_for_ever() {
        let shortest = ShortestTime::default();
        let waited = |micros| shortest.is_exceeded_by(Duration::from_micros(micros));
        waited(1000);
        let slow = (0..).take_while(|_| waited(3000)).count();
        assert!((500..2000).contains(&slow), "{slow}");
    }

    #[test]
    fn a_pace_is_kept() {
        let now = Instant::now();
        let pace = Pace::new(now);
        let after = |millis| pace.take(now + Duration::from_millis(millis));
        assert_eq!(
            [after(0), after(1), after(49), after(50)],
            [true, false, false, true]
        );
        assert_eq!([after(1000), after(1001)], [true, false]);
    }
}

//! Which keys have writers that meet, and which increments were slow.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::keys::{ByKey, Recent};

/// How long a key stays slow or contended.
const REMEMBERED: Duration = Duration::from_secs(60);

/// How likely an increment on a key is to meet another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contention {
    Idle,
    /// An increment on it was slow.
    Slow,
    /// An increment on it met another one.
    Contended,
}

/// The contention of keys, by their hashes.
#[derive(Debug)]
pub(super) struct Contentions(ByKey<Recent<u64, Contention>>);

impl Contentions {
    pub(super) fn new() -> Self {
        Contentions(ByKey::new(|| Recent::new(REMEMBERED)))
    }

    pub(super) fn get(&self, key: u64, now: Instant) -> Contention {
        self.0.lock(key).get(key, now).unwrap_or(Contention::Idle)
    }

    pub(super) fn set(&self, key: u64, contention: Contention, now: Instant) {
        let mut keys = self.0.lock(key);
        match contention {
            Contention::Idle => keys.remove(key),
            contention => keys.insert(key, contention, now),
        }
    }
}

/// A key with more increments in a second than this may be locked when the next one arrives.
const OFTEN: f64 = 10.0;

/// How often keys are counted on, by their hashes.
#[derive(Debug)]
pub(super) struct Rates(ByKey<Recent<u64, Rate>>);

#[derive(Debug, Clone, Copy)]
struct Rate {
    /// The increments, each of which halves in a second.
    counts: f64,
    last: Instant,
}

impl Rates {
    pub(super) fn new() -> Self {
        // After ten seconds a thousandth of an increment is left.
        Rates(ByKey::new(|| Recent::new(Duration::from_secs(10))))
    }

    /// Records another increment on the key. Returns whether it is counted on often.
    pub(super) fn counts_often(&self, key: u64, now: Instant) -> bool {
        let mut keys = self.0.lock(key);
        let before = keys.get(key, now).map_or(0.0, |rate| {
            let seconds = now.saturating_duration_since(rate.last).as_secs_f64();
            rate.counts * (-seconds).exp2()
        });
        let counts = before + 1.0;
        keys.insert(key, Rate { counts, last: now }, now);
        counts * std::f64::consts::LN_2 > OFTEN
    }
}

/// The kind of an increment that was timed: only times of one kind can be compared.
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
    pub(super) const KINDS: usize = 8;

    pub(super) fn index(self) -> usize {
        usize::from(self.commits) + 2 * usize::from(self.loads) + 4 * usize::from(self.claims)
    }
}

/// The shortest time that increments take, in nanoseconds. It rises by a thousandth with each longer one, so that it follows a server
/// that became slower. Threads may overwrite each other's values, which are nearly equal.
#[derive(Debug)]
pub(super) struct ShortestTime(AtomicU64);

/// An increment that exceeds the shortest time by no more than this is never slow: servers and clients lose as much between two tasks.
const TOLERATED: u64 = 200_000;

impl Default for ShortestTime {
    fn default() -> Self {
        ShortestTime(AtomicU64::new(u64::MAX))
    }
}

impl ShortestTime {
    /// Whether an increment that took this long may have waited for another one: it exceeded the shortest time by more than half. Two writers
    /// that take turns take twice as long as one.
    pub(super) fn is_exceeded_by(&self, time: Duration) -> bool {
        if time.is_zero() {
            return false; // a clock that went back
        }
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let shortest = self.0.load(Ordering::Relaxed);
        let rises = shortest.saturating_add(shortest / 1024 + 1);
        self.0.store(time.min(rises), Ordering::Relaxed);
        time.saturating_sub(shortest) > (shortest / 2).max(TOLERATED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_counted_on_often_or_seldom() {
        let start = Instant::now();
        let often = |each: u64| {
            let rates = Rates::new();
            let mut counts = (0..200).map(|n| start + Duration::from_millis(n * each));
            counts.any(|now| rates.counts_often(7, now))
        };
        assert_eq!([50, 90, 110, 1_000].map(often), [true, true, false, false]);
        // Each of two keys by itself.
        let rates = Rates::new();
        let alternately = (0..100).map(|n| rates.counts_often(n % 2, start));
        let often: Vec<_> = alternately.collect();
        assert_eq!(often.iter().position(|often| *often), Some(28));
        // Batches arrive in a different order than they began.
        let rates = Rates::new();
        let mut counts = (0..20).map(|n| start + Duration::from_millis(100 - n % 2));
        assert!(counts.any(|now| rates.counts_often(7, now)));
        // A clock that jumped ahead and back.
        let rates = Rates::new();
        let ahead = start + Duration::from_secs(1 << 24);
        assert!((0..20).any(|_| rates.counts_often(7, ahead)) && !rates.counts_often(7, start));
    }

    #[test]
    fn a_key_stays_contended_for_a_minute() {
        let (contentions, now) = (Contentions::new(), Instant::now());
        for contention in [Contention::Slow, Contention::Contended, Contention::Idle] {
            contentions.set(7, contention, now);
            assert_eq!(contentions.get(7, now), contention);
            assert_eq!(contentions.get(8, now), Contention::Idle);
            let nearly = now + REMEMBERED - Duration::from_millis(1);
            assert_eq!(contentions.get(7, nearly), contention);
            assert_eq!(contentions.get(7, now + REMEMBERED), Contention::Idle);
        }
    }

    #[test]
    fn a_clock_that_went_back_makes_no_count_short() {
        let shortest = ShortestTime::default();
        shortest.is_exceeded_by(Duration::from_millis(1));
        assert!(!shortest.is_exceeded_by(Duration::ZERO));
        assert!(!shortest.is_exceeded_by(Duration::from_millis(1)));
    }

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
}

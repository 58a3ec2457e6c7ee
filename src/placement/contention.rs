//! Which keys have writers that meet, which counts were slow, and how often a count asks why.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::claims::later;

/// How long a key stays suspect or hot.
pub(super) const MEMORY: Duration = Duration::from_secs(60);

/// How likely a count on a key is to meet another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contention {
    Cold,
    /// A count on it was slow.
    Suspect,
    /// A count on it met another one.
    Hot,
}

const SLOTS: usize = 4096;

/// The contention of keys, by their hashes. The table has a fixed size: a key replaces another one with the same lower bits. The process
/// finds out again about a key that it forgot so.
///
/// An entry has from the highest bit on 24 bits of the hash, one for [`Contention::Hot`], and the milliseconds from the epoch to its end.
#[derive(Debug)]
pub(super) struct ContentionTable(Entries);

/// An entry for each key, by the lower bits of its hash.
#[derive(Debug)]
struct Entries {
    epoch: Instant,
    slots: Box<[AtomicU64]>,
}

impl Entries {
    fn new(now: Instant) -> Self {
        Entries {
            epoch: now,
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn slot(&self, key: u64) -> &AtomicU64 {
        &self.slots[key as usize % SLOTS]
    }

    /// From the epoch on.
    fn millis(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_millis() as u64
    }
}

const TIME_BITS: u32 = 39;
const HOT: u64 = 1 << TIME_BITS;
const TIME: u64 = HOT - 1;
const HASH: u64 = !(HOT | TIME);

impl ContentionTable {
    pub(super) fn new(now: Instant) -> Self {
        ContentionTable(Entries::new(now))
    }

    pub(super) fn get(&self, key: u64, now: Instant) -> Contention {
        let entry = self.0.slot(key).load(Ordering::Relaxed);
        // A clock that jumped ahead and back leaves an end that no count would set.
        let left = (entry & TIME).saturating_sub(self.millis(now));
        let is_over = left == 0 || left > 2 * MEMORY.as_millis() as u64;
        if entry & HASH != key & HASH || is_over {
            Contention::Cold
        } else if entry & HOT == 0 {
            Contention::Suspect
        } else {
            Contention::Hot
        }
    }

    pub(super) fn set(&self, key: u64, contention: Contention, now: Instant) {
        let end = self.millis(later(now, MEMORY));
        let entry = match contention {
            Contention::Cold => 0,
            Contention::Suspect => key & HASH | end,
            Contention::Hot => key & HASH | HOT | end,
        };
        self.0.slot(key).store(entry, Ordering::Relaxed);
    }

    fn millis(&self, now: Instant) -> u64 {
        self.0.millis(now) & TIME
    }
}

/// A key that is counted on more often in a second may be locked when the next count comes.
const OFTEN: f64 = 10.0;

/// How often keys are counted on, by their hashes.
///
/// An entry has from the highest bit on 16 bits of the hash, the counts in 64ths, each of which halves in a second, in 16 bits, and the
/// milliseconds from the epoch to the last count.
#[derive(Debug)]
pub(super) struct Rates(Entries);

impl Rates {
    pub(super) fn new(now: Instant) -> Self {
        Rates(Entries::new(now))
    }

    /// Takes another count on the key. Returns whether it is counted on often.
    pub(super) fn counts_often(&self, key: u64, now: Instant) -> bool {
        let (slot, now) = (self.0.slot(key), self.0.millis(now) as u32);
        let (hash, entry) = (key >> 48, slot.load(Ordering::Relaxed));
        let (counts, last) = ((entry >> 32) as u16, entry as u32);
        // A batch that began before may come later. Farther back went the clock, and many seconds are over.
        let (millis, now) = match last.wrapping_sub(now) {
            ahead @ 0..60_000 if ahead > 0 => (0, last),
            _ => (now.wrapping_sub(last), now),
        };
        let seconds = f64::from(millis) / 1_000.0;
        let left = f64::from(counts) / 64.0 * (-seconds).exp2();
        let counts = match entry >> 48 == hash {
            true => left + 1.0,
            false if left < 1.0 => 1.0,
            false => return false, // the slot is another key's, which is counted on more
        };
        let kept = (counts * 64.0).min(f64::from(u16::MAX)) as u64;
        slot.store(hash << 48 | kept << 32 | u64::from(now), Ordering::Relaxed);
        counts * std::f64::consts::LN_2 > OFTEN
    }
}

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
        let is_due = now >= next || next - now > 2 * INTERVAL_MILLIS; // or a clock jumped ahead and back
        is_due
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
    fn a_key_is_counted_on_often_or_seldom() {
        let start = Instant::now();
        let often = |each: u64| {
            let rates = Rates::new(start);
            let mut counts = (0..200).map(|n| start + Duration::from_millis(n * each));
            counts.any(|now| rates.counts_often(7, now))
        };
        assert_eq!([50, 90, 110, 1_000].map(often), [true, true, false, false]);
        // Of two keys in one slot the first is known, until it is counted on no more.
        let rates = Rates::new(start);
        let alternately = (0..100).map(|n| rates.counts_often((n % 2 + 1) << 50, start));
        let often: Vec<_> = alternately.collect();
        assert_eq!(often.iter().position(|often| *often), Some(28));
        assert!(!often.iter().skip(1).step_by(2).any(|often| *often));
        // Batches come in another order than they began.
        let of_batches = Rates::new(start);
        let mut counts = (0..20).map(|n| start + Duration::from_millis(100 - n % 2));
        assert!(counts.any(|now| of_batches.counts_often(7, now)));
        let later = start + Duration::from_secs(60);
        assert!((0..20).any(|_| rates.counts_often(2 << 50, later)));
    }

    #[test]
    fn a_clock_that_jumps_leaves_nothing_behind() {
        let now = Instant::now();
        let ahead = now + Duration::from_secs(1 << 24);
        let (table, pace) = (ContentionTable::new(now), Pace::new(now));
        table.set(7, Contention::Hot, ahead);
        assert_eq!(table.get(7, ahead), Contention::Hot);
        assert_eq!(table.get(7, now), Contention::Cold);
        assert!(pace.take(ahead) && pace.take(now) && !pace.take(now));
        let shortest = ShortestTime::default();
        shortest.is_exceeded_by(Duration::from_millis(1));
        assert!(!shortest.is_exceeded_by(Duration::ZERO));
        assert!(!shortest.is_exceeded_by(Duration::from_millis(1)));
    }

    #[test]
    fn a_key_stays_hot_for_a_minute() {
        let now = Instant::now();
        let table = ContentionTable::new(now);
        for contention in [Contention::Suspect, Contention::Hot, Contention::Cold] {
            table.set(1 << 50, contention, now);
            assert_eq!(table.get(1 << 50, now), contention);
            let nearly = now + MEMORY - Duration::from_millis(1);
            assert_eq!(table.get(1 << 50, nearly), contention);
            assert_eq!(table.get(1 << 50, now + MEMORY), Contention::Cold);
        }
    }

    #[test]
    fn a_key_of_another_hash_is_cold() {
        let now = Instant::now();
        let table = ContentionTable::new(now);
        let (one, same_slot) = (1 << 50 | 5, 1 << 51 | 5);
        table.set(one, Contention::Hot, now);
        assert_eq!(table.get(same_slot, now), Contention::Cold);
        table.set(same_slot, Contention::Suspect, now);
        assert_eq!(table.get(one, now), Contention::Cold);
        assert_eq!(table.get(same_slot, now), Contention::Suspect);
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

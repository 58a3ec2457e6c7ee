//! Which keys somebody else was met on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::choice::later;

/// How long a mark holds.
pub(super) const MEMORY: Duration = Duration::from_secs(60);

/// What is known of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Cold,
    /// A count on it was slow.
    Suspect,
    /// Somebody else was met on it.
    Hot,
}

const SLOTS: usize = 4096;

/// The marks of keys, by their hashes: a table of fixed size, in which a key takes the place of another one with the same lower
/// bits. What is forgotten so is found out again.
#[derive(Debug)]
pub(super) struct Marks {
    epoch: Instant,
    /// From above: 24 bits of the hash, one for [`Mark::Hot`], and the milliseconds since the epoch when it ends.
    slots: Box<[AtomicU64]>,
}

const TIME_BITS: u32 = 39;
const HOT: u64 = 1 << TIME_BITS;
const TIME: u64 = HOT - 1;
const HASH: u64 = !(HOT | TIME);

impl Marks {
    pub(super) fn new(now: Instant) -> Self {
        Marks {
            epoch: now,
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(super) fn get(&self, key: u64, now: Instant) -> Mark {
        let mark = self.slot(key).load(Ordering::Relaxed);
        if mark & HASH != key & HASH || mark & TIME <= self.millis(now) {
            Mark::Cold
        } else if mark & HOT == 0 {
            Mark::Suspect
        } else {
            Mark::Hot
        }
    }

    pub(super) fn set(&self, key: u64, mark: Mark, now: Instant) {
        let end = self.millis(later(now, MEMORY));
        let mark = match mark {
            Mark::Cold => 0,
            Mark::Suspect => key & HASH | end,
            Mark::Hot => key & HASH | HOT | end,
        };
        self.slot(key).store(mark, Ordering::Relaxed);
    }

    fn slot(&self, key: u64) -> &AtomicU64 {
        &self.slots[key as usize % SLOTS]
    }

    fn millis(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_millis() as u64 & TIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_holds_for_a_minute() {
        let now = Instant::now();
        let marks = Marks::new(now);
        for mark in [Mark::Suspect, Mark::Hot, Mark::Cold] {
            marks.set(1 << 50, mark, now);
            assert_eq!(marks.get(1 << 50, now), mark);
            let nearly = now + MEMORY - Duration::from_millis(1);
            assert_eq!(marks.get(1 << 50, nearly), mark);
            assert_eq!(marks.get(1 << 50, now + MEMORY), Mark::Cold);
        }
    }

    #[test]
    fn a_key_of_another_hash_is_cold() {
        let now = Instant::now();
        let marks = Marks::new(now);
        let (one, same_slot) = (1 << 50 | 5, 1 << 51 | 5);
        marks.set(one, Mark::Hot, now);
        assert_eq!(marks.get(same_slot, now), Mark::Cold);
        marks.set(same_slot, Mark::Suspect, now);
        assert_eq!(marks.get(one, now), Mark::Cold);
        assert_eq!(marks.get(same_slot, now), Mark::Suspect);
    }
}

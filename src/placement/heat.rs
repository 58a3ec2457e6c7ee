//! Which keys have writers that meet.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::later::later;

/// How long a key stays suspect or hot.
pub(super) const MEMORY: Duration = Duration::from_secs(60);

/// How likely a count on a key is to meet another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heat {
    Cold,
    /// A count on it was slow.
    Suspect,
    /// A count on it met another one.
    Hot,
}

const SLOTS: usize = 4096;

/// The heat of keys, by their hashes. The table has a fixed size: a key replaces another one with the same lower bits. The process
/// finds out again about a key that it forgot so.
#[derive(Debug)]
pub(super) struct HeatTable {
    epoch: Instant,
    /// From the highest bit on: 24 bits of the hash, one for [`Heat::Hot`], and the milliseconds from the epoch to the entry's end.
    slots: Box<[AtomicU64]>,
}

const TIME_BITS: u32 = 39;
const HOT: u64 = 1 << TIME_BITS;
const TIME: u64 = HOT - 1;
const HASH: u64 = !(HOT | TIME);

impl HeatTable {
    pub(super) fn new(now: Instant) -> Self {
        HeatTable {
            epoch: now,
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(super) fn get(&self, key: u64, now: Instant) -> Heat {
        let entry = self.slot(key).load(Ordering::Relaxed);
        if entry & HASH != key & HASH || entry & TIME <= self.millis(now) {
            Heat::Cold
        } else if entry & HOT == 0 {
            Heat::Suspect
        } else {
            Heat::Hot
        }
    }

    pub(super) fn set(&self, key: u64, heat: Heat, now: Instant) {
        let end = self.millis(later(now, MEMORY));
        let entry = match heat {
            Heat::Cold => 0,
            Heat::Suspect => key & HASH | end,
            Heat::Hot => key & HASH | HOT | end,
        };
        self.slot(key).store(entry, Ordering::Relaxed);
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
    fn a_key_stays_hot_for_a_minute() {
        let now = Instant::now();
        let table = HeatTable::new(now);
        for heat in [Heat::Suspect, Heat::Hot, Heat::Cold] {
            table.set(1 << 50, heat, now);
            assert_eq!(table.get(1 << 50, now), heat);
            let nearly = now + MEMORY - Duration::from_millis(1);
            assert_eq!(table.get(1 << 50, nearly), heat);
            assert_eq!(table.get(1 << 50, now + MEMORY), Heat::Cold);
        }
    }

    #[test]
    fn a_key_of_another_hash_is_cold() {
        let now = Instant::now();
        let table = HeatTable::new(now);
        let (one, same_slot) = (1 << 50 | 5, 1 << 51 | 5);
        table.set(one, Heat::Hot, now);
        assert_eq!(table.get(same_slot, now), Heat::Cold);
        table.set(same_slot, Heat::Suspect, now);
        assert_eq!(table.get(one, now), Heat::Cold);
        assert_eq!(table.get(same_slot, now), Heat::Suspect);
    }
}

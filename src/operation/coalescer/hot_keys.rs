//! The keys to which batch after batch adds.

use std::time::{Duration, Instant};

/// A key is hot when so many batches add to it within [`WINDOW`].
const HOT_FROM: u8 = 16;
const WINDOW: Duration = Duration::from_secs(1);
/// How long a key stays hot after that.
const MEMORY: Duration = Duration::from_secs(60);

const SLOTS: usize = 4096;

/// Tells hot keys from cold ones, by their hashes. A cold key uses the shard on which every process begins, so it has one row. A
/// hot key gets the coalescer's own row.
///
/// The table has a fixed size: a key takes the slot of another one that is not hot. The key that loses its slot counts as cold
/// for some batches.
pub(super) struct HotKeys(Box<[Option<Slot>]>);

#[derive(Debug, Clone, Copy)]
struct Slot {
    key: u64,
    window_began: Instant,
    batches: u8,
    hot_since: Option<Instant>,
}

impl HotKeys {
    pub(super) fn new() -> Self {
        HotKeys(vec![None; SLOTS].into())
    }

    /// Notes that a batch adds to a key. Whether the key is hot.
    pub(super) fn add(&mut self, key: u64, now: Instant) -> bool {
        let slot = &mut self.0[key as usize % SLOTS];
        let mut noted = match *slot {
            Some(same) if same.key == key => same,
            Some(other) if other.is_hot(now) => return false,
            _ => Slot {
                key,
                window_began: now,
                batches: 0,
                hot_since: None,
            },
        };
        if now.saturating_duration_since(noted.window_began) >= WINDOW {
            (noted.window_began, noted.batches) = (now, 0);
        }
        noted.batches = noted.batches.saturating_add(1);
        if noted.batches >= HOT_FROM {
            noted.hot_since = Some(now);
        }
        *slot = Some(noted);
        noted.is_hot(now)
    }
}

impl Slot {
    fn is_hot(&self, now: Instant) -> bool {
        let since = self.hot_since;
        since.is_some_and(|since| now.saturating_duration_since(since) < MEMORY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u64 = 5;

    /// The keys after so many batches at this interval.
    fn after(batches: u8, interval: Duration, now: Instant) -> HotKeys {
        let mut keys = HotKeys::new();
        for batch in 0..batches {
            keys.add(KEY, now + interval * u32::from(batch));
        }
        keys
    }

    #[test]
    fn a_key_that_many_batches_in_a_second_add_to_is_hot_for_a_minute() {
        let now = Instant::now();
        let often = Duration::from_millis(1);
        assert!(!after(HOT_FROM - 2, often, now).add(KEY, now + often));
        assert!(after(HOT_FROM - 1, often, now).add(KEY, now + often));
        let last = now + often * u32::from(HOT_FROM - 1);
        let nearly = MEMORY - Duration::from_millis(1);
        assert!(after(HOT_FROM, often, now).add(KEY, last + nearly));
        assert!(!after(HOT_FROM, often, now).add(KEY, last + MEMORY));
    }

    #[test]
    fn a_key_that_few_batches_in_a_second_add_to_is_cold() {
        let now = Instant::now();
        let seldom = WINDOW / u32::from(HOT_FROM - 2);
        let mut keys = after(100, seldom, now);
        assert!(!keys.add(KEY, now + seldom * 100));
    }

    #[test]
    fn a_hot_key_keeps_its_slot_and_a_cold_one_does_not() {
        let now = Instant::now();
        let same_slot = KEY + SLOTS as u64;
        let mut keys = after(HOT_FROM, Duration::ZERO, now);
        assert!(!keys.add(same_slot, now));
        assert!(keys.add(KEY, now));
        let mut keys = after(HOT_FROM - 1, Duration::ZERO, now);
        assert!(!keys.add(same_slot, now));
        assert!(!keys.add(KEY, now));
    }
}

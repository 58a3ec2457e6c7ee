//! Which shards of which keys are in use in this process.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use fnv::FnvBuildHasher;

use super::keys::{ByKey, Recent};

/// How long a thread keeps a shard that it did not count on again.
pub(super) const KEPT: Duration = Duration::from_secs(1);

/// The shards that counts are on, and those that threads keep: a row that was counted on inside a transaction stays locked until the transaction
/// ends, which nobody here sees.
#[derive(Debug)]
pub(super) struct Reservations(ByKey<Reserved>);

/// A shard, by the hash of its key and by its index.
type Shard = (u64, u16);

#[derive(Debug)]
struct Reserved {
    /// How many counts are on each shard, if there are some.
    counts: HashMap<Shard, u32, FnvBuildHasher>,
    /// The threads that keep a shard, by their numbers.
    kept: Recent<Shard, u64>,
}

impl Reservations {
    pub(super) fn new() -> Self {
        Reservations(ByKey::new(|| Reserved {
            counts: HashMap::default(),
            kept: Recent::new(KEPT),
        }))
    }

    /// Reserves a shard of the key: the one that `thread` keeps, or else the first free one in this order of indexes, or else the one that is
    /// used the least. Returns its index, and whether none was free.
    pub(super) fn reserve(
        &self,
        key: u64,
        mut order: impl Iterator<Item = u16> + Clone,
        thread: Option<u64>,
        now: Instant,
    ) -> (u16, bool) {
        let mut reserved = self.0.lock(key);
        let is_own = |index: &u16| reserved.kept.get((key, *index), now) == thread;
        let own = thread.and_then(|_| order.clone().find(is_own));
        let users = |index: &u16| reserved.users((key, *index), thread, now);
        let free = own.or_else(|| order.clone().find(|index| users(index) == 0));
        let index = free
            .or_else(|| order.by_ref().min_by_key(users))
            .unwrap_or(0);
        *reserved.counts.entry((key, index)).or_default() += 1;
        (index, free.is_none())
    }

    /// Ends a count's reservation. A thread that is given keeps the shard for a while from then on.
    pub(super) fn release(&self, key: u64, index: u16, keeps: Option<(u64, Instant)>) {
        let mut reserved = self.0.lock(key);
        let shard = (key, index);
        match reserved.counts.get_mut(&shard) {
            Some(counts) if *counts > 1 => *counts -= 1,
            _ => drop(reserved.counts.remove(&shard)),
        }
        if let Some((thread, from)) = keeps {
            reserved.kept.insert(shard, thread, from);
        }
    }

    /// Nobody keeps the shard any more.
    pub(super) fn give_up(&self, key: u64, index: u16) {
        self.0.lock(key).kept.remove((key, index));
    }
}

impl Reserved {
    /// How many use the shard, this thread left out if it keeps it.
    fn users(&self, shard: Shard, thread: Option<u64>, now: Instant) -> u32 {
        let counts = self.counts.get(&shard).copied().unwrap_or(0);
        let keeper = self.kept.get(shard, now);
        counts + u32::from(keeper.is_some() && keeper != thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    const KEY: u64 = 7;

    /// How many shards counts are on.
    fn in_use(reservations: &Reservations) -> usize {
        reservations.0.sum(|reserved| reserved.counts.len())
    }

    #[test]
    fn the_first_free_shard_is_reserved() {
        let (reservations, now) = (Reservations::new(), Instant::now());
        let reserve = |key| reservations.reserve(key, 0..4, None, now);
        assert_eq!([reserve(KEY), reserve(KEY)], [(0, false), (1, false)]);
        assert_eq!(reserve(KEY + 1), (0, false));
        reservations.release(KEY, 0, None);
        assert_eq!([reserve(KEY), reserve(KEY)], [(0, false), (2, false)]);
        let other_order = [3, 0, 1, 2];
        assert_eq!(
            reservations.reserve(KEY, other_order.into_iter(), None, now),
            (3, false)
        );
        for index in 0..4 {
            reservations.release(KEY, index, None);
        }
        reservations.release(KEY + 1, 0, None);
        assert_eq!(in_use(&reservations), 0);
        reservations.release(KEY, 0, None); // of nothing
    }

    #[test]
    fn without_a_free_shard_the_fewest_meet() {
        let (reservations, now) = (Reservations::new(), Instant::now());
        let reserve = || reservations.reserve(KEY, 0..3, None, now);
        let reserved: [_; 7] = std::array::from_fn(|_| reserve());
        let indexes = reserved.map(|(index, _)| index);
        assert_eq!(indexes, [0, 1, 2, 0, 1, 2, 0]);
        let none_was_free = reserved.map(|(_, none_was_free)| none_was_free);
        assert_eq!(none_was_free, [false, false, false, true, true, true, true]);
        reservations.release(KEY, 2, None);
        reservations.release(KEY, 2, None);
        assert_eq!([reserve(), reserve()], [(2, false), (2, true)]);
    }

    #[test]
    fn a_clock_that_jumps_keeps_no_shard() {
        let (reservations, now) = (Reservations::new(), Instant::now());
        reservations.reserve(KEY, 0..1, Some(1), now);
        let ahead = now + Duration::from_secs(1 << 32);
        reservations.release(KEY, 0, Some((1, ahead)));
        assert_eq!(reservations.reserve(KEY, 0..1, Some(2), now), (0, false));
    }

    #[test]
    fn a_thread_keeps_its_shard_until_it_did_not_use_it_for_a_second() {
        let (reservations, now) = (Reservations::new(), Instant::now());
        let count = |thread: Option<u64>, now| {
            let (index, none_was_free) = reservations.reserve(KEY, 0..4, thread, now);
            reservations.release(KEY, index, thread.map(|thread| (thread, now)));
            assert!(!none_was_free);
            index
        };
        assert_eq!(count(Some(1), now), 0);
        // Nobody else takes it, inside a transaction or outside, this thread's other connections included.
        assert_eq!(count(Some(2), now), 1);
        assert_eq!(count(None, now), 2);
        for _ in 0..3 {
            assert_eq!([count(Some(2), now), count(Some(1), now)], [1, 0]);
        }
        assert_eq!(count(None, now + KEPT), 0);
        assert_eq!(count(Some(2), now + KEPT), 0);
    }

    #[test]
    fn a_count_that_takes_long_still_has_its_shard() {
        let (reservations, now) = (Reservations::new(), Instant::now());
        let reserve = |thread, now| reservations.reserve(KEY, 0..4, thread, now);
        reserve(Some(1), now);
        reservations.release(KEY, 0, Some((1, now)));
        assert_eq!(reserve(Some(1), now), (0, false));
        assert_eq!(reserve(None, now + 3 * KEPT), (1, false));
    }

    #[test]
    fn a_thread_moves_away_from_a_shard_that_it_gave_up_or_that_is_gone() {
        let (reservations, now) = (Reservations::new(), Instant::now());
        let count = |order: std::ops::Range<u16>| {
            let (index, _) = reservations.reserve(KEY, order, Some(1), now);
            reservations.release(KEY, index, Some((1, now)));
            index
        };
        assert_eq!(count(0..4), 0);
        reservations.give_up(KEY, 0);
        assert_eq!([count(1..4), count(0..4), count(0..1)], [1, 1, 0]);
        reservations.give_up(KEY, 0);
        assert_eq!(reservations.reserve(KEY, 0..4, None, now), (0, false));
    }

    /// Whatever the order of reservations and releases, two meet only where there are fewer shards than counts.
    #[test]
    fn threads_never_meet_while_shards_are_free() {
        const THREADS: u16 = 8;
        for (shards, most) in [(THREADS, 1), (THREADS / 2, 2)] {
            let reservations = Reservations::new();
            let in_flight: Vec<AtomicU32> = (0..shards).map(|_| AtomicU32::new(0)).collect();
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        for _ in 0..5_000 {
                            let now = Instant::now();
                            let (index, _) = reservations.reserve(KEY, 0..shards, None, now);
                            let there = &in_flight[usize::from(index)];
                            assert!(there.fetch_add(1, Ordering::SeqCst) < most);
                            std::thread::yield_now();
                            there.fetch_sub(1, Ordering::SeqCst);
                            reservations.release(KEY, index, None);
                        }
                    });
                }
            });
            assert_eq!(in_use(&reservations), 0);
        }
    }
}

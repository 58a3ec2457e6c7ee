//! Which shards of which keys are in use in this process.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use fnv::FnvBuildHasher;

use super::keys::{ByKey, end_of, is_ahead};

/// How long a thread keeps a shard without counting on it again.
pub(super) const KEPT: Duration = Duration::from_secs(1);

/// The shards that increments are on, and those that threads keep. A row that was counted on inside a transaction stays locked until the
/// transaction ends, and nothing here sees that end.
#[derive(Debug)]
pub(super) struct Reservations(ByKey<Keys>);

/// The shards in use, by the hashes of keys.
#[derive(Debug)]
struct Keys {
    used: HashMap<u64, Vec<Used>, FnvBuildHasher>,
    /// The number of keys at which unused keys are forgotten.
    most: usize,
}

/// A shard in use.
#[derive(Debug)]
struct Used {
    index: u16,
    /// How many increments are on it.
    counts: u32,
    /// The id of the thread that keeps it, and until when.
    keeper: Option<(u64, Instant)>,
}

const MOST: usize = 64;

impl Reservations {
    pub(super) fn new() -> Self {
        Reservations(ByKey::new(|| Keys {
            used: HashMap::default(),
            most: MOST,
        }))
    }

    /// Reserves a shard of the key: the one that `thread` keeps, or else the first free one in this order of indexes, or else the one that is
    /// used the least. Returns its index, and whether none was free.
    pub(super) fn reserve(
        &self,
        key: u64,
        order: impl Iterator<Item = u16> + Clone,
        thread: Option<u64>,
        now: Instant,
    ) -> (u16, bool) {
        let mut keys = self.0.lock(key);
        keys.forget(now);
        let used = keys.used.entry(key).or_default();
        used.retain_mut(|shard| shard.is_used(now));
        let is_own = |shard: &&Used| matches!(shard.keeper, Some((id, _)) if thread == Some(id));
        let mut kept = used.iter().filter(is_own).map(|shard| shard.index);
        let own = kept.find(|own| order.clone().any(|index| index == *own));
        let (index, none_was_free) = match own {
            Some(own) => (own, false),
            None => least_used(used, order),
        };
        match used.iter_mut().find(|shard| shard.index == index) {
            Some(shard) => shard.counts += 1,
            None => used.push(Used {
                index,
                counts: 1,
                keeper: None,
            }),
        }
        (index, none_was_free)
    }

    /// Ends an increment's reservation. `keeps` names a thread that keeps the shard for a while from a given time on.
    pub(super) fn release(&self, key: u64, index: u16, keeps: Option<(u64, Instant)>) {
        self.change(key, index, |shard| {
            shard.counts = shard.counts.saturating_sub(1);
            if let Some((thread, from)) = keeps {
                shard.keeper = Some((thread, end_of(from, KEPT)));
            }
        });
    }

    /// Ends a thread's reservation of the shard.
    pub(super) fn give_up(&self, key: u64, index: u16) {
        self.change(key, index, |shard| shard.keeper = None);
    }

    fn change(&self, key: u64, index: u16, change: impl FnOnce(&mut Used)) {
        let mut keys = self.0.lock(key);
        let Some(used) = keys.used.get_mut(&key) else {
            return;
        };
        if let Some(at) = used.iter().position(|shard| shard.index == index) {
            change(&mut used[at]);
            if used[at].counts == 0 && used[at].keeper.is_none() {
                used.swap_remove(at);
            }
        }
        if used.is_empty() {
            keys.used.remove(&key);
        }
    }
}

/// The first free shard in this order of indexes, or else the one that is used the least. Returns its index, and whether none was free.
fn least_used(used: &[Used], order: impl Iterator<Item = u16> + Clone) -> (u16, bool) {
    let beyond = used.iter().map(|shard| usize::from(shard.index) + 1).max();
    let mut users = vec![0; beyond.unwrap_or(0)];
    for shard in used {
        let kept = u32::from(shard.keeper.is_some());
        users[usize::from(shard.index)] = shard.counts + kept;
    }
    let users = |index: &u16| users.get(usize::from(*index)).copied().unwrap_or(0);
    match order.clone().find(|index| users(index) == 0) {
        Some(free) => (free, false),
        None => (order.min_by_key(users).unwrap_or(0), true),
    }
}

impl Keys {
    /// Forgets unused keys once they may be half of all keys.
    fn forget(&mut self, now: Instant) {
        if self.used.len() < self.most {
            return;
        }
        self.used.retain(|_, used| {
            used.retain_mut(|shard| shard.is_used(now));
            !used.is_empty()
        });
        self.most = MOST.max(2 * self.used.len());
        self.used.shrink_to(self.most);
    }
}

impl Used {
    /// Whether an increment is on it, or a thread still keeps it.
    fn is_used(&mut self, now: Instant) -> bool {
        self.keeper
            .take_if(|(_, until)| !is_ahead(*until, KEPT, now));
        self.counts > 0 || self.keeper.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    const KEY: u64 = 7;

    /// How many keys have shards in use.
    fn in_use(reservations: &Reservations) -> usize {
        reservations.0.sum(|keys| keys.used.len())
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
        assert_eq!(reserve(), (2, true));
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

    #[test]
    fn keys_that_nobody_keeps_any_more_are_forgotten() {
        let (reservations, now) = (Reservations::new(), Instant::now());
        let count = |key, now| {
            let (index, _) = reservations.reserve(key, 0..4, Some(1), now);
            reservations.release(key, index, Some((1, now)));
        };
        (0..1000).for_each(|key| count(key, now)); // all behind one lock
        assert_eq!(in_use(&reservations), 1000);
        (2000..3000).for_each(|key| count(key, now + KEPT));
        assert_eq!(in_use(&reservations), 1000);
    }

    /// Whatever the order of reservations and releases, two increments meet only if there are fewer shards than increments.
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

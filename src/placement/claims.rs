//! Which ranks of which keys are taken in this process.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use fnv::FnvBuildHasher;

use super::sync::{Mutex, MutexGuard, PoisonError};

/// How long a thread keeps a rank that it did not use again.
pub(super) const LEASE: Duration = Duration::from_secs(1);

/// A time so much later; the time itself where an application's clock goes no further.
pub(super) fn later(time: Instant, span: Duration) -> Instant {
    time.checked_add(span).unwrap_or(time)
}

/// Whether `end` lies ahead, and no further than anybody would set it: an application's clock may have jumped there and back.
pub(super) fn is_ahead(end: Instant, span: Duration, now: Instant) -> bool {
    now < end && end.saturating_duration_since(now) <= 2 * span
}

/// The ranks that are taken, by the hashes of keys. It holds the keys that are being counted on, and those that were counted
/// on inside a transaction within the last second or so. It holds nothing of other keys.
#[derive(Debug)]
pub(super) struct Claims {
    /// Many, so that threads that count on different keys rarely meet.
    parts: [Mutex<Part>; 64],
}

#[derive(Debug, Default)]
struct Part {
    keys: HashMap<u64, Ranks, FnvBuildHasher>,
    /// When to look for leases that ran out; `None` while there are no leases.
    sweep: Option<Instant>,
}

/// The ranks of one key. Most keys have one writer, and need no memory beside their entry in the map.
#[derive(Debug, Default)]
struct Ranks {
    first: Slot,
    /// Rank 1 and above. Ranks beyond the end are free.
    others: Vec<Slot>,
}

/// One rank.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// How many counts are on it.
    holders: u32,
    /// The thread that last counted on it inside a transaction.
    thread: u64,
    /// The end of that thread's lease: until then its transaction may have the row locked.
    until: Option<Instant>,
}

/// A thread that keeps a rank after its count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Holder {
    pub(super) thread: u64,
    pub(super) clock: fn() -> Instant,
}

/// The rank that a count would like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    /// How many ranks there are, at least 1.
    pub(super) ranks: u16,
    /// Rank 0 is to be taken only if there is no other.
    pub(super) first_comes_last: bool,
    /// A rank to be taken only if there is no other.
    pub(super) avoided: Option<u16>,
    /// The thread that prefers the rank of its lease.
    pub(super) holder: Option<u64>,
}

impl Wish {
    /// All ranks, in the order in which they are taken.
    fn ranks(self) -> impl Iterator<Item = u16> {
        let first = u16::from(self.first_comes_last).min(self.ranks);
        let avoids = move |rank: &u16| self.ranks > 1 && self.avoided == Some(*rank);
        (first..self.ranks)
            .chain(0..first)
            .filter(move |rank| !avoids(rank))
    }

    fn keeps(self, rank: u16) -> bool {
        rank < self.ranks
            && (self.ranks == 1
                || !(self.avoided == Some(rank) || (self.first_comes_last && rank == 0)))
    }
}

impl Claims {
    /// Takes the lowest free rank of the key, or, if none is free, one that the fewest hold. Returns the rank, and whether none was
    /// free.
    pub(super) fn claim(&self, key: u64, wish: Wish, now: Instant) -> (u16, bool) {
        let mut part = self.part(key);
        part.sweep(now);
        let ranks = part.keys.entry(key).or_default();
        ranks.end_leases(now);
        let (rank, crowded) = ranks.choose(wish);
        ranks.slot(rank).holders += 1;
        (rank, crowded)
    }

    /// Gives a rank back, or leaves it to its holder for the length of a lease.
    pub(super) fn release(&self, key: u64, rank: u16, holder: Option<Holder>) {
        // An application's clock: not under the lock.
        let lease = holder.map(|holder| (holder.thread, later((holder.clock)(), LEASE)));
        let mut part = self.part(key);
        let Some(ranks) = part.keys.get_mut(&key) else {
            return;
        };
        let slot = ranks.slot(rank);
        slot.holders = slot.holders.saturating_sub(1);
        if let Some((thread, until)) = lease {
            slot.thread = thread;
            slot.until = Some(until);
            part.sweep.get_or_insert(until);
        } else {
            ranks.trim();
            if ranks.is_empty() {
                part.keys.remove(&key);
            }
        }
    }

    fn part(&self, key: u64) -> MutexGuard<'_, Part> {
        let part = &self.parts[(key >> 32) as usize % self.parts.len()];
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Claims {
    fn default() -> Self {
        Claims {
            parts: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl Part {
    /// Forgets keys whose leases have run out, at most once in the length of a lease.
    fn sweep(&mut self, now: Instant) {
        if self.sweep.is_none_or(|sweep| is_ahead(sweep, LEASE, now)) {
            return;
        }
        self.keys.retain(|_, ranks| {
            ranks.end_leases(now);
            !ranks.is_empty()
        });
        self.keys.shrink_to(2 * self.keys.len());
        let mut slots = self.keys.values().flat_map(Ranks::slots);
        let leased = slots.any(|slot| slot.until.is_some());
        self.sweep = leased.then(|| later(now, LEASE));
    }
}

impl Ranks {
    /// Takes no lease for over: [`end_leases`](Self::end_leases) comes before it.
    fn choose(&mut self, wish: Wish) -> (u16, bool) {
        if let Some(own) = self.own_rank(wish) {
            return (own, false);
        }
        let users = |rank: u16| self.get(rank).users(wish.holder);
        let free = wish.ranks().find(|rank| users(*rank) == 0);
        let fewest = || wish.ranks().min_by_key(|rank| users(*rank));
        match free {
            Some(rank) => (rank, false),
            None => (fewest().unwrap_or(0), true),
        }
    }

    /// The rank that the thread has a lease of. It gives up those that it no longer wants.
    fn own_rank(&mut self, wish: Wish) -> Option<u16> {
        let thread = wish.holder?;
        for (rank, slot) in (0..).zip(self.slots_mut()) {
            if slot.until.is_some() && slot.thread == thread {
                if wish.keeps(rank) {
                    return Some(rank);
                }
                slot.until = None;
            }
        }
        None
    }

    fn end_leases(&mut self, now: Instant) {
        for slot in self.slots_mut() {
            slot.until = slot.until.filter(|until| is_ahead(*until, LEASE, now));
        }
        self.trim();
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        std::iter::once(&self.first).chain(&self.others)
    }

    fn slots_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        std::iter::once(&mut self.first).chain(&mut self.others)
    }

    fn get(&self, rank: u16) -> Slot {
        let slot = self.slots().nth(usize::from(rank));
        slot.copied().unwrap_or_default()
    }

    fn slot(&mut self, rank: u16) -> &mut Slot {
        let Some(other) = usize::from(rank).checked_sub(1) else {
            return &mut self.first;
        };
        if self.others.len() <= other {
            self.others.resize(other + 1, Slot::default());
        }
        &mut self.others[other]
    }

    /// Forgets free ranks at the end.
    fn trim(&mut self) {
        while self.others.last().is_some_and(Slot::is_free) {
            self.others.pop();
        }
    }

    fn is_empty(&self) -> bool {
        self.first.is_free() && self.others.is_empty()
    }
}

impl Slot {
    fn is_free(&self) -> bool {
        self.users(None) == 0
    }

    /// How many counts and leases use it, this thread's lease left out.
    fn users(&self, thread: Option<u64>) -> u32 {
        let is_leased = self.until.is_some() && thread != Some(self.thread);
        self.holders + u32::from(is_leased)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    const KEY: u64 = 7;

    fn of(ranks: u16) -> Wish {
        Wish {
            ranks,
            first_comes_last: false,
            avoided: None,
            holder: None,
        }
    }

    fn inside(ranks: u16, thread: u64) -> (Wish, Holder) {
        let wish = Wish {
            holder: Some(thread),
            ..of(ranks)
        };
        let clock = Instant::now;
        (wish, Holder { thread, clock })
    }

    fn keys(claims: &Claims) -> usize {
        let keys = |part: &Mutex<Part>| part.lock().unwrap().keys.len();
        claims.parts.iter().map(keys).sum()
    }

    #[test]
    fn the_lowest_free_rank_is_taken() {
        let (claims, now) = (Claims::default(), Instant::now());
        let taken = |wish| claims.claim(KEY, wish, now);
        assert_eq!([taken(of(4)), taken(of(4))], [(0, false), (1, false)]);
        assert_eq!(claims.claim(KEY + 1, of(4), now), (0, false));
        claims.release(KEY, 0, None);
        assert_eq!([taken(of(4)), taken(of(4))], [(0, false), (2, false)]);
        for rank in [0, 1, 2] {
            claims.release(KEY, rank, None);
        }
        claims.release(KEY + 1, 0, None);
        assert_eq!(keys(&claims), 0);
        claims.release(KEY, 0, None); // of nothing
    }

    #[test]
    fn without_a_free_rank_the_fewest_meet() {
        let (claims, now) = (Claims::default(), Instant::now());
        let taken: Vec<_> = (0..7).map(|_| claims.claim(KEY, of(3), now)).collect();
        let expected = [0, 1, 2, 0, 1, 2, 0];
        assert_eq!(
            taken.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(),
            expected
        );
        let crowded: Vec<_> = taken.iter().map(|(_, crowded)| *crowded).collect();
        assert_eq!(crowded, [false, false, false, true, true, true, true]);
        claims.release(KEY, 2, None);
        claims.release(KEY, 2, None);
        assert_eq!(claims.claim(KEY, of(3), now), (2, false));
        assert_eq!(claims.claim(KEY, of(3), now), (2, true));
    }

    #[test]
    fn the_first_rank_of_a_hot_key_comes_last() {
        let (claims, now) = (Claims::default(), Instant::now());
        let hot = |ranks| Wish {
            first_comes_last: true,
            ..of(ranks)
        };
        let taken = |wish| claims.claim(KEY, wish, now).0;
        assert_eq!([taken(hot(3)), taken(hot(3)), taken(hot(3))], [1, 2, 0]);
        assert_eq!(claims.claim(KEY + 1, hot(1), now), (0, false));
    }

    #[test]
    fn the_rank_of_a_conflict_is_avoided_where_there_is_another() {
        let (claims, now) = (Claims::default(), Instant::now());
        let avoiding = |ranks| Wish {
            avoided: Some(0),
            ..of(ranks)
        };
        assert_eq!(claims.claim(KEY, avoiding(2), now), (1, false));
        assert_eq!(claims.claim(KEY, avoiding(2), now), (1, true));
        assert_eq!(claims.claim(KEY + 1, avoiding(1), now), (0, false));
    }

    #[test]
    fn a_clock_that_jumps_prolongs_no_lease() {
        let (claims, now) = (Claims::default(), Instant::now());
        let (wish, holder) = inside(1, 1);
        let clock = || Instant::now() + Duration::from_secs(1 << 32);
        claims.claim(KEY, wish, now);
        claims.release(KEY, 0, Some(Holder { clock, ..holder }));
        assert_eq!(claims.claim(KEY, inside(1, 2).0, now), (0, false));
        claims.release(KEY, 0, None);
        assert_eq!(keys(&claims), 0);
    }

    #[test]
    fn a_thread_keeps_its_rank_until_it_did_not_use_it_for_a_second() {
        let (claims, now) = (Claims::default(), Instant::now());
        let (first, first_holder) = inside(4, 1);
        let (second, second_holder) = inside(4, 2);
        assert_eq!(claims.claim(KEY, first, now), (0, false));
        claims.release(KEY, 0, Some(first_holder));
        // Nobody else takes it, inside a transaction or outside, this thread's other connections included.
        assert_eq!(claims.claim(KEY, second, now), (1, false));
        claims.release(KEY, 1, Some(second_holder));
        assert_eq!(claims.claim(KEY, of(4), now), (2, false));
        claims.release(KEY, 2, None);
        for _ in 0..3 {
            assert_eq!(claims.claim(KEY, second, now), (1, false));
            claims.release(KEY, 1, Some(second_holder));
        }
        let later = Instant::now() + LEASE;
        assert_eq!(claims.claim(KEY, of(4), later), (0, false));
        claims.release(KEY, 0, None);
        assert_eq!(keys(&claims), 0);
    }

    #[test]
    fn a_count_that_outlasts_its_lease_still_holds_its_rank() {
        let (claims, now) = (Claims::default(), Instant::now());
        let (wish, holder) = inside(4, 1);
        claims.claim(KEY, wish, now);
        claims.release(KEY, 0, Some(holder));
        assert_eq!(claims.claim(KEY, wish, now), (0, false));
        let later = Instant::now() + 3 * LEASE;
        assert_eq!(claims.claim(KEY, of(4), later), (1, false));
    }

    #[test]
    fn a_lease_moves_away_from_a_conflict_and_a_rank_that_is_gone() {
        let (claims, now) = (Claims::default(), Instant::now());
        let (wish, holder) = inside(4, 1);
        let again = |wish: Wish| {
            let (rank, _) = claims.claim(KEY, wish, now);
            claims.release(KEY, rank, Some(holder));
            rank
        };
        assert_eq!(again(wish), 0);
        let avoided = Some(0);
        assert_eq!(again(Wish { avoided, ..wish }), 1);
        assert_eq!(again(wish), 1);
        let ranks = 1;
        assert_eq!(again(Wish { ranks, ..wish }), 0);
        let first_comes_last = true;
        let hot = Wish {
            first_comes_last,
            ..wish
        };
        assert_eq!(again(hot), 1);
        // The rank that it left is free.
        assert_eq!(claims.claim(KEY, of(4), now), (0, false));
    }

    #[test]
    fn keys_whose_leases_ran_out_are_forgotten() {
        let (claims, now) = (Claims::default(), Instant::now());
        let (wish, holder) = inside(4, 1);
        for key in 0..1000 {
            claims.claim(key, wish, now);
            claims.release(key, 0, Some(holder));
        }
        assert_eq!(keys(&claims), 1000); // all in one part
        let later = Instant::now() + 2 * LEASE;
        claims.claim(2000, of(4), later);
        claims.release(2000, 0, None);
        assert_eq!(keys(&claims), 0);
    }

    /// Whatever the order of claims and releases, two meet only where there are fewer ranks than counts.
    #[test]
    fn threads_never_meet_while_ranks_are_free() {
        const THREADS: u16 = 8;
        for (ranks, most) in [(THREADS, 1), (THREADS / 2, 2)] {
            let claims = Claims::default();
            let in_flight: Vec<AtomicU32> = (0..ranks).map(|_| AtomicU32::new(0)).collect();
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        for _ in 0..5_000 {
                            let (rank, _) = claims.claim(KEY, of(ranks), Instant::now());
                            let there = &in_flight[usize::from(rank)];
                            assert!(there.fetch_add(1, Ordering::SeqCst) < most);
                            std::thread::yield_now();
                            there.fetch_sub(1, Ordering::SeqCst);
                            claims.release(KEY, rank, None);
                        }
                    });
                }
            });
            assert_eq!(keys(&claims), 0);
        }
    }
}

//! Threads that claim ranks of one key.

use std::sync::LazyLock;
use std::time::Instant;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};

use crate::claims::{Claims, Holder, LEASE, Wish};

const KEY: u64 = 7;

/// One moment, so that no lease ends by itself.
static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);

fn now() -> Instant {
    *NOW
}

fn of(ranks: u16, holder: Option<u64>) -> Wish {
    Wish {
        ranks,
        first_comes_last: false,
        avoided: None,
        holder,
    }
}

/// The claims, and how many threads are on each rank.
struct Ranks {
    claims: Claims,
    on: [AtomicUsize; 4],
}

impl Ranks {
    fn new() -> Arc<Self> {
        Arc::new(Ranks {
            claims: Claims::default(),
            on: std::array::from_fn(|_| AtomicUsize::new(0)),
        })
    }

    /// Counts once. Returns the rank, whether none was free, and how many others were on it.
    fn count(&self, ranks: u16, holder: Option<u64>) -> (u16, bool, usize) {
        let (rank, crowded) = self.claims.claim(KEY, of(ranks, holder), now());
        let on = &self.on[usize::from(rank)];
        let others = on.fetch_add(1, Ordering::SeqCst);
        on.fetch_sub(1, Ordering::SeqCst);
        let clock = now;
        let holder = holder.map(|thread| Holder { thread, clock });
        self.claims.release(KEY, rank, holder);
        (rank, crowded, others)
    }

    /// All ranks are free: they are taken from the lowest.
    fn are_free(&self, at: Instant) {
        for rank in 0..4 {
            assert_eq!(self.claims.claim(KEY, of(4, None), at), (rank, false));
        }
    }
}

/// Runs this in three threads, each of which counts twice.
fn threads(count: impl Fn(u64) + 'static) {
    let count = Arc::new(count);
    let threads = (0..3).map(|thread| {
        let count = Arc::clone(&count);
        loom::thread::spawn(move || (0..2).for_each(|_| count(thread)))
    });
    let threads: Vec<_> = threads.collect();
    for thread in threads {
        thread.join().expect("its ranks are its own");
    }
}

/// As many ranks as threads: no two threads are on one.
pub fn as_many_ranks_as_threads() {
    let ranks = Ranks::new();
    let of_threads = Arc::clone(&ranks);
    threads(move |_| {
        let (_, crowded, others) = of_threads.count(3, None);
        assert_eq!((crowded, others), (false, 0));
    });
    ranks.are_free(now());
}

/// Two ranks: two threads at most are on one.
pub fn fewer_ranks_than_threads() {
    let ranks = Ranks::new();
    let of_threads = Arc::clone(&ranks);
    threads(move |_| {
        let (rank, _, others) = of_threads.count(2, None);
        assert!(rank < 2 && others < 2);
    });
    ranks.are_free(now());
}

/// Threads inside transactions keep their ranks from count to count, until their leases run out.
pub fn threads_that_keep_their_ranks() {
    let ranks = Ranks::new();
    let of_threads = Arc::clone(&ranks);
    let kept: [AtomicUsize; 3] = std::array::from_fn(|_| AtomicUsize::new(usize::MAX));
    threads(move |thread| {
        let (rank, crowded, others) = of_threads.count(4, Some(thread));
        assert_eq!((crowded, others), (false, 0));
        let before = kept[thread as usize].swap(usize::from(rank), Ordering::SeqCst);
        assert!(before == usize::MAX || before == usize::from(rank));
    });
    ranks.are_free(now() + LEASE);
}

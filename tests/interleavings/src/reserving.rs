//! Threads that reserve shards of one key.

use std::sync::LazyLock;
use std::time::Instant;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};

use crate::reservations::{KEPT, Reservations};

const KEY: u64 = 7;

/// One moment, so that no thread loses a shard by itself.
static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The reservations, and how many threads are on each shard.
struct Shards {
    reservations: Reservations,
    on: [AtomicUsize; 4],
}

impl Shards {
    fn new() -> Arc<Self> {
        Arc::new(Shards {
            reservations: Reservations::new(),
            on: std::array::from_fn(|_| AtomicUsize::new(0)),
        })
    }

    /// Counts once. Returns the shard's index, whether none was free, and how many others were on it.
    fn count(&self, shards: u16, thread: Option<u64>) -> (u16, bool, usize) {
        let reserved = self.reservations.reserve(KEY, 0..shards, thread, *NOW);
        let (index, none_was_free) = reserved;
        let on = &self.on[usize::from(index)];
        let others = on.fetch_add(1, Ordering::SeqCst);
        on.fetch_sub(1, Ordering::SeqCst);
        let keeps = thread.map(|thread| (thread, *NOW));
        self.reservations.release(KEY, index, keeps);
        (index, none_was_free, others)
    }

    /// All shards are free: they are reserved in their order.
    fn are_free(&self, at: Instant) {
        for index in 0..4 {
            let reserved = self.reservations.reserve(KEY, 0..4, None, at);
            assert_eq!(reserved, (index, false));
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
        thread.join().expect("its shards are its own");
    }
}

/// As many shards as threads: no two threads are on one.
pub fn as_many_shards_as_threads() {
    let shards = Shards::new();
    let of_threads = Arc::clone(&shards);
    threads(move |_| {
        let (_, none_was_free, others) = of_threads.count(3, None);
        assert_eq!((none_was_free, others), (false, 0));
    });
    shards.are_free(*NOW);
}

/// Two shards: two threads at most are on one.
pub fn fewer_shards_than_threads() {
    let shards = Shards::new();
    let of_threads = Arc::clone(&shards);
    threads(move |_| {
        let (index, _, others) = of_threads.count(2, None);
        assert!(index < 2 && others < 2);
    });
    shards.are_free(*NOW);
}

/// A thread that met a conflict gives its shard up, and keeps none.
pub fn threads_that_give_their_shards_up() {
    let shards = Shards::new();
    let of_threads = Arc::clone(&shards);
    threads(move |thread| {
        let (index, _, others) = of_threads.count(4, Some(thread));
        assert_eq!(others, 0);
        of_threads.reservations.give_up(KEY, index);
    });
    shards.are_free(*NOW);
}

/// Threads inside transactions keep their shards from increment to increment, for a while.
pub fn threads_that_keep_their_shards() {
    let shards = Shards::new();
    let of_threads = Arc::clone(&shards);
    let kept: [AtomicUsize; 3] = std::array::from_fn(|_| AtomicUsize::new(usize::MAX));
    threads(move |thread| {
        let (index, none_was_free, others) = of_threads.count(4, Some(thread));
        assert_eq!((none_was_free, others), (false, 0));
        let before = kept[thread as usize].swap(usize::from(index), Ordering::SeqCst);
        assert!(before == usize::MAX || before == usize::from(index));
    });
    shards.are_free(*NOW + KEPT);
}

//! Everything that this process remembers for the choice of shards, and the shard that each of its threads keeps to.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::contention::{Contentions, CountKind, Rates, ShortestTime};
use super::keys::Recent;
use super::reservations::Reservations;
use super::shard_choice::{ChoiceCounters, Warnings};
use crate::per_process::{MadeIn, PerProcess, random_bits};

/// At most 20 probes a second.
const BETWEEN_PROBES: Duration = Duration::from_millis(50);

/// Everything that a process knows of its keys, for [`Adaptive`](super::ShardChoice::Adaptive).
#[derive(Debug)]
pub(crate) struct Process {
    pub(super) made_in: MadeIn,
    /// Where the process and its threads begin among the shards after the first one.
    pub(super) offset: u32,
    pub(super) reservations: Reservations,
    pub(super) contentions: Contentions,
    /// How often keys are counted on in batches.
    pub(super) batches: Rates,
    /// Of each [kind](CountKind) of increment.
    pub(super) shortest: [ShortestTime; CountKind::KINDS],
    pub(super) probes: Mutex<Recent<(), ()>>,
    pub(super) stats: ChoiceCounters,
    pub(super) warnings: Warnings,
}

static PROCESS: PerProcess<Process> = PerProcess::new(|_| Process::new(random_bits() as u32));

impl Process {
    pub(crate) fn this() -> &'static Process {
        PROCESS.own()
    }

    pub(crate) fn new(offset: u32) -> Self {
        Process {
            made_in: MadeIn::this_process(),
            offset,
            reservations: Reservations::new(),
            contentions: Contentions::new(),
            batches: Rates::new(),
            shortest: Default::default(),
            probes: Mutex::new(Recent::new(BETWEEN_PROBES)),
            stats: ChoiceCounters::default(),
            warnings: Warnings::new(),
        }
    }
}

thread_local! {
    static ID: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
    static OWN_SHARD: Cell<u64> = Cell::new(id_of_this_thread());
}

/// This thread's id. No other thread ever has it.
pub(super) fn id_of_this_thread() -> u64 {
    ID.with(|id| *id)
}

/// The index of the shard that this thread keeps to, after `LongAdder`'s probe.
pub(super) fn shard_of_this_thread(offset: u32, shards: u16) -> u16 {
    let index = u64::from(offset).wrapping_add(OWN_SHARD.get());
    (index % u64::from(shards.max(1))) as u16
}

/// Moves this thread to another shard, if there is one.
pub(super) fn move_this_thread_on(shards: u16, random: u64) {
    if let Some(others @ 1..) = u64::from(shards).checked_sub(1) {
        let steps = 1 + random % others;
        OWN_SHARD.set(OWN_SHARD.get().wrapping_add(steps));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_shard_until_it_moves_on() {
        let here = || shard_of_this_thread(3, 8);
        let first = here();
        assert_eq!(here(), first);
        for random in [0, 6, 7, u64::MAX] {
            let before = here();
            move_this_thread_on(8, random);
            assert_ne!(here(), before);
            assert_eq!(here(), here());
        }
        move_this_thread_on(1, 0);
        assert_eq!(shard_of_this_thread(3, 1), 0);
    }

    #[test]
    fn threads_in_a_row_have_shards_in_a_row() {
        let (one, two) = std::thread::spawn(|| {
            let other =
                std::thread::spawn(|| (id_of_this_thread(), shard_of_this_thread(0, u16::MAX)));
            (
                (id_of_this_thread(), shard_of_this_thread(0, u16::MAX)),
                other.join().unwrap(),
            )
        })
        .join()
        .unwrap();
        assert_ne!(one.0, two.0);
        assert_ne!(one.1, two.1);
    }
}

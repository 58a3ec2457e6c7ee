//! Everything that this process remembers for the choice of shards, and the place that each of its threads keeps to.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::claims::Claims;
use super::contention::{Contention, ContentionTable, CountKind, Pace, Rates, ShortestTime};
use super::shard_choice::{ChoiceCounters, Warnings};
use crate::per_process::{MadeIn, PerProcess, random_bits};

/// Everything that a process knows of its keys, for [`Adaptive`](super::ShardChoice::Adaptive).
#[derive(Debug)]
pub(crate) struct Process {
    pub(super) made_in: MadeIn,
    /// The place at which the process's ranks, and its threads, begin.
    pub(super) offset: u32,
    pub(super) claims: Claims,
    pub(super) contention: ContentionTable,
    /// How often keys are counted on in batches.
    pub(super) batches: Rates,
    /// Of each [kind](CountKind) of count.
    pub(super) shortest: [ShortestTime; CountKind::NUMBER],
    pub(super) probes: Pace,
    pub(super) stats: ChoiceCounters,
    pub(super) warnings: Warnings,
}

static PROCESS: PerProcess<Process> =
    PerProcess::new(|_| Process::new(random_bits() as u32, Instant::now()));

impl Process {
    pub(crate) fn this() -> &'static Process {
        PROCESS.own()
    }

    pub(crate) fn new(offset: u32, now: Instant) -> Self {
        Process {
            made_in: MadeIn::this_process(),
            offset,
            claims: Claims::default(),
            contention: ContentionTable::new(now),
            batches: Rates::new(now),
            shortest: Default::default(),
            probes: Pace::new(now),
            stats: ChoiceCounters::default(),
            warnings: Warnings::default(),
        }
    }

    /// The place of a rank among so many shards: for rank 0 the first in every process, for the others one of the process's own.
    pub(super) fn place_of(&self, rank: u16, shards: u16) -> u16 {
        match (rank.checked_sub(1), u32::from(shards).checked_sub(1)) {
            (Some(behind), Some(others)) if others > 0 => {
                let place = (self.offset % others + u32::from(behind)) % others;
                place as u16 + 1 // not above `others`
            }
            _ => 0,
        }
    }

    pub(super) fn mark_hot(&self, key: u64, now: Instant) {
        if self.contention.get(key, now) != Contention::Hot {
            self.stats.hot.fetch_add(1, Ordering::Relaxed);
        }
        self.contention.set(key, Contention::Hot, now);
    }
}

thread_local! {
    static NUMBER: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
    static PLACE: Cell<u64> = Cell::new(number_of_this_thread());
}

/// This thread's number, which no other thread ever has.
pub(super) fn number_of_this_thread() -> u64 {
    NUMBER.with(|number| *number)
}

/// The place that this thread keeps to, after `LongAdder`'s probe.
pub(super) fn place_of_this_thread(offset: u32, shards: u16) -> u16 {
    let place = u64::from(offset).wrapping_add(PLACE.get());
    (place % u64::from(shards.max(1))) as u16
}

/// Moves this thread to another place, if there is one.
pub(super) fn move_this_thread_on(shards: u16, random: u64) {
    if let Some(others @ 1..) = u64::from(shards).checked_sub(1) {
        let steps = 1 + random % others;
        PLACE.set(PLACE.get().wrapping_add(steps));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_a_place_of_its_own() {
        for shards in [1, 2, 3, 16, 4096] {
            for offset in [0, 1, 17, u32::MAX] {
                let process = Process::new(offset, Instant::now());
                let mut all: Vec<_> = (0..shards)
                    .map(|rank| process.place_of(rank, shards))
                    .collect();
                assert_eq!(all[0], 0);
                all.sort_unstable();
                assert_eq!(all, (0..shards).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_thread_keeps_its_place_until_it_moves_on() {
        let here = || place_of_this_thread(3, 8);
        let first = here();
        assert_eq!(here(), first);
        for random in [0, 6, 7, u64::MAX] {
            let before = here();
            move_this_thread_on(8, random);
            assert_ne!(here(), before);
            assert_eq!(here(), here());
        }
        move_this_thread_on(1, 0);
        assert_eq!(place_of_this_thread(3, 1), 0);
    }

    #[test]
    fn threads_in_a_row_have_places_in_a_row() {
        let (one, two) = std::thread::spawn(|| {
            let other =
                std::thread::spawn(|| (number_of_this_thread(), place_of_this_thread(0, u16::MAX)));
            (
                (number_of_this_thread(), place_of_this_thread(0, u16::MAX)),
                other.join().unwrap(),
            )
        })
        .join()
        .unwrap();
        assert_ne!(one.0, two.0);
        assert_ne!(one.1, two.1);
    }
}

//! How many callers of a slot lead at a time.
//!
//! A caller waits for the commit in progress and for its own: about `C · (1 + 1 / L)`, where a commit takes `C` and `L` callers lead, each on
//! a shard of its own. So the more leaders, the shorter the wait. But each leader sends a statement, which costs processor time. Where commits
//! are slow, nobody has to wait at all as long as callers are few. Where commits are fast, one leader at a time is best.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The greatest number of leaders of a slot. Callers who are no more than this may each count alone.
pub(super) const MOST: usize = 16;

/// The time of a commit, in microseconds, for which another leader is worth its statement, where callers share batches.
const FOR_A_LEADER: u64 = 400;

/// The time of a commit, in microseconds, for which one more caller may count alone before the processor is the limit.
const FOR_A_CALLER: u64 = 60;

/// How long a batch takes, from its statement to its commit, in microseconds. All slots of a combiner share it: they commit to one disk.
///
/// It falls with each faster batch, and rises slowly: on a busy processor each batch takes longer, and more leaders would not help.
#[derive(Default)]
pub(crate) struct BatchTime(AtomicU64);

impl BatchTime {
    /// Notes that a batch took so long.
    pub(crate) fn took(&self, time: Duration) {
        let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let mean = match self.0.load(Ordering::Relaxed) {
            0 => time,
            mean if time < mean => mean - (mean - time) / 4,
            mean => mean + (time - mean) / 64,
        };
        self.0.store(mean, Ordering::Relaxed); // a lost update costs one sample
    }

    /// How many of so many callers may lead.
    pub(crate) fn leaders(&self, callers: usize, most: usize) -> usize {
        let time = self.0.load(Ordering::Relaxed);
        let (alone, leaders) = (time / FOR_A_CALLER, time / FOR_A_LEADER);
        if callers <= most && callers as u64 <= alone {
            return most;
        }
        usize::try_from(leaders).unwrap_or(most).clamp(1, most)
    }
}

/// The greatest number of callers at a time in a slot. It falls slowly, since those whose commits end together come back one by one.
#[derive(Default)]
pub(crate) struct Peak {
    /// 64 times the number.
    scaled: usize,
}

impl Peak {
    pub(crate) fn see(&mut self, callers: usize) {
        self.scaled = self.scaled.max(callers * 64);
    }

    /// Falls a little, as with each batch.
    pub(crate) fn fall(&mut self) {
        self.scaled -= self.scaled / 64;
    }

    pub(crate) fn callers(&self) -> usize {
        self.scaled.div_ceil(64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaders(micros: u64, callers: usize) -> usize {
        let time = BatchTime(AtomicU64::new(micros));
        time.leaders(callers, MOST)
    }

    #[test]
    fn few_callers_count_alone_where_commits_are_slow() {
        assert_eq!(leaders(150, 2), MOST);
        assert_eq!([leaders(300, 5), leaders(300, 6)], [MOST, 1]);
        assert_eq!([leaders(1_600, 16), leaders(1_600, 17)], [MOST, 4]);
    }

    #[test]
    fn more_lead_the_longer_a_batch_takes() {
        let of_many = |micros| leaders(micros, 64);
        assert_eq!(
            [0, 300, 900, 2_000, 60_000].map(of_many),
            [1, 1, 2, 5, MOST]
        );
        let time = BatchTime(AtomicU64::new(60_000));
        assert_eq!([time.leaders(64, 1), time.leaders(1, 1)], [1, 1]);
    }

    #[test]
    fn the_time_falls_fast_and_rises_slowly() {
        let time = BatchTime::default();
        let took = |micros| {
            time.took(Duration::from_micros(micros));
            time.0.load(Ordering::Relaxed)
        };
        assert_eq!([took(800), took(400), took(1_340)], [800, 700, 710]);
        time.took(Duration::MAX);
        assert_eq!(time.leaders(64, MOST), MOST);
    }

    #[test]
    fn the_peak_falls_with_each_batch() {
        let mut peak = Peak::default();
        peak.see(64);
        peak.fall();
        peak.see(10);
        assert_eq!(peak.callers(), 63);
        (0..1_000).for_each(|_| peak.fall());
        assert_eq!(peak.callers(), 1);
    }
}

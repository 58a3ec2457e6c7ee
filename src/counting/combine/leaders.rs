//! How many callers of a slot lead at a time.
//!
//! A caller waits for the commit in progress and for its own: about `C · (1 + 1 / L)`, where a commit takes `C` and `L` callers lead, each on
//! a shard of its own. So the more leaders, the shorter the wait. But each leader sends a statement, which costs processor time. Where commits
//! are slow, nobody has to wait at all as long as callers are few. Where commits are fast, one leader at a time is best.
//!
//! A busy server is not a slow commit: more statements would only make it busier, also for other processes. What tells them apart is the
//! fastest recent batch, which a queue hardly delays, and how much longer the others take. [TCP Vegas](https://doi.org/10.1109/49.464716)
//! (Brakmo, Peterson, 1995) detects a full network the same way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The greatest number of leaders of a slot. Callers who are no more than this may each count alone.
pub(super) const MOST: usize = 16;

/// Up to this many callers count alone even where the server is busy.
const FEW: usize = 4;

/// A server is busy if batches take this many times as long as the fastest.
const BUSY: u64 = 3;

/// The time of a commit that is worth another leader, where callers share batches.
const FOR_A_LEADER: Duration = Duration::from_micros(200);

/// The time of a commit for which this many callers, at most [`MOST`], may count alone before the processor is the limit.
fn for_callers_alone(callers: usize) -> Duration {
    let micros = (6 * callers * callers).min(440);
    Duration::from_micros(micros as u64)
}

/// How long a batch takes, from its statement to its commit, in nanoseconds. All slots of a combiner share it: they commit to one disk.
#[derive(Default)]
pub(crate) struct BatchTime {
    /// The fastest recent batch: it rises to twice the time within some 6,000 batches.
    least: AtomicU64,
    /// The mean of about 16 batches.
    mean: AtomicU64,
}

impl BatchTime {
    /// Notes that a batch took this long.
    pub(crate) fn took(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let least = match self.least.load(Ordering::Relaxed) {
            0 => time,
            least => time.min(least.saturating_add(least / 8_192)),
        };
        let mean = match self.mean.load(Ordering::Relaxed) {
            0 => time,
            mean => mean - mean / 16 + time / 16,
        };
        self.least.store(least, Ordering::Relaxed); // a lost update costs one sample
        self.mean.store(mean, Ordering::Relaxed);
    }

    /// How many of this many callers may lead.
    pub(crate) fn leaders(&self, callers: usize, most: usize) -> usize {
        let least = self.least.load(Ordering::Relaxed);
        let is_busy = self.mean.load(Ordering::Relaxed) > least.saturating_mul(BUSY);
        let commit = Duration::from_nanos(least);
        let may_be_alone = callers <= FEW || (callers <= most && !is_busy);
        if may_be_alone && commit >= for_callers_alone(callers) {
            return most;
        }
        if is_busy {
            return 1;
        }
        let leaders = commit.as_nanos() / FOR_A_LEADER.as_nanos();
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

    fn batches_of(micros: u64) -> BatchTime {
        let time = BatchTime::default();
        time.took(Duration::from_micros(micros));
        time
    }

    fn leaders(micros: u64, callers: usize) -> usize {
        batches_of(micros).leaders(callers, MOST)
    }

    #[test]
    fn few_callers_count_alone_where_commits_are_slow() {
        assert_eq!([leaders(23, 2), leaders(24, 2)], [1, MOST]);
        assert_eq!([leaders(120, 4), leaders(120, 5)], [MOST, 1]);
        assert_eq!([leaders(450, 16), leaders(450, 17)], [MOST, 2]);
    }

    #[test]
    fn more_lead_the_longer_a_batch_takes() {
        let of_many = |micros| leaders(micros, 64);
        assert_eq!(
            [0, 150, 450, 1_000, 30_000].map(of_many),
            [1, 1, 2, 5, MOST]
        );
        let time = batches_of(30_000);
        assert_eq!([time.leaders(64, 1), time.leaders(1, 1)], [1, 1]);
    }

    #[test]
    fn one_leads_where_the_server_is_busy_and_few_still_count_alone() {
        let time = batches_of(1_000);
        (0..100).for_each(|_| time.took(Duration::from_micros(2_900)));
        assert_eq!([4, 16, 64].map(|n| time.leaders(n, MOST)), [MOST, MOST, 5]);
        (0..100).for_each(|_| time.took(Duration::from_micros(6_000)));
        assert_eq!([4, 16, 64].map(|n| time.leaders(n, MOST)), [MOST, 1, 1]);
    }

    #[test]
    fn the_fastest_batch_is_forgotten_slowly() {
        let time = batches_of(100);
        let leaders_after = |batches| {
            (0..batches).for_each(|_| time.took(Duration::from_millis(1)));
            time.leaders(16, MOST)
        };
        assert_eq!([leaders_after(1_000), leaders_after(20_000)], [1, MOST]);
        time.took(Duration::from_micros(100));
        assert_eq!(time.leaders(16, MOST), 1);
        (0..3).for_each(|_| time.took(Duration::MAX));
        assert_eq!(time.leaders(64, MOST), 1);
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

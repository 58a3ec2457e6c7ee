//! How many callers of a slot lead at a time.
//!
//! A caller waits for the commit in progress and for its own: about `C · (1 + 1 / L)`, where a commit takes `C` and `L` callers lead, each on
//! a shard of its own. So the more leaders, the shorter the wait. But each leader sends a statement, which costs processor time. Where commits
//! are slow and callers few, nobody has to wait at all. Where commits are fast, or the server is busy, one leader at a time is best.
//!
//! So a combiner tries 1, 2, 4, 8 and 16 leaders, and keeps to the number with which calls are shortest. How long they take follows from
//! [Little's law](https://doi.org/10.1287/opre.9.3.383) (Little, 1961): the time that callers were present, divided by the calls that ended.
//! From time to time another number is tried again: the slower it was, the more seldom, down to a quarter as often.
//!
//! On a busy server more leaders make the own calls shorter and those of all other processes longer, until all processes have many leaders
//! and every call is long. So one leads while the server is slow to answer what waits for no commit, compared with its fastest answer of late.
//! This is seen only while one leads, as at first.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The greatest number of leaders of a slot.
pub(super) const MOST: usize = 16;

/// How many numbers of leaders are tried: the powers of two up to [`MOST`].
const NUMBERS: usize = MOST.ilog2() as usize + 1;

/// How many ranges of callers learn apart: 1, 2, up to 4, up to 8 and so on.
const RANGES: usize = 17;

/// Up to this many callers may all lead even where the server is busy.
const FEW: usize = 4;

/// A server is busy if an answer takes the time of the fastest one, times the callers, times this. The callers are in it because they wake up
/// together, and delay the answer too.
const BUSY: f64 = 0.75;

/// It stays busy until an answer takes less than that with this factor.
const IDLE: f64 = 0.5;

/// So many trials pass before a number is tried again that was as fast as the fastest.
const SELDOM: u128 = 32;

/// The greatest time of the calls of a batch, in nanoseconds a call. Who waits longer waits for a lock or for a server that is down.
const LONGEST: u128 = 1_000_000_000;

/// The best number of leaders for each number of callers, as far as a combiner has learned. Its slots learn together, since most applications
/// commit to one disk.
pub(crate) struct Leaders {
    ranges: [Range; RANGES],
    answers: Answers,
}

/// How long the server takes to answer a question that needs no commit, in nanoseconds.
#[derive(Default)]
struct Answers {
    /// The fastest answer of late: it rises to twice the time within some 6,000 answers.
    least: AtomicU64,
    /// The mean of about 32 answers.
    mean: AtomicU64,
    is_busy: AtomicBool,
}

struct Range {
    /// The number of leaders in the present trial, as a power of two. One leads at first: that does no harm to a server that is busy.
    power: AtomicUsize,
    trials: Mutex<Trials>,
}

struct Trials {
    /// How many calls a trial takes, after as many that are not measured if its number is new.
    length: i128,
    /// The calls that ended in this trial. Below 0 they are not measured.
    calls: i128,
    /// How long callers were present in it, in nanoseconds.
    spent: u128,
    /// What is known of each number of leaders, by its power of two.
    tried: Vec<Tried>,
}

#[derive(Default, Clone)]
struct Tried {
    /// How long a call takes, in nanoseconds; 0 before the first trial.
    mean: u128,
    /// How many trials of others ended since.
    ago: u128,
    /// How often it was tried anew.
    times: u32,
}

impl Default for Leaders {
    fn default() -> Self {
        let range = |range| Range {
            power: AtomicUsize::new(0),
            trials: Mutex::new(Trials::new(range)),
        };
        Leaders {
            ranges: std::array::from_fn(range),
            answers: Answers::default(),
        }
    }
}

impl Leaders {
    /// The number of leaders for this many callers.
    pub(crate) fn choose(&self, callers: usize) -> usize {
        match self.is_limited(callers) {
            true => 1,
            false => 1 << self.ranges[range_of(callers)].power.load(Ordering::Relaxed),
        }
    }

    /// Notes that a leader of this many callers waited so long for an answer that needs no commit. It counts only while one leads: several
    /// make the server busy themselves.
    pub(crate) fn answered(&self, callers: usize, time: Duration) {
        if callers > FEW && self.choose(callers) == 1 {
            self.answers.took(time, callers);
        }
    }

    /// Whether only one of this many callers may lead.
    fn is_limited(&self, callers: usize) -> bool {
        callers > FEW && self.answers.is_busy.load(Ordering::Relaxed)
    }

    /// Learns how long callers were present, two callers for a second being two seconds, until these calls of theirs ended.
    pub(crate) fn learn(&self, callers: usize, spent: Duration, calls: usize) {
        if callers <= 1 {
            return;
        }
        let range = &self.ranges[range_of(callers)];
        let mut trials = range.trials.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_limited(callers) {
            trials.settle();
            return;
        }
        let power = range.power.load(Ordering::Relaxed);
        if trials.measure(power, spent.as_nanos(), calls) {
            let next = trials.end(power);
            range.power.store(next, Ordering::Relaxed);
        }
    }
}

impl Answers {
    fn took(&self, time: Duration, callers: usize) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let least = match self.least.load(Ordering::Relaxed) {
            0 => time,
            least => time.min(least.saturating_add((least / 8_192).max(1))),
        };
        let mean = match self.mean.load(Ordering::Relaxed) {
            0 => time,
            mean => mean - mean / 32 + time.min(mean.saturating_mul(16)) / 32,
        };
        self.least.store(least, Ordering::Relaxed); // a lost update costs one sample
        self.mean.store(mean, Ordering::Relaxed);
        let is_busy = self.is_busy.load(Ordering::Relaxed);
        let factor = if is_busy { IDLE } else { BUSY };
        let limit = factor * callers as f64 * least as f64;
        self.is_busy.store(mean as f64 > limit, Ordering::Relaxed);
    }
}

/// The range of callers up to the next power of two.
fn range_of(callers: usize) -> usize {
    let range = callers.max(1).next_power_of_two().ilog2() as usize;
    range.min(RANGES - 1)
}

impl Trials {
    fn new(range: usize) -> Self {
        let length = (32 << range).max(128);
        Trials {
            length,
            calls: -length,
            spent: 0,
            tried: vec![Tried::default(); NUMBERS.min(range + 1)],
        }
    }

    /// Adds calls to the present trial, of 2 to the power of `power` leaders. True if it has enough.
    fn measure(&mut self, power: usize, spent: u128, calls: usize) -> bool {
        let is_settling = self.calls < 0;
        let length = if is_settling {
            self.length / 8
        } else {
            self.length
        };
        let longest = match self.tried[power].mean {
            0 => LONGEST,
            mean => LONGEST.min(16 * mean),
        };
        self.calls += calls as i128;
        self.spent += spent.min(longest * calls as u128);
        // After twice the time of the fastest number it is known well enough.
        let least = self.least();
        let is_slow = least > 0 && self.spent > 2 * least * length.unsigned_abs();
        if is_settling && (is_slow || self.calls >= 0) {
            (self.calls, self.spent) = (0, 0);
            return false;
        }
        self.calls > 0 && (is_slow || self.calls >= self.length)
    }

    /// The mean of the fastest number; 0 until each was tried.
    fn least(&self) -> u128 {
        let means = self.tried.iter().map(|tried| tried.mean);
        means.min().unwrap_or_default()
    }

    /// Measures nothing until those calls have ended that other numbers led.
    fn settle(&mut self) {
        self.spent = 0;
        self.calls = -self.length / 8;
    }

    /// Ends the present trial. Returns the power of the next one.
    fn end(&mut self, power: usize) -> usize {
        let time = (self.spent / self.calls.unsigned_abs()).max(1);
        self.tried.iter_mut().for_each(|tried| tried.ago += 1);
        self.tried[power].took(time);
        let next = self.next();
        self.settle();
        if self.tried[next].mean == 0 {
            self.calls = -self.length; // until its leaders have shards
        } else if next == power {
            self.calls = 0;
        }
        next
    }

    fn next(&self) -> usize {
        let least = self.least();
        let is_due = |tried: &Tried| tried.mean == 0 || tried.is_due(least);
        let due = self.tried.iter().position(is_due);
        // So little slower is as fast: then the fewest lead.
        let is_fastest = |tried: &Tried| tried.mean <= least + least / 32;
        let fastest = || self.tried.iter().position(is_fastest);
        due.or_else(fastest).unwrap_or_default()
    }
}

impl Tried {
    fn took(&mut self, time: u128) {
        if self.mean == 0 || self.ago > 4 {
            self.mean = time;
            self.times = self.times.saturating_add(1);
        } else {
            self.mean = (3 * self.mean + time) / 4;
        }
        self.ago = 0;
    }

    /// Whether it is tried again, where `least` is the mean of the fastest. At first that is sooner, since the first trial may be unlucky.
    fn is_due(&self, least: u128) -> bool {
        let seldom = SELDOM.min(4 << self.times.min(8));
        let mean = self.mean.min(2 * least);
        self.ago * least * least > seldom * mean * mean
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

    impl Leaders {
        /// As if this were the best number of leaders for any number of callers.
        pub(crate) fn are(&self, number: usize) {
            for range in &self.ranges {
                let power = number.ilog2() as usize;
                range.power.store(power, Ordering::Relaxed);
            }
        }

        /// How many calls of so many callers the first trial has.
        pub(crate) fn calls(&self, callers: usize) -> i128 {
            let trials = self.ranges[range_of(callers)].trials.lock().unwrap();
            trials.calls + trials.length
        }

        fn length(&self, callers: usize) -> i128 {
            let trials = self.ranges[range_of(callers)].trials.lock().unwrap();
            trials.length
        }

        /// The numbers of leaders of the last of 2,000 batches of these callers, if a call takes so many microseconds.
        fn after(&self, callers: usize, time: impl Fn(usize) -> u64) -> Vec<usize> {
            let batch = |_| {
                let leaders = self.choose(callers);
                let spent = Duration::from_micros(time(leaders)) * callers as u32;
                self.learn(callers, spent, callers);
                leaders
            };
            (0..2_000).map(batch).skip(1_000).collect()
        }
    }

    /// The share of batches in which so many led.
    fn share(of: usize, leaders: &[usize]) -> f64 {
        let led = leaders.iter().filter(|number| **number == of);
        led.count() as f64 / leaders.len() as f64
    }

    #[test]
    fn the_number_with_the_shortest_calls_leads() {
        for (callers, best) in [(2, 2_usize), (8, 1), (16, 4), (64, 16), (10_000, 8)] {
            let time = |leaders: usize| 1_000 + 500 * best.abs_diff(leaders) as u64;
            let leaders = Leaders::default().after(callers, time);
            assert!(share(best, &leaders) > 0.8, "{callers}: {leaders:?}");
        }
    }

    #[test]
    fn one_leads_at_first_and_where_more_are_no_faster() {
        let all = Leaders::default();
        assert_eq!([1, 2, 64].map(|callers| all.choose(callers)), [1; 3]);
        let leaders = all.after(8, |leaders| 1_000 - leaders as u64);
        assert!(share(1, &leaders) > 0.8, "{leaders:?}");
    }

    /// Trying them again takes a small part of the time, however slow they are.
    #[test]
    fn numbers_that_are_far_slower_cost_little() {
        let all = Leaders::default();
        let time = |leaders: usize| if leaders == 8 { 1_000 } else { 20_000 };
        let batch = |_| {
            let leaders = all.choose(64);
            all.learn(64, Duration::from_micros(time(leaders)) * 64, 64);
            time(leaders)
        };
        let spent: u64 = (0..22_000).map(batch).skip(2_000).sum();
        assert!(spent < 20_000 * 1_150, "{spent}");
    }

    /// What was counted while one had to lead says nothing of the number in trial.
    #[test]
    fn a_trial_begins_anew_after_a_busy_time() {
        let all = Leaders::default();
        let call = Duration::from_millis(1);
        (0..all.length(8)).for_each(|_| all.learn(8, call, 1));
        assert_eq!(all.calls(8), all.length(8));
        all.answers.is_busy.store(true, Ordering::Relaxed);
        all.learn(8, call, 1);
        assert_eq!(all.calls(8), all.length(8) - all.length(8) / 8);
    }

    #[test]
    fn ranges_of_callers_learn_apart() {
        let all = Leaders::default();
        all.after(8, |leaders| 8_000 / leaders as u64);
        all.after(64, |leaders| 1_000 * leaders as u64);
        assert_eq!([5, 8, 33].map(|callers| all.choose(callers)), [8, 8, 1]);
        assert_eq!(all.choose(1), 1);
    }

    /// A process that shares the server comes or goes.
    #[test]
    fn another_number_is_learned_when_times_change() {
        let all = Leaders::default();
        assert!(share(8, &all.after(8, |leaders| 8_000 / leaders as u64)) > 0.8);
        all.after(8, |leaders| 1_000 * leaders as u64);
        assert!(share(1, &all.after(8, |leaders| 1_000 * leaders as u64)) > 0.8);
    }

    /// Without a look at the server's answers each of these processes would count alone.
    #[test]
    fn one_leads_while_the_server_is_busy() {
        let all = Leaders::default();
        let answers = |micros| {
            (0..200).for_each(|_| all.answered(8, Duration::from_micros(micros)));
            [2, 8, 64].map(|callers| all.choose(callers))
        };
        all.are(8);
        assert_eq!(answers(50), [8; 3]); // several lead: what they wait for tells nothing
        all.are(1);
        answers(50);
        all.are(8);
        assert_eq!(all.choose(8), 8);
        all.are(1);
        answers(350);
        all.are(8);
        assert_eq!([2, 8, 64].map(|callers| all.choose(callers)), [8, 1, 1]);
        assert_eq!(answers(250), [8, 1, 1]);
        assert_eq!(answers(100), [8; 3]);
    }

    /// A lock is held for long, once: that says nothing of commits.
    #[test]
    fn a_wait_for_a_lock_changes_little() {
        let all = Leaders::default();
        let time = |leaders: usize| 8_000 / leaders as u64;
        all.after(8, time);
        all.learn(8, Duration::MAX, 1);
        let leaders = all.after(8, time);
        assert!(share(8, &leaders) > 0.8, "{leaders:?}");
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

//! When the next pass of a folder begins.

use std::time::Duration;

/// The longest pause between failing passes, unless the interval is longer.
const LONGEST_AFTER_FAILURES: Duration = Duration::from_secs(60);

/// When the next pass of a folder begins.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    pub(super) interval: Duration,
    /// The part of each pause by which it is drawn shorter or longer.
    pub(super) jitter: f64,
    /// How many passes in a row have failed.
    pub(super) failures: u32,
}

impl Schedule {
    /// The pause before the first pass, anywhere in an interval: processes that start together do not fold together.
    pub(super) fn first(&self, random: f64) -> Duration {
        self.interval.mul_f64(random)
    }

    /// The pause before the next pass, which doubles with each failure in a row. `random` is from 0 to 1.
    pub(super) fn next(&self, random: f64) -> Duration {
        let longest = self.interval.max(LONGEST_AFTER_FAILURES);
        let doubled = 2_u32.saturating_pow(self.failures);
        let pause = self.interval.saturating_mul(doubled).min(longest);
        pause.mul_f64(1.0 + self.jitter * (2.0 * random - 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(interval: u64, failures: u32, random: f64) -> f64 {
        let schedule = Schedule {
            interval: Duration::from_secs(interval),
            jitter: 0.1,
            failures,
        };
        schedule.next(random).as_secs_f64()
    }

    #[test]
    fn pauses_differ_by_the_jitter_and_double_with_failures() {
        assert_eq!(
            [0.0, 0.5, 1.0].map(|r| seconds(10, 0, r)),
            [9.0, 10.0, 11.0]
        );
        assert_eq!(
            [1, 2, 3].map(|failures| seconds(10, failures, 0.5)),
            [20.0, 40.0, 60.0]
        );
        assert_eq!(
            [0, 100].map(|failures| seconds(300, failures, 0.5)),
            [300.0, 300.0]
        );
    }

    #[test]
    fn the_first_pass_begins_anywhere_in_the_interval() {
        let schedule = Schedule {
            interval: Duration::from_secs(10),
            jitter: 0.1,
            failures: 0,
        };
        assert_eq!(schedule.first(0.25), Duration::from_millis(2_500));
    }
}

//! No more rows in a second than were asked for.

use std::time::{Duration, Instant};

/// A batch that begins late is made up for, by so much at most.
const MADE_UP: Duration = Duration::from_millis(100);

/// When the next batch may begin. It is told the time, and sleeps nowhere.
#[derive(Debug)]
pub struct Pace {
    per_second: f64,
    due: Option<Instant>,
}

impl Pace {
    /// Zero rows are no limit, as `None` is.
    pub fn at_most_per_second(rows: Option<u32>) -> Option<Self> {
        Some(Pace {
            per_second: rows.filter(|rows| *rows > 0)?.into(),
            due: None,
        })
    }

    /// The size of batches that are due after a second at most.
    pub fn batch(&self, rows: usize) -> usize {
        rows.min(self.per_second as usize)
    }

    /// When the next batch is due, after one of `rows` that began at this time. The time that a batch takes is a part of its pause.
    pub fn next(&mut self, rows: usize, began: Instant) -> Instant {
        let earliest = began.checked_sub(MADE_UP).unwrap_or(began);
        let due = self.due.map_or(began, |due| due.max(earliest));
        let due = due + Duration::from_secs_f64(rows as f64 / self.per_second);
        self.due = Some(due);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many rows a second are done by 100 batches, each of which takes so many milliseconds.
    fn rate(per_second: u32, rows: usize, millis: impl Fn(u64) -> u64) -> f64 {
        let mut pace = Pace::at_most_per_second(Some(per_second)).unwrap();
        let rows = pace.batch(rows);
        let begin = Instant::now();
        let mut now = begin;
        for batch in 0..100 {
            let began = now;
            now += Duration::from_millis(millis(batch));
            now = now.max(pace.next(rows, began));
        }
        (100 * rows) as f64 / (now - begin).as_secs_f64()
    }

    #[test]
    fn a_limit_is_reached_and_not_exceeded() {
        let rounded = |rate: f64| rate.round() as u32;
        assert_eq!(rounded(rate(1000, 100, |_| 0)), 1000);
        assert_eq!(rounded(rate(1000, 100, |_| 70)), 1000);
        assert_eq!(rounded(rate(1000, 5000, |_| 900)), 1000);
        assert_eq!(rounded(rate(7, 100, |_| 300)), 7);
        // The database is slower.
        assert_eq!(rounded(rate(1000, 100, |_| 400)), 250);
    }

    #[test]
    fn a_late_batch_is_made_up_for_within_bounds() {
        let is_late = |batch| batch % 10 == 0;
        let late = |millis| move |batch| if is_late(batch) { millis } else { 50 };
        assert_eq!(rate(1000, 100, late(180)).round(), 1000.0);
        // It begins 900 ms late, of which 100 are made up for.
        let mut pace = Pace::at_most_per_second(Some(1000)).unwrap();
        let began = Instant::now();
        pace.next(100, began);
        let late = began + Duration::from_secs(1);
        assert_eq!(pace.next(100, late), late);
        assert_eq!(pace.next(100, late), late + Duration::from_millis(100));
    }

    #[test]
    fn no_limit_is_no_pace() {
        assert!(Pace::at_most_per_second(None).is_none());
        assert!(Pace::at_most_per_second(Some(0)).is_none());
    }
}

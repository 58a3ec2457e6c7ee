//! Limits the rows of any second, if a limit was set.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// At most this much of a batch's delay is made up for.
const MADE_UP: Duration = Duration::from_millis(100);

const SECOND: Duration = Duration::from_secs(1);

/// Decides when the next batch may begin. Its caller tells it the time, and it never sleeps.
///
/// Batches are spread over each second. A batch also waits until one second after the end of the batch whose place it takes. So no second,
/// wherever it begins, contains more rows than the limit, however long some batches take.
#[derive(Debug)]
pub struct Pace {
    /// `None` is no limit.
    per_second: Option<usize>,
    batch: usize,
    /// When the next batch is due if they are spread evenly.
    due: Option<Instant>,
    /// The ends of earlier batches, and their rows.
    done: VecDeque<(Instant, usize)>,
}

impl Pace {
    /// For batches of `batch` rows at most. Zero rows in a second are no limit, as `None` is.
    pub fn at_most_per_second(rows: Option<u32>, batch: usize) -> Self {
        let per_second = rows.filter(|rows| *rows > 0).map(|rows| rows as usize);
        Pace {
            per_second,
            batch: per_second.map_or(batch, |rows| rows / rows.div_ceil(batch.max(1))),
            due: None,
            done: VecDeque::new(),
        }
    }

    /// The size of equal batches that best fill a second. Without a limit, it is the size that was asked for.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// When the next batch is due, after one of `rows` that began and ended at these times. The time that a batch takes is a part of its
    /// pause.
    pub fn next(&mut self, rows: usize, began: Instant, ended: Instant) -> Instant {
        let Some(per_second) = self.per_second else {
            return ended;
        };
        let earliest = began.checked_sub(MADE_UP).unwrap_or(began);
        let share = SECOND.mul_f64(rows as f64 / per_second as f64);
        let mut due = self.due.map_or(began, |due| due.max(earliest)) + share;
        self.due = Some(due);
        self.done.push_back((ended, rows));
        let mut rows: usize = self.done.iter().map(|(_, rows)| rows).sum();
        while let Some((before, of_it)) = self.done.front() {
            let is_over = *before + SECOND <= ended;
            if !is_over && rows + self.batch <= per_second {
                break;
            }
            due = due.max(*before + SECOND);
            rows -= of_it;
            self.done.pop_front();
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginnings and ends of 100 batches, in milliseconds, and the rows of each. A batch takes as long as `millis` says.
    fn batches(
        per_second: u32,
        rows: usize,
        millis: impl Fn(u64) -> u64,
    ) -> (Vec<[u64; 2]>, usize) {
        let mut pace = Pace::at_most_per_second(Some(per_second), rows);
        let rows = pace.batch();
        let begin = Instant::now();
        let mut now = begin;
        let batches = (0..100).map(|batch| {
            let began = now;
            let ended = began + Duration::from_millis(millis(batch));
            now = ended.max(pace.next(rows, began, ended));
            // Whole milliseconds upwards, so that no pause looks shorter than it is.
            [began, ended].map(|time| (time - begin).as_micros().div_ceil(1000) as u64)
        });
        (batches.collect(), rows)
    }

    /// How many rows a second they do.
    fn rate(per_second: u32, rows: usize, millis: impl Fn(u64) -> u64) -> f64 {
        let (batches, rows) = batches(per_second, rows, millis);
        let last = batches[batches.len() - 1][0];
        ((batches.len() - 1) * rows) as f64 * 1000.0 / last as f64
    }

    #[test]
    fn no_second_has_more() {
        for (per_second, most) in [
            (150, 100),
            (1000, 100),
            (997, 100),
            (7, 100),
            (1, 1),
            (99, 10),
        ] {
            for millis in [
                (|_| 0) as fn(u64) -> u64,
                |_| 70,
                |batch| if batch % 10 == 0 { 900 } else { 1 },
                |batch| 400 * (batch % 2),
                |batch| 3000 * u64::from(batch == 50),
            ] {
                let (batches, rows) = batches(per_second, most, millis);
                // Every second that begins with the end of a batch.
                for (i, [_, first]) in batches.iter().enumerate() {
                    let begun = batches[i..]
                        .iter()
                        .filter(|[began, _]| *began < first + 1000);
                    let touched = begun.count() * rows;
                    assert!(
                        touched <= per_second as usize,
                        "{per_second}, {most}: {touched} from {first} on: {batches:?}"
                    );
                }
            }
        }
    }

    /// The limit is reached, except for the time of one batch in each second.
    #[test]
    fn a_limit_is_reached() {
        let rounded = |rate: f64| rate.round() as u32;
        assert_eq!(rounded(rate(1000, 100, |_| 0)), 1000);
        assert_eq!(rounded(rate(150, 100, |_| 0)), 150);
        assert_eq!(rounded(rate(7, 100, |_| 0)), 7);
        assert!(rate(1000, 100, |_| 70) > 930.0);
        assert!(rate(1000, 1000, |_| 50) > 950.0);
        // The database is slower.
        assert_eq!(rounded(rate(1000, 100, |_| 400)), 250);
    }

    #[test]
    fn batches_fill_a_second() {
        for (per_second, rows, batch) in [
            (150, 100, 75),
            (1000, 100, 100),
            (1001, 100, 91),
            (7, 100, 7),
            (100, 100, 100),
            (1, 100, 1),
            (u32::MAX, 100, 99),
        ] {
            let pace = Pace::at_most_per_second(Some(per_second), rows);
            assert_eq!(pace.batch(), batch, "{per_second}, {rows}");
        }
    }

    #[test]
    fn a_late_batch_is_made_up_for_within_bounds() {
        // It begins 900 ms late, of which 100 are made up for.
        let mut pace = Pace::at_most_per_second(Some(1000), 100);
        let began = Instant::now();
        pace.next(100, began, began);
        let late = began + SECOND;
        assert_eq!(pace.next(100, late, late), late);
        assert_eq!(pace.next(100, late, late), late + MADE_UP);
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        for none in [None, Some(0)] {
            let mut pace = Pace::at_most_per_second(none, 100);
            assert_eq!(pace.batch(), 100);
            let began = Instant::now();
            let ended = began + SECOND;
            assert_eq!(pace.next(100, began, ended), ended);
        }
    }
}

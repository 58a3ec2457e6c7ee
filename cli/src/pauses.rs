//! Pauses between batches, which a signal ends.

use std::time::Instant;

use diesel_sharded::described::Pace;

use crate::interrupt::Interrupt;

/// Keeps to so many rows in a second.
#[derive(Debug)]
pub struct Pauses<'a> {
    pace: Option<Pace>,
    batch: usize,
    /// When the open batch began.
    began: Instant,
    interrupt: &'a Interrupt,
}

impl<'a> Pauses<'a> {
    /// The first batch, of `batch` rows at most, begins now. `None` is no limit.
    pub fn at_most_per_second(rows: Option<u32>, batch: usize, interrupt: &'a Interrupt) -> Self {
        Pauses {
            pace: Pace::at_most_per_second(rows, batch),
            batch,
            began: Instant::now(),
            interrupt,
        }
    }

    /// The size of batches that fit into a second.
    pub fn batch(&self) -> usize {
        self.pace.as_ref().map_or(self.batch, Pace::batch)
    }

    /// Waits until the next batch is due, after one of `rows`.
    pub fn after_batch(&mut self, rows: usize) {
        if let Some(pace) = &mut self.pace {
            let due = pace.next(rows, self.began, Instant::now());
            self.interrupt.sleep_until(due);
        }
        self.began = Instant::now();
    }
}

//! Pauses between batches, which a signal ends.

use std::time::Instant;

use diesel_sharded::described::Pace;

use crate::interrupt::Interrupt;

/// Keeps to so many rows in a second.
#[derive(Debug)]
pub struct Pauses<'a> {
    pace: Option<Pace>,
    /// When the open batch began.
    began: Instant,
    interrupt: &'a Interrupt,
}

impl<'a> Pauses<'a> {
    /// The first batch begins now. Zero rows are no limit, as `None` is.
    pub fn at_most_per_second(rows: Option<u32>, interrupt: &'a Interrupt) -> Self {
        Pauses {
            pace: Pace::at_most_per_second(rows),
            began: Instant::now(),
            interrupt,
        }
    }

    /// The size of batches that follow each other after a second at most.
    pub fn batch(&self, rows: usize) -> usize {
        self.pace.as_ref().map_or(rows, |pace| pace.batch(rows))
    }

    /// Waits until the next batch is due, after one of `rows`.
    pub fn after_batch(&mut self, rows: usize) {
        if let Some(pace) = &mut self.pace {
            self.interrupt.sleep_until(pace.next(rows, self.began));
        }
        self.began = Instant::now();
    }
}

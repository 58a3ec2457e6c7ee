//! No more rows in a second than were asked for, and how many there are to come.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::interrupt::Interrupt;

/// Sleeps between batches.
#[derive(Debug)]
pub struct Pace {
    per_second: Option<f64>,
    due: Instant,
}

impl Pace {
    /// No limit, or by zero neither.
    pub fn at_most_per_second(rows: Option<u32>) -> Self {
        Pace {
            per_second: rows.filter(|rows| *rows > 0).map(f64::from),
            due: Instant::now(),
        }
    }

    /// Batches of about a second at most.
    pub fn batch(&self, rows: usize) -> usize {
        match self.per_second {
            Some(per_second) => rows.min(per_second as usize).max(1),
            None => rows,
        }
    }

    pub fn after_batch(&mut self, rows: usize, interrupt: &Interrupt) {
        if let Some(per_second) = self.per_second {
            let time = Duration::from_secs_f64(rows as f64 / per_second);
            self.due = self.due.max(Instant::now()) + time;
            interrupt.sleep_until(self.due);
        }
    }
}

/// A bar on a terminal; nothing where the output goes to a file.
pub fn bar(rows: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(rows).with_message(what.to_owned());
    let template = "{msg} [{bar:30}] {pos}/{len} rows, {per_sec}, {eta} left";
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar, // it is a constant
    }
}

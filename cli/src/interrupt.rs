//! Ctrl-C and SIGTERM: the open batch, or what takes its place, is finished first.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::error::Error;

/// The end of a command that a signal brings about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The open batch is finished.
    Batch,
    /// The measurements so far are shown.
    Measurement,
    /// No further look is taken.
    Watch,
}

impl Ending {
    fn answer(self) -> &'static str {
        match self {
            Ending::Batch => "finishing the batch",
            Ending::Measurement => "showing what was seen so far",
            Ending::Watch => "ending the watch",
        }
    }
}

#[derive(Debug)]
pub struct Interrupt {
    came: Arc<AtomicBool>,
    /// Beside which the answer is written.
    bar: Arc<Mutex<ProgressBar>>,
}

impl Interrupt {
    /// From now on signals are asked for here. A second one ends the process at once, which loses nothing either: the database
    /// takes the open batch back.
    pub fn handle(ending: Ending) -> Result<Self, Error> {
        let interrupt = Interrupt {
            came: Arc::new(AtomicBool::new(false)),
            bar: Arc::new(Mutex::new(ProgressBar::hidden())),
        };
        let (came, bar) = (Arc::clone(&interrupt.came), Arc::clone(&interrupt.bar));
        ctrlc::set_handler(move || {
            if came.load(Ordering::SeqCst) {
                std::process::exit(130);
            }
            let bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
            bar.suspend(|| {
                // A closed standard error is no reason to stop at once.
                let _ = writeln!(io::stderr(), "{}; Ctrl-C again stops now", ending.answer());
            });
            came.store(true, Ordering::SeqCst); // behind the answer, which the process might not live to give
        })
        .map_err(Error::Signals)?;
        Ok(interrupt)
    }

    /// The answer to a signal leaves this bar whole.
    pub fn write_beside(&self, bar: &ProgressBar) {
        *self.bar.lock().unwrap_or_else(PoisonError::into_inner) = bar.clone();
    }

    pub fn came(&self) -> bool {
        self.came.load(Ordering::SeqCst)
    }

    /// Sleeps, but no longer than until the signal.
    pub fn sleep_until(&self, due: Instant) {
        while !self.came() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(Duration::from_millis(50)));
        }
    }
}

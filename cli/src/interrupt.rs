//! Ctrl-C and SIGTERM: the open batch, or what takes its place, is finished first.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::error::Error;

#[derive(Debug)]
pub struct Interrupt {
    came: Arc<AtomicBool>,
    /// Beside which the answer is written.
    bar: Arc<Mutex<ProgressBar>>,
}

impl Interrupt {
    /// From now on signals are asked for here. A second one ends the process at once, which loses nothing either: the database
    /// takes the open batch back. `answer` says how the command ends.
    pub fn handle(answer: &'static str) -> Result<Self, Error> {
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
                let _ = writeln!(io::stderr(), "{answer}; Ctrl-C again stops now");
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

//! Ctrl-C and SIGTERM: the open batch is finished first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;

#[derive(Debug, Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on signals are asked for here. A second one ends the process at once, which loses nothing either: the database
    /// takes the open batch back.
    pub fn handle() -> Result<Self, Error> {
        let interrupt = Interrupt(Arc::new(AtomicBool::new(false)));
        let came = Arc::clone(&interrupt.0);
        ctrlc::set_handler(move || {
            if came.swap(true, Ordering::SeqCst) {
                std::process::exit(130);
            }
        })
        .map_err(Error::Signals)?;
        Ok(interrupt)
    }

    pub fn came(&self) -> bool {
        self.0.load(Ordering::SeqCst)
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

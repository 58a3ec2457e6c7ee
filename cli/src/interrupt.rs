//! Ctrl-C and SIGTERM: the open batch, or what takes its place, is finished first.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::output;

static CAME: AtomicBool = AtomicBool::new(false);

/// From now on signals are asked for here. A second one ends the process at once, which loses nothing either: the database takes
/// the open batch back. `answer` says how the command ends.
pub fn handle(answer: &'static str) -> Result<(), Error> {
    ctrlc::set_handler(move || {
        if came() {
            std::process::exit(130);
        }
        output::note(&format!("{answer}; Ctrl-C again stops now"));
        CAME.store(true, Ordering::SeqCst); // behind the answer, which the process might not live to give
    })
    .map_err(Error::Signals)
}

pub fn came() -> bool {
    CAME.load(Ordering::SeqCst)
}

/// Sleeps, but no longer than until the signal.
pub fn sleep_until(due: Instant) {
    while !came() {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(Duration::from_millis(50)));
    }
}

//! Ctrl-C and SIGTERM. The command finishes its open batch or other unit of work first.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::output;

static CAME: AtomicBool = AtomicBool::new(false);

/// Handles signals from now on. A second signal ends the process at once, which loses nothing either: the database rolls back the open
/// batch. `answer` tells the user how the command ends.
pub fn handle(answer: &'static str) -> Result<(), Error> {
    ctrlc::set_handler(move || {
        if came() {
            std::process::exit(130);
        }
        output::note(&format!("{answer}; Ctrl-C again stops now"));
        CAME.store(true, Ordering::SeqCst); // after the answer: the process may end right after this
    })
    .map_err(|error| Error::Refused(format!("signals cannot be handled: {error}")))
}

pub fn came() -> bool {
    CAME.load(Ordering::SeqCst)
}

/// Sleeps until `due`, or until a signal comes.
pub fn sleep_until(due: Instant) {
    while !came() {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(Duration::from_millis(50)));
    }
}

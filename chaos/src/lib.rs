//! Faults while clients count, and a checker of every count's outcome. See the README.

pub mod backend;
pub mod checker;
pub mod client;
pub mod faults;
pub mod history;
pub mod operation;
pub mod place;
pub mod report;
pub mod round;
pub mod schema;
pub mod sql_store;
pub mod workload;

use std::thread;
use std::time::{Duration, Instant};

use diesel::QueryResult;

/// Waits until it is so.
///
/// # Panics
/// If that takes longer than three minutes.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(180);
    while !is_so() {
        assert!(Instant::now() < patience, "never: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Retries a statement until it succeeds: on SQLite any statement may meet a conflict.
pub(crate) fn patiently<T>(mut statement: impl FnMut() -> QueryResult<T>) -> T {
    let patience = Instant::now() + Duration::from_secs(30);
    loop {
        match statement() {
            Ok(done) => return done,
            Err(_) if Instant::now() < patience => thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    }
}

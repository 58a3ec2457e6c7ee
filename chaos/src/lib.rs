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
pub(crate) use diesel_sharded_tests::until;

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

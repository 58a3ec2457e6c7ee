//! Faults while clients count, and a checker of every increment's outcome. See the README.

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

use diesel::QueryResult;
pub(crate) use diesel_sharded_tests::until;

/// Retries a statement until it succeeds: on SQLite any statement may meet a conflict.
pub(crate) fn patiently<T>(statement: impl FnMut() -> QueryResult<T>) -> T {
    diesel_sharded_tests::ask_until(String::new, statement)
}

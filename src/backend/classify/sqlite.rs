//! SQLite's errors by their texts.

use crate::conflict::{Conflict, Failure};

/// Tells the meaning of an error by its text.
pub(super) fn classify(message: &str) -> Failure {
    let known = MESSAGES.iter().find(|(text, _)| message.starts_with(text));
    known.map_or(Failure::Other, |(_, failure)| *failure)
}

/// Diesel drops SQLite's result codes; the texts are those of `sqlite3ErrStr` and `sqlite3_errmsg`.
const MESSAGES: &[(&str, Failure)] = &[
    // SQLITE_BUSY and SQLITE_BUSY_SNAPSHOT
    ("database is locked", Failure::Conflict(Conflict::Busy)),
    // SQLITE_LOCKED and SQLITE_LOCKED_SHAREDCACHE
    (
        "database table is locked",
        Failure::Conflict(Conflict::Busy),
    ),
    (
        "database schema is locked",
        Failure::Conflict(Conflict::Busy),
    ),
    ("integer overflow", Failure::Overflow),
    // SQLITE_FULL
    ("database or disk is full", Failure::DiskFull),
];

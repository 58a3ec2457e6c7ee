//! Conflicts, and the other classes of a statement's error.

use std::fmt;

/// A transient failure that a new attempt can cure.
///
/// In each case the database has undone the attempt, so a retry counts nothing twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Conflict {
    /// The transaction could not be serialized: PostgreSQL's 40001, MariaDB's 1020, MySQL's 3101 (Group
    /// Replication).
    Serialization,
    /// Two transactions waited for each other: PostgreSQL's 40P01, MySQL's 1213.
    Deadlock,
    /// A lock could not be acquired in time, or not at once (`NOWAIT`): PostgreSQL's 55P03, MySQL's 1205 and 3572.
    LockTimeout,
    /// The statement ran longer than the database allows: PostgreSQL's `statement_timeout`, MySQL's 3024 and MariaDB's
    /// 1969. On a hot row it spends that time waiting for the row's lock.
    StatementTimeout,
    /// Another connection is writing: SQLite's BUSY, BUSY_SNAPSHOT and LOCKED.
    Busy,
    /// The server's connection does not hold the prepared statement, or holds another one under its name: PostgreSQL's 26000 and
    /// 42P05 behind a pooler that gives each transaction another connection. Or the statement now returns other types. See
    /// [`StatementLost`](crate::Error::StatementLost).
    StatementLost,
    /// The row was deleted, or its key changed, while a shard was created for it. That violates the foreign key of the shards table, or
    /// the trigger that replaces it. A conflict that persists may have another reason, which the database's own error names.
    ParentGone,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Conflict::Serialization => "serialization failure",
            Conflict::Deadlock => "deadlock",
            Conflict::LockTimeout => "lock timeout",
            Conflict::StatementTimeout => "statement timeout",
            Conflict::Busy => "database busy",
            Conflict::StatementLost => "prepared statement lost",
            Conflict::ParentGone => "row gone while its shard was created",
        })
    }
}

/// The class of an error, derived from its kind and text; see `Dialect::classify`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    Conflict(Conflict),
    /// The connection is gone, or a cluster does not know the outcome of a commit. The statement in flight may have taken effect.
    ConnectionLost,
    /// This node of a cluster accepts no writes now. It refused the statement.
    NodeNotReady,
    /// A value left the range of its column.
    Overflow,
    /// The disk is full. The database has undone the attempt and works again once there is space.
    DiskFull,
    /// Any other error. It stays Diesel's.
    Other,
}

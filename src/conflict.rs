//! Conflicts, and the other kinds of failures of a statement.

use std::fmt;

/// A transient failure that a new attempt can cure.
///
/// The database has undone the attempt in each of these, so a retry counts nothing twice.
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
    /// The statement took longer than the database allows: PostgreSQL's `statement_timeout`, MySQL's 3024 and MariaDB's
    /// 1969. On a hot row that is time spent waiting for its lock.
    StatementTimeout,
    /// Another connection is writing: SQLite's BUSY, BUSY_SNAPSHOT and LOCKED.
    Busy,
    /// The server's connection does not hold the statement that was prepared, or holds another one under its name: PostgreSQL's
    /// 26000 and 42P05 behind a pooler that gives each transaction another connection. Or it returns other types than it did. See
    /// [`StatementLost`](crate::Error::StatementLost).
    StatementLost,
    /// The row was deleted, or its key changed, while a shard was created for it: a violated foreign key of the shards table, or
    /// the trigger in its place. A conflict that persists may have another reason, which the database's own error names.
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

/// The kind of a failure, by the text and kind of its error; see `Dialect::classify`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Conflict(Conflict),
    /// The connection is gone, or a cluster cannot say what became of a commit. Whether what was in flight took effect depends on what it was.
    ConnectionLost,
    /// This node of a cluster takes no writes now. The statement was refused.
    NodeNotReady,
    /// A value left the range of its column.
    Overflow,
    /// The disk is full. The database has undone the attempt, and works again once there is space.
    DiskFull,
    /// Any other error, which Diesel reports.
    Other,
}

//! Triggers that count.

use crate::backend::Dialect;

/// How many shards [`session_shard`](Dialect::session_shard) uses, unless it is told.
pub(crate) const SESSION_SHARDS: u16 = 16;

impl Dialect {
    /// Whether a trigger fires once for a statement, with all of its rows in tables. The triggers of the others fire for each row.
    pub(crate) fn has_transition_tables(self) -> bool {
        self == Dialect::Postgres
    }

    /// The shard that statements inside the database add to: by the number of the session, since they know no process. SQLite has
    /// one writer at a time.
    pub(crate) fn session_shard(self, shards: u16) -> String {
        match self {
            Dialect::Postgres => format!("pg_backend_pid() % {shards}"),
            Dialect::Mysql => format!("CONNECTION_ID() % {shards}"),
            Dialect::Sqlite => "0".to_owned(),
        }
    }

    /// Joins a table to the few rows before it. MySQL may read the table first, and lock all of its rows in an `INSERT`.
    pub(crate) fn joins_to_few(self) -> &'static str {
        match self {
            Dialect::Mysql => "STRAIGHT_JOIN",
            _ => "JOIN",
        }
    }

    /// The SQL before and behind the sum of a column that reads it as a `BIGINT`, or fails.
    pub(crate) fn sum_as_bigint(self) -> (&'static str, &'static str) {
        match self {
            Dialect::Postgres => ("CAST(COALESCE(SUM(", "), 0) AS BIGINT)"),
            Dialect::Mysql => ("CAST(COALESCE(SUM(", "), 0) AS SIGNED)"),
            Dialect::Sqlite => ("COALESCE(SUM(", "), 0)"),
        }
    }
}

//! Triggers that count.

use crate::backend::Dialect;
use crate::model::ColumnType;

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

    /// The SQL before and behind a number of rows, or a sum over them, that makes it one of a field's type. Diesel reads any number of
    /// MySQL's and SQLite's.
    pub(crate) fn recounted(self, field: ColumnType, is_sum: bool) -> (&'static str, &'static str) {
        match (self, field) {
            (Dialect::Postgres, ColumnType::Double) => ("CAST(", " AS DOUBLE PRECISION)"),
            (Dialect::Postgres, ColumnType::Numeric) => ("CAST(", " AS NUMERIC)"),
            (Dialect::Postgres, _) if is_sum => ("CAST(", " AS BIGINT)"),
            _ => ("", ""),
        }
    }

    /// Whether a statement may read a table that a trigger of its own writes, as a counter cache's does where a table counts its own
    /// rows. MySQL refuses that (1442).
    pub(crate) fn reads_what_triggers_write(self) -> bool {
        self != Dialect::Mysql
    }
}

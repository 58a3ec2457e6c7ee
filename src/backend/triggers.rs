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

    /// Ends a query in an `INSERT` that reads a parent. MySQL in `READ COMMITTED` would read the rows of the time at which the statement
    /// around a trigger began, while its foreign keys see those that are committed now.
    pub(crate) fn shares_lock(self) -> &'static str {
        match self {
            Dialect::Mysql => " LOCK IN SHARE MODE",
            _ => "",
        }
    }

    /// Compares two values of which any may be NULL.
    pub(crate) fn is_same(self) -> &'static str {
        match self {
            Dialect::Postgres => "IS NOT DISTINCT FROM",
            Dialect::Mysql => "<=>",
            Dialect::Sqlite => "IS",
        }
    }

    /// Whether a field holds the sums of a column of this declared type exactly, or rounds them as it would round its own.
    pub(crate) fn holds_sums_of(self, sql_type: &str, field: ColumnType) -> bool {
        let sql_type = sql_type.to_lowercase();
        let name = sql_type.split('(').next().unwrap_or_default();
        let name = name.trim_end_matches(" unsigned").trim();
        let is_whole = match self {
            Dialect::Sqlite => name.contains("int"), // its own rule
            _ => [
                "tinyint",
                "smallint",
                "mediumint",
                "int",
                "integer",
                "bigint",
            ]
            .contains(&name),
        };
        let is_of = |parts: &[&str]| parts.iter().any(|part| name.starts_with(part));
        match field {
            ColumnType::Double if self != Dialect::Sqlite => is_of(&["double"]),
            ColumnType::Numeric if self != Dialect::Sqlite => {
                is_whole || is_of(&["numeric", "decimal"])
            }
            ColumnType::Double | ColumnType::Numeric => {
                is_whole || is_of(&["double", "numeric", "decimal", "real", "float"])
            }
            _ => is_whole,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_holds_sums_of_its_own_kind() {
        use ColumnType::{BigInt, Double, Numeric};
        for (dialect, sql_type, held_by) in [
            (Dialect::Postgres, "bigint", &[BigInt, Numeric][..]),
            (Dialect::Postgres, "interval", &[]),
            (Dialect::Postgres, "numeric(9,2)", &[Numeric]),
            (Dialect::Postgres, "double precision", &[Double]),
            (Dialect::Postgres, "character varying", &[]),
            (Dialect::Mysql, "int(10) unsigned", &[BigInt, Numeric]),
            (Dialect::Mysql, "decimal", &[Numeric]),
            (Dialect::Mysql, "varchar", &[]),
            (
                Dialect::Sqlite,
                "UNSIGNED BIG INT",
                &[BigInt, Double, Numeric],
            ),
            (Dialect::Sqlite, "DECIMAL(9, 2)", &[Double, Numeric]),
            (Dialect::Sqlite, "", &[]),
        ] {
            for field in [BigInt, Double, Numeric] {
                let holds = dialect.holds_sums_of(sql_type, field);
                assert_eq!(holds, held_by.contains(&field), "{sql_type} in {field:?}");
            }
        }
    }
}

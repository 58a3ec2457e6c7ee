//! How many rows a table has, without a scan of all: up to a bound they are counted, beyond it the database estimates.

use std::fmt;

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::model::TableName;
use serde::Serialize;

use crate::connection::AnyConnection;
use crate::key::as_text;
use crate::output::plural;
use crate::statement::{Statement, Value};
use crate::within::within;

/// So many rows of a table are read for a number of all, and no more.
pub const MOST: u64 = 10_000;

/// A number of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Count {
    pub number: u64,
    pub accuracy: Accuracy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Accuracy {
    Exact,
    /// By the database's statistics.
    Estimate,
    AtLeast,
}

impl Count {
    pub fn exact(number: u64) -> Self {
        Count {
            number,
            accuracy: Accuracy::Exact,
        }
    }

    pub fn at_least(number: u64) -> Self {
        Count {
            number,
            accuracy: Accuracy::AtLeast,
        }
    }

    pub fn is_exact(self) -> bool {
        self.accuracy == Accuracy::Exact
    }

    /// `1 shard`, `~2 shards`
    pub fn of(self, what: &str) -> String {
        match self.is_exact() {
            true => plural(self.number, what),
            false => format!("{self} {what}s"),
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.accuracy {
            Accuracy::Exact => write!(f, "{}", self.number),
            Accuracy::Estimate => write!(f, "~{}", self.number),
            Accuracy::AtLeast => write!(f, ">={}", self.number),
        }
    }
}

/// The number of a table's rows.
pub fn rows(table: TableName<'_>, conn: &mut AnyConnection) -> QueryResult<Count> {
    let some = Statement::default().sql("SELECT CAST(COUNT(*)");
    let some = some
        .sql(as_text(conn.dialect()))
        .sql(" FROM (SELECT 1 AS one FROM ")
        .table(table);
    let some = some.sql(&format!(" LIMIT {}) AS some_rows", MOST + 1));
    let number = match some.rows(conn)?.first() {
        Some(row) => row.parse(0)?,
        None => 0,
    };
    if number <= MOST {
        return Ok(Count::exact(number));
    }
    let estimate = within(table.schema(), conn, |conn| estimate(table.name(), conn))?;
    Ok(match estimate.filter(|estimate| *estimate > MOST) {
        Some(number) => Count {
            number,
            accuracy: Accuracy::Estimate,
        },
        None => Count::at_least(MOST),
    })
}

/// The statistics that the database keeps about the table, if it keeps any.
fn estimate(table: &str, conn: &mut AnyConnection) -> QueryResult<Option<u64>> {
    let kept = match conn.dialect() {
        Dialect::Postgres => {
            "SELECT CAST(CAST(reltuples AS BIGINT) AS TEXT) FROM pg_class \
             WHERE reltuples >= 0 AND pg_table_is_visible(oid) AND relname = "
        }
        Dialect::Mysql => {
            "SELECT CAST(TABLE_ROWS AS CHAR) FROM information_schema.TABLES \
             WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = "
        }
        _ if !has_statistics(conn)? => return Ok(None),
        // The text begins with the number of the table's rows.
        _ => "SELECT CAST(MAX(CAST(stat AS INTEGER)) AS TEXT) FROM sqlite_stat1 WHERE tbl = ",
    };
    let kept = Statement::default().sql(kept);
    let rows = kept.bind(Value::Text(table.to_owned())).rows(conn)?;
    let first = rows.first().filter(|row| row.get(0).is_some());
    first.map(|row| row.parse(0)).transpose()
}

/// Whether SQLite's `ANALYZE` ever ran.
fn has_statistics(conn: &mut AnyConnection) -> QueryResult<bool> {
    let there = "SELECT name FROM sqlite_master WHERE name = 'sqlite_stat1'";
    Ok(!Statement::default().sql(there).rows(conn)?.is_empty())
}

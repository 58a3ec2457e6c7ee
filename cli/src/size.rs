//! Rows, shards and sums of tables, as far as few rows are read for them, or all: up to a bound rows are counted, beyond it the database
//! estimates.

use std::fmt;

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::model::{ShardsColumn, TableName};
use serde::Serialize;

use crate::connection::{AnyConnection, within};
use crate::key::as_text;
use crate::output::plural;
use crate::sharded::Sharded;
use crate::statement::{quoted_table, sql};
use crate::sums::Total;

/// So many rows of a table are read for a number of all, and no more.
pub const MOST: u64 = 10_000;

/// A number of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "accuracy", content = "number", rename_all = "snake_case")]
pub enum Count {
    Exact(u64),
    /// By the database's statistics.
    Estimate(u64),
    AtLeast(u64),
}

impl Count {
    pub fn is_exact(self) -> bool {
        matches!(self, Count::Exact(_))
    }

    /// `1 shard`, `~2 shards`
    pub fn of(self, what: &str) -> String {
        match self {
            Count::Exact(number) => plural(number, what),
            _ => format!("{self} {what}s"),
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Count::Exact(number) => write!(f, "{number}"),
            Count::Estimate(number) => write!(f, "~{number}"),
            Count::AtLeast(number) => write!(f, ">={number}"),
        }
    }
}

/// The number of a table's rows.
pub fn rows(table: TableName<'_>, conn: &mut AnyConnection) -> QueryResult<Count> {
    let dialect = conn.dialect();
    let (count, from) = (as_text(dialect, "COUNT(*)"), quoted_table(dialect, table));
    let some = format!(
        "SELECT {count} FROM (SELECT 1 AS one FROM {from} LIMIT {}) AS some_rows",
        MOST + 1
    );
    let number = sql!(some).number(conn)?;
    if number <= MOST {
        return Ok(Count::Exact(number));
    }
    let estimate = within(table.schema(), conn, |conn| estimate(table.name(), conn))?;
    Ok(match estimate.filter(|estimate| *estimate > MOST) {
        Some(number) => Count::Estimate(number),
        None => Count::AtLeast(MOST),
    })
}

/// The statistics that the database keeps about the table, if it keeps any.
fn estimate(table: &str, conn: &mut AnyConnection) -> QueryResult<Option<u64>> {
    let dialect = conn.dialect();
    if dialect == Dialect::Sqlite && !has_statistics(conn)? {
        return Ok(None);
    }
    let kept = conn.text(catalog!(dialect, "estimate"), &[table])?;
    Ok(kept.and_then(|number| number.parse().ok()))
}

/// Whether SQLite's `ANALYZE` ever ran.
fn has_statistics(conn: &mut AnyConnection) -> QueryResult<bool> {
    let there = "SELECT name FROM sqlite_master WHERE name = 'sqlite_stat1'";
    Ok(conn.text(there, &[])?.is_some())
}

pub struct Sizes {
    pub rows: Count,
    pub shards: Count,
    pub rows_with_shards: Count,
    /// Of each field the sums that were read, both by one statement.
    pub sums: Vec<Total>,
}

impl Sizes {
    /// With `exact`, of every row and shard.
    pub fn read(sharded: &Sharded, exact: bool, conn: &mut AnyConnection) -> QueryResult<Self> {
        let mut size = |table| match exact {
            true => Ok(Count::Exact(0)), // counted below
            false => rows(table, conn),
        };
        let rows = size(sharded.table())?;
        let shards = size(sharded.shards_table())?;
        if !shards.is_exact() {
            return Ok(Sizes {
                rows,
                shards,
                rows_with_shards: Count::AtLeast(sql!(select_some(sharded)).number(conn)?),
                sums: sharded.fields().iter().map(|_| Total::default()).collect(),
            });
        }
        let row = sql!(select(sharded, rows.is_exact())).row(conn)?;
        let sums = (0..sharded.fields().len()).map(|i| Total::read(&row, 3 + 2 * i));
        Ok(Sizes {
            rows: match rows.is_exact() {
                true => Count::Exact(row.parse(2)?),
                false => rows,
            },
            shards: Count::Exact(row.parse(1)?),
            rows_with_shards: Count::Exact(row.parse(0)?),
            sums: sums.collect::<QueryResult<_>>()?,
        })
    }
}

/// Rows with shards, shards, rows; of each field the sum of bases and of shards. All from one snapshot, or a fold in between would
/// change their sum. Without `bases` those are NULL, and so is the number of rows.
fn select(sharded: &Sharded, bases: bool) -> String {
    let (parent, shards) = (sharded.parent(), sharded.shards());
    let number = |of: &str| as_text(sharded.dialect, &format!("(SELECT COUNT(*) FROM {of})"));
    let sum =
        |of: &str, field: &ShardsColumn| format!("(SELECT {} FROM {of})", sharded.sum(field, of));
    let of_bases = |read: String| match bases {
        true => read,
        false => "NULL".to_owned(),
    };
    let key = sharded.key_of(&shards);
    let keys = format!("(SELECT 1 AS one FROM {shards} GROUP BY {key}) AS keyed");
    let mut columns = vec![number(&keys), number(&shards), of_bases(number(&parent))];
    for field in sharded.fields() {
        columns.extend([of_bases(sum(&parent, field)), sum(&shards, field)]);
    }
    format!("SELECT {}", columns.join(", "))
}

/// Rows with shards, among some shards.
fn select_some(sharded: &Sharded) -> String {
    let count = as_text(sharded.dialect, "COUNT(*)");
    let (shards, key) = (sharded.shards(), sharded.key_of("some_shards"));
    let some = format!(
        "SELECT {} FROM {shards} LIMIT {MOST}",
        sharded.key_of(&shards)
    );
    format!(
        "SELECT {count} FROM (SELECT 1 AS one FROM ({some}) AS some_shards GROUP BY {key}) AS keyed"
    )
}

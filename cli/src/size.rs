//! Rows, shards and sums of tables, as far as few rows are read for them, or all: up to a bound rows are counted, beyond it the database
//! estimates.

use std::fmt;

use bigdecimal::{BigDecimal, ToPrimitive, Zero};
use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::model::{ShardsColumn, TableName};
use serde::Serialize;

use crate::connection::{AnyConnection, within};
use crate::key::{Keyed, as_text};
use crate::output::plural;
use crate::statement::{quoted_table, sql};
use crate::sums;

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
    let dialect = conn.dialect();
    let (count, from) = (as_text(dialect, "COUNT(*)"), quoted_table(dialect, table));
    let some = format!(
        "SELECT {count} FROM (SELECT 1 AS one FROM {from} LIMIT {}) AS some_rows",
        MOST + 1
    );
    let number = sql!(some).number(conn)?;
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
             WHERE reltuples >= 0 AND pg_table_is_visible(oid) AND relname = ?"
        }
        Dialect::Mysql => {
            "SELECT CAST(TABLE_ROWS AS CHAR) FROM information_schema.TABLES \
             WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?"
        }
        _ if !has_statistics(conn)? => return Ok(None),
        // The text begins with the number of the table's rows.
        _ => "SELECT CAST(MAX(CAST(stat AS INTEGER)) AS TEXT) FROM sqlite_stat1 WHERE tbl = ?",
    };
    let kept = conn.text(kept, &[table])?;
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
    /// Of each field.
    pub sums: Vec<Sums>,
}

/// The sums of a field that were read, both by one statement.
#[derive(Default)]
pub struct Sums {
    pub base: Option<BigDecimal>,
    pub unfolded: Option<BigDecimal>,
}

impl Sums {
    pub fn total(&self) -> Option<BigDecimal> {
        let both = self.base.as_ref().zip(self.unfolded.as_ref());
        both.map(|(base, unfolded)| base + unfolded)
    }

    /// The part of what is counted that is on shards, whatever its sign: at most 1.
    pub fn share(&self) -> Option<f64> {
        let unfolded = self.unfolded.as_ref()?.abs();
        if unfolded.is_zero() {
            return Some(0.0);
        }
        let all = &unfolded + self.base.as_ref()?.abs();
        Some((unfolded / all).to_f64().unwrap_or(1.0))
    }
}

impl Sizes {
    /// With `exact`, of every row and shard.
    pub fn read(keyed: Keyed<'_>, exact: bool, conn: &mut AnyConnection) -> QueryResult<Self> {
        let mut size = |table| match exact {
            true => Ok(Count::exact(0)), // counted below
            false => rows(table, conn),
        };
        let rows = size(keyed.sharded.table())?;
        let shards = size(keyed.sharded.shards_table())?;
        if !shards.is_exact() {
            return Ok(Sizes {
                rows,
                shards,
                rows_with_shards: Count::at_least(sql!(select_some(keyed)).number(conn)?),
                sums: keyed.fields().iter().map(|_| Sums::default()).collect(),
            });
        }
        let read = sql!(select(keyed, rows.is_exact())).rows(conn)?;
        let sum = |column: usize| read.first().map_or(Ok(None), |row| sums::read(row, column));
        let count = |column: usize| -> QueryResult<_> {
            let number = sum(column)?.and_then(|n| n.to_u64());
            Ok(Count::exact(number.unwrap_or(0)))
        };
        let sums = (0..keyed.fields().len()).map(|i| {
            Ok(Sums {
                unfolded: sum(3 + 2 * i)?,
                base: sum(4 + 2 * i)?,
            })
        });
        Ok(Sizes {
            rows: match rows.is_exact() {
                true => count(2)?,
                false => rows,
            },
            shards: count(1)?,
            rows_with_shards: count(0)?,
            sums: sums.collect::<QueryResult<_>>()?,
        })
    }
}

/// Rows with shards, shards, rows; of each field the sum of shards and of bases. All from one snapshot, or a fold in between would
/// change their sum. Without `bases` those are NULL, and so is the number of rows.
fn select(keyed: Keyed<'_>, bases: bool) -> String {
    let (parent, shards) = (keyed.parent(), keyed.shards());
    let number = |of: &str| as_text(keyed.dialect, &format!("(SELECT COUNT(*) FROM {of})"));
    let sum = |of: &str, field: &ShardsColumn| {
        let sum = sums::sum(keyed.dialect, field, &keyed.column(of, field.name()));
        format!("(SELECT {sum} FROM {of})")
    };
    let of_bases = |read: String| match bases {
        true => read,
        false => "NULL".to_owned(),
    };
    let key = keyed.key(&shards);
    let keys = format!("(SELECT 1 AS one FROM {shards} GROUP BY {key}) AS keyed");
    let mut columns = vec![number(&keys), number(&shards), of_bases(number(&parent))];
    for field in keyed.fields() {
        columns.extend([sum(&shards, field), of_bases(sum(&parent, field))]);
    }
    format!("SELECT {}", columns.join(", "))
}

/// Rows with shards, among some shards.
fn select_some(keyed: Keyed<'_>) -> String {
    let count = as_text(keyed.dialect, "COUNT(*)");
    let (shards, key) = (keyed.shards(), keyed.key("some_shards"));
    let some = format!("SELECT {} FROM {shards} LIMIT {MOST}", keyed.key(&shards));
    format!(
        "SELECT {count} FROM (SELECT 1 AS one FROM ({some}) AS some_shards GROUP BY {key}) AS keyed"
    )
}

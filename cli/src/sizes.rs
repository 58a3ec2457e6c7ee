//! Rows, shards and sums of one sharded table, as far as few rows are read for them, or all.

use bigdecimal::{BigDecimal, ToPrimitive, Zero};
use diesel::prelude::*;
use diesel_sharded::model::ShardsColumn;

use crate::connection::AnyConnection;
use crate::key::{Keyed, as_text};
use crate::size::{self, Count};
use crate::statement::Statement;
use crate::sums;

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
        let sharded = keyed.sharded;
        let size = |table, conn: &mut AnyConnection| match exact {
            true => Ok(Count::exact(0)), // counted below
            false => size::rows(table, conn),
        };
        let rows = size(sharded.table(), conn)?;
        let shards = size(sharded.shards_table(), conn)?;
        let read = match (rows.is_exact(), shards.is_exact()) {
            (bases, true) => select(keyed, bases).rows(conn)?,
            (_, false) => select_some(keyed).rows(conn)?,
        };
        let sum = |column: usize| -> QueryResult<Option<BigDecimal>> {
            read.first().map_or(Ok(None), |row| sums::read(row, column))
        };
        let count =
            |column| -> QueryResult<u64> { Ok(sum(column)?.and_then(|n| n.to_u64()).unwrap_or(0)) };
        if !shards.is_exact() {
            return Ok(Sizes {
                rows,
                shards,
                rows_with_shards: Count::at_least(count(0)?),
                sums: sharded.fields().iter().map(|_| Sums::default()).collect(),
            });
        }
        let sums = (0..sharded.fields().len()).map(|i| {
            Ok(Sums {
                unfolded: sum(3 + 2 * i)?,
                base: sum(4 + 2 * i)?,
            })
        });
        Ok(Sizes {
            rows: match rows.is_exact() {
                true => Count::exact(count(2)?),
                false => rows,
            },
            shards: Count::exact(count(1)?),
            rows_with_shards: Count::exact(count(0)?),
            sums: sums.collect::<QueryResult<_>>()?,
        })
    }
}

/// Rows with shards, shards, rows; of each field the sum of shards and of bases. All from one snapshot, or a fold in between would
/// change their sum. Without `bases` those are NULL, and so is the number of rows.
fn select(keyed: Keyed<'_>, bases: bool) -> Statement {
    let (table, shards) = (keyed.sharded.table(), keyed.sharded.shards_table());
    let text = as_text(keyed.dialect);
    let select =
        Statement::default().sql("SELECT CAST((SELECT COUNT(*) FROM (SELECT 1 AS one FROM ");
    let select = keyed.key(select.table(shards).sql(" GROUP BY "), shards);
    let select = select.sql(") AS keyed)").sql(text);
    let number = |select: Statement, of| {
        let select = select.sql(", CAST((SELECT COUNT(*) FROM ").table(of);
        select.sql(")").sql(text)
    };
    let sum = |select: Statement, of, field: &ShardsColumn| {
        let select = select.sql(", (SELECT ");
        let select = sums::select(select, keyed.dialect, field, |select| {
            select.column(of, field.name())
        });
        select.sql(" FROM ").table(of).sql(")")
    };
    let select = number(select, shards);
    let select = match bases {
        true => number(select, table),
        false => select.sql(", NULL"),
    };
    keyed.sharded.fields().iter().fold(select, |select, field| {
        let select = sum(select, shards, field);
        match bases {
            true => sum(select, table, field),
            false => select.sql(", NULL"),
        }
    })
}

/// Rows with shards, among some shards.
fn select_some(keyed: Keyed<'_>) -> Statement {
    let shards = keyed.sharded.shards_table();
    let names = |statement: Statement| {
        statement.each(", ", keyed.sharded.key(), |statement, column| {
            statement.name(column.name())
        })
    };
    let select = Statement::default().sql("SELECT CAST(COUNT(*)");
    let select = select.sql(as_text(keyed.dialect));
    let select = names(select.sql(" FROM (SELECT 1 AS one FROM (SELECT "));
    let select = select.sql(" FROM ").table(shards);
    let select = select.sql(&format!(" LIMIT {}) AS some_shards GROUP BY ", size::MOST));
    names(select).sql(") AS keyed")
}

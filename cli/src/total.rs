//! Totals as the tool reads them: base and sum of shards apart, so that no total is too large to be read.

use bigdecimal::BigDecimal;
use diesel::prelude::*;
use diesel_sharded::model::ShardsColumn;

use crate::key::{Keyed, as_text};
use crate::statement::{Row, Statement};
use crate::sums;

/// A field of one row.
pub struct Total {
    /// Nothing for a NULL, or a double that is no number.
    pub base: Option<BigDecimal>,
    shards: Option<BigDecimal>,
}

impl Total {
    /// From two columns that [`Keyed::select_total`] selects.
    pub fn read(row: &Row, first: usize) -> QueryResult<Self> {
        Ok(Total {
            base: sums::read(row, first)?,
            shards: sums::read(row, first + 1)?,
        })
    }

    /// Base and shards together, if both are numbers.
    pub fn sum(&self) -> Option<BigDecimal> {
        let both = self.base.as_ref().zip(self.shards.as_ref());
        both.map(|(base, shards)| base + shards)
    }
}

impl Keyed<'_> {
    /// `CAST("videos"."likes" AS TEXT), (SELECT … FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id")`
    pub fn select_total(self, statement: Statement, field: &ShardsColumn) -> Statement {
        let (table, shards) = (self.sharded.table(), self.sharded.shards_table());
        let base = statement.sql("CAST(").column(table, field.name());
        let base = base.sql(as_text(self.dialect));
        let sum = base.sql(", (SELECT ");
        let sum = sums::select(sum, self.dialect, field, |sum| {
            sum.column(shards, field.name())
        });
        let sum = sum.sql(" FROM ").table(shards).sql(" WHERE ");
        let sum = sum.each(" AND ", self.sharded.key(), |sum, column| {
            let sum = sum.column(shards, column.name()).sql(" = ");
            sum.column(table, column.name())
        });
        sum.sql(")")
    }
}

//! Totals as the tool reads them: base and sum of shards apart, so that no total is too large to be read.

use bigdecimal::BigDecimal;
use diesel::prelude::*;
use diesel_sharded::model::{ColumnType, ShardsColumn};

use crate::key::Keyed;
use crate::key::as_text;
use crate::statement::{Row, Statement};
use crate::sums;

/// A field of one row.
pub struct Total {
    /// Nothing for a NULL.
    pub base: Option<BigDecimal>,
    shards: BigDecimal,
}

impl Total {
    /// From two columns that [`Keyed::select_total`] selects.
    pub fn read(row: &Row, first: usize) -> QueryResult<Self> {
        let base = row.get(first).map(|_| row.parse(first)).transpose()?;
        let shards = sums::read(row, first + 1)?.unwrap_or_default();
        Ok(Total { base, shards })
    }

    /// Base and shards together, if there is a base.
    pub fn sum(&self) -> Option<BigDecimal> {
        self.base.as_ref().map(|base| base + &self.shards)
    }
}

impl Keyed<'_> {
    /// `CAST("videos"."likes" AS TEXT), COALESCE((SELECT … FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id"), '0')`
    pub fn select_total(self, statement: Statement, field: &ShardsColumn) -> Statement {
        let (table, shards) = (self.sharded.table(), self.sharded.shards_table());
        let base = statement.sql("CAST(").column(table, field.name());
        let base = base.sql(as_text(self.dialect));
        let sum = base.sql(", COALESCE((SELECT ");
        let sum = sums::select(sum, self.dialect, field, |sum| {
            sum.column(shards, field.name())
        });
        let sum = sum.sql(" FROM ").table(shards).sql(" WHERE ");
        let sum = sum.each(" AND ", self.sharded.key(), |sum, column| {
            let sum = sum.column(shards, column.name()).sql(" = ");
            sum.column(table, column.name())
        });
        sum.sql("), '0')")
    }
}

/// The least and the greatest total of an integer field that applications can read.
pub fn range(column: ColumnType) -> Option<(i128, i128)> {
    Some(match column {
        ColumnType::SmallInt => (i16::MIN.into(), i16::MAX.into()),
        ColumnType::Integer => (i32::MIN.into(), i32::MAX.into()),
        ColumnType::BigInt => (i64::MIN.into(), i64::MAX.into()),
        ColumnType::UnsignedSmallInt => (0, u16::MAX.into()),
        ColumnType::UnsignedInteger => (0, u32::MAX.into()),
        ColumnType::UnsignedBigInt => (0, u64::MAX.into()),
        _ => return None,
    })
}

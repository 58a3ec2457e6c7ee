//! Parents that have something to fold.

use bigdecimal::BigDecimal;
use diesel::prelude::*;

use crate::connection::AnyConnection;
use crate::fold::Folding;
use crate::key::{Key, as_text};
use crate::statement::{Statement, Value};

impl Folding<'_> {
    /// How many parents have something to fold, and how much of each field it is.
    pub fn foldable(
        &self,
        after: Option<&Key>,
        conn: &mut AnyConnection,
    ) -> QueryResult<(u64, Vec<Option<BigDecimal>>)> {
        let (keyed, shards) = (self.keyed, self.keyed.sharded.shards_table());
        let fields = keyed.sharded.fields();
        let count = Statement::default().sql("SELECT CAST(COUNT(*)");
        let count = count.sql(as_text(keyed.dialect));
        let count = (0..fields.len()).fold(count, |count, i| {
            count
                .sql(&format!(", CAST(SUM(field_{i})"))
                .sql(as_text(keyed.dialect))
        });
        let count = count.sql(" FROM (SELECT 1 AS parent");
        let count = fields.iter().enumerate().fold(count, |count, (i, field)| {
            count
                .sql(", SUM(")
                .column(shards, field.name())
                .sql(&format!(") AS field_{i}"))
        });
        let count = count.sql(" FROM ").table(shards).sql(" WHERE (");
        let count = count.each(" OR ", fields, |count, field| {
            count.column(shards, field.name()).sql(" <> 0")
        });
        let count = match self.settings.keep_shards {
            Some(first) => {
                let count = count.sql(" OR ").column(shards, "shard").sql(" >= ");
                count.bind(Value::Integer(first.into()))
            }
            None => count,
        };
        let count = count.sql(")");
        let count = match after {
            Some(key) => keyed.is_beyond(count.sql(" AND "), shards, ">", false, key),
            None => count,
        };
        let count = keyed
            .key(count.sql(" GROUP BY "), shards)
            .sql(") AS foldable");
        let rows = count.rows(conn)?;
        let Some(row) = rows.first() else {
            return Ok((0, vec![]));
        };
        let amounts = (1..=fields.len()).map(|i| row.get(i).map(|_| row.parse(i)).transpose());
        Ok((row.parse(0)?, amounts.collect::<QueryResult<_>>()?))
    }
}

//! Parents that have something to fold.

use bigdecimal::BigDecimal;
use diesel::prelude::*;

use crate::connection::AnyConnection;
use crate::fold::Folding;
use crate::key::{Key, as_text};
use crate::statement::{Statement, Value};
use crate::sums;

impl Folding<'_> {
    /// How many parents have something to fold, and how much of each field it is.
    pub fn foldable(
        &self,
        after: Option<&Key>,
        conn: &mut AnyConnection,
    ) -> QueryResult<(u64, Vec<Option<BigDecimal>>)> {
        let (keyed, shards) = (self.keyed, self.keyed.sharded.shards_table());
        let fields = keyed.sharded.fields();
        let with_work = |statement: Statement| {
            let of = statement.sql(" FROM ").table(shards).sql(" WHERE (");
            let of = of.each(" OR ", fields, |of, field| {
                of.column(shards, field.name()).sql(" <> 0")
            });
            let of = match self.keep_shards {
                Some(first) => {
                    let of = of.sql(" OR ").column(shards, "shard").sql(" >= ");
                    of.bind(Value::Integer(first.into()))
                }
                None => of,
            };
            let of = of.sql(")");
            match after {
                Some(key) => keyed.is_beyond(of.sql(" AND "), shards, ">", false, key),
                None => of,
            }
        };
        let count = Statement::default().sql("SELECT (SELECT CAST(COUNT(*)");
        let count = count.sql(as_text(keyed.dialect));
        let count = with_work(count.sql(" FROM (SELECT 1 AS parent")).sql(" GROUP BY ");
        let count = keyed.key(count, shards).sql(") AS foldable)");
        let count = fields.iter().fold(count, |count, field| {
            sums::select(count.sql(", "), keyed.dialect, field, |count| {
                count.column(shards, field.name())
            })
        });
        let rows = with_work(count).rows(conn)?;
        let Some(row) = rows.first() else {
            return Ok((0, vec![]));
        };
        let amounts = (1..=fields.len()).map(|i| sums::read(row, i));
        Ok((row.parse(0)?, amounts.collect::<QueryResult<_>>()?))
    }
}

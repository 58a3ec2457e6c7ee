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
        let (keyed, shards) = (self.keyed, self.keyed.sharded.shards_table);
        let fields = &keyed.sharded.fields;
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
                .column(shards, field.name)
                .sql(&format!(") AS field_{i}"))
        });
        let count = count.sql(" FROM ").name(shards).sql(" WHERE (");
        let count = self.has_something(count).sql(")");
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

    /// `shards.views <> 0 OR … OR shards.shard >= $n`
    fn has_something(&self, statement: Statement) -> Statement {
        let statement = self.keyed.is_not_zero(statement);
        match self.keep {
            Some(first) => statement
                .sql(" OR ")
                .column(self.keyed.sharded.shards_table, "shard")
                .sql(" >= ")
                .bind(Value::Integer(first.into())),
            None => statement,
        }
    }

    /// The keys of the next parents that have something to fold.
    ///
    /// ```sql
    /// SELECT "videos"."id" FROM "videos" WHERE (SELECT 1 FROM "videos_shards" WHERE … LIMIT 1) IS NOT NULL
    ///     AND "videos"."id" > $1 ORDER BY "videos"."id" LIMIT $2
    /// ```
    ///
    /// Not `EXISTS`: planners turn that into a join that reads the whole shards table for every batch.
    pub fn pick(
        &self,
        batch: usize,
        after: Option<&Key>,
        conn: &mut AnyConnection,
    ) -> QueryResult<Vec<Key>> {
        let (keyed, table) = (self.keyed, self.keyed.sharded.table);
        let pick = keyed.select_key(Statement::default().sql("SELECT "), table);
        let pick = pick.sql(" FROM ").name(table);
        let pick = pick
            .sql(" WHERE (SELECT 1 FROM ")
            .name(keyed.sharded.shards_table);
        let pick = keyed.is_parents(pick.sql(" WHERE ")).sql(" AND (");
        let pick = self.has_something(pick).sql(") LIMIT 1) IS NOT NULL");
        let pick = match after {
            Some(key) => keyed.is_beyond(pick.sql(" AND "), table, ">", false, key),
            None => pick,
        };
        let pick = keyed.key(pick.sql(" ORDER BY "), table).sql(" LIMIT ");
        let rows = pick.bind(Value::Integer(batch as i64)).rows(conn)?;
        rows.iter()
            .map(|row| Key::read(keyed.sharded, row))
            .collect()
    }
}

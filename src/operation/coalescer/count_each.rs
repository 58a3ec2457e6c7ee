//! The counting update of a batch: several rows, each with its own amount.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::{BigInt, Integer};

use crate::backend::ShardedBackend;
use crate::model::{SHARD, ShardedColumn, ShardedTable};
use crate::query_builder::{
    Keep, no_query_id, push_bind, push_column, push_key, push_shard_is, push_shards_as_parent,
    push_shards_column, push_unique_key,
};

/// Adds to one shard of each of several parents, each with its own amount. Hot parents have another shard than cold ones.
///
/// ```sql
/// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" +
///     CASE WHEN ("videos"."id" = $1) THEN $2 WHEN ("videos"."id" = $3) THEN $4 END)
/// WHERE "videos"."id" IN ($5, $6) AND "videos"."shard" = $7
/// -- a composite key: WHERE (("version" = $n AND "day" = $n) OR …) AND …
/// -- hot and cold parents: WHERE ("videos"."id" IN ($n) AND "videos"."shard" = $n OR "videos"."id" IN ($n, $n) AND "videos"."shard" = $n)
/// ```
///
/// The list of parents of each shard is padded to a power of two by repeating the last one, which changes nothing. So there are
/// few texts, and they stay prepared.
pub(super) struct CountEach<C, P, V> {
    shards: Vec<CountedShard<P, V>>,
    column: PhantomData<C>,
}

/// The rows that are counted on the shard of one number.
pub(super) struct CountedShard<P, V> {
    pub(super) shard: i32,
    pub(super) rows: Vec<CountedRow<P, V>>,
}

/// `key = $n`, the key's values, and the amount.
pub(super) struct CountedRow<P, V> {
    pub(super) key_is: P,
    pub(super) key_values: V,
    pub(super) n: i64,
}

impl<P, V> CountedShard<P, V> {
    fn repeated(&self) -> impl Iterator<Item = &CountedRow<P, V>> {
        let missing = self.rows.len().next_power_of_two() - self.rows.len();
        let last = self.rows.last().into_iter();
        self.rows.iter().chain(last.cycle().take(missing))
    }
}

impl<C: ShardedColumn, P, V> CountEach<C, P, V> {
    pub(super) fn new(shards: Vec<CountedShard<P, V>>) -> Self {
        CountEach {
            shards,
            column: PhantomData,
        }
    }

    /// How many parents there are.
    pub(super) fn parents(&self) -> usize {
        self.shards.iter().map(|counted| counted.rows.len()).sum()
    }

    /// `field = (parent.field + CASE … END)`
    pub(super) fn push_change<'b, DB>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        DB: ShardedBackend,
        C::Table: QueryFragment<DB>,
        P: QueryFragment<DB>,
    {
        out.push_identifier(C::NAME)?;
        out.push_sql(" = (");
        push_column::<C::Table, DB>(C::NAME, out.reborrow())?;
        out.push_sql(" + ");
        self.push_amount(out.reborrow())?;
        out.push_sql(")");
        Ok(())
    }

    /// `CASE WHEN key = $1 THEN $2 … END`
    fn push_amount<'b, DB>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        DB: ShardedBackend,
        P: QueryFragment<DB>,
    {
        out.push_sql("CASE");
        let rows = self.shards.iter().flat_map(CountedShard::repeated);
        for CountedRow { key_is, n, .. } in rows {
            out.push_sql(" WHEN ");
            key_is.walk_ast(out.reborrow())?;
            out.push_sql(" THEN ");
            push_bind::<BigInt, i64, DB>(n, out.reborrow())?;
        }
        out.push_sql(" END");
        Ok(())
    }

    /// `parent.key IN ($1, …) AND parent.shard = $n`; for composite keys `OR`, since no index serves a list of them on every
    /// database.
    pub(super) fn push_filter<'b, DB>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        DB: ShardedBackend,
        C::Table: QueryFragment<DB>,
        P: QueryFragment<DB>,
        V: QueryFragment<DB>,
    {
        let are_several = self.shards.len() > 1;
        for (i, counted) in self.shards.iter().enumerate() {
            if are_several {
                out.push_sql(if i == 0 { "(" } else { " OR " });
            }
            push_keys_of::<C::Table, _, _, DB>(counted, out.reborrow())?;
            out.push_sql(" AND ");
            push_shard_is::<C::Table, DB>(&counted.shard, out.reborrow())?;
        }
        if are_several {
            out.push_sql(")");
        }
        Ok(())
    }

    /// Whether [`push_upsert`](Self::push_upsert) can write it.
    pub(super) fn is_on_one_shard(&self) -> bool {
        self.shards.len() == 1
    }

    /// Writes the statement that counts on missing shards too, in PostgreSQL's dialect, for the parents for which `push_condition`
    /// holds.
    ///
    /// ```sql
    /// INSERT INTO "videos_shards" ("id", "shard", "views") SELECT "videos"."id", $1, CASE … END FROM "videos"
    /// WHERE "videos"."id" IN ($n, …) AND condition ORDER BY "videos"."id"
    /// ON CONFLICT ("id", "shard") DO UPDATE SET "views" = ("videos_shards"."views" + excluded."views")
    /// ```
    pub(super) fn push_upsert<'b, DB>(
        &'b self,
        mut out: AstPass<'_, 'b, DB>,
        push_condition: impl FnOnce(AstPass<'_, 'b, DB>) -> QueryResult<()>,
    ) -> QueryResult<()>
    where
        DB: ShardedBackend,
        C::Table: QueryFragment<DB>,
        P: QueryFragment<DB>,
        V: QueryFragment<DB>,
    {
        let Some(counted) = self.shards.first() else {
            return Ok(());
        };
        out.push_sql("INSERT INTO ");
        out.push_identifier(C::Table::SHARDS_TABLE)?;
        out.push_sql(" (");
        for column in C::Table::KEY.iter().map(|key| &*key.name).chain([SHARD]) {
            out.push_identifier(column)?;
            out.push_sql(", ");
        }
        out.push_identifier(C::NAME)?;
        out.push_sql(") SELECT ");
        push_key::<C::Table, DB>(out.reborrow())?;
        out.push_sql(", ");
        push_bind::<Integer, i32, DB>(&counted.shard, out.reborrow())?;
        out.push_sql(", ");
        self.push_amount(out.reborrow())?;
        out.push_sql(" FROM ");
        C::Table::TABLE.walk_ast(out.reborrow())?;
        out.push_sql(" WHERE ");
        push_keys_of::<C::Table, _, _, DB>(counted, out.reborrow())?;
        out.push_sql(" AND ");
        push_condition(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        push_key::<C::Table, DB>(out.reborrow())?;
        out.push_sql(" ON CONFLICT ");
        push_unique_key::<C::Table, DB>(out.reborrow())?;
        out.push_sql(" DO UPDATE SET ");
        out.push_identifier(C::NAME)?;
        out.push_sql(" = (");
        push_shards_column::<C::Table, DB>(C::NAME, out.reborrow())?;
        out.push_sql(" + excluded.");
        out.push_identifier(C::NAME)?;
        out.push_sql(")");
        Ok(())
    }
}

/// `parent.key IN ($1, …)`
fn push_keys_of<'b, T, P, V, DB>(
    counted: &'b CountedShard<P, V>,
    mut out: AstPass<'_, 'b, DB>,
) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
    P: QueryFragment<DB>,
    V: QueryFragment<DB>,
{
    let is_composite = T::KEY.len() > 1;
    if !is_composite {
        push_key::<T, DB>(out.reborrow())?;
        out.push_sql(" IN ");
    }
    let separator = if is_composite { " OR " } else { ", " };
    for (i, row) in counted.repeated().enumerate() {
        out.push_sql(if i == 0 { "(" } else { separator });
        match is_composite {
            true => row.key_is.walk_ast(out.reborrow())?,
            false => row.key_values.walk_ast(out.reborrow())?,
        }
    }
    out.push_sql(")");
    Ok(())
}

impl<C, P, V, DB> QueryFragment<DB> for CountEach<C, P, V>
where
    DB: ShardedBackend,
    C: ShardedColumn<Table: QueryFragment<DB>>,
    P: QueryFragment<DB>,
    V: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("UPDATE ");
        push_shards_as_parent::<C::Table, DB>(out.reborrow())?;
        out.push_sql(" SET ");
        self.push_change(out.reborrow())?;
        out.push_sql(" WHERE ");
        self.push_filter(out)
    }
}

impl<C, P, V, DB> Keep<DB> for CountEach<C, P, V>
where
    DB: ShardedBackend,
    C: ShardedColumn<Table: QueryFragment<DB>>,
    P: QueryFragment<DB>,
    V: QueryFragment<DB>,
{
}

no_query_id!([C, P, V] CountEach<C, P, V>);

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::videos::dsl::*;
    use crate::test_schema::{downloads, sql, videos as table};
    use diesel::expression_methods::EqAll;
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::sqlite::Sqlite;

    #[test]
    fn count_each() {
        let each = |ids: &[i64]| {
            let rows = ids.iter().map(|key| CountedRow {
                key_is: id.eq(*key),
                key_values: table::table::key_values(key),
                n: 10 * key,
            });
            let rows = rows.collect();
            CountEach::<views, _, _>::new(vec![CountedShard { shard: 3, rows }])
        };
        let case = |whens: usize, others: usize| {
            let whens = " WHEN (`videos`.`id` = ?) THEN ?".repeat(whens);
            let others = ", ?".repeat(others);
            format!(
                "UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + CASE{whens} END) \
                 WHERE `videos`.`id` IN (?{others}) AND `videos`.`shard` = ?"
            )
        };
        assert_eq!(sql!(Mysql, each(&[7])), case(1, 0));
        assert_eq!(sql!(Sqlite, each(&[7, 8])), case(2, 1));
        assert_eq!(sql!(Sqlite, each(&[7, 8, 9])), case(4, 3));
        let binds = diesel::debug_query::<Pg, _>(&each(&[7, 8, 9])).to_string();
        assert!(
            binds.ends_with("binds: [7, 70, 8, 80, 9, 90, 9, 90, 7, 8, 9, 9, 3]"),
            "{binds}"
        );
    }

    #[test]
    fn count_each_on_two_shards() {
        let on = |shard: i32, ids: &[i64]| CountedShard {
            shard,
            rows: (ids.iter().map(|key| CountedRow {
                key_is: id.eq(*key),
                key_values: table::table::key_values(key),
                n: 10 * key,
            }))
            .collect(),
        };
        let count = CountEach::<views, _, _>::new(vec![on(0, &[7, 8, 9]), on(5, &[1])]);
        assert_eq!(count.parents(), 4);
        let text = sql!(Pg, count);
        let filter = r#"WHERE ("videos"."id" IN ($11, $12, $13, $14) AND "videos"."shard" = $15 OR "videos"."id" IN ($16) AND "videos"."shard" = $17)"#;
        assert!(text.ends_with(filter), "{text}");
        let binds = diesel::debug_query::<Pg, _>(&count).to_string();
        assert!(
            binds.ends_with("binds: [7, 70, 8, 80, 9, 90, 9, 90, 1, 10, 7, 8, 9, 9, 0, 1, 5]"),
            "{binds}"
        );
    }

    #[test]
    fn count_each_under_a_composite_key() {
        let rows = [(1, "a"), (1, "b")].map(|(of, on)| {
            let key = (of, on.to_owned());
            CountedRow {
                key_is: downloads::table.primary_key().eq_all(key.clone()),
                key_values: downloads::table::key_values(&key),
                n: 1,
            }
        });
        let rows = rows.into();
        let count =
            CountEach::<downloads::number, _, _>::new(vec![CountedShard { shard: 3, rows }]);
        let text = sql!(Pg, count);
        let filter = r#"WHERE ((("downloads"."version" = $7) AND ("downloads"."day" = $8)) OR (("downloads"."version" = $9) AND ("downloads"."day" = $10))) AND "downloads"."shard" = $11"#;
        assert!(text.ends_with(filter), "{text}");
    }
}

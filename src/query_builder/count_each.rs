//! The counting update of a batch: several rows, each with its own amount.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::{BigInt, Integer};

use crate::backend::ShardedBackend;
use crate::model::{SHARD, ShardedColumn, ShardedTable};

use super::names::{
    Names, push_aliased_column, push_bind, push_each_key, push_shard_is, push_shards_as_parent,
    push_under_alias,
};
#[cfg(feature = "r2d2")]
use super::names::{push_column, push_key, push_shards_column, push_unique_key};
use super::query_ids::no_query_id;
use super::text_guard::Keep;

/// Adds to one shard of each of several parents, each with its own amount. Hot parents have another shard than cold ones.
///
/// ```sql
/// -- PostgreSQL
/// WITH "sharded_batch" ("id", "shard", "views") AS (VALUES ($1, $2, $3), ($4, $5, $6))
/// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + "sharded_batch"."views") FROM "sharded_batch"
/// WHERE "videos"."id" = "sharded_batch"."id" AND "videos"."shard" = "sharded_batch"."shard"
/// -- MySQL, SQLite
/// UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` +
///     CASE WHEN (`videos`.`id` = ?) THEN ? WHEN (`videos`.`id` = ?) THEN ? END)
/// WHERE `videos`.`id` IN (?, ?) AND `videos`.`shard` = ?
/// -- a composite key: WHERE ((`version` = ? AND `day` = ?) OR …) AND …
/// -- hot and cold parents: WHERE (`videos`.`id` IN (?) AND `videos`.`shard` = ? OR `videos`.`id` IN (?, ?) AND `videos`.`shard` = ?)
/// ```
///
/// The lists are padded to a power of two: in a list of values by rows of the shard -1, which no parent has, and else by
/// repeating the last parent of a shard. So there are few texts, and they stay prepared.
pub(crate) struct CountEach<C, P, V> {
    shards: Vec<CountedShard<P, V>>,
    column: PhantomData<C>,
}

/// The rows that are counted on the shard of one number.
pub(crate) struct CountedShard<P, V> {
    pub(crate) shard: i32,
    pub(crate) rows: Vec<CountedRow<P, V>>,
}

/// `key = $n`, the key's values, and the amount.
pub(crate) struct CountedRow<P, V> {
    pub(crate) key_is: P,
    pub(crate) key_values: V,
    pub(crate) n: i64,
}

/// The name of the list of values.
const BATCH: &str = "sharded_batch";

/// The shard that pads a list of values.
const NO_SHARD: i32 = -1;

/// How many rows pad a list of so many.
fn padding(rows: usize) -> usize {
    rows.next_power_of_two() - rows
}

impl<P, V> CountedShard<P, V> {
    fn repeated(&self) -> impl Iterator<Item = &CountedRow<P, V>> {
        let last = self.rows.last().into_iter();
        self.rows
            .iter()
            .chain(last.cycle().take(padding(self.rows.len())))
    }
}

impl<C: ShardedColumn, P, V> CountEach<C, P, V> {
    pub(crate) fn new(shards: Vec<CountedShard<P, V>>) -> Self {
        CountEach {
            shards,
            column: PhantomData,
        }
    }

    /// How many parents there are.
    pub(crate) fn parents(&self) -> usize {
        self.shards.iter().map(|counted| counted.rows.len()).sum()
    }

    /// `"sharded_batch" ("id", "shard", "views") AS (VALUES ($1, $2, $3), …)`
    pub(crate) fn push_values<'b, DB>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        DB: ShardedBackend,
        V: QueryFragment<DB>,
    {
        out.push_identifier(BATCH)?;
        out.push_sql(" ");
        push_columns::<C, DB>(out.reborrow())?;
        out.push_sql(" AS (VALUES ");
        let shards = self.shards.iter();
        let rows = shards.flat_map(|on| on.rows.iter().map(|row| (&on.shard, row, &row.n)));
        let last = rows.clone().last().into_iter().cycle();
        let none = last.map(|(_, row, _)| (&NO_SHARD, row, &0));
        let rows = rows.chain(none.take(padding(self.parents())));
        for (i, (shard, row, n)) in rows.enumerate() {
            out.push_sql(if i == 0 { "(" } else { ", (" });
            row.key_values.walk_ast(out.reborrow())?;
            out.push_sql(", ");
            push_bind::<Integer, i32, DB>(shard, out.reborrow())?;
            out.push_sql(", ");
            push_bind::<BigInt, i64, DB>(n, out.reborrow())?;
            out.push_sql(")");
        }
        out.push_sql(")");
        Ok(())
    }

    /// `UPDATE shards AS parent SET … WHERE …`; a condition may follow.
    pub(crate) fn push_update<'b, DB>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        DB: ShardedBackend,
        C::Table: QueryFragment<DB>,
        P: QueryFragment<DB>,
        V: QueryFragment<DB>,
    {
        out.push_sql("UPDATE ");
        push_shards_as_parent::<C::Table, DB>(out.reborrow())?;
        out.push_sql(" SET ");
        self.push_change(out.reborrow())?;
        if out.backend().dialect().joins_values() {
            out.push_sql(" FROM ");
            out.push_identifier(BATCH)?;
        }
        out.push_sql(" WHERE ");
        self.push_filter(out)
    }

    /// `SELECT COUNT(*) FROM shards AS parent, "sharded_batch" WHERE …`: how many shards are there.
    #[cfg(feature = "r2d2")]
    pub(crate) fn push_are_there<'b, DB>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        DB: ShardedBackend,
        C::Table: QueryFragment<DB>,
    {
        out.push_sql("SELECT COUNT(*) FROM ");
        push_shards_as_parent::<C::Table, DB>(out.reborrow())?;
        out.push_sql(", ");
        out.push_identifier(BATCH)?;
        out.push_sql(" WHERE ");
        push_is_in_batch::<C::Table, DB>(out)
    }

    /// `field = (parent.field + …)`
    pub(crate) fn push_change<'b, DB>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        DB: ShardedBackend,
        C::Table: QueryFragment<DB>,
        P: QueryFragment<DB>,
    {
        out.push_identifier(C::NAME)?;
        out.push_sql(" = (");
        push_aliased_column::<C::Table, DB>(C::NAME, out.reborrow())?;
        out.push_sql(" + ");
        match out.backend().dialect().joins_values() {
            true => push_of_batch(C::NAME, out.reborrow())?,
            false => self.push_amount(out.reborrow())?,
        }
        out.push_sql(")");
        Ok(())
    }

    /// `CASE WHEN key = ? THEN ? … END`
    fn push_amount<'b, DB>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        DB: ShardedBackend,
        C::Table: QueryFragment<DB>,
        P: QueryFragment<DB>,
    {
        out.push_sql("CASE");
        let rows = self.shards.iter().flat_map(CountedShard::repeated);
        for CountedRow { key_is, n, .. } in rows {
            out.push_sql(" WHEN ");
            push_under_alias::<C::Table, _, DB>(key_is, out.reborrow())?;
            out.push_sql(" THEN ");
            push_bind::<BigInt, i64, DB>(n, out.reborrow())?;
        }
        out.push_sql(" END");
        Ok(())
    }

    /// `parent.key IN (?, …) AND parent.shard = ?`; for composite keys `OR`, since no index serves a list of them on every
    /// database.
    pub(crate) fn push_filter<'b, DB>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        DB: ShardedBackend,
        C::Table: QueryFragment<DB>,
        P: QueryFragment<DB>,
        V: QueryFragment<DB>,
    {
        if out.backend().dialect().joins_values() {
            return push_is_in_batch::<C::Table, DB>(out);
        }
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

    /// Writes the statement that counts on missing shards too, in PostgreSQL's dialect, for the parents for which `push_condition`
    /// holds. Two keys may name one parent, and no row can be inserted twice: the statement then counts for one of them.
    ///
    /// ```sql
    /// INSERT INTO "videos_shards" ("id", "shard", "views")
    /// SELECT DISTINCT ON ("videos"."id") "videos"."id", "sharded_batch"."shard", "sharded_batch"."views"
    /// FROM "videos", "sharded_batch"
    /// WHERE "videos"."id" = "sharded_batch"."id" AND "sharded_batch"."shard" >= 0 AND condition ORDER BY "videos"."id"
    /// ON CONFLICT ("id", "shard") DO UPDATE SET "views" = ("videos_shards"."views" + excluded."views")
    /// ```
    #[cfg(feature = "r2d2")]
    pub(crate) fn push_upsert<'b, DB>(
        &'b self,
        mut out: AstPass<'_, 'b, DB>,
        push_condition: impl FnOnce(AstPass<'_, 'b, DB>) -> QueryResult<()>,
    ) -> QueryResult<()>
    where
        DB: ShardedBackend,
        C::Table: QueryFragment<DB>,
    {
        out.push_sql("INSERT INTO ");
        C::Table::SHARDS_TABLE.push(out.reborrow())?;
        out.push_sql(" ");
        push_columns::<C, DB>(out.reborrow())?;
        out.push_sql(" SELECT DISTINCT ON (");
        push_key::<C::Table, DB>(out.reborrow())?;
        out.push_sql(") ");
        push_key::<C::Table, DB>(out.reborrow())?;
        for column in [SHARD, C::NAME] {
            out.push_sql(", ");
            push_of_batch(column, out.reborrow())?;
        }
        out.push_sql(" FROM ");
        C::Table::TABLE.walk_ast(out.reborrow())?;
        out.push_sql(", ");
        out.push_identifier(BATCH)?;
        out.push_sql(" WHERE ");
        push_key_is_in_batch::<C::Table, DB>(out.reborrow(), push_column::<C::Table, DB>)?;
        out.push_sql(" AND ");
        push_of_batch(SHARD, out.reborrow())?;
        out.push_sql(" >= 0 AND ");
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

/// `("id", "shard", "views")`
fn push_columns<C, DB>(mut out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    C: ShardedColumn,
    DB: ShardedBackend,
{
    let key = C::Table::KEY.iter().map(|key| &*key.name);
    for (i, column) in key.chain([SHARD, C::NAME]).enumerate() {
        out.push_sql(if i == 0 { "(" } else { ", " });
        out.push_identifier(column)?;
    }
    out.push_sql(")");
    Ok(())
}

/// `"sharded_batch"."name"`
fn push_of_batch<DB: ShardedBackend>(name: &str, mut out: AstPass<'_, '_, DB>) -> QueryResult<()> {
    out.push_identifier(BATCH)?;
    out.push_sql(".");
    out.push_identifier(name)
}

/// `parent.key = "sharded_batch".key`, where `push_column` writes a column of the parent
fn push_key_is_in_batch<T, DB>(
    out: AstPass<'_, '_, DB>,
    push_column: impl Fn(&str, AstPass<'_, '_, DB>) -> QueryResult<()>,
) -> QueryResult<()>
where
    T: ShardedTable,
    DB: ShardedBackend,
{
    push_each_key::<T, DB>(" AND ", out, |_, name, mut out| {
        push_column(name, out.reborrow())?;
        out.push_sql(" = ");
        push_of_batch(name, out)
    })
}

/// `parent.key = "sharded_batch".key AND parent.shard = "sharded_batch".shard`
fn push_is_in_batch<T, DB>(mut out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    push_key_is_in_batch::<T, DB>(out.reborrow(), push_aliased_column::<T, DB>)?;
    out.push_sql(" AND ");
    push_aliased_column::<T, DB>(SHARD, out.reborrow())?;
    out.push_sql(" = ");
    push_of_batch(SHARD, out)
}

/// `parent.key IN (?, …)`
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
        Names::of::<T>().under_alias().push_key(out.reborrow())?;
        out.push_sql(" IN ");
    }
    let separator = if is_composite { " OR " } else { ", " };
    for (i, row) in counted.repeated().enumerate() {
        out.push_sql(if i == 0 { "(" } else { separator });
        match is_composite {
            true => push_under_alias::<T, _, DB>(&row.key_is, out.reborrow())?,
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
        if out.backend().dialect().joins_values() {
            out.push_sql("WITH ");
            self.push_values(out.reborrow())?;
            out.push_sql(" ");
        }
        self.push_update(out)
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

    fn on(
        shard: i32,
        ids: &[i64],
    ) -> CountedShard<diesel::dsl::Eq<id, i64>, <table::table as ShardedTable>::KeyValues> {
        let rows = ids.iter().map(|key| CountedRow {
            key_is: id.eq(*key),
            key_values: table::table::key_values(key),
            n: 10 * key,
        });
        let rows = rows.collect();
        CountedShard { shard, rows }
    }

    #[test]
    fn count_each() {
        let each = |ids: &[i64]| CountEach::<views, _, _>::new(vec![on(3, ids)]);
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
    }

    #[test]
    fn a_list_of_values_is_padded_by_a_shard_that_no_parent_has() {
        let count = CountEach::<views, _, _>::new(vec![on(0, &[7, 8]), on(5, &[1])]);
        let shown = diesel::debug_query::<Pg, _>(&count).to_string();
        let text = r#"WITH "sharded_batch" ("id", "shard", "views") AS (VALUES ($1, $2, $3), ($4, $5, $6), ($7, $8, $9), ($10, $11, $12)) UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + "sharded_batch"."views") FROM "sharded_batch" WHERE "videos"."id" = "sharded_batch"."id" AND "videos"."shard" = "sharded_batch"."shard""#;
        let binds = "[7, 0, 70, 8, 0, 80, 1, 5, 10, 1, -1, 0]";
        assert_eq!(shown, format!("{text} -- binds: {binds}"));
    }

    #[test]
    fn count_each_on_two_shards() {
        let count = CountEach::<views, _, _>::new(vec![on(0, &[7, 8, 9]), on(5, &[1])]);
        assert_eq!(count.parents(), 4);
        let text = sql!(Sqlite, count);
        let filter = "WHERE (`videos`.`id` IN (?, ?, ?, ?) AND `videos`.`shard` = ? OR `videos`.`id` IN (?) AND `videos`.`shard` = ?)";
        assert!(text.ends_with(filter), "{text}");
        let binds = diesel::debug_query::<Sqlite, _>(&count).to_string();
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
        let text = sql!(Mysql, count);
        let filter = "WHERE (((`downloads`.`version` = ?) AND (`downloads`.`day` = ?)) OR ((`downloads`.`version` = ?) AND (`downloads`.`day` = ?))) AND `downloads`.`shard` = ?";
        assert!(text.ends_with(filter), "{text}");
        let text = sql!(Pg, count);
        let start = r#"WITH "sharded_batch" ("version", "day", "shard", "number") AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8)) UPDATE "#;
        assert!(text.starts_with(start), "{text}");
        let filter = r#"WHERE "downloads"."version" = "sharded_batch"."version" AND "downloads"."day" = "sharded_batch"."day" AND "downloads"."shard" = "sharded_batch"."shard""#;
        assert!(text.ends_with(filter), "{text}");
    }
}

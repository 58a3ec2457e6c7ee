//! Counting on all parents that a filter matches, or on none.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::Integer;

use crate::backend::ShardedBackend;
use crate::model::{SHARD, ShardedTable, ShardsColumn};
use crate::query_builder::picked::{
    PICKED, push_from_parents, push_key_as_picked, push_key_is, push_key_is_parents,
    push_select_picked_key,
};
use crate::query_builder::query_ids::query_ids;
use crate::query_builder::{
    Keep, push_bind, push_each_key, push_number_of_rows, push_shard_is, push_shards_as_parent,
    push_shards_column, push_under_alias,
};

/// Adds to the shards of all parents that `filter` matches; to none if one of the shards is missing. It locks the shards in key order.
///
/// ```sql
/// -- PostgreSQL
/// WITH "sharded_picked" AS MATERIALIZED (SELECT "videos"."id" AS "sharded_key_0" FROM "videos" WHERE …),
/// "sharded_locked" AS MATERIALIZED (
///     SELECT "videos_shards"."id" AS "sharded_key_0" FROM "sharded_picked" JOIN "videos_shards"
///         ON "sharded_picked"."sharded_key_0" = "videos_shards"."id" AND "videos_shards"."shard" = $2
///     ORDER BY "videos_shards"."id" FOR NO KEY UPDATE OF "videos_shards")
/// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $3) FROM "sharded_locked"
/// WHERE "sharded_locked"."sharded_key_0" = "videos"."id" AND "videos"."shard" = $4
///     AND (SELECT COUNT(*) FROM "sharded_locked") = (SELECT COUNT(*) FROM "sharded_picked")
/// ```
pub(crate) struct CountAll<'a, T, W, V, Ch> {
    pub(crate) changes: &'a Ch,
    pub(crate) filter: &'a W,
    pub(crate) shard: i32,
    pub(crate) types: PhantomData<(T, V)>,
}

/// The shards that are locked.
pub(super) const LOCKED: &str = "sharded_locked";

impl<T, W, V, Ch, DB> QueryFragment<DB> for CountAll<'_, T, W, V, Ch>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    Ch: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("WITH ");
        push_picked_and_locked::<T, W, DB>(self.filter, &self.shard, &[], out.reborrow())?;
        out.push_sql(" ");
        push_update_locked::<T, Ch, DB>(self.changes, &self.shard, out)
    }
}

impl<T, W, V, Ch, DB> Keep<DB> for CountAll<'_, T, W, V, Ch>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    Ch: QueryFragment<DB>,
{
}

/// Writes the parents that are picked, and their shards that are locked, with the values of `fields`.
pub(super) fn push_picked_and_locked<'b, T, W, DB>(
    filter: &'b W,
    shard: &'b i32,
    fields: &[ShardsColumn],
    mut out: AstPass<'_, 'b, DB>,
) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    DB: ShardedBackend,
{
    out.push_identifier(PICKED)?;
    out.push_sql(" AS MATERIALIZED (");
    push_select_picked_key::<T, DB>(out.reborrow())?;
    push_from_parents::<T, W, DB>(filter, out.reborrow())?;
    out.push_sql("), ");
    out.push_identifier(LOCKED)?;
    out.push_sql(" AS MATERIALIZED (SELECT ");
    push_key_as_picked::<T, DB>(out.reborrow(), push_shards_column::<T, DB>)?;
    for field in fields {
        out.push_sql(", ");
        push_shards_column::<T, DB>(&field.name, out.reborrow())?;
    }
    out.push_sql(" FROM ");
    out.push_identifier(PICKED)?;
    out.push_sql(" JOIN ");
    T::SHARDS_TABLE.push(out.reborrow())?;
    out.push_sql(" ON ");
    push_key_is::<T, DB>(PICKED, out.reborrow(), push_shards_column::<T, DB>)?;
    out.push_sql(" AND ");
    push_shards_column::<T, DB>(SHARD, out.reborrow())?;
    out.push_sql(" = ");
    push_bind::<Integer, i32, DB>(shard, out.reborrow())?;
    out.push_sql(" ORDER BY ");
    push_each_key::<T, DB>(", ", out.reborrow(), |_, name, out| {
        push_shards_column::<T, DB>(name, out)
    })?;
    out.push_sql(" FOR NO KEY UPDATE OF ");
    out.push_identifier(T::SHARDS_TABLE.name())?;
    out.push_sql(")");
    Ok(())
}

/// Writes the update of the shards that are locked.
pub(super) fn push_update_locked<'b, T, Ch, DB>(
    changes: &'b Ch,
    shard: &'b i32,
    mut out: AstPass<'_, 'b, DB>,
) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    Ch: QueryFragment<DB>,
    DB: ShardedBackend,
{
    out.push_sql("UPDATE ");
    push_shards_as_parent::<T, DB>(out.reborrow())?;
    out.push_sql(" SET ");
    push_under_alias::<T, _, DB>(changes, out.reborrow())?;
    out.push_sql(" FROM ");
    out.push_identifier(LOCKED)?;
    out.push_sql(" WHERE ");
    push_key_is_parents::<T, DB>(LOCKED, out.reborrow())?;
    out.push_sql(" AND ");
    push_shard_is::<T, DB>(shard, out.reborrow())?;
    out.push_sql(" AND ");
    push_number_of_rows(LOCKED, out.reborrow())?;
    out.push_sql(" = ");
    push_number_of_rows(PICKED, out)
}

query_ids!(CountAll<'a, T, W, V; Ch>);

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::{downloads, sql};
    use diesel::pg::Pg;
    use diesel::query_builder::{AsChangeset, IntoUpdateTarget};

    #[test]
    fn count_all_under_a_composite_key() {
        let count = CountAll::<downloads::table, _, (), _> {
            changes: &downloads::number.eq(downloads::number + 1.0).as_changeset(),
            filter: &downloads::table
                .filter(downloads::day.eq("x"))
                .into_update_target()
                .where_clause,
            shard: 3,
            types: PhantomData,
        };
        assert_eq!(
            sql!(Pg, count),
            r#"WITH "sharded_picked" AS MATERIALIZED (SELECT "downloads"."version" AS "sharded_key_0", "downloads"."day" AS "sharded_key_1" FROM "downloads" WHERE ("downloads"."day" = $1)), "sharded_locked" AS MATERIALIZED (SELECT "download ""counts"""."version" AS "sharded_key_0", "download ""counts"""."day" AS "sharded_key_1" FROM "sharded_picked" JOIN "download ""counts""" ON "sharded_picked"."sharded_key_0" = "download ""counts"""."version" AND "sharded_picked"."sharded_key_1" = "download ""counts"""."day" AND "download ""counts"""."shard" = $2 ORDER BY "download ""counts"""."version", "download ""counts"""."day" FOR NO KEY UPDATE OF "download ""counts""") UPDATE "download ""counts""" AS "downloads" SET "number" = ("downloads"."number" + $3) FROM "sharded_locked" WHERE "sharded_locked"."sharded_key_0" = "downloads"."version" AND "sharded_locked"."sharded_key_1" = "downloads"."day" AND "downloads"."shard" = $4 AND (SELECT COUNT(*) FROM "sharded_locked") = (SELECT COUNT(*) FROM "sharded_picked")"#
        );
    }
}

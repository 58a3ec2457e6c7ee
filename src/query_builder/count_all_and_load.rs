//! Counting on all parents that a filter matches, or on none, and reading them.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};

use crate::backend::ShardedBackend;
use crate::model::{ColumnType, ShardedTable};
use crate::query_builder::count_all::{LOCKED, push_picked_and_locked, push_update_locked};
use crate::query_builder::picked::{push_key_as_picked, push_key_is, push_picked_key};
use crate::query_builder::query_ids::query_ids;
use crate::query_builder::{push_column, push_each_key, push_shards_column};

/// Adds to the shards of all parents that `filter` matches, and reads these parents; of none if one of the shards is missing.
///
/// A statement does not see the rows that it writes. Under the name of the shards table it therefore reads the shards as they were,
/// and what it has added to them.
/// No name inside a schema can be taken so: there another statement reads the rows.
///
/// ```sql
/// -- PostgreSQL
/// WITH "sharded_picked" AS MATERIALIZED (…),
/// "sharded_locked" AS MATERIALIZED (SELECT "videos_shards"."id" AS "sharded_key_0", "videos_shards"."views" FROM …),
/// "sharded_counted" AS (UPDATE "videos_shards" AS "videos" SET … FROM "sharded_locked" WHERE …
///     RETURNING "videos"."id" AS "sharded_key_0", CAST("videos"."views" AS numeric) - "sharded_locked"."views" AS "views"),
/// "videos_shards" AS (
///     SELECT "videos_shards"."id", "videos_shards"."views" FROM "sharded_counted" JOIN "videos_shards"
///         ON "sharded_counted"."sharded_key_0" = "videos_shards"."id"
///     UNION ALL SELECT "sharded_key_0", "views" FROM "sharded_counted")
/// SELECT … FROM "videos" JOIN "sharded_counted" ON "sharded_counted"."sharded_key_0" = "videos"."id"
/// ```
pub(crate) struct CountAllAndLoad<'a, T, W, V, S, Ch> {
    pub(crate) changes: &'a Ch,
    pub(crate) filter: &'a W,
    pub(crate) shard: i32,
    pub(crate) selection: S,
    pub(crate) types: PhantomData<(T, V)>,
}

/// The parents that are counted on, with the amounts that were added.
const COUNTED: &str = "sharded_counted";

impl<T, W, V, Ch, S, DB> QueryFragment<DB> for CountAllAndLoad<'_, T, W, V, S, Ch>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    Ch: QueryFragment<DB>,
    S: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("WITH ");
        push_picked_and_locked::<T, W, DB>(self.filter, &self.shard, T::FIELDS, out.reborrow())?;
        out.push_sql(", ");
        push_counted::<T, Ch, DB>(self.changes, &self.shard, out.reborrow())?;
        out.push_sql(", ");
        push_shards_after_all::<T, DB>(out.reborrow())?;
        out.push_sql(" SELECT ");
        self.selection.walk_ast(out.reborrow())?;
        out.push_sql(" FROM ");
        T::TABLE.walk_ast(out.reborrow())?;
        out.push_sql(" JOIN ");
        out.push_identifier(COUNTED)?;
        out.push_sql(" ON ");
        push_key_is::<T, DB>(COUNTED, out, push_column::<T, DB>)
    }
}

impl<T, W, V, Ch, S: Expression> Query for CountAllAndLoad<'_, T, W, V, S, Ch> {
    type SqlType = S::SqlType;
}

/// `counted AS (UPDATE … RETURNING parent.key AS sharded_key_0, parent.views - locked.views AS views)`
fn push_counted<'b, T, Ch, DB>(
    changes: &'b Ch,
    shard: &'b i32,
    mut out: AstPass<'_, 'b, DB>,
) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    Ch: QueryFragment<DB>,
    DB: ShardedBackend,
{
    out.push_identifier(COUNTED)?;
    out.push_sql(" AS (");
    push_update_locked::<T, Ch, DB>(changes, shard, out.reborrow())?;
    out.push_sql(" RETURNING ");
    push_key_as_picked::<T, DB>(out.reborrow(), push_column::<T, DB>)?;
    for field in T::FIELDS {
        if !field.is_sum() {
            // Beside the former one it is the greater or the less of the two.
            out.push_sql(", ");
            push_column::<T, DB>(&field.name, out.reborrow())?;
            continue;
        }
        // The difference between two values of a type may leave its range.
        let wide = match field.column_type {
            ColumnType::SmallInt | ColumnType::Integer => Some(" AS bigint)"),
            ColumnType::BigInt => Some(" AS numeric)"),
            _ => None,
        };
        out.push_sql(match wide {
            Some(_) => ", CAST(",
            None => ", ",
        });
        push_column::<T, DB>(&field.name, out.reborrow())?;
        out.push_sql(wide.unwrap_or_default());
        out.push_sql(" - ");
        out.push_identifier(LOCKED)?;
        out.push_sql(".");
        out.push_identifier(&field.name)?;
        out.push_sql(" AS ");
        out.push_identifier(&field.name)?;
    }
    out.push_sql(")");
    Ok(())
}

/// Under the name of the shards table: the shards before the update, and the amounts that it added.
fn push_shards_after_all<T, DB>(mut out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    out.push_identifier(T::SHARDS_TABLE.name())?;
    out.push_sql(" AS (SELECT ");
    push_each_key::<T, DB>(", ", out.reborrow(), |_, name, out| {
        push_shards_column::<T, DB>(name, out)
    })?;
    for field in T::FIELDS {
        out.push_sql(", ");
        push_shards_column::<T, DB>(&field.name, out.reborrow())?;
    }
    out.push_sql(" FROM ");
    out.push_identifier(COUNTED)?;
    out.push_sql(" JOIN ");
    T::SHARDS_TABLE.push(out.reborrow())?;
    out.push_sql(" ON ");
    push_key_is::<T, DB>(COUNTED, out.reborrow(), push_shards_column::<T, DB>)?;
    out.push_sql(" UNION ALL SELECT ");
    push_each_key::<T, DB>(", ", out.reborrow(), |i, _, out| {
        push_picked_key(COUNTED, i, out)
    })?;
    for field in T::FIELDS {
        out.push_sql(", ");
        out.push_identifier(COUNTED)?;
        out.push_sql(".");
        out.push_identifier(&field.name)?;
    }
    out.push_sql(" FROM ");
    out.push_identifier(COUNTED)?;
    out.push_sql(")");
    Ok(())
}

query_ids!(CountAllAndLoad<'a, T, W, V, S; Ch>);

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::query_builder::ShardedExpressionMethods;
    use crate::test_schema::{sql, videos};
    use diesel::pg::Pg;
    use diesel::query_builder::{AsChangeset, IntoUpdateTarget};

    #[test]
    fn count_all_and_load() {
        let count = CountAllAndLoad::<videos::table, _, (), _, _> {
            changes: &videos::views.eq(videos::views + 1).as_changeset(),
            filter: &videos::table
                .filter(videos::slug.eq("a"))
                .into_update_target()
                .where_clause,
            shard: 3,
            selection: videos::views.total(),
            types: PhantomData,
        };
        assert_eq!(
            sql!(Pg, count),
            r#"WITH "sharded_picked" AS MATERIALIZED (SELECT "videos"."id" AS "sharded_key_0" FROM "videos" WHERE ("videos"."slug" = $1)), "sharded_locked" AS MATERIALIZED (SELECT "videos_shards"."id" AS "sharded_key_0", "videos_shards"."views", "videos_shards"."likes" FROM "sharded_picked" JOIN "videos_shards" ON "sharded_picked"."sharded_key_0" = "videos_shards"."id" AND "videos_shards"."shard" = $2 ORDER BY "videos_shards"."id" FOR NO KEY UPDATE OF "videos_shards"), "sharded_counted" AS (UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $3) FROM "sharded_locked" WHERE "sharded_locked"."sharded_key_0" = "videos"."id" AND "videos"."shard" = $4 AND (SELECT COUNT(*) FROM "sharded_locked") = (SELECT COUNT(*) FROM "sharded_picked") RETURNING "videos"."id" AS "sharded_key_0", CAST("videos"."views" AS numeric) - "sharded_locked"."views" AS "views", CAST("videos"."likes" AS bigint) - "sharded_locked"."likes" AS "likes"), "videos_shards" AS (SELECT "videos_shards"."id", "videos_shards"."views", "videos_shards"."likes" FROM "sharded_counted" JOIN "videos_shards" ON "sharded_counted"."sharded_key_0" = "videos_shards"."id" UNION ALL SELECT "sharded_counted"."sharded_key_0", "sharded_counted"."views", "sharded_counted"."likes" FROM "sharded_counted") SELECT CAST(("videos"."views" + (SELECT COALESCE(SUM("videos_shards"."views"), 0) FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id")) AS bigint) FROM "videos" JOIN "sharded_counted" ON "sharded_counted"."sharded_key_0" = "videos"."id""#
        );
    }
}

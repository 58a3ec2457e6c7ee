//! Counting on all parents that a filter matches, or on none, and reading them.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};

use crate::backend::ShardedBackend;
use crate::model::{ColumnType, ShardsColumn};
use crate::query_builder::count_all::LOCKED;
use crate::query_builder::picked::picked_key;
use crate::query_builder::{Names, Parts, Sql, id, sql, walk};

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
pub(crate) struct CountAllAndLoad<'a, DB: Backend, S> {
    pub(crate) parts: Parts<'a, DB>,
    pub(crate) selection: S,
}

/// The parents that are counted on, with the amounts that were added.
const COUNTED: &str = "sharded_counted";

impl<S: QueryFragment<DB>, DB: ShardedBackend> QueryFragment<DB> for CountAllAndLoad<'_, DB, S> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        count_and_load(&self.parts, &self.selection).push(out)
    }
}

impl<DB: Backend, S: Expression> Query for CountAllAndLoad<'_, DB, S> {
    type SqlType = S::SqlType;
}

/// The id of [`CountAllAndLoad`] for changes `V` and a filter `W`.
#[derive(QueryId)]
pub(crate) struct CountAllAndLoadId<T, W, V, S>(PhantomData<(T, W, V, S)>);

fn count_and_load<'b, DB: ShardedBackend>(
    parts: &'b Parts<'_, DB>,
    selection: &'b dyn QueryFragment<DB>,
) -> impl Sql<'b, DB> {
    let table = parts.names;
    sql! {
        "WITH ", table.picked_and_locked(parts.filter, &parts.shard, table.fields), ", ",
        table.counted(parts.changes, &parts.shard), ", ", table.shards_after_all(),
        " SELECT ", walk(selection), " FROM ", walk(table.parent), " JOIN ", id(COUNTED),
        " ON ", table.picked_is(COUNTED, |name| table.column(name))
    }
}

impl<'b, DB: ShardedBackend> Names<'b, DB> {
    /// `counted AS (UPDATE … RETURNING parent.key AS sharded_key_0, parent.views - locked.views AS views)`
    fn counted(self, changes: &'b dyn QueryFragment<DB>, shard: &'b i32) -> impl Sql<'b, DB> {
        // The difference between two values of a type may leave its range.
        let cast = |field: &ShardsColumn| match field.column_type {
            ColumnType::SmallInt | ColumnType::Integer => ("CAST(", " AS bigint)"),
            ColumnType::BigInt => ("CAST(", " AS numeric)"),
            _ => ("", ""),
        };
        sql! {
            id(COUNTED), " AS (", self.update_locked(changes, shard),
            " RETURNING ", self.key_as_picked(|name| self.column(name)),
            for field in (self.fields, "") {
                ", ",
                if field.is_sum() {
                    cast(field).0, self.column(&field.name), cast(field).1, " - ", id(LOCKED), ".", id(&field.name),
                    " AS ", id(&field.name)
                } else {
                    self.column(&field.name) // beside the former one it is the greater or the less of the two
                }
            },
            ")"
        }
    }

    /// Under the name of the shards table: the shards before the update, and the amounts that it added.
    fn shards_after_all(self) -> impl Sql<'b, DB> {
        sql! {
            id(self.shards_table.name()),
            " AS (SELECT ", self.shards_key(), for field in (self.fields, "") { ", ", self.shards_column(&field.name) },
            " FROM ", id(COUNTED), " JOIN ", self.shards_table,
            " ON ", self.picked_is(COUNTED, |name| self.shards_column(name)),
            " UNION ALL SELECT ",
            for i in (0..self.key.len(), ", ") { id(COUNTED), ".", id(&picked_key(i)) },
            for field in (self.fields, "") { ", ", id(COUNTED), ".", id(&field.name) },
            " FROM ", id(COUNTED), ")"
        }
    }
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::query_builder::Names;
    use crate::query_builder::ShardedExpressionMethods;
    use crate::test_schema::{sql, videos};
    use diesel::pg::Pg;
    use diesel::query_builder::{AsChangeset, IntoUpdateTarget};

    #[test]
    fn count_all_and_load() {
        let count = CountAllAndLoad {
            parts: Parts {
                names: Names::of::<videos::table>(),
                changes: &videos::views.eq(videos::views + 1).as_changeset(),
                filter: &videos::table
                    .filter(videos::slug.eq("a"))
                    .into_update_target()
                    .where_clause,
                shard: 3,
            },
            selection: videos::views.total(),
        };
        assert_eq!(
            sql!(Pg, count),
            r#"WITH "sharded_picked" AS MATERIALIZED (SELECT "videos"."id" AS "sharded_key_0" FROM "videos" WHERE ("videos"."slug" = $1)), "sharded_locked" AS MATERIALIZED (SELECT "videos_shards"."id" AS "sharded_key_0", "videos_shards"."views", "videos_shards"."likes" FROM "sharded_picked" JOIN "videos_shards" ON "sharded_picked"."sharded_key_0" = "videos_shards"."id" AND "videos_shards"."shard" = $2 ORDER BY "videos_shards"."id" FOR NO KEY UPDATE OF "videos_shards"), "sharded_counted" AS (UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $3) FROM "sharded_locked" WHERE "sharded_locked"."sharded_key_0" = "videos"."id" AND "videos"."shard" = $4 AND (SELECT COUNT(*) FROM "sharded_locked") = (SELECT COUNT(*) FROM "sharded_picked") RETURNING "videos"."id" AS "sharded_key_0", CAST("videos"."views" AS numeric) - "sharded_locked"."views" AS "views", CAST("videos"."likes" AS bigint) - "sharded_locked"."likes" AS "likes"), "videos_shards" AS (SELECT "videos_shards"."id", "videos_shards"."views", "videos_shards"."likes" FROM "sharded_counted" JOIN "videos_shards" ON "sharded_counted"."sharded_key_0" = "videos_shards"."id" UNION ALL SELECT "sharded_counted"."sharded_key_0", "sharded_counted"."views", "sharded_counted"."likes" FROM "sharded_counted") SELECT CAST(("videos"."views" + (SELECT COALESCE(SUM("videos_shards"."views"), 0) FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id")) AS bigint) FROM "videos" JOIN "sharded_counted" ON "sharded_counted"."sharded_key_0" = "videos"."id""#
        );
    }
}

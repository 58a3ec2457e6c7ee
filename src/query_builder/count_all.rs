//! Counting on all parents that a filter matches, or on none.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::Integer;

use crate::backend::ShardedBackend;
use crate::model::{SHARD, ShardsColumn};
use crate::query_builder::picked::PICKED;
use crate::query_builder::{
    Names, Parts, Prepare, Sql, bind, id, no_query_id, number_of_rows, sql,
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
pub(crate) struct CountAll<'a, DB: Backend>(pub(crate) Parts<'a, DB>);

/// The shards that are locked.
pub(super) const LOCKED: &str = "sharded_locked";

impl<DB: ShardedBackend> QueryFragment<DB> for CountAll<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let parts = &self.0;
        let table = parts.names;
        sql!(out;
            "WITH ", table.picked_and_locked(parts.filter, &parts.shard, &[]), " ",
            table.update_locked(parts.changes, &parts.shard))
    }
}

impl<DB: ShardedBackend> Prepare<DB> for CountAll<'_, DB> {}

impl<'b, DB: ShardedBackend> Names<'b, DB> {
    /// Writes the parents that are picked, and their shards that are locked, with the values of `fields`.
    pub(super) fn picked_and_locked(
        self,
        filter: &'b dyn QueryFragment<DB>,
        shard: &'b i32,
        fields: &[ShardsColumn],
    ) -> impl Sql<'b, DB> {
        let shards_column = move |name| self.shards_column(name);
        sql! {
            id(PICKED), " AS MATERIALIZED (", self.select_picked_key(), " FROM ", self.filtered(filter), "), ",
            id(LOCKED), " AS MATERIALIZED (SELECT ", self.key_as_picked(shards_column),
            for field in (fields, "") { ", ", self.shards_column(&field.name) },
            " FROM ", id(PICKED), " JOIN ", self.shards_table, " ON ", self.picked_is(PICKED, shards_column),
            " AND ", self.shards_column(SHARD), " = ", bind(Integer, shard),
            " ORDER BY ", self.shards_key(), " FOR NO KEY UPDATE OF ", id(self.shards_table.name()), ")"
        }
    }

    /// Writes the update of the shards that are locked.
    pub(super) fn update_locked(
        self,
        changes: &'b dyn QueryFragment<DB>,
        shard: &'b i32,
    ) -> impl Sql<'b, DB> {
        sql! {
            "UPDATE ", self.shards_as_parent(), " SET ", self.aliased(changes), " FROM ", id(LOCKED),
            " WHERE ", self.picked_is_aliased_key(LOCKED), " AND ", self.shard_is(shard),
            " AND ", number_of_rows(LOCKED), " = ", number_of_rows(PICKED)
        }
    }
}

no_query_id!(['a, DB: Backend] CountAll<'a, DB>);

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::query_builder::Names;
    use crate::test_schema::{downloads, sql};
    use diesel::pg::Pg;
    use diesel::query_builder::{AsChangeset, IntoUpdateTarget};

    #[test]
    fn count_all_under_a_composite_key() {
        let count = CountAll(Parts {
            names: Names::of::<downloads::table>(),
            changes: &downloads::number.eq(downloads::number + 1.0).as_changeset(),
            filter: &downloads::table
                .filter(downloads::day.eq("x"))
                .into_update_target()
                .where_clause,
            shard: 3,
        });
        assert_eq!(
            sql!(Pg, count),
            r#"WITH "sharded_picked" AS MATERIALIZED (SELECT "downloads"."version" AS "sharded_key_0", "downloads"."day" AS "sharded_key_1" FROM "downloads" WHERE ("downloads"."day" = $1)), "sharded_locked" AS MATERIALIZED (SELECT "download ""counts"""."version" AS "sharded_key_0", "download ""counts"""."day" AS "sharded_key_1" FROM "sharded_picked" JOIN "download ""counts""" ON "sharded_picked"."sharded_key_0" = "download ""counts"""."version" AND "sharded_picked"."sharded_key_1" = "download ""counts"""."day" AND "download ""counts"""."shard" = $2 ORDER BY "download ""counts"""."version", "download ""counts"""."day" FOR NO KEY UPDATE OF "download ""counts""") UPDATE "download ""counts""" AS "downloads" SET "number" = ("downloads"."number" + $3) FROM "sharded_locked" WHERE "sharded_locked"."sharded_key_0" = "downloads"."version" AND "sharded_locked"."sharded_key_1" = "downloads"."day" AND "downloads"."shard" = $4 AND (SELECT COUNT(*) FROM "sharded_locked") = (SELECT COUNT(*) FROM "sharded_picked")"#
        );
    }
}

//! Counting on parents that a filter picks.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};

use crate::backend::{Dialect, ShardedBackend};
use crate::query_builder::picked::PICKED;
use crate::query_builder::{Names, Parts, Prepare, Sql, id, no_query_id, on, sql};

/// Adds to one shard of the parents that `filter` matches, whatever it looks at.
///
/// ```sql
/// -- PostgreSQL, SQLite
/// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1)
/// FROM (SELECT "videos"."id" AS "sharded_key_0" FROM "videos" WHERE …) AS "sharded_picked"
/// WHERE "sharded_picked"."sharded_key_0" = "videos"."id" AND "videos"."shard" = $2
/// -- MySQL, MariaDB, which lock the shards in the order of their keys here
/// UPDATE (SELECT `videos`.`id` AS `sharded_key_0` FROM `videos` WHERE … ORDER BY `videos`.`id` LIMIT 18446744073709551615) AS `sharded_picked`
/// STRAIGHT_JOIN `videos_shards` AS `videos` ON `sharded_picked`.`sharded_key_0` = `videos`.`id`
/// SET `views` = (`videos`.`views` + ?) WHERE `videos`.`shard` = ?
/// ```
pub(crate) struct CountPicked<'a, DB: Backend>(pub(crate) Parts<'a, DB>);

impl<DB: ShardedBackend> QueryFragment<DB> for CountPicked<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let parts = &self.0;
        let table = parts.names;
        match out.backend().dialect().joins_before_set() {
            true => sql!(out.reborrow();
                "UPDATE ", picked(table, parts.filter), " STRAIGHT_JOIN ", table.shards_as_parent(),
                " ON ", table.picked_is_aliased_key(PICKED), " SET ", table.aliased(parts.changes), " WHERE ")?,
            false => sql!(out.reborrow();
                "UPDATE ", table.shards_as_parent(), " SET ", table.aliased(parts.changes), " FROM ", picked(table, parts.filter),
                " WHERE ", table.picked_is_aliased_key(PICKED), " AND ")?,
        }
        table.shard_is(&parts.shard).push(out)
    }
}

impl<DB: ShardedBackend> Prepare<DB> for CountPicked<'_, DB> {}

/// `(SELECT parent.key AS sharded_key_0 FROM parent WHERE …) AS sharded_picked`
fn picked<'b, DB: ShardedBackend>(
    table: Names<'b, DB>,
    filter: &'b dyn QueryFragment<DB>,
) -> impl Sql<'b, DB> {
    let in_order = move |dialect: Dialect| {
        let limit = dialect.keeps_order();
        limit.map(|limit| sql! { " ORDER BY ", table.key(), limit })
    };
    sql! { "(", table.select_picked_key(), " FROM ", table.filtered(filter), on(in_order), ") AS ", id(PICKED) }
}

no_query_id!(['a, DB: Backend] CountPicked<'a, DB>);

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::query_builder::Names;
    use crate::test_schema::videos::dsl::*;
    use crate::test_schema::{sql, videos as table};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::query_builder::{AsChangeset, IntoUpdateTarget};
    use diesel::sqlite::Sqlite;

    #[test]
    fn count_picked() {
        let changes = views.eq(views + 1).as_changeset();
        macro_rules! count {
            () => {
                CountPicked(Parts {
                    names: Names::of::<table::table>(),
                    changes: &changes,
                    filter: &videos
                        .filter(slug.eq("a"))
                        .into_update_target()
                        .where_clause,
                    shard: 3,
                })
            };
        }
        assert_eq!(
            sql!(Pg, count!()),
            r#"UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1) FROM (SELECT "videos"."id" AS "sharded_key_0" FROM "videos" WHERE ("videos"."slug" = $2)) AS "sharded_picked" WHERE "sharded_picked"."sharded_key_0" = "videos"."id" AND "videos"."shard" = $3"#
        );
        assert_eq!(
            sql!(Mysql, count!()),
            "UPDATE (SELECT `videos`.`id` AS `sharded_key_0` FROM `videos` WHERE (`videos`.`slug` = ?) ORDER BY `videos`.`id` LIMIT 18446744073709551615) AS `sharded_picked` STRAIGHT_JOIN `videos_shards` AS `videos` ON `sharded_picked`.`sharded_key_0` = `videos`.`id` SET `views` = (`videos`.`views` + ?) WHERE `videos`.`shard` = ?"
        );
        let whole_table = CountPicked(Parts {
            names: Names::of::<table::table>(),
            filter: &videos.into_update_target().where_clause,
            changes: &changes,
            shard: 3,
        });
        assert_eq!(
            sql!(Sqlite, whole_table),
            "UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + ?) FROM (SELECT `videos`.`id` AS `sharded_key_0` FROM `videos`) AS `sharded_picked` WHERE `sharded_picked`.`sharded_key_0` = `videos`.`id` AND `videos`.`shard` = ?"
        );
    }
}

//! Counting on parents that a filter picks.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};

use crate::backend::ShardedBackend;
use crate::model::ShardedTable;
use crate::query_builder::picked::{
    PICKED, push_from_parents, push_key_is_parents, push_select_picked_key,
};
use crate::query_builder::query_ids::query_ids;
use crate::query_builder::{
    Keep, push_key, push_shard_is, push_shards_as_parent, push_under_alias,
};

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
pub(crate) struct CountPicked<'a, T, W, V, Ch> {
    pub(crate) changes: &'a Ch,
    pub(crate) filter: &'a W,
    pub(crate) shard: i32,
    pub(crate) types: PhantomData<(T, V)>,
}

impl<T, W, V, Ch, DB> QueryFragment<DB> for CountPicked<'_, T, W, V, Ch>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    Ch: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        if out.backend().dialect().joins_before_set() {
            out.push_sql("UPDATE ");
            push_picked::<T, W, DB>(self.filter, out.reborrow())?;
            out.push_sql(" STRAIGHT_JOIN ");
            push_shards_as_parent::<T, DB>(out.reborrow())?;
            out.push_sql(" ON ");
            push_key_is_parents::<T, DB>(PICKED, out.reborrow())?;
            out.push_sql(" SET ");
            push_under_alias::<T, _, DB>(self.changes, out.reborrow())?;
            out.push_sql(" WHERE ");
        } else {
            out.push_sql("UPDATE ");
            push_shards_as_parent::<T, DB>(out.reborrow())?;
            out.push_sql(" SET ");
            push_under_alias::<T, _, DB>(self.changes, out.reborrow())?;
            out.push_sql(" FROM ");
            push_picked::<T, W, DB>(self.filter, out.reborrow())?;
            out.push_sql(" WHERE ");
            push_key_is_parents::<T, DB>(PICKED, out.reborrow())?;
            out.push_sql(" AND ");
        }
        push_shard_is::<T, DB>(&self.shard, out)
    }
}

impl<T, W, V, Ch, DB> Keep<DB> for CountPicked<'_, T, W, V, Ch>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    Ch: QueryFragment<DB>,
{
}

/// `(SELECT parent.key AS sharded_key_0 FROM parent WHERE …) AS sharded_picked`
fn push_picked<'b, T, W, DB>(filter: &'b W, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    DB: ShardedBackend,
{
    out.push_sql("(");
    push_select_picked_key::<T, DB>(out.reborrow())?;
    push_from_parents::<T, W, DB>(filter, out.reborrow())?;
    if let Some(limit) = out.backend().dialect().keeps_order() {
        out.push_sql(" ORDER BY ");
        push_key::<T, DB>(out.reborrow())?;
        out.push_sql(limit);
    }
    out.push_sql(") AS ");
    out.push_identifier(PICKED)
}

query_ids!(CountPicked<'a, T, W, V; Ch>);

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::videos::dsl::*;
    use crate::test_schema::{sql, videos as table};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::query_builder::{AsChangeset, IntoUpdateTarget};
    use diesel::sqlite::Sqlite;

    #[test]
    fn count_picked() {
        let changes = views.eq(views + 1).as_changeset();
        let count = CountPicked::<table::table, _, (), _> {
            changes: &changes,
            filter: &videos
                .filter(slug.eq("a"))
                .into_update_target()
                .where_clause,
            shard: 3,
            types: PhantomData,
        };
        assert_eq!(
            sql!(Pg, count),
            r#"UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1) FROM (SELECT "videos"."id" AS "sharded_key_0" FROM "videos" WHERE ("videos"."slug" = $2)) AS "sharded_picked" WHERE "sharded_picked"."sharded_key_0" = "videos"."id" AND "videos"."shard" = $3"#
        );
        assert_eq!(
            sql!(Mysql, count),
            "UPDATE (SELECT `videos`.`id` AS `sharded_key_0` FROM `videos` WHERE (`videos`.`slug` = ?) ORDER BY `videos`.`id` LIMIT 18446744073709551615) AS `sharded_picked` STRAIGHT_JOIN `videos_shards` AS `videos` ON `sharded_picked`.`sharded_key_0` = `videos`.`id` SET `views` = (`videos`.`views` + ?) WHERE `videos`.`shard` = ?"
        );
        let whole_table = CountPicked::<table::table, _, (), _> {
            filter: &videos.into_update_target().where_clause,
            changes: &changes,
            shard: 3,
            types: PhantomData,
        };
        assert_eq!(
            sql!(Sqlite, whole_table),
            "UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + ?) FROM (SELECT `videos`.`id` AS `sharded_key_0` FROM `videos`) AS `sharded_picked` WHERE `sharded_picked`.`sharded_key_0` = `videos`.`id` AND `videos`.`shard` = ?"
        );
    }
}

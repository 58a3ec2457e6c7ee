//! Counting on the one parent that a filter matches.

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
    Keep, push_aliased_column, push_column, push_each_key, push_shard_is, push_shards_as_parent,
    push_under_alias,
};

/// Adds to the shard of the one parent that `filter` matches. It meets no row if the filter matches several, or if the shard is
/// missing.
///
/// ```sql
/// -- PostgreSQL, SQLite
/// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1)
/// FROM (SELECT "videos"."id" AS "sharded_key_0", COUNT(*) OVER () AS "sharded_parents" FROM "videos" WHERE …) AS "sharded_picked"
/// WHERE "sharded_picked"."sharded_key_0" = "videos"."id" AND "sharded_picked"."sharded_parents" = 1 AND "videos"."shard" = $2
/// -- MySQL, MariaDB
/// UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + ?)
/// WHERE `videos`.`id` = (SELECT MIN(`videos`.`id`) FROM `videos` WHERE … HAVING COUNT(*) = 1) AND `videos`.`shard` = ?
/// ```
///
/// MariaDB evaluates such a subquery first, so that the update is one look into the index; it does neither with a comparison of
/// several columns nor with a derived table. In READ COMMITTED it locks no parent, as an update of several tables would.
pub(crate) struct CountOne<'a, T, W, V, Ch> {
    pub(crate) changes: &'a Ch,
    pub(crate) filter: &'a W,
    pub(crate) shard: i32,
    pub(crate) types: PhantomData<(T, V)>,
}

const PARENTS: &str = "sharded_parents";

impl<T, W, V, Ch, DB> QueryFragment<DB> for CountOne<'_, T, W, V, Ch>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    Ch: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("UPDATE ");
        push_shards_as_parent::<T, DB>(out.reborrow())?;
        out.push_sql(" SET ");
        push_under_alias::<T, _, DB>(self.changes, out.reborrow())?;
        if out.backend().dialect().joins_before_set() {
            out.push_sql(" WHERE ");
            push_is_the_one::<T, W, DB>(self.filter, out.reborrow())?;
        } else {
            out.push_sql(" FROM ");
            push_picked_and_number::<T, W, DB>(self.filter, out.reborrow())?;
            out.push_sql(" WHERE ");
            push_key_is_parents::<T, DB>(PICKED, out.reborrow())?;
            out.push_sql(" AND ");
            push_number(out.reborrow())?;
            out.push_sql(" = 1");
        }
        out.push_sql(" AND ");
        push_shard_is::<T, DB>(&self.shard, out)
    }
}

impl<T, W, V, Ch, DB> Keep<DB> for CountOne<'_, T, W, V, Ch>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    Ch: QueryFragment<DB>,
{
}

/// `(SELECT parent.key AS sharded_key_0, COUNT(*) OVER () AS sharded_parents FROM parent WHERE …) AS sharded_picked`
fn push_picked_and_number<'b, T, W, DB>(
    filter: &'b W,
    mut out: AstPass<'_, 'b, DB>,
) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    DB: ShardedBackend,
{
    out.push_sql("(");
    push_select_picked_key::<T, DB>(out.reborrow())?;
    out.push_sql(", COUNT(*) OVER () AS ");
    out.push_identifier(PARENTS)?;
    push_from_parents::<T, W, DB>(filter, out.reborrow())?;
    out.push_sql(") AS ");
    out.push_identifier(PICKED)
}

/// `sharded_picked.sharded_parents`
fn push_number<DB: ShardedBackend>(mut out: AstPass<'_, '_, DB>) -> QueryResult<()> {
    out.push_identifier(PICKED)?;
    out.push_sql(".");
    out.push_identifier(PARENTS)
}

/// `parent.key = (SELECT MIN(parent.key) FROM parent WHERE … HAVING COUNT(*) = 1)`
fn push_is_the_one<'b, T, W, DB>(filter: &'b W, out: AstPass<'_, 'b, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    DB: ShardedBackend,
{
    push_each_key::<T, DB>(" AND ", out, |_, name, mut out| {
        push_aliased_column::<T, DB>(name, out.reborrow())?;
        out.push_sql(" = (SELECT MIN(");
        push_column::<T, DB>(name, out.reborrow())?;
        out.push_sql(")");
        push_from_parents::<T, W, DB>(filter, out.reborrow())?;
        out.push_sql(" HAVING COUNT(*) = 1)");
        Ok(())
    })
}

query_ids!(CountOne<'a, T, W, V; Ch>);

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::{downloads, sql, videos};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::query_builder::{AsChangeset, IntoUpdateTarget};
    use diesel::sqlite::Sqlite;

    #[test]
    fn count_one() {
        let count = CountOne::<videos::table, _, (), _> {
            changes: &videos::views.eq(videos::views + 1).as_changeset(),
            filter: &videos::table
                .filter(videos::slug.eq("a"))
                .into_update_target()
                .where_clause,
            shard: 3,
            types: PhantomData,
        };
        let picked = r#"UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1) FROM (SELECT "videos"."id" AS "sharded_key_0", COUNT(*) OVER () AS "sharded_parents" FROM "videos" WHERE ("videos"."slug" = $2)) AS "sharded_picked" WHERE "sharded_picked"."sharded_key_0" = "videos"."id" AND "sharded_picked"."sharded_parents" = 1 AND "videos"."shard" = $3"#;
        assert_eq!(sql!(Pg, count), picked);
        let placeholders = ["$1", "$2", "$3"];
        let picked = placeholders
            .iter()
            .fold(picked.replace('"', "`"), |sql, n| sql.replace(n, "?"));
        assert_eq!(sql!(Sqlite, count), picked);
        assert_eq!(
            sql!(Mysql, count),
            "UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + ?) WHERE `videos`.`id` = (SELECT MIN(`videos`.`id`) FROM `videos` WHERE (`videos`.`slug` = ?) HAVING COUNT(*) = 1) AND `videos`.`shard` = ?"
        );
    }

    #[test]
    fn count_one_under_a_composite_key() {
        let count = CountOne::<downloads::table, _, (), _> {
            changes: &downloads::number.eq(downloads::number + 1.0).as_changeset(),
            filter: &downloads::table
                .filter(downloads::day.eq("x"))
                .into_update_target()
                .where_clause,
            shard: 3,
            types: PhantomData,
        };
        let is_the_one = |key| {
            format!(
                "`downloads`.`{key}` = (SELECT MIN(`downloads`.`{key}`) FROM `downloads` WHERE (`downloads`.`day` = ?) HAVING COUNT(*) = 1)"
            )
        };
        let (version, day) = (is_the_one("version"), is_the_one("day"));
        let count = sql!(Mysql, count);
        assert!(
            count.ends_with(&format!(
                " WHERE {version} AND {day} AND `downloads`.`shard` = ?"
            )),
            "{count}"
        );
    }
}

//! Counting on the one parent that a filter matches.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};

use crate::backend::ShardedBackend;
use crate::query_builder::picked::PICKED;
use crate::query_builder::{Names, Parts, Prepare, Sql, id, no_query_id, sql};

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
pub(crate) struct CountOne<'a, DB: Backend>(pub(crate) Parts<'a, DB>);

const PARENTS: &str = "sharded_parents";

impl<DB: ShardedBackend> QueryFragment<DB> for CountOne<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let parts = &self.0;
        let table = parts.names;
        sql!(out.reborrow();
            "UPDATE ", table.shards_as_parent(), " SET ", table.aliased(parts.changes))?;
        match out.backend().dialect().joins_before_set() {
            true => sql!(out.reborrow(); " WHERE ", is_the_one(table, parts.filter))?,
            false => sql!(out.reborrow();
                " FROM (", table.select_picked_key(), ", COUNT(*) OVER () AS ", id(PARENTS), " FROM ", table.filtered(parts.filter),
                ") AS ", id(PICKED), " WHERE ", table.picked_is_aliased_key(PICKED),
                " AND ", id(PICKED), ".", id(PARENTS), " = 1")?,
        }
        sql!(out; " AND ", table.shard_is(&parts.shard))
    }
}

impl<DB: ShardedBackend> Prepare<DB> for CountOne<'_, DB> {}

/// `parent.key = (SELECT MIN(parent.key) FROM parent WHERE … HAVING COUNT(*) = 1)`
fn is_the_one<'b, DB: ShardedBackend>(
    table: Names<'b, DB>,
    filter: &'b dyn QueryFragment<DB>,
) -> impl Sql<'b, DB> {
    sql! {
        for key in (table.key, " AND ") {
            table.under_alias().column(&key.name), " = (SELECT MIN(", table.column(&key.name), ") FROM ", table.filtered(filter),
            " HAVING COUNT(*) = 1)"
        }
    }
}

no_query_id!(['a, DB: Backend] CountOne<'a, DB>);

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::query_builder::Names;
    use crate::test_schema::{downloads, sql, videos};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::query_builder::{AsChangeset, IntoUpdateTarget};
    use diesel::sqlite::Sqlite;

    #[test]
    fn count_one() {
        macro_rules! count {
            () => {
                CountOne(Parts {
                    names: Names::of::<videos::table>(),
                    changes: &videos::views.eq(videos::views + 1).as_changeset(),
                    filter: &videos::table
                        .filter(videos::slug.eq("a"))
                        .into_update_target()
                        .where_clause,
                    shard: 3,
                })
            };
        }
        let picked = r#"UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1) FROM (SELECT "videos"."id" AS "sharded_key_0", COUNT(*) OVER () AS "sharded_parents" FROM "videos" WHERE ("videos"."slug" = $2)) AS "sharded_picked" WHERE "sharded_picked"."sharded_key_0" = "videos"."id" AND "sharded_picked"."sharded_parents" = 1 AND "videos"."shard" = $3"#;
        assert_eq!(sql!(Pg, count!()), picked);
        let placeholders = ["$1", "$2", "$3"];
        let picked = placeholders
            .iter()
            .fold(picked.replace('"', "`"), |sql, n| sql.replace(n, "?"));
        assert_eq!(sql!(Sqlite, count!()), picked);
        assert_eq!(
            sql!(Mysql, count!()),
            "UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + ?) WHERE `videos`.`id` = (SELECT MIN(`videos`.`id`) FROM `videos` WHERE (`videos`.`slug` = ?) HAVING COUNT(*) = 1) AND `videos`.`shard` = ?"
        );
    }

    #[test]
    fn count_one_under_a_composite_key() {
        macro_rules! count {
            () => {
                CountOne(Parts {
                    names: Names::of::<downloads::table>(),
                    changes: &downloads::number.eq(downloads::number + 1.0).as_changeset(),
                    filter: &downloads::table
                        .filter(downloads::day.eq("x"))
                        .into_update_target()
                        .where_clause,
                    shard: 3,
                })
            };
        }
        let is_the_one = |key| {
            format!(
                "`downloads`.`{key}` = (SELECT MIN(`downloads`.`{key}`) FROM `downloads` WHERE (`downloads`.`day` = ?) HAVING COUNT(*) = 1)"
            )
        };
        let (version, day) = (is_the_one("version"), is_the_one("day"));
        let count = sql!(Mysql, count!());
        assert!(
            count.ends_with(&format!(
                " WHERE {version} AND {day} AND `downloads`.`shard` = ?"
            )),
            "{count}"
        );
    }
}

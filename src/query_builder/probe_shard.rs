//! Whether a shard is locked.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};

use crate::backend::{ShardedBackend, Strength};
use crate::query_builder::{Parts, no_query_id, on, sql};

/// Asks whether somebody holds the lock on the shard of a parent named by its key: it then meets no row, or fails.
///
/// ```sql
/// SELECT 1 FROM "videos_shards" AS "videos" WHERE ("videos"."id" = $1) AND "videos"."shard" = $2 FOR UPDATE SKIP LOCKED
/// -- MySQL, MariaDB: FOR UPDATE NOWAIT
/// ```
pub(crate) struct ProbeShard<'a, DB: Backend>(pub(crate) Parts<'a, DB>);

impl<DB: ShardedBackend> QueryFragment<DB> for ProbeShard<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let parts = &self.0;
        let table = parts.names;
        sql!(out;
            "SELECT 1 FROM ", table.shards_as_parent(), table.aliased(parts.filter), " AND ", table.shard_is(&parts.shard),
            on(|dialect| dialect.locks_rows(Strength::ExclusiveIfFree)))
    }
}

no_query_id!(['a, DB: Backend] ProbeShard<'a, DB>);

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
    use diesel::query_builder::IntoUpdateTarget;

    #[test]
    fn probe_shard() {
        macro_rules! probe {
            () => {
                ProbeShard(Parts {
                    names: Names::of::<table::table>(),
                    changes: &(),
                    filter: &videos.find(7).into_update_target().where_clause,
                    shard: 0,
                })
            };
        }
        assert_eq!(
            sql!(Pg, probe!()),
            r#"SELECT 1 FROM "videos_shards" AS "videos" WHERE ("videos"."id" = $1) AND "videos"."shard" = $2 FOR UPDATE SKIP LOCKED"#
        );
        assert_eq!(
            sql!(Mysql, probe!()),
            "SELECT 1 FROM `videos_shards` AS `videos` WHERE (`videos`.`id` = ?) AND `videos`.`shard` = ? FOR UPDATE NOWAIT"
        );
    }
}

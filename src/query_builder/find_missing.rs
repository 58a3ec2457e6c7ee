//! Whether a shard is missing.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment};
use diesel::sql_types::Integer;

use crate::backend::{Dialect, ShardedBackend};
use crate::query_builder::{Parts, no_query_id, on, sql};

/// Finds out whether the shard of a parent named by its key is missing, without locking anything. It is the first statement of a count in a
/// caller's transaction, and so [names the parent](Names::are_named).
///
/// ```sql
/// SELECT 1 FROM (SELECT 1) AS one WHERE NOT EXISTS (SELECT 1 FROM `videos` WHERE FALSE) AND NOT (/*M!110600 TRUE OR */
///     EXISTS (SELECT 1 FROM `videos_shards` AS `videos` WHERE (`videos`.`id` = ?) AND `videos`.`shard` = ?))
/// ```
pub(crate) struct FindMissing<'a, DB: Backend>(pub(crate) Parts<'a, DB>);

impl<DB: ShardedBackend> QueryFragment<DB> for FindMissing<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let parts = &self.0;
        let table = parts.names;
        sql!(out;
            "SELECT 1 FROM (SELECT 1) AS one WHERE ", table.are_named(), " AND NOT (", on(Dialect::finds_without_a_look),
            "EXISTS (SELECT 1 FROM ", table.shards_as_parent(), table.aliased(parts.filter), " AND ", table.shard_is(&parts.shard), "))")
    }
}

impl<DB: Backend> Query for FindMissing<'_, DB> {
    type SqlType = Integer;
}

no_query_id!(['a, DB: Backend] FindMissing<'a, DB>);

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
    use diesel::query_builder::IntoUpdateTarget;

    #[test]
    fn find_missing() {
        let by_key = FindMissing(Parts {
            names: Names::of::<table::table>(),
            changes: &(),
            filter: &videos.find(7).into_update_target().where_clause,
            shard: 3,
        });
        assert_eq!(
            sql!(Mysql, by_key),
            "SELECT 1 FROM (SELECT 1) AS one WHERE NOT EXISTS (SELECT 1 FROM `videos` WHERE FALSE) AND NOT (/*M!110600 TRUE OR */ EXISTS (SELECT 1 FROM `videos_shards` AS `videos` WHERE (`videos`.`id` = ?) AND `videos`.`shard` = ?))"
        );
    }
}

//! Whether a shard is missing.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::Integer;

use crate::backend::ShardedBackend;
use crate::model::ShardedTable;
use crate::query_builder::query_ids::query_ids;
use crate::query_builder::{
    push_parents_name, push_shard_is, push_shards_as_parent, push_under_alias,
};

/// Finds out whether the shard of a parent named by its key is missing, without locking anything. It is the first statement of a count in a
/// caller's transaction, and so [names the parent](push_parents_name).
///
/// ```sql
/// SELECT 1 FROM (SELECT 1) AS one WHERE NOT EXISTS (SELECT 1 FROM `videos` WHERE FALSE) AND NOT (/*M!110600 TRUE OR */
///     EXISTS (SELECT 1 FROM `videos_shards` AS `videos` WHERE (`videos`.`id` = ?) AND `videos`.`shard` = ?))
/// ```
pub(crate) struct FindMissing<'a, T, W> {
    pub(crate) filter: &'a W,
    pub(crate) shard: i32,
    pub(crate) table: PhantomData<T>,
}

impl<T, W, DB> QueryFragment<DB> for FindMissing<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let always = out.backend().dialect().finds_without_a_look();
        out.push_sql("SELECT 1 FROM (SELECT 1) AS one WHERE ");
        push_parents_name::<T, DB>(out.reborrow())?;
        out.push_sql(" AND NOT (");
        out.push_sql(always);
        out.push_sql("EXISTS (SELECT 1 FROM ");
        push_shards_as_parent::<T, DB>(out.reborrow())?;
        push_under_alias::<T, _, DB>(self.filter, out.reborrow())?;
        out.push_sql(" AND ");
        push_shard_is::<T, DB>(&self.shard, out.reborrow())?;
        out.push_sql("))");
        Ok(())
    }
}

impl<T, W> Query for FindMissing<'_, T, W> {
    type SqlType = Integer;
}

query_ids!(FindMissing<'a, T, W>);

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
    use diesel::query_builder::IntoUpdateTarget;

    #[test]
    fn find_missing() {
        let by_key = FindMissing::<table::table, _> {
            filter: &videos.find(7).into_update_target().where_clause,
            shard: 3,
            table: PhantomData,
        };
        assert_eq!(
            sql!(Mysql, by_key),
            "SELECT 1 FROM (SELECT 1) AS one WHERE NOT EXISTS (SELECT 1 FROM `videos` WHERE FALSE) AND NOT (/*M!110600 TRUE OR */ EXISTS (SELECT 1 FROM `videos_shards` AS `videos` WHERE (`videos`.`id` = ?) AND `videos`.`shard` = ?))"
        );
    }
}

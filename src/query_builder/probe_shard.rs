//! Whether a shard is locked.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};

use crate::backend::{ShardedBackend, Strength};
use crate::model::ShardedTable;
use crate::query_builder::query_ids::query_ids;
use crate::query_builder::{push_shard_is, push_shards_as_parent, push_under_alias};

/// Asks whether somebody holds the lock on the shard of a parent named by its key: it then meets no row, or fails.
///
/// ```sql
/// SELECT 1 FROM "videos_shards" AS "videos" WHERE ("videos"."id" = $1) AND "videos"."shard" = $2 FOR UPDATE SKIP LOCKED
/// -- MySQL, MariaDB: FOR UPDATE NOWAIT
/// ```
pub(crate) struct ProbeShard<'a, T, W> {
    pub(crate) filter: &'a W,
    pub(crate) shard: i32,
    pub(crate) table: PhantomData<T>,
}

impl<T, W, DB> QueryFragment<DB> for ProbeShard<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let dialect = out.backend().dialect();
        out.push_sql("SELECT 1 FROM ");
        push_shards_as_parent::<T, DB>(out.reborrow())?;
        push_under_alias::<T, _, DB>(self.filter, out.reborrow())?;
        out.push_sql(" AND ");
        push_shard_is::<T, DB>(&self.shard, out.reborrow())?;
        out.push_sql(dialect.locks_rows(Strength::ExclusiveIfFree).unwrap_or(""));
        Ok(())
    }
}

query_ids!(ProbeShard<'a, T, W>);

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
    use diesel::query_builder::IntoUpdateTarget;

    #[test]
    fn probe_shard() {
        let probe = ProbeShard::<table::table, _> {
            filter: &videos.find(7).into_update_target().where_clause,
            shard: 0,
            table: PhantomData,
        };
        assert_eq!(
            sql!(Pg, probe),
            r#"SELECT 1 FROM "videos_shards" AS "videos" WHERE ("videos"."id" = $1) AND "videos"."shard" = $2 FOR UPDATE SKIP LOCKED"#
        );
        assert_eq!(
            sql!(Mysql, probe),
            "SELECT 1 FROM `videos_shards` AS `videos` WHERE (`videos`.`id` = ?) AND `videos`.`shard` = ? FOR UPDATE NOWAIT"
        );
    }
}

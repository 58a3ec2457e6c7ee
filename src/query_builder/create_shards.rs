//! Creating the shards that are missing.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::Integer;

use crate::backend::{KeepsAndLocks, ShardedBackend};
use crate::model::{SHARD, ShardedTable};
use crate::query_builder::query_ids::query_ids;
use crate::query_builder::{
    Keep, TextGuard, push_bind, push_key, push_shards_column, push_unique_key,
};

/// Inserts the missing shards of the parents that `filter` matches, at zero, and locks the others; in key order, so that
/// two such statements cannot deadlock.
///
/// ```sql
/// INSERT INTO "videos_shards" ("id", "shard") SELECT "videos"."id", $1 FROM "videos" WHERE … ORDER BY "videos"."id"
/// ON CONFLICT ("id", "shard") DO UPDATE SET "shard" = excluded."shard" WHERE FALSE      -- PostgreSQL
/// ON CONFLICT ("id", "shard") DO NOTHING                                                -- SQLite
/// ON DUPLICATE KEY UPDATE `shard` = `videos_shards`.`shard`                             -- MySQL, MariaDB
/// ```
pub(crate) struct CreateShards<'a, T, W> {
    pub(crate) filter: &'a W,
    pub(crate) shard: i32,
    pub(crate) table: PhantomData<T>,
}

impl<T, W> CreateShards<'_, T, W> {
    fn walk<'b, DB>(
        &'b self,
        guard: Option<&'b TextGuard>,
        mut out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()>
    where
        DB: ShardedBackend,
        T: ShardedTable + QueryFragment<DB>,
        W: QueryFragment<DB>,
    {
        out.push_sql("INSERT INTO ");
        T::SHARDS_TABLE.push(out.reborrow())?;
        out.push_sql(" ");
        push_unique_key::<T, DB>(out.reborrow())?;
        out.push_sql(" SELECT ");
        push_key::<T, DB>(out.reborrow())?;
        out.push_sql(", ");
        push_bind::<Integer, i32, DB>(&self.shard, out.reborrow())?;
        out.push_sql(" FROM ");
        T::TABLE.walk_ast(out.reborrow())?;
        self.filter.walk_ast(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        push_key::<T, DB>(out.reborrow())?;
        if let Some(guard) = guard {
            out.push_sql(" OFFSET ");
            guard.push_offset(out.reborrow())?;
        }
        match out.backend().dialect().keeps_and_locks() {
            KeepsAndLocks::ConflictLocks => {
                out.push_sql(" ON CONFLICT ");
                push_unique_key::<T, DB>(out.reborrow())?;
                out.push_sql(" DO UPDATE SET ");
                out.push_identifier(SHARD)?;
                out.push_sql(" = excluded.");
                out.push_identifier(SHARD)?;
                out.push_sql(" WHERE FALSE");
            }
            KeepsAndLocks::ConflictIgnored => {
                out.push_sql(" ON CONFLICT ");
                push_unique_key::<T, DB>(out.reborrow())?;
                out.push_sql(" DO NOTHING");
            }
            KeepsAndLocks::DuplicateKeyLocks => {
                out.push_sql(" ON DUPLICATE KEY UPDATE ");
                out.push_identifier(SHARD)?;
                out.push_sql(" = ");
                push_shards_column::<T, DB>(SHARD, out.reborrow())?;
            }
        }
        Ok(())
    }
}

impl<T, W, DB> QueryFragment<DB> for CreateShards<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.walk(None, out)
    }
}

impl<T, W, DB> Keep<DB> for CreateShards<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_guarded<'b>(
        &'b self,
        guard: &'b TextGuard,
        out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()> {
        self.walk(Some(guard), out)
    }
}

query_ids!(CreateShards<'a, T, W>);

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::{downloads, sql};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::query_builder::IntoUpdateTarget;
    use diesel::sqlite::Sqlite;

    #[test]
    fn create_shards_of_a_composite_key() {
        let create = CreateShards::<downloads::table, _> {
            filter: &downloads::table
                .filter(downloads::day.eq("x"))
                .into_update_target()
                .where_clause,
            shard: 3,
            table: PhantomData,
        };
        assert_eq!(
            sql!(Pg, create),
            r#"INSERT INTO "download ""counts""" ("version", "day", "shard") SELECT "downloads"."version", "downloads"."day", $1 FROM "downloads" WHERE ("downloads"."day" = $2) ORDER BY "downloads"."version", "downloads"."day" ON CONFLICT ("version", "day", "shard") DO UPDATE SET "shard" = excluded."shard" WHERE FALSE"#
        );
        assert_eq!(
            sql!(Mysql, create),
            "INSERT INTO `download \"counts\"` (`version`, `day`, `shard`) SELECT `downloads`.`version`, `downloads`.`day`, ? FROM `downloads` WHERE (`downloads`.`day` = ?) ORDER BY `downloads`.`version`, `downloads`.`day` ON DUPLICATE KEY UPDATE `shard` = `download \"counts\"`.`shard`"
        );
        assert_eq!(
            sql!(Sqlite, create),
            "INSERT INTO `download \"counts\"` (`version`, `day`, `shard`) SELECT `downloads`.`version`, `downloads`.`day`, ? FROM `downloads` WHERE (`downloads`.`day` = ?) ORDER BY `downloads`.`version`, `downloads`.`day` ON CONFLICT (`version`, `day`, `shard`) DO NOTHING"
        );
    }
}

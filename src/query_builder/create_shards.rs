//! The statement that creates missing shards.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::Integer;

use crate::backend::{KeepsAndLocks, ShardedBackend};
use crate::model::SHARD;
use crate::query_builder::{Names, Prepare, TextChecksum, bind, fragments, id, sql};

/// Inserts the missing shards of the parents that `filter` matches, with the value zero. If `locks` is set, locks the existing ones too;
/// without it, PostgreSQL does not touch them. It goes in key order, so that two such statements cannot deadlock.
///
/// ```sql
/// INSERT INTO "videos_shards" ("id", "shard") SELECT "videos"."id", $1 FROM "videos" WHERE … ORDER BY "videos"."id"
/// ON CONFLICT ("id", "shard") DO UPDATE SET "shard" = excluded."shard" WHERE FALSE      -- PostgreSQL
/// ON CONFLICT ("id", "shard") DO NOTHING                                                -- SQLite
/// ON DUPLICATE KEY UPDATE `shard` = `videos_shards`.`shard`                             -- MySQL, MariaDB
/// ```
pub(crate) struct CreateShards<'a, DB: Backend> {
    pub(crate) names: Names<'a, DB>,
    pub(crate) filter: &'a dyn QueryFragment<DB>,
    pub(crate) shard: i32,
    pub(crate) locks: bool,
}

impl<DB: ShardedBackend> Prepare<DB> for CreateShards<'_, DB> {
    fn walk_checked<'b>(
        &'b self,
        checksum: Option<&'b TextChecksum>,
        mut out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()> {
        let table = self.names;
        let key = table.unique_key();
        sql!(out.reborrow();
            "INSERT INTO ", table.shards_table, " ", table.unique_key(),
            " SELECT ", table.key(), ", ", bind(Integer, &self.shard), " FROM ", table.filtered(self.filter),
            " ORDER BY ", table.key(), if let Some(checksum) = checksum { " OFFSET ", checksum.offset() })?;
        match out.backend().dialect().keeps_and_locks() {
            KeepsAndLocks::ConflictLocks if self.locks => sql!(out;
                " ON CONFLICT ", key, " DO UPDATE SET ", id(SHARD), " = excluded.", id(SHARD), " WHERE FALSE"),
            KeepsAndLocks::ConflictLocks | KeepsAndLocks::ConflictIgnored => {
                sql!(out; " ON CONFLICT ", key, " DO NOTHING")
            }
            KeepsAndLocks::DuplicateKeyLocks => sql!(out;
                " ON DUPLICATE KEY UPDATE ", id(SHARD), " = ", table.shards_column(SHARD)),
        }
    }
}

fragments! {
    [] CreateShards<'_, DB>, no query id [DB: Backend];
    |self, out| self.walk_checked(None, out);
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::{assert_sql, downloads, sql};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::query_builder::IntoUpdateTarget;
    use diesel::sqlite::Sqlite;

    #[test]
    fn create_shards_of_a_composite_key() {
        macro_rules! create {
            ($locks:literal) => {
                CreateShards {
                    names: Names::of::<downloads::table>(),
                    filter: &downloads::table
                        .filter(downloads::day.eq("x"))
                        .into_update_target()
                        .where_clause,
                    shard: 3,
                    locks: $locks,
                }
            };
        }
        let without_locks = sql!(Pg, create!(false));
        assert!(without_locks.ends_with(r#" ON CONFLICT ("version", "day", "shard") DO NOTHING"#));
        assert_sql!(create!(true);
            Pg => r#"INSERT INTO "download ""counts""" ("version", "day", "shard") SELECT "downloads"."version", "downloads"."day", $1 FROM "downloads" WHERE ("downloads"."day" = $2) ORDER BY "downloads"."version", "downloads"."day" ON CONFLICT ("version", "day", "shard") DO UPDATE SET "shard" = excluded."shard" WHERE FALSE"#,
            Mysql => "INSERT INTO `download \"counts\"` (`version`, `day`, `shard`) SELECT `downloads`.`version`, `downloads`.`day`, ? FROM `downloads` WHERE (`downloads`.`day` = ?) ORDER BY `downloads`.`version`, `downloads`.`day` ON DUPLICATE KEY UPDATE `shard` = `download \"counts\"`.`shard`",
            Sqlite => "INSERT INTO `download \"counts\"` (`version`, `day`, `shard`) SELECT `downloads`.`version`, `downloads`.`day`, ? FROM `downloads` WHERE (`downloads`.`day` = ?) ORDER BY `downloads`.`version`, `downloads`.`day` ON CONFLICT (`version`, `day`, `shard`) DO NOTHING",
        );
    }
}

//! The tables that the library itself owns, as migrations.

use std::fmt;

use diesel::connection::BoxableConnection;
use diesel::migration::{
    Migration, MigrationMetadata, MigrationName, MigrationSource, MigrationVersion,
};

use crate::dialect::{Dialect, ShardedBackend};
use crate::shards_table::{InTransaction, backend_behind};

/// The migrations of the library's own tables: named counters, and numbers of shards that change at run time. An
/// application without these needs none of it.
///
/// ```
/// # use diesel::prelude::*;
/// use diesel_migrations::MigrationHarness;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// # let conn = &mut SqliteConnection::establish(":memory:")?;
/// conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
/// # assert!(!conn.has_pending_migration(diesel_sharded::MIGRATIONS)?);
///
/// // To take them back, and what the named counters counted with them:
/// use diesel::migration::MigrationSource;
/// for migration in diesel_sharded::MIGRATIONS.migrations()?.iter().rev() {
///     conn.revert_migration(migration)?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// One constant serves every backend; the text is in the folder `migrations/{postgres,mysql,sqlite}`, from which an
/// application may also copy it. The versions begin with zeros and `diesel-sharded`, so that they are no time, never equal an
/// application's own, and come before them: `revert_last_migration` meets the application's first. `revert_all_migrations`
/// takes all that ever ran, and so needs a source with both.
pub const MIGRATIONS: Migrations = Migrations(());

/// The type of [`MIGRATIONS`].
#[derive(Debug, Clone, Copy)]
pub struct Migrations(());

impl<DB: ShardedBackend> MigrationSource<DB> for Migrations {
    fn migrations(&self) -> diesel::migration::Result<Vec<Box<dyn Migration<DB>>>> {
        Ok(vec![Box::new(Counters(Name))])
    }
}

struct Counters(Name);

struct Name;

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00000000000000-diesel-sharded-01_counters")
    }
}

impl MigrationName for Name {
    fn version(&self) -> MigrationVersion<'_> {
        // As Diesel makes it of a folder's name.
        MigrationVersion::from("00000000000000dieselsharded01")
    }
}

macro_rules! sql {
    ($direction:literal, $dialect:expr) => {
        match $dialect {
            Dialect::Postgres => include_str!(concat!(
                "../migrations/postgres/00000000000000-diesel-sharded-01_counters/",
                $direction
            )),
            Dialect::Mysql => include_str!(concat!(
                "../migrations/mysql/00000000000000-diesel-sharded-01_counters/",
                $direction
            )),
            Dialect::Sqlite => include_str!(concat!(
                "../migrations/sqlite/00000000000000-diesel-sharded-01_counters/",
                $direction
            )),
        }
    };
}

impl<DB: ShardedBackend> Migration<DB> for Counters {
    fn run(&self, conn: &mut dyn BoxableConnection<DB>) -> diesel::migration::Result<()> {
        let dialect = backend_behind(conn)?.dialect();
        Ok(conn.batch_execute(sql!("up.sql", dialect))?)
    }

    fn revert(&self, conn: &mut dyn BoxableConnection<DB>) -> diesel::migration::Result<()> {
        let dialect = backend_behind(conn)?.dialect();
        Ok(conn.batch_execute(sql!("down.sql", dialect))?)
    }

    fn metadata(&self) -> &dyn MigrationMetadata {
        &InTransaction
    }

    fn name(&self) -> &dyn MigrationName {
        &self.0
    }
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::ShardsTable;
    use crate::named::counters;

    /// The counters' shards table is what the derive makes of it: nothing about it is special.
    #[test]
    fn the_shards_table_is_the_derives() {
        let shards_table = ShardsTable::of(counters::table);
        let up = |dialect: Dialect| sql!("up.sql", dialect);
        let sql = shards_table.create_sql(&diesel::pg::Pg).unwrap();
        assert!(up(Dialect::Postgres).contains(&sql), "{sql}");
        let sql = shards_table.create_sql(&diesel::mysql::Mysql).unwrap();
        assert!(up(Dialect::Mysql).contains(&sql), "{sql}");
        let sql = shards_table.create_sql(&diesel::sqlite::Sqlite).unwrap();
        assert!(up(Dialect::Sqlite).contains(&sql), "{sql}");
    }
}

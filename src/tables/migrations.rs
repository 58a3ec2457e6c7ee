//! What this library creates, as Diesel migrations. This includes the tables that it owns.

use std::borrow::Cow;
use std::fmt;

use diesel::connection::BoxableConnection;
use diesel::migration::{
    Migration, MigrationMetadata, MigrationName, MigrationSource, MigrationVersion,
};
use diesel::result::{Error as DieselError, QueryResult};

use crate::backend::{Dialect, Integrity, Quoted, ShardedBackend};
use crate::counting::counter::counters;
use crate::query_builder::Names;

/// A Diesel migration that creates what `What` describes, and removes it when reverted: [`ShardsTable`](crate::ShardsTable::migration),
/// [`TotalsView`](crate::operation::TotalsView::migration) and [`CounterCache`](crate::CounterCache::migration) make it.
///
/// As the one migration of a source, it runs by `conn.run_pending_migrations(..)`.
#[derive(Debug, Clone)]
pub struct SqlMigration<What> {
    name: Name,
    what: What,
}

/// What a migration creates and removes by SQL.
pub trait CreatedBySql<DB: ShardedBackend> {
    /// The statements that create it.
    fn up(&self, backend: &DB) -> QueryResult<Vec<String>>;

    /// The statements that remove it.
    fn down(&self, backend: &DB) -> QueryResult<Vec<String>>;

    /// Undoes on MySQL what a failure to create or to remove it leaves behind.
    fn clean_up(&self, _creating: bool) -> Option<String> {
        None
    }

    /// Explains such a failure.
    fn explain(&self, _dialect: Dialect, error: DieselError) -> DieselError {
        error
    }
}

/// The name of a migration, which begins with its version.
#[derive(Debug, Clone)]
struct Name {
    version: Cow<'static, str>,
    text: Cow<'static, str>,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl MigrationName for Name {
    fn version(&self) -> MigrationVersion<'_> {
        MigrationVersion::from(&*self.version)
    }
}

/// In a transaction, as Diesel does by default.
impl MigrationMetadata for Name {}

impl<What> SqlMigration<What> {
    /// `{version}_{does}`
    pub(crate) fn new(version: String, does: &str, what: What) -> Self {
        let text = format!("{version}_{does}").into();
        let version = version.into();
        SqlMigration {
            name: Name { version, text },
            what,
        }
    }

    fn execute<DB>(
        &self,
        conn: &mut dyn BoxableConnection<DB>,
        creating: bool,
    ) -> diesel::migration::Result<()>
    where
        What: CreatedBySql<DB>,
        DB: ShardedBackend,
    {
        let backend = DB::backend_behind(conn)
            .ok_or("this connection is none that `multi_connection!` was told of")?;
        let statements = match creating {
            true => self.what.up(&backend)?,
            false => self.what.down(&backend)?,
        };
        for sql in statements {
            conn.batch_execute(&sql).map_err(|error| {
                let clean_up = self.what.clean_up(creating);
                let clean_up = clean_up.filter(|_| backend.dialect().commits_definitions());
                if let Some(sql) = clean_up {
                    let _ = conn.batch_execute(&sql); // the failure is what is reported
                }
                self.what.explain(backend.dialect(), error)
            })?;
        }
        Ok(())
    }
}

impl<What, DB> Migration<DB> for SqlMigration<What>
where
    What: CreatedBySql<DB>,
    DB: ShardedBackend,
{
    fn run(&self, conn: &mut dyn BoxableConnection<DB>) -> diesel::migration::Result<()> {
        self.execute(conn, true)
    }

    fn revert(&self, conn: &mut dyn BoxableConnection<DB>) -> diesel::migration::Result<()> {
        self.execute(conn, false)
    }

    fn metadata(&self) -> &dyn MigrationMetadata {
        &self.name
    }

    fn name(&self) -> &dyn MigrationName {
        &self.name
    }
}

impl<What, DB> MigrationSource<DB> for SqlMigration<What>
where
    What: CreatedBySql<DB> + Clone + 'static,
    DB: ShardedBackend,
{
    fn migrations(&self) -> diesel::migration::Result<Vec<Box<dyn Migration<DB>>>> {
        Ok(vec![Box::new(self.clone())])
    }
}

/// The migrations of the library's own tables: named counters, numbers of shards that change at run time, and
/// idempotency keys. An application without these needs none of it.
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
/// // To revert them, and what the named counters counted with them:
/// use diesel::migration::MigrationSource;
/// for migration in diesel_sharded::MIGRATIONS.migrations()?.iter().rev() {
///     conn.revert_migration(migration)?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// One constant serves every backend; the text is in the folder `migrations/{postgres,mysql,sqlite}`, from which an application
/// may also copy it. The versions begin with zeros and `diesel-sharded`. So they never equal an application's own versions, which
/// are times, and sort before them: `revert_last_migration` reverts the application's first. `revert_all_migrations` reverts all
/// migrations that ever ran, and therefore needs a source with both.
pub const MIGRATIONS: Migrations = Migrations {
    integrity: Integrity::ForeignKey,
};

/// The type of [`MIGRATIONS`].
#[derive(Debug, Clone, Copy)]
pub struct Migrations {
    integrity: Integrity,
}

impl Migrations {
    /// With triggers in place of the foreign key of the named counters' shards; see
    /// [`ShardsTable::without_foreign_key`](crate::ShardsTable::without_foreign_key). The versions stay the same, so a database has one
    /// form or the other.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel_migrations::MigrationHarness;
    /// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// # let conn = &mut SqliteConnection::establish(":memory:")?;
    /// conn.run_pending_migrations(diesel_sharded::MIGRATIONS.without_foreign_key())?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn without_foreign_key(self) -> Self {
        let integrity = Integrity::Triggers;
        Migrations { integrity }
    }

    /// Without the foreign key and without triggers; see [`ShardsTable::without_triggers`](crate::ShardsTable::without_triggers).
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel_migrations::MigrationHarness;
    /// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// # let conn = &mut SqliteConnection::establish(":memory:")?;
    /// conn.run_pending_migrations(diesel_sharded::MIGRATIONS.without_triggers())?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn without_triggers(self) -> Self {
        let integrity = Integrity::Application;
        Migrations { integrity }
    }

    fn own(self) -> [Own; 2] {
        let mut counters = COUNTERS;
        counters.integrity = self.integrity;
        [counters, IDEMPOTENCY_KEYS]
    }
}

impl<DB: ShardedBackend> MigrationSource<DB> for Migrations {
    fn migrations(&self) -> diesel::migration::Result<Vec<Box<dyn Migration<DB>>>> {
        let migration = |what: Own| SqlMigration {
            name: Name {
                version: what.version.into(),
                text: what.folder.into(),
            },
            what,
        };
        let own = self.own().into_iter();
        Ok(own.map(|own| Box::new(migration(own)) as _).collect())
    }
}

/// One of the library's migrations as the texts of its files.
#[derive(Debug, Clone)]
pub struct MigrationText {
    /// The name of its folder, from which Diesel derives the version.
    pub folder: &'static str,
    /// The version, as it is recorded.
    pub version: &'static str,
    /// The tables that it creates.
    pub tables: &'static [&'static str],
    /// The text of `up.sql`.
    pub up: String,
    /// The text of `down.sql`.
    pub down: String,
}

/// The texts of these migrations for a database.
///
/// # Errors
/// If a name cannot be quoted.
pub fn migration_texts<DB: ShardedBackend>(
    migrations: Migrations,
    backend: &DB,
) -> QueryResult<Vec<MigrationText>> {
    let own = migrations.own().into_iter();
    own.map(|own| {
        Ok(MigrationText {
            folder: own.folder,
            version: own.version,
            tables: own.tables,
            up: own.up(backend)?.iter().map(|sql| as_file(sql)).collect(),
            down: own.down(backend)?.iter().map(|sql| as_file(sql)).collect(),
        })
    })
    .collect()
}

/// A statement, or several, with a semicolon and a line break after the last one.
fn as_file(sql: &str) -> String {
    format!("{};\n", sql.trim_end().trim_end_matches(';'))
}

/// One of the library's migrations.
#[derive(Clone, Copy)]
struct Own {
    folder: &'static str,
    /// As Diesel derives it from a folder's name.
    version: &'static str,
    tables: &'static [&'static str],
    up: fn(Dialect) -> &'static str,
    down: fn(Dialect) -> &'static str,
    /// The foreign key or the triggers that keep shards together with their counters.
    integrity: Integrity,
}

impl<DB: ShardedBackend> CreatedBySql<DB> for Own {
    /// The text of the file, which has a foreign key, or the triggers in its place. (SQLite's triggers are in the file.)
    fn up(&self, backend: &DB) -> QueryResult<Vec<String>> {
        let mut sql = (self.up)(backend.dialect()).to_owned();
        let foreign_key = shards_of_counters(Integrity::ForeignKey, backend)?.foreign_key_sql();
        if let (Some(foreign_key), true) = (foreign_key, self.integrity != Integrity::ForeignKey) {
            sql = sql.replace(&format!(",\n    {foreign_key}"), "");
        }
        let mut statements = vec![sql];
        if !backend.dialect().has_triggers() {
            let shards = shards_of_counters(self.integrity, backend)?;
            statements.extend(shards.dialect.in_a_block(shards.create_triggers()));
        }
        Ok(statements)
    }

    fn down(&self, backend: &DB) -> QueryResult<Vec<String>> {
        let mut statements = vec![(self.down)(backend.dialect()).to_owned()];
        if !backend.dialect().has_triggers() {
            statements.extend(shards_of_counters(self.integrity, backend)?.drop_triggers());
        }
        Ok(statements)
    }
}

fn shards_of_counters<DB: ShardedBackend>(
    integrity: Integrity,
    backend: &DB,
) -> QueryResult<Quoted<'static>> {
    Quoted::new(Names::<DB>::of::<counters::table>(), integrity, backend)
}

/// The file of each database.
macro_rules! text {
    ($($path:tt)+) => {
        |dialect| {
            *dialect.its(&[
                include_str!(concat!("../../migrations/postgres/", $($path)+)),
                include_str!(concat!("../../migrations/mysql/", $($path)+)),
                include_str!(concat!("../../migrations/sqlite/", $($path)+)),
            ])
        }
    };
}

macro_rules! migration {
    ($folder:literal, $version:literal, $($table:literal),+) => {
        Own {
            folder: $folder,
            version: $version,
            tables: &[$($table),+],
            up: text!($folder, "/up.sql"),
            down: text!($folder, "/down.sql"),
            integrity: Integrity::ForeignKey,
        }
    };
}

const COUNTERS: Own = migration!(
    "00000000000000-diesel-sharded-01_counters",
    "00000000000000dieselsharded01",
    "diesel_sharded_counters",
    "diesel_sharded_counter_shards",
    "diesel_sharded_shard_numbers"
);
const IDEMPOTENCY_KEYS: Own = migration!(
    "00000000000000-diesel-sharded-02_idempotency_keys",
    "00000000000000dieselsharded02",
    "diesel_sharded_idempotency_keys"
);

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::ShardsTable;
    use crate::counting::counter::counters;

    /// The counters' shards table is what the derive makes of it: nothing about it is special.
    #[test]
    fn the_shards_table_is_the_derives() {
        let shards_table = ShardsTable::of(counters::table);
        let up = COUNTERS.up;
        let sql = shards_table.create_sql(&diesel::pg::Pg).unwrap();
        assert!(up(Dialect::Postgres).contains(&sql), "{sql}");
        let sql = shards_table.create_sql(&diesel::mysql::Mysql).unwrap();
        assert!(up(Dialect::Mysql).contains(&sql), "{sql}");
        let sql = shards_table.create_sql(&diesel::sqlite::Sqlite).unwrap();
        let sql = sql.strip_prefix("SAVEPOINT diesel_sharded;\n").unwrap();
        let sql = sql.strip_suffix("RELEASE diesel_sharded").unwrap();
        assert!(up(Dialect::Sqlite).contains(sql), "{sql}");
    }

    #[test]
    fn each_text_creates_its_tables() {
        let texts = |migrations| migration_texts(migrations, &diesel::mysql::Mysql).unwrap();
        for text in texts(crate::MIGRATIONS) {
            assert_eq!(text.up.matches("CREATE TABLE ").count(), text.tables.len());
            for table in text.tables {
                assert!(text.up.contains(&format!("CREATE TABLE `{table}` (")));
                assert!(text.down.contains(&format!("`{table}`")), "{}", text.down);
            }
            assert!(text.up.ends_with(";\n") && !text.up.contains(";;"));
            let version = text.folder.split('_').next().unwrap().replace('-', "");
            assert_eq!(text.version, version);
        }
        let up = &texts(crate::MIGRATIONS.without_foreign_key())[0].up;
        assert_eq!(up.matches(";\nCREATE TRIGGER").count(), 4, "{up}");
    }

    #[test]
    fn the_foreign_key_can_be_left_out() {
        let adapted = |integrity| {
            let own = Own {
                integrity,
                ..COUNTERS
            };
            own.up(&diesel::mysql::Mysql).unwrap()
        };
        assert_eq!(
            adapted(Integrity::ForeignKey),
            [(COUNTERS.up)(Dialect::Mysql)]
        );
        let alone = adapted(Integrity::Application);
        assert_eq!(alone.len(), 1);
        assert!(alone[0].contains("    PRIMARY KEY (`name`, `shard`)\n) ENGINE"));
        assert_eq!(adapted(Integrity::Triggers).len(), 1 + 4);
        let own = Own {
            integrity: Integrity::Triggers,
            ..COUNTERS
        };
        let postgres = own.up(&diesel::pg::Pg).unwrap();
        assert_eq!(postgres.len(), 2);
        assert!(!postgres[0].contains("FOREIGN KEY") && postgres[1].starts_with("DO "));
        let own = Own {
            integrity: Integrity::Application,
            ..COUNTERS
        };
        let sqlite = own.up(&diesel::sqlite::Sqlite).unwrap();
        assert_eq!(sqlite.len(), 1); // its triggers are there already
        assert!(!sqlite[0].contains("FOREIGN KEY") && sqlite[0].contains("CREATE TRIGGER"));
    }
}

//! What this library creates, as Diesel migrations.

use std::borrow::Cow;
use std::fmt;

use diesel::connection::BoxableConnection;
use diesel::migration::{
    Migration, MigrationMetadata, MigrationName, MigrationSource, MigrationVersion,
};
use diesel::result::{Error as DieselError, QueryResult};

use crate::backend::{Dialect, ShardedBackend};

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
struct InTransaction;

impl MigrationMetadata for InTransaction {}

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

    /// One whose text is that of a folder.
    pub(crate) fn of_folder(folder: &'static str, version: &'static str, what: What) -> Self {
        let (version, text) = (version.into(), folder.into());
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
                if let (Some(sql), Dialect::Mysql) = (clean_up, backend.dialect()) {
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
        &InTransaction
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

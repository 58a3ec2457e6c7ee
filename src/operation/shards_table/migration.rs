//! The shards table as a Diesel migration.

use std::fmt;
use std::marker::PhantomData;

use diesel::connection::BoxableConnection;
use diesel::migration::{
    Migration, MigrationMetadata, MigrationName, MigrationSource, MigrationVersion,
};
use diesel::query_builder::QueryFragment;
use diesel::result::QueryResult;

use crate::backend::{Dialect, ShardedBackend};
use crate::model::ShardedTable;
use crate::query_builder::Names;

use super::fold_and_drop::{CLEAN_UP, Program};
use super::integrity::Integrity;
use super::quoted::Quoted;
use super::unfit_text::explain_unfit;

/// A Diesel migration that creates a shards table; made by [`ShardsTable::migration`](crate::ShardsTable::migration).
#[derive(Debug)]
pub struct ShardsMigration<T> {
    name: ShardsMigrationName,
    integrity: Integrity,
    table: PhantomData<T>,
}

/// The name of a migration that creates a table or a view.
#[derive(Debug, Clone)]
pub(super) struct ShardsMigrationName {
    pub(super) version: String,
    pub(super) created: String,
}

impl fmt::Display for ShardsMigrationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_create_{}", self.version, self.created)
    }
}

impl MigrationName for ShardsMigrationName {
    fn version(&self) -> MigrationVersion<'_> {
        MigrationVersion::from(self.version.as_str())
    }
}

/// In a transaction, as Diesel does by default.
pub(crate) struct InTransaction;

impl MigrationMetadata for InTransaction {}

impl<T, DB> Migration<DB> for ShardsMigration<T>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    fn run(&self, conn: &mut dyn BoxableConnection<DB>) -> diesel::migration::Result<()> {
        let backend = backend_behind(conn)?;
        let sql = self.quoted(&backend)?.create();
        Ok(conn.batch_execute(&sql)?)
    }

    fn revert(&self, conn: &mut dyn BoxableConnection<DB>) -> diesel::migration::Result<()> {
        let backend = backend_behind(conn)?;
        let dialect = backend.dialect();
        let sql = self.quoted(&backend)?.fold_and_drop(Program::StopsAtErrors);
        conn.batch_execute(&sql).map_err(|error| {
            if dialect == Dialect::Mysql {
                let _ = conn.batch_execute(CLEAN_UP); // the failure is what is reported
            }
            explain_unfit::<T>(dialect, error).into()
        })
    }

    fn metadata(&self) -> &dyn MigrationMetadata {
        &InTransaction
    }

    fn name(&self) -> &dyn MigrationName {
        &self.name
    }
}

/// As the one migration of a source, it runs by `conn.run_pending_migrations(..)`.
impl<T, DB> MigrationSource<DB> for ShardsMigration<T>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    fn migrations(&self) -> diesel::migration::Result<Vec<Box<dyn Migration<DB>>>> {
        Ok(vec![Box::new(self.clone())])
    }
}

impl<T: ShardedTable> ShardsMigration<T> {
    pub(super) fn new(version: String, integrity: Integrity) -> Self {
        ShardsMigration {
            name: ShardsMigrationName {
                version,
                created: T::SHARDS_TABLE.to_string(),
            },
            integrity,
            table: PhantomData,
        }
    }

    fn quoted<DB>(&self, backend: &DB) -> QueryResult<Quoted<'_>>
    where
        T: QueryFragment<DB>,
        DB: ShardedBackend,
    {
        let quoted = Quoted::new(Names::<DB>::of::<T>(), backend)?;
        Ok(quoted.kept_by(self.integrity))
    }
}

impl<T> Clone for ShardsMigration<T> {
    fn clone(&self) -> Self {
        ShardsMigration {
            name: self.name.clone(),
            integrity: self.integrity,
            table: PhantomData,
        }
    }
}

pub(crate) fn backend_behind<DB: ShardedBackend>(
    conn: &mut dyn BoxableConnection<DB>,
) -> diesel::migration::Result<DB> {
    DB::backend_behind(conn)
        .ok_or_else(|| "this connection is none that `multi_connection!` was told of".into())
}

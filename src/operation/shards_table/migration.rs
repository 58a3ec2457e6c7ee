//! The shards table as a Diesel migration.

use std::fmt;
use std::marker::PhantomData;

use diesel::connection::BoxableConnection;
use diesel::migration::{
    Migration, MigrationMetadata, MigrationName, MigrationSource, MigrationVersion,
};
use diesel::query_builder::QueryFragment;

use crate::backend::{Dialect, ShardedBackend};
use crate::model::ShardedTable;
use crate::query_builder::Names;

use super::fold_and_drop::{CLEAN_UP, Program};
use super::quoted::Quoted;
use super::unfit_text::explain_unfit;

/// A Diesel migration that creates a shards table; made by [`ShardsTable::migration`](crate::ShardsTable::migration).
#[derive(Debug)]
pub struct ShardsMigration<T> {
    name: ShardsMigrationName,
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
        let sql = Quoted::new(Names::<DB>::of::<T>(), &backend)?.create();
        Ok(conn.batch_execute(&sql)?)
    }

    fn revert(&self, conn: &mut dyn BoxableConnection<DB>) -> diesel::migration::Result<()> {
        let backend = backend_behind(conn)?;
        let dialect = backend.dialect();
        let quoted = Quoted::new(Names::<DB>::of::<T>(), &backend)?;
        let sql = quoted.fold_and_drop(Program::StopsAtErrors);
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
    pub(super) fn new(version: String) -> Self {
        ShardsMigration {
            name: ShardsMigrationName {
                version,
                created: T::SHARDS_TABLE.to_owned(),
            },
            table: PhantomData,
        }
    }
}

impl<T> Clone for ShardsMigration<T> {
    fn clone(&self) -> Self {
        ShardsMigration {
            name: self.name.clone(),
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

//! A view with totals as a Diesel migration.

use diesel::connection::BoxableConnection;
use diesel::migration::{Migration, MigrationMetadata, MigrationName, MigrationSource};
use diesel::prelude::*;
use diesel::query_builder::QueryFragment;

use super::migration::{InTransaction, ShardsMigrationName, backend_behind};
use super::view::TotalsView;
use crate::backend::ShardedBackend;
use crate::model::ShardedTable;
use crate::operation::update::returning::AllWithTotals;

/// A Diesel migration that creates a view with totals; made by [`TotalsView::migration`].
#[derive(Debug)]
pub struct ViewMigration<T> {
    name: ShardsMigrationName,
    view: TotalsView<T>,
}

impl<T: ShardedTable> TotalsView<T> {
    /// A migration that creates the view, and removes it when reverted. Its `version` comes after that of the
    /// [shards table's](crate::ShardsTable::migration), so that it is reverted first.
    pub fn migration(&self, version: impl Into<String>) -> ViewMigration<T> {
        ViewMigration::new(version.into(), self.clone())
    }
}

impl<T: ShardedTable> ViewMigration<T> {
    fn new(version: String, view: TotalsView<T>) -> Self {
        let created = view.name().to_owned();
        ViewMigration {
            name: ShardsMigrationName { version, created },
            view,
        }
    }
}

impl<T, DB> Migration<DB> for ViewMigration<T>
where
    T: ShardedTable + Table<AllColumns: AllWithTotals> + QueryFragment<DB>,
    DB: ShardedBackend,
{
    fn run(&self, conn: &mut dyn BoxableConnection<DB>) -> diesel::migration::Result<()> {
        let sql = self.view.create_sql(&backend_behind(conn)?)?;
        Ok(conn.batch_execute(&sql)?)
    }

    fn revert(&self, conn: &mut dyn BoxableConnection<DB>) -> diesel::migration::Result<()> {
        let sql = self.view.drop_sql(&backend_behind(conn)?)?;
        Ok(conn.batch_execute(&sql)?)
    }

    fn metadata(&self) -> &dyn MigrationMetadata {
        &InTransaction
    }

    fn name(&self) -> &dyn MigrationName {
        &self.name
    }
}

/// As the one migration of a source, it runs by `conn.run_pending_migrations(..)`.
impl<T, DB> MigrationSource<DB> for ViewMigration<T>
where
    T: ShardedTable + Table<AllColumns: AllWithTotals> + QueryFragment<DB>,
    DB: ShardedBackend,
{
    fn migrations(&self) -> diesel::migration::Result<Vec<Box<dyn Migration<DB>>>> {
        Ok(vec![Box::new(self.clone())])
    }
}

impl<T> Clone for ViewMigration<T> {
    fn clone(&self) -> Self {
        ViewMigration {
            name: self.name.clone(),
            view: self.view.clone(),
        }
    }
}

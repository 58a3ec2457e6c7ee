//! A counter cache as a Diesel migration.

use std::fmt;

use diesel::connection::BoxableConnection;
use diesel::migration::{
    Migration, MigrationMetadata, MigrationName, MigrationSource, MigrationVersion,
};
use diesel::query_builder::QueryFragment;

use crate::backend::{Dialect, ShardedBackend};
use crate::model::{ShardedColumn, ShardedTable};
use crate::operation::shards_table::{InTransaction, backend_behind, explain_unfit};

use super::cache::CounterCache;
use super::child::ChildTable;
use super::triggers::unlock;

/// A Diesel migration that creates the triggers of a counter cache, and drops them when reverted; made by
/// [`CounterCache::migration`].
#[derive(Debug, Clone)]
pub struct CounterCacheMigration<C, Child, Condition> {
    cache: CounterCache<C, Child, Condition>,
    name: CounterCacheName,
}

#[derive(Debug, Clone)]
struct CounterCacheName {
    version: String,
    shards_table: &'static str,
    field: &'static str,
}

impl fmt::Display for CounterCacheName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CounterCacheName {
            version,
            shards_table,
            field,
        } = self;
        write!(f, "{version}_count_{shards_table}_{field}")
    }
}

impl MigrationName for CounterCacheName {
    fn version(&self) -> MigrationVersion<'_> {
        MigrationVersion::from(self.version.as_str())
    }
}

impl<C, Child, W> CounterCacheMigration<C, Child, W>
where
    C: ShardedColumn,
{
    pub(super) fn new(cache: CounterCache<C, Child, W>, version: String) -> Self {
        CounterCacheMigration {
            cache,
            name: CounterCacheName {
                version,
                shards_table: <C::Table as ShardedTable>::SHARDS_TABLE.as_str(),
                field: C::NAME,
            },
        }
    }
}

impl<C, Child, W, DB> Migration<DB> for CounterCacheMigration<C, Child, W>
where
    C: ShardedColumn<Table: QueryFragment<DB>>,
    Child: ChildTable<DB>,
    W: QueryFragment<DB>,
    DB: ShardedBackend,
{
    fn run(&self, conn: &mut dyn BoxableConnection<DB>) -> diesel::migration::Result<()> {
        let backend = backend_behind(conn)?;
        let created = conn.batch_execute(&self.cache.create_sql(&backend)?);
        if created.is_err() && backend.dialect() == Dialect::Mysql {
            let _ = conn.batch_execute(&unlock()); // the failure is what is reported
        }
        Ok(created.map_err(|error| explain_unfit::<C::Table>(backend.dialect(), error))?)
    }

    fn revert(&self, conn: &mut dyn BoxableConnection<DB>) -> diesel::migration::Result<()> {
        let backend = backend_behind(conn)?;
        Ok(conn.batch_execute(&self.cache.drop_sql(&backend)?)?)
    }

    fn metadata(&self) -> &dyn MigrationMetadata {
        &InTransaction
    }

    fn name(&self) -> &dyn MigrationName {
        &self.name
    }
}

/// As the one migration of a source, it runs by `conn.run_pending_migrations(..)`.
impl<C, Child, W, DB> MigrationSource<DB> for CounterCacheMigration<C, Child, W>
where
    C: ShardedColumn<Table: QueryFragment<DB>>,
    Child: ChildTable<DB> + Clone + 'static,
    W: QueryFragment<DB> + Clone + 'static,
    DB: ShardedBackend,
{
    fn migrations(&self) -> diesel::migration::Result<Vec<Box<dyn Migration<DB>>>> {
        Ok(vec![Box::new(self.clone())])
    }
}

impl<C, Child, W> CounterCache<C, Child, W>
where
    C: ShardedColumn,
{
    /// A migration that creates the triggers, and drops them when reverted. `version` orders it among the application's own
    /// migrations, behind that of the [shards table](crate::ShardsTable); Diesel's own form is a time, `20260101000000`.
    pub fn migration(&self, version: impl Into<String>) -> CounterCacheMigration<C, Child, W>
    where
        Child: Clone,
        W: Clone,
    {
        CounterCacheMigration::new(self.clone(), version.into())
    }
}

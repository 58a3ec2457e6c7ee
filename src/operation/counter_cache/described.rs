//! A counter cache that is described by values: for `diesel-sharded`, the tool, which learns tables from the database.
//!
//! No part of the stable interface.

use diesel::prelude::*;

use crate::backend::{SESSION_SHARDS, ShardedBackend};
use crate::operation::described::DescribedTable;

use super::child::ChildNames;
use super::declaration::Declaration;

/// A counter cache by the names in its SQL, not quoted.
#[derive(Debug, Clone)]
pub struct DescribedCache {
    /// The sharded field that holds the number.
    pub field: String,
    /// The schema of the table whose rows are counted.
    pub schema: Option<String>,
    /// The table whose rows are counted.
    pub child: String,
    /// All of its columns.
    pub columns: Vec<String>,
    /// Those that hold the parent's key, in its order.
    pub by: Vec<String>,
    /// The column that is summed; else rows are counted.
    pub amount: Option<String>,
    /// A condition on the child's columns, as SQL.
    pub condition: Option<String>,
    /// How many shards the triggers use.
    pub shards: Option<u16>,
}

impl DescribedCache {
    /// As [`CounterCache::create_sql`](crate::CounterCache::create_sql).
    ///
    /// # Errors
    /// As there.
    pub fn create_sql<DB>(&self, parent: &DescribedTable, backend: &DB) -> QueryResult<String>
    where
        DB: ShardedBackend,
    {
        Ok(self.declaration(parent, backend)?.create())
    }

    /// As [`CounterCache::drop_sql`](crate::CounterCache::drop_sql).
    ///
    /// # Errors
    /// As there.
    pub fn drop_sql<DB>(&self, parent: &DescribedTable, backend: &DB) -> QueryResult<String>
    where
        DB: ShardedBackend,
    {
        Ok(self.declaration(parent, backend)?.drop())
    }

    /// The number counted anew, as a query for keys and numbers.
    ///
    /// # Errors
    /// If a name cannot be quoted.
    pub fn recount_sql<DB>(&self, parent: &DescribedTable, backend: &DB) -> QueryResult<String>
    where
        DB: ShardedBackend,
    {
        Ok(self.declaration(parent, backend)?.recount())
    }

    /// Fails if the field cannot hold sums of a column of this type.
    ///
    /// # Errors
    /// [`SumOfOtherType`](crate::Error::SumOfOtherType).
    pub fn check_sum<DB>(
        &self,
        parent: &DescribedTable,
        sql_type: &str,
        backend: &DB,
    ) -> QueryResult<()>
    where
        DB: ShardedBackend,
    {
        self.declaration(parent, backend)?.check_sum(sql_type)
    }

    fn declaration<'a, DB>(
        &self,
        parent: &'a DescribedTable,
        backend: &DB,
    ) -> QueryResult<Declaration<'a>>
    where
        DB: ShardedBackend,
    {
        let child = ChildNames {
            schema: self.schema.clone(),
            table: self.child.clone(),
            columns: self.columns.clone(),
            by: self.by.clone(),
            amount: self.amount.clone(),
        };
        let shards = self.shards.unwrap_or(SESSION_SHARDS);
        let condition = self.condition.clone();
        let names = parent.names::<DB>();
        Declaration::new(names, &self.field, &child, condition, shards, backend)
    }
}

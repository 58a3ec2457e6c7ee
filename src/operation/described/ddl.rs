//! The statements that create and drop what belongs to a described table.

use diesel::prelude::*;

use super::{DescribedTable, FoundCache};
use crate::backend::{Dialect, ShardedBackend};
use crate::model::ShardsColumn;
use crate::operation::shards_table::{
    self, Integrity, MissingTriggers, Program, Quoted, quoted_on,
};

impl DescribedTable {
    /// See [`ShardsTable::without_foreign_key`](crate::ShardsTable::without_foreign_key).
    #[must_use]
    pub fn without_foreign_key(self) -> Self {
        let integrity = Integrity::Triggers;
        DescribedTable { integrity, ..self }
    }

    /// See [`ShardsTable::without_triggers`](crate::ShardsTable::without_triggers).
    #[must_use]
    pub fn without_triggers(self) -> Self {
        let integrity = Integrity::Application;
        DescribedTable { integrity, ..self }
    }

    /// As [`ShardsTable::create_sql`](crate::ShardsTable::create_sql).
    ///
    /// # Errors
    /// As there.
    pub fn create_sql<DB: ShardedBackend>(&self, backend: &DB) -> QueryResult<String> {
        Ok(self.quoted(backend)?.create())
    }

    /// As [`ShardsTable::drop_sql`](crate::ShardsTable::drop_sql).
    ///
    /// # Errors
    /// As there.
    pub fn drop_sql<DB: ShardedBackend>(&self, backend: &DB) -> QueryResult<String> {
        Ok(self.quoted(backend)?.fold_and_drop(Program::Any))
    }

    /// As [`ShardsTable::add_function_sql`](crate::ShardsTable::add_function_sql).
    ///
    /// # Errors
    /// As there.
    pub fn add_function_sql<DB: ShardedBackend>(&self, backend: &DB) -> QueryResult<String> {
        self.quoted(backend)?.create_function()
    }

    /// As [`ShardsTable::drop_function_sql`](crate::ShardsTable::drop_function_sql).
    ///
    /// # Errors
    /// As there.
    pub fn drop_function_sql<DB: ShardedBackend>(&self, backend: &DB) -> QueryResult<String> {
        self.quoted(backend)?.drop_function()
    }

    /// As [`TotalsView::create_sql`](crate::operation::TotalsView::create_sql), of these columns.
    ///
    /// # Errors
    /// As there.
    pub fn create_view_sql<DB: ShardedBackend>(
        &self,
        view: &str,
        columns: &[&str],
        backend: &DB,
    ) -> QueryResult<String> {
        shards_table::create_view_sql(self.names(), view, columns, backend)
    }

    /// As [`TotalsView::drop_sql`](crate::operation::TotalsView::drop_sql).
    ///
    /// # Errors
    /// As there.
    pub fn drop_view_sql<DB: ShardedBackend>(
        &self,
        view: &str,
        backend: &DB,
    ) -> QueryResult<String> {
        shards_table::drop_view_sql(self.names(), view, backend)
    }

    /// The `CHECK` that the shards table has for each field, in their order.
    ///
    /// # Errors
    /// As [`create_sql`](Self::create_sql).
    pub fn checks_sql<DB: ShardedBackend>(&self, backend: &DB) -> QueryResult<Vec<Option<String>>> {
        let quoted = self.quoted(backend)?;
        Ok(quoted.fields.iter().map(|f| quoted.check(f)).collect())
    }

    /// The foreign key that the shards table has, if it is to have one.
    ///
    /// # Errors
    /// As [`create_sql`](Self::create_sql).
    pub fn foreign_key_sql<DB: ShardedBackend>(&self, backend: &DB) -> QueryResult<Option<String>> {
        Ok(self.quoted(backend)?.foreign_key())
    }

    /// The triggers that keep shards with their rows, in place of a foreign key or on SQLite beside it, and are not among the names that
    /// were `found` on the table and its shards table.
    ///
    /// # Errors
    /// As [`create_sql`](Self::create_sql).
    pub fn missing_triggers<DB: ShardedBackend>(
        &self,
        backend: &DB,
        found: &[String],
    ) -> QueryResult<Option<MissingTriggers>> {
        let quoted = self.quoted(backend)?;
        if !backend.dialect().has_triggers() {
            return Ok(quoted.missing_parent_triggers(found));
        }
        let sql = quoted.missing_triggers(None, found);
        Ok(sql.map(|sql| MissingTriggers {
            names: vec![],
            sql,
            all: false,
        }))
    }

    /// A query for the names of the triggers of all counter caches that add to the shards table, or to one of its fields.
    ///
    /// # Errors
    /// As [`create_sql`](Self::create_sql).
    pub fn cache_triggers_sql<DB: ShardedBackend>(
        &self,
        field: Option<&str>,
        backend: &DB,
    ) -> QueryResult<String> {
        let field = field.map(|name| quoted_on(backend.dialect(), name));
        Ok(self
            .quoted(backend)?
            .select_cache_triggers(field.as_deref()))
    }

    fn quoted<DB: ShardedBackend>(&self, backend: &DB) -> QueryResult<Quoted<'_>> {
        Quoted::new(self.names::<DB>(), self.integrity, backend)
    }

    /// Whether a foreign key is expected.
    pub fn has_foreign_key(&self) -> bool {
        self.integrity == Integrity::ForeignKey
    }
}

/// The counter caches to which triggers belong that [`cache_triggers_sql`](DescribedTable::cache_triggers_sql) has found.
pub fn found_caches(dialect: Dialect, triggers: &[String]) -> Vec<FoundCache> {
    shards_table::found_caches(dialect, triggers)
}

/// A name between quotes.
pub fn quoted(dialect: Dialect, name: &str) -> String {
    quoted_on(dialect, name)
}

/// A name for what belongs to a table, shortened where the database would not take it.
pub fn fitting_name(dialect: Dialect, name: String) -> String {
    dialect.fitting_name(name)
}

/// Whether the database takes a name of this length as it is.
pub fn takes_name(dialect: Dialect, name: &str) -> bool {
    dialect.takes_name(name)
}

/// The type that the shards table declares for a sharded field.
pub fn declared_type(dialect: Dialect, field: &ShardsColumn) -> &str {
    let own = || dialect.field_type(field.column_type, field.merge);
    field.sql_type.as_deref().unwrap_or_else(own)
}

//! A sharded table that is described by values: for `diesel-sharded`, the tool, which learns tables from the database.
//!
//! No part of the stable interface.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::Error as DieselError;

use crate::backend::{Dialect, ShardedBackend};
use crate::conflict::{Conflict, Failure};
use crate::model::{Amount, ColumnType, ShardsColumn};
use crate::operation::shard_counts::ShardCount;
use crate::operation::shards_table;
use crate::query_builder::{Names, push_total_of};
pub use crate::unfit::FieldState;
use crate::unfit::Unfit;

/// What the derive would know of a table.
#[derive(Debug, Clone, Copy)]
pub struct DescribedTable {
    parent: Parent,
    shards_table: &'static str,
    key: &'static [ShardsColumn],
    fields: &'static [ShardsColumn],
}

#[derive(Debug, Clone, Copy)]
struct Parent(&'static str);

impl<DB: ShardedBackend> QueryFragment<DB> for Parent {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_identifier(self.0)
    }
}

impl DescribedTable {
    /// A table by the names in its SQL, not quoted.
    pub const fn new(
        parent: &'static str,
        shards_table: &'static str,
        key: &'static [ShardsColumn],
        fields: &'static [ShardsColumn],
    ) -> Self {
        DescribedTable {
            parent: Parent(parent),
            shards_table,
            key,
            fields,
        }
    }

    /// As [`ShardsTable::create_sql`](crate::ShardsTable::create_sql).
    ///
    /// # Errors
    /// As there.
    pub fn create_sql<DB: ShardedBackend>(&self, backend: &DB) -> QueryResult<String> {
        shards_table::create_sql(self.names(), backend)
    }

    /// As [`ShardsTable::drop_sql`](crate::ShardsTable::drop_sql).
    ///
    /// # Errors
    /// As there.
    pub fn drop_sql<DB: ShardedBackend>(&self, backend: &DB) -> QueryResult<String> {
        shards_table::drop_sql(self.names(), backend)
    }

    /// The statements that create the triggers on SQLite which are not among the names that were `found`.
    ///
    /// # Errors
    /// As [`create_sql`](Self::create_sql).
    pub fn missing_triggers<DB: ShardedBackend>(
        &self,
        backend: &DB,
        found: &[String],
    ) -> QueryResult<Option<String>> {
        shards_table::missing_triggers(self.names(), backend, found)
    }

    /// Writes the total of a field, or base + one shard; see [`Total`](crate::Total).
    ///
    /// # Errors
    /// If a name cannot be quoted.
    pub fn push_total<'b, DB: ShardedBackend>(
        &'b self,
        field: &ShardsColumn,
        shard: Option<&'b i32>,
        out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()> {
        push_total_of(self.names(), field, shard, out)
    }

    /// The number of shards of a field.
    pub fn shard_count(&self, field: &ShardsColumn) -> ShardCount {
        ShardCount::described(self.shards_table, field.name.as_bytes())
    }

    fn names<DB: ShardedBackend>(&self) -> Names<'_, DB> {
        Names {
            parent: &self.parent,
            shards_table: self.shards_table,
            key: self.key,
            fields: self.fields,
        }
    }
}

/// A column of a described table; declared with `sql_type` where its type alone does not say enough.
pub const fn column(
    name: &'static str,
    column_type: ColumnType,
    sql_type: Option<&'static str>,
) -> ShardsColumn {
    ShardsColumn {
        name,
        column_type,
        sql_type,
    }
}

/// What the library would do about the error of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// Try again.
    Conflict(Conflict),
    /// Tell that a value is out of range.
    Overflow,
    /// Hand it on.
    Other,
}

/// What the library would do about an error.
pub fn told(dialect: Dialect, error: &DieselError) -> Told {
    match dialect.classify(error) {
        Failure::Conflict(conflict) => Told::Conflict(conflict),
        Failure::Overflow => Told::Overflow,
        _ => Told::Other,
    }
}

/// What stands before and behind a number of this type to read it as a text that [`amount`] reads.
pub fn number_as_text(dialect: Dialect, column: ColumnType) -> (&'static str, &'static str) {
    dialect.number_as_text(column)
}

/// Nothing of a column of this type.
pub fn zero(column: ColumnType) -> Amount {
    Amount::zero(column)
}

/// Reads a number of this type.
///
/// # Errors
/// If the text is none.
pub fn amount(text: &str, column: ColumnType) -> QueryResult<Amount> {
    Amount::parse(text, column)
}

/// The difference between what a parent was to hold of a field and what it holds, if there is one.
pub fn unfit(
    dialect: Dialect,
    field: &ShardsColumn,
    before: &FieldState,
    expected: &FieldState,
    found: &FieldState,
) -> Option<Unfit> {
    let rounds = dialect.rounds_sums(field.column_type);
    Unfit::between(field.name, before, expected, found, rounds)
}

/// The least and the greatest integer that a base of this type holds, as far as an `i64` does.
pub fn integers(column: ColumnType) -> (i64, i64) {
    column.integers()
}

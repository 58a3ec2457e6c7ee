//! A sharded table that is described by values: for `diesel-sharded`, the tool, which learns tables from the database.
//!
//! No part of the stable interface.

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::Error as DieselError;

use crate::backend::{BackendOf, Dialect, ShardedBackend, Strength};
use crate::conflict::{Conflict, Failure};
use crate::connection::{Link, now};
use crate::engine::Locked;
pub use crate::engine::{HoldError, Moved};
use crate::model::{Amount, ColumnType, ShardsColumn};
use crate::operation::shard_counts::ShardCount;
use crate::operation::shards_table;
use crate::query_builder::{Names, Sums, push_total_of};

/// How often a parent is locked that can be seen and was not locked.
pub const TRIES_TO_LOCK: u8 = crate::engine::TRIES_TO_LOCK;

/// A table as the derive would know it.
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

/// Parents of a described table that the open transaction has locked.
#[derive(Debug, Clone, Copy)]
pub struct LockedParents<'a, W> {
    /// Their table.
    pub table: &'a DescribedTable,
    /// A `WHERE` clause that names them.
    pub keys: &'a W,
    /// The number of them.
    pub number: usize,
    /// The one shard of each that is folded, or all.
    pub shard: Option<i32>,
}

impl<W> LockedParents<'_, W> {
    /// Locks the shards as [`fold`](crate::fold()) does, adds them to the bases and empties them, and removes those that are empty
    /// and numbered `remove_from` and above. Also gives the number that it removed.
    ///
    /// # Errors
    /// [`HoldError::Unfit`] for a parent whose base does not take its total.
    pub fn fold<Conn, DB>(
        &self,
        remove_from: Option<u16>,
        conn: &mut Conn,
    ) -> Result<(Moved, usize), HoldError>
    where
        W: QueryFragment<DB> + Sync,
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        now(async {
            let link = &mut Link::blocking(conn);
            let mut locked = self.locked();
            locked.filled = locked.lock_shards(link, Strength::ExclusiveAtOnce).await?;
            let moved = locked.fold(link).await?;
            let removed = match remove_from {
                Some(first) => locked.remove_shards(link, first).await?,
                None => 0,
            };
            Ok((moved, removed))
        })
    }

    /// Adds `n` to the bases of `field` by an `assignment` that does so.
    ///
    /// # Errors
    /// [`HoldError::Unfit`] for a parent whose base does not take it.
    pub fn add_to_bases<A, Conn, DB>(
        &self,
        field: &ShardsColumn,
        n: i64,
        assignment: &A,
        conn: &mut Conn,
    ) -> Result<(), HoldError>
    where
        A: QueryFragment<DB>,
        W: QueryFragment<DB> + Sync,
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        now(async {
            let link = &mut Link::blocking(conn);
            let (locked, fields) = (self.locked(), [field]);
            let before = locked.states(link, &fields, Sums::Read).await?;
            let mut expected = before.clone();
            for state in expected.iter_mut().flatten() {
                state.base += &Amount::Integer(n.into());
            }
            locked
                .write_bases(link, assignment, &fields, false, &before, &expected)
                .await
        })
    }

    /// The numbers of their shards.
    ///
    /// # Errors
    /// The database's.
    pub fn shards<Conn, DB>(&self, conn: &mut Conn) -> QueryResult<Vec<i32>>
    where
        W: QueryFragment<DB> + Sync,
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        now(self.locked().shards(&mut Link::blocking(conn)))
    }

    fn locked<DB: ShardedBackend>(&self) -> Locked<'_, W, DB> {
        Locked {
            names: self.table.names(),
            keys: self.keys,
            parents: self.number,
            shard: self.shard,
            filled: None,
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

/// The step that the library would take after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// Try again.
    Conflict(Conflict),
    /// Tell that a value is out of range.
    Overflow,
    /// Hand it on.
    Other,
}

/// The step that the library would take after this error of a statement.
pub fn told(dialect: Dialect, error: &DieselError) -> Told {
    match dialect.classify(error) {
        Failure::Conflict(conflict) => Told::Conflict(conflict),
        Failure::Overflow => Told::Overflow,
        _ => Told::Other,
    }
}

/// Nothing of a column of this type.
pub fn zero(column: ColumnType) -> Amount {
    Amount::zero(column)
}

/// The least and the greatest integer that a base of this type holds, as far as an `i64` does.
pub fn integers(column: ColumnType) -> (i64, i64) {
    column.integers()
}

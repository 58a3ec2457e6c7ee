//! A sharded table that is described by values: for `diesel-sharded`, the tool, which learns tables from the database.
//!
//! No part of the stable interface.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::ControlFlow;

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::query_builder::{Query, QueryFragment, QueryId};
use diesel::sql_types::Untyped;

use crate::backend::{BackendOf, Dialect, Integrity, Reads, ShardedBackend, Strength};
use crate::conflict::Failure;
use crate::connection::{Link, LoadIo, now, set_other_nodes_write};
use crate::counting::counter::counters;
use crate::engine::{KEYS_IN_A_STATEMENT, LockedParents, Parents};
use crate::error::Error;
use crate::model::{Amount, ColumnType, Merge, ShardedTable, ShardsColumn, TableName};
use crate::policy::RetryPolicy;
use crate::query_builder::{Names, Sql, fragments};
use crate::tables::shards_table::{self, create_view_sql, drop_view_sql};
use crate::upkeep::fold::{Batches, Folded, Folding};
use crate::upkeep::shard_counts::{self, Number, ShardCount, largest, read_table};

pub use crate::backend::quoted::{Quoted, quoted_on as quoted};
pub use crate::tables::migrations::{MigrationText, migration_texts};
pub use crate::tables::shards_table::{FoundCache, MissingTriggers, declared_type, found_caches};
pub use crate::upkeep::fold::Pace;
pub use crate::upkeep::verify::differs;

/// The library's own table of numbers of shards.
pub const SHARD_NUMBERS: &str = shard_counts::TABLE;

/// How many rows a statement names at most.
pub const ROWS_AT_ONCE: usize = KEYS_IN_A_STATEMENT;

/// A table as the derive would know it.
#[derive(Debug, Clone)]
pub struct DescribedTable {
    /// The length of the schema's name, with which the names of both tables begin.
    schema: Option<usize>,
    parent: String,
    shards_table: String,
    key: Vec<ShardsColumn>,
    fields: Vec<ShardsColumn>,
    integrity: Integrity,
}

impl DescribedTable {
    /// A table by the names in its SQL, not quoted; both tables are in that schema, if there is one.
    pub fn new(
        schema: Option<&str>,
        parent: &str,
        shards_table: &str,
        key: Vec<ShardsColumn>,
        fields: Vec<ShardsColumn>,
    ) -> Self {
        let named = |name: &str| match schema {
            Some(schema) => format!("{schema}.{name}"),
            None => name.to_owned(),
        };
        DescribedTable {
            schema: schema.map(str::len),
            parent: named(parent),
            shards_table: named(shards_table),
            key,
            fields,
            integrity: Integrity::default(),
        }
    }

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

    /// Whether a foreign key is expected.
    pub fn has_foreign_key(&self) -> bool {
        self.integrity == Integrity::ForeignKey
    }

    /// The parent's name.
    pub fn table(&self) -> TableName<'_> {
        self.named(&self.parent)
    }

    /// The shards table's name.
    pub fn shards_table(&self) -> TableName<'_> {
        self.named(&self.shards_table)
    }

    fn named<'n>(&self, name: &'n str) -> TableName<'n> {
        match self.schema {
            Some(schema) => TableName::in_schema(name, schema),
            None => TableName::new(name),
        }
    }

    /// The columns of the key.
    pub fn key(&self) -> &[ShardsColumn] {
        &self.key
    }

    /// The sharded fields.
    pub fn fields(&self) -> &[ShardsColumn] {
        &self.fields
    }

    /// The number of shards of a field.
    pub fn shard_count(&self, field: &ShardsColumn) -> ShardCount {
        let number = Number::described(&self.shards_table, field.name.as_bytes());
        ShardCount::of_number(number)
    }

    /// The numbers of shards that were set, by field; those of named counters, by their names behind a zero.
    ///
    /// # Errors
    /// The database's.
    pub fn shard_numbers<Conn>(&self, conn: &mut Conn) -> QueryResult<HashMap<Vec<u8>, u16>>
    where
        Conn: LoadConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        now(read_table(&mut Link::blocking(conn), &self.shards_table))
    }

    /// The number of shards below which a fold keeps them, where these `numbers` were set. `None` where the derive's number is
    /// needed, which only the application knows.
    pub fn wished(&self, numbers: &HashMap<Vec<u8>, u16>) -> Option<u16> {
        let counters = self.shards_table() == counters::table::SHARDS_TABLE;
        let default = counters.then_some(counters::table::SHARDS);
        largest(numbers, &self.fields, default)
    }

    /// The names in statements of a backend, which give the SQL that creates and drops the table and what belongs to it.
    ///
    /// # Errors
    /// If a name cannot be quoted.
    pub fn quoted<DB: ShardedBackend>(&self, backend: &DB) -> QueryResult<Quoted<'_>> {
        Quoted::new(self.names::<DB>(), self.integrity, backend)
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
        create_view_sql(self.names(), view, columns, backend)
    }

    /// As [`TotalsView::drop_sql`](crate::operation::TotalsView::drop_sql).
    pub fn drop_view_sql(&self, view: &str, dialect: Dialect) -> String {
        drop_view_sql(self.shards_table(), view, dialect)
    }

    pub(super) fn names<DB: ShardedBackend>(&self) -> Names<'_, DB> {
        Names {
            parent: self,
            shards_table: self.shards_table(),
            key: &self.key,
            fields: &self.fields,
            keys_as_texts: false,
        }
    }
}

// The parent's name.
fragments! {
    [] DescribedTable;
    |self, out| Sql::push(self.table(), out);
}

/// Names rows of a described table by their keys.
pub trait DescribedKeys<DB: ShardedBackend>: Copy + Send + Sync {
    /// A key, read from texts in the order of its columns, bytes in hexadecimal.
    type Key: Clone + Send + Sync + 'static;
    /// A condition on `parent.key`, in parentheses.
    type Condition: QueryFragment<DB> + QueryId + Send + Sync;

    /// The table.
    fn described(&self) -> &DescribedTable;

    /// `key = $n`
    fn is(&self, key: &Self::Key) -> Self::Condition;

    /// `key > $n`
    fn is_after(&self, key: &Self::Key) -> Self::Condition;
}

/// The parents that these keys name.
#[derive(Debug, Clone, Copy)]
struct Described<K>(K);

impl<K, DB> Parents<DB> for Described<K>
where
    K: DescribedKeys<DB>,
    DB: ShardedBackend + Reads<Untyped, K::Key>,
{
    type Key = K::Key;
    type KeySql = Untyped;
    type KeyIs = K::Condition;
    type KeyAfter = K::Condition;

    fn names(&self) -> Names<'_, DB> {
        Names {
            keys_as_texts: true,
            ..self.0.described().names()
        }
    }

    fn is(&self, key: &K::Key) -> K::Condition {
        self.0.is(key)
    }

    fn is_after(&self, key: &K::Key) -> K::Condition {
        self.0.is_after(key)
    }

    fn load<'s, Q, M, Conn>(
        link: &'s mut Link<'_, M, Conn>,
        query: Q,
    ) -> M::Future<'s, QueryResult<Vec<K::Key>>>
    where
        M: LoadIo<Conn, Backend = DB>,
        Q: Query<SqlType = Untyped> + QueryFragment<DB> + QueryId + 's,
    {
        link.load(query)
    }
}

/// How a described table is folded.
#[derive(Debug, Clone, Copy)]
pub struct FoldSettings {
    /// See [`Fold::batch`](crate::operation::Fold::batch).
    pub batch: usize,
    /// Empty shards numbered from here on are removed, or none.
    pub keep_shards: Option<u16>,
}

/// The result of a fold of a described table.
pub type FoldedRows<Key> = Folded<DescribedTable, Key>;

/// The result of a fold that has not begun yet, and continues after this key.
pub fn nothing_folded<Key>(table: &DescribedTable, after: Option<Key>) -> FoldedRows<Key> {
    Folded::nothing(&table.fields, after)
}

/// How many rows were examined.
pub fn looked_at<Key>(folded: &FoldedRows<Key>) -> u64 {
    folded.looked_at
}

/// How much of each field was moved.
pub fn amounts<Key>(folded: &FoldedRows<Key>) -> &[Amount] {
    &folded.moved
}

/// Goes on folding, as [`Fold::run_with`](crate::operation::Fold::run_with), after the last key that was `folded`.
///
/// # Errors
/// As there.
pub fn fold<K, Conn, DB>(
    keys: K,
    settings: FoldSettings,
    folded: &mut FoldedRows<K::Key>,
    conn: &mut Conn,
    mut progress: impl FnMut(&FoldedRows<K::Key>) -> ControlFlow<()>,
) -> QueryResult<()>
where
    K: DescribedKeys<DB>,
    Conn: LoadConnection<Backend = DB>,
    DB: BackendOf<Conn> + Reads<Untyped, K::Key>,
{
    let link = &mut Link::blocking(conn);
    let folding = Folding {
        of: Described(keys),
        keep: settings.keep_shards,
        cold_below: None,
        retry: RetryPolicy::default(),
        dialect: link.dialect(),
        inside: false,
    };
    let batches = Batches {
        filter: (),
        batch: settings.batch.clamp(1, KEYS_IN_A_STATEMENT),
        per_second: None,
    };
    now(folding.fold_all(&batches, folded, link, &mut progress))
}

/// As [`ShardsTable::remove_orphans`](crate::ShardsTable::remove_orphans).
///
/// # Errors
/// As there.
pub fn remove_orphans<K, Conn, DB>(keys: K, conn: &mut Conn) -> QueryResult<usize>
where
    K: DescribedKeys<DB>,
    Conn: LoadConnection<Backend = DB>,
    DB: BackendOf<Conn> + Reads<Untyped, K::Key>,
{
    now(shards_table::remove_orphans(
        Described(keys),
        &mut Link::blocking(conn),
    ))
}

/// The rows that a repair has locked.
#[derive(Debug)]
pub struct LockedRows<Key> {
    /// The keys of the rows that are locked.
    pub locked: Vec<Key>,
    /// The keys of the rows that are visible but not locked.
    pub not_locked: Vec<Key>,
}

/// Locks parents for a repair in the transaction that is open.
///
/// # Errors
/// [`HiddenShards`](crate::Unfit::HiddenShards), or the database's.
pub fn lock<K, Conn, DB>(
    keys: K,
    rows: &[K::Key],
    conn: &mut Conn,
) -> QueryResult<LockedRows<K::Key>>
where
    K: DescribedKeys<DB>,
    Conn: LoadConnection<Backend = DB>,
    DB: BackendOf<Conn> + Reads<Untyped, K::Key>,
{
    now(async {
        let (of, link) = (Described(keys), &mut Link::blocking(conn));
        let (mut locked, mut not_locked) = (vec![], vec![]);
        for rows in rows.chunks(KEYS_IN_A_STATEMENT) {
            let rows = of.are(rows);
            let parents = LockedParents::lock_parents(of, link, &rows, Strength::Exclusive).await?;
            parents.refuse_hidden_shards(link).await?;
            not_locked.extend(parents.not_locked(link, &rows).await?);
            locked.extend_from_slice(parents.parents());
        }
        Ok(LockedRows { locked, not_locked })
    })
}

/// Adds amounts to the bases of parents that are locked, in key order, by an `assignment` that does so.
///
/// # Errors
/// [`Unfit`](crate::Error::Unfit) or [`Overflow`](crate::Error::Overflow) if a base does not accept its sum.
pub fn add_to_bases<K, A, Conn, DB>(
    keys: K,
    rows: &[(K::Key, Amount)],
    field: &ShardsColumn,
    assignment: &A,
    conn: &mut Conn,
) -> QueryResult<()>
where
    K: DescribedKeys<DB>,
    A: QueryFragment<DB>,
    Conn: LoadConnection<Backend = DB>,
    DB: BackendOf<Conn> + Reads<Untyped, K::Key>,
{
    let parents = rows.iter().map(|(key, _)| key.clone());
    let parents = LockedParents::locked(Described(keys), parents.collect());
    let amounts = rows.iter().map(|(_, amount)| std::slice::from_ref(amount));
    let amounts: Vec<_> = amounts.collect();
    let link = &mut Link::blocking(conn);
    let dialect = link.dialect();
    let added = now(parents.add_to_bases(link, &[field], &amounts, assignment));
    added.map_err(|source| match dialect.classify(&source) {
        Failure::Overflow => Error::Overflow { source }.into(),
        _ => source,
    })
}

/// A column of a described table; declared with `sql_type` where its type alone does not say enough.
pub fn column(name: String, column_type: ColumnType, sql_type: Option<String>) -> ShardsColumn {
    ShardsColumn {
        name: Cow::Owned(name),
        column_type,
        sql_type: sql_type.map(Cow::Owned),
        merge: Merge::Sum,
    }
}

/// Guards transactions against other writing nodes of a cluster, which may end a transaction without an error to the client.
pub fn guard_transactions() {
    set_other_nodes_write(true);
}

//! The library for tables that `diesel-sharded`, the tool, finds in a database.
//!
//! Not part of the stable interface.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::ControlFlow;

use diesel::backend::Backend;
use diesel::connection::LoadConnection;
use diesel::prelude::*;

use crate::backend::{BackendOf, Strength};
use crate::conflict::ErrorClass;
use crate::connection::{Link, now, set_other_nodes_write};
use crate::counting::counter::counters;
use crate::engine::{LockedRows, keys_are};
use crate::error::Error;
use crate::model::{Amount, ColumnType, Merge, ShardedTable, ShardsColumn};
use crate::policy::RetryPolicy;
use crate::tables::shards_table;
use crate::upkeep::fold::{Batches, Folded, Folding};
use crate::upkeep::shard_counts::{Number, ShardCount, TABLE, largest, read_table};

pub use crate::backend::quoted::{Integrity, Quoted, quoted_on as quoted};
pub use crate::engine::{KEYS_IN_A_STATEMENT as ROWS_AT_ONCE, Parents};
pub use crate::query_builder::Names;
pub use crate::tables::counter_cache::described::DescribedCache;
pub use crate::tables::migrations::{MigrationText, migration_texts};
pub use crate::tables::shards_table::{
    FoundCache, MissingTriggers, create_view_sql, declared_type, drop_view_sql, found_caches,
};
pub use crate::upkeep::fold::Pace;
pub use crate::upkeep::verify::differs;

/// The library's own table of numbers of shards.
pub const SHARD_NUMBERS: &str = TABLE;

/// Guards transactions against other writing nodes of a cluster, which may end a transaction without an error to the client.
pub fn guard_transactions() {
    set_other_nodes_write(true);
}

/// A column of a table that was found; declared with `sql_type` where its type alone does not say enough.
pub fn column(name: String, column_type: ColumnType, sql_type: Option<String>) -> ShardsColumn {
    ShardsColumn {
        name: Cow::Owned(name),
        column_type,
        sql_type: sql_type.map(Cow::Owned),
        merge: Merge::Sum,
    }
}

/// The numbers of shards of a table that were set, by field; those of named counters, by their names after a zero.
///
/// # Errors
/// The database's.
pub fn shard_numbers<Conn>(
    shards_table: &str,
    conn: &mut Conn,
) -> QueryResult<HashMap<Vec<u8>, u16>>
where
    Conn: LoadConnection,
    Conn::Backend: BackendOf<Conn>,
{
    now(read_table(&mut Link::blocking(conn), shards_table))
}

/// The number of shards of a field.
pub fn shard_count(shards_table: &str, field: &str) -> ShardCount {
    ShardCount::of_number(Number::described(shards_table, field.as_bytes()))
}

/// The number of shards below which a fold keeps them, where these `numbers` were set. `None` where the derive's number is
/// needed, which only the application knows.
pub fn wished<DB: Backend>(names: Names<'_, DB>, numbers: &HashMap<Vec<u8>, u16>) -> Option<u16> {
    let counters = names.shards_table == counters::table::SHARDS_TABLE;
    let default = counters.then_some(counters::table::SHARDS);
    largest(numbers, names.fields, default)
}

/// The result of a fold.
pub type FoldedRows<Key> = Folded<(), Key>;

/// The result of a fold that has not begun yet, and continues after this key.
pub fn nothing_folded<Key>(fields: &[ShardsColumn], after: Option<Key>) -> FoldedRows<Key> {
    Folded::nothing(fields, after)
}

/// Continues a fold, as [`Fold::run_with`](crate::operation::Fold::run_with) does, after the last key that was `folded`. Empty shards
/// numbered from `keep` on are removed, or none.
///
/// # Errors
/// As there.
pub fn fold<P, Conn, DB>(
    of: P,
    batch: usize,
    keep: Option<u16>,
    folded: &mut FoldedRows<P::Key>,
    conn: &mut Conn,
    mut progress: impl FnMut(&FoldedRows<P::Key>) -> ControlFlow<()>,
) -> QueryResult<()>
where
    P: Parents<DB>,
    Conn: LoadConnection<Backend = DB>,
    DB: BackendOf<Conn>,
{
    let link = &mut Link::blocking(conn);
    let folding = Folding {
        of,
        keep,
        cold_below: None,
        retry: RetryPolicy::default(),
        dialect: link.dialect(),
        inside: false,
        reports: false,
    };
    let batches = Batches {
        filter: (),
        batch: batch.clamp(1, ROWS_AT_ONCE),
        per_second: None,
    };
    now(folding.fold_all(&batches, folded, link, &mut progress))
}

/// As [`ShardsTable::remove_orphans`](crate::ShardsTable::remove_orphans).
///
/// # Errors
/// As there.
pub fn remove_orphans<P, Conn, DB>(of: P, conn: &mut Conn) -> QueryResult<usize>
where
    P: Parents<DB>,
    Conn: LoadConnection<Backend = DB>,
    DB: BackendOf<Conn>,
{
    now(shards_table::remove_orphans(of, &mut Link::blocking(conn)))
}

/// Locks rows for a repair in the open transaction. Returns the keys of the rows that are locked, and of those that are visible but not
/// locked.
///
/// # Errors
/// [`HiddenShards`](crate::Unfit::HiddenShards), or the database's.
pub fn lock<P, Conn, DB>(of: P, rows: &[P::Key], conn: &mut Conn) -> QueryResult<[Vec<P::Key>; 2]>
where
    P: Parents<DB>,
    Conn: LoadConnection<Backend = DB>,
    DB: BackendOf<Conn>,
{
    now(async {
        let link = &mut Link::blocking(conn);
        let (mut locked, mut not_locked) = (vec![], vec![]);
        for rows in rows.chunks(ROWS_AT_ONCE) {
            let keys = keys_are(&of, rows);
            let rows = LockedRows::lock(of, link, &keys, Strength::Exclusive).await?;
            rows.on(link).refuse_hidden_shards().await?;
            locked.extend_from_slice(&rows.locked);
            not_locked.extend(rows.not_locked);
        }
        Ok([locked, not_locked])
    })
}

/// Adds amounts to the bases of rows that are locked, in key order.
///
/// # Errors
/// [`Unfit`](crate::Error::Unfit) or [`Overflow`](crate::Error::Overflow) if a base does not accept its sum.
pub fn add_to_bases<P, Conn, DB>(
    of: P,
    rows: &[(P::Key, Amount)],
    field: &ShardsColumn,
    conn: &mut Conn,
) -> QueryResult<()>
where
    P: Parents<DB>,
    Conn: LoadConnection<Backend = DB>,
    DB: BackendOf<Conn>,
{
    let (keys, amounts): (_, Vec<_>) = rows.iter().cloned().unzip();
    let locked = LockedRows::locked(of, keys);
    let link = &mut Link::blocking(conn);
    let dialect = link.dialect();
    let added = now(locked.on(link).add_to_bases(field, &amounts));
    added.map_err(|source| match dialect.classify(&source) {
        ErrorClass::Overflow => Error::Overflow { source }.into(),
        _ => source,
    })
}

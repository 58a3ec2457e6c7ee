//! Rows of one field, with an amount for each, on the shards that they are counted on.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::QueryFragment;

use crate::backend::ShardedBackend;
use crate::connection::{Io, Link, LoadIo};
use crate::engine::KeyedTable;
use crate::model::{ShardedColumn, ShardedTable};
use crate::query_builder::{CountEach, CountedRow, CountedShard, CreateShards, KeysAre, PickKeys};

/// Amounts for rows that are counted on the shard of one number, by their keys.
#[doc(hidden)]
#[derive(Debug)]
pub struct OnShard<Key> {
    pub(crate) shard: i32,
    pub(crate) amounts: Vec<(Key, i64)>,
}

impl<Key> OnShard<Key> {
    /// Groups amounts, each with its shard, by their shards, in the order of these.
    pub(crate) fn group(amounts: impl IntoIterator<Item = (i32, (Key, i64))>) -> Vec<Self> {
        let mut on_shards: Vec<Self> = vec![];
        for (shard, amount) in amounts {
            match on_shards.iter_mut().find(|on| on.shard == shard) {
                Some(on) => on.amounts.push(amount),
                None => on_shards.push(OnShard {
                    shard,
                    amounts: vec![amount],
                }),
            }
        }
        on_shards.sort_unstable_by_key(|on| on.shard);
        on_shards
    }
}

/// The statement that adds to one shard of each row.
pub(crate) fn count_each<C, DB>(
    amounts: Vec<OnShard<<C::Table as ShardedTable>::Key>>,
) -> CountEachRow<C, C::Table, DB>
where
    C: ShardedColumn<Table: KeyedTable<DB>>,
    DB: ShardedBackend,
{
    let row = |(key, n)| CountedRow {
        key_values: C::Table::key_values(&key),
        key_is: C::Table::key_is(key),
        n,
    };
    let shards = amounts.into_iter().map(|on| CountedShard {
        shard: on.shard,
        rows: on.amounts.into_iter().map(row).collect(),
    });
    CountEach::new(shards.collect())
}

type CountEachRow<C, T, DB> =
    CountEach<C, <T as KeyedTable<DB>>::KeyIs, <T as ShardedTable>::KeyValues>;

/// Adds to one shard of each row, in one statement. Returns the number of shards that were there.
pub(crate) async fn count_shards<C, DB, M, Conn>(
    link: &mut Link<'_, M, Conn>,
    amounts: Vec<OnShard<<C::Table as ShardedTable>::Key>>,
) -> QueryResult<usize>
where
    C: ShardedColumn<Table: KeyedTable<DB>>,
    <C::Table as ShardedTable>::KeyValues: QueryFragment<DB>,
    DB: ShardedBackend,
    M: Io<Conn, Backend = DB>,
{
    link.execute_kept(count_each::<C, DB>(amounts)).await
}

/// Creates the missing shards of the rows that exist.
pub(crate) async fn create_shards<T, DB, M, Conn>(
    link: &mut Link<'_, M, Conn>,
    keys: Vec<T::Key>,
    shard: i32,
) -> QueryResult<()>
where
    T: KeyedTable<DB>,
    DB: ShardedBackend,
    M: Io<Conn, Backend = DB>,
{
    let create = CreateShards::<T, _> {
        filter: &KeysAre(keys.into_iter().map(T::key_is).collect()),
        shard,
        table: PhantomData,
    };
    link.execute(create).await.map(drop)
}

/// The keys of those rows that exist.
pub(crate) async fn there<T, DB, M, Conn>(
    link: &mut Link<'_, M, Conn>,
    keys: Vec<T::Key>,
) -> QueryResult<Vec<T::Key>>
where
    T: KeyedTable<DB>,
    DB: ShardedBackend,
    M: LoadIo<Conn, Backend = DB>,
{
    let pick = PickKeys::<T, _> {
        filter: &KeysAre(keys.into_iter().map(T::key_is).collect()),
        table: PhantomData,
    };
    T::load_keys(link, pick).await
}

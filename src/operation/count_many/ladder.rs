//! Many rows of one field, each with its own amount, counted on by as few statements as possible.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;

use diesel::query_builder::QueryFragment;
use diesel::result::QueryResult;

use crate::backend::ShardedBackend;
use crate::connection::{Link, LoadIo};
use crate::engine::{KeyedTable, SendStep, Statement};
use crate::model::{ShardedColumn, ShardedTable};
use crate::operation::row_counter::{IntegerField, ready_to_add};
use crate::query_builder::{
    CountEach, CountedRow, CountedShard, CreateShards, KeysAre, Names, PickKeys,
};

/// An amount for the row of a key, and the shard on which it is counted.
#[doc(hidden)]
#[derive(Debug)]
pub struct Addition<Key> {
    pub(crate) key: Key,
    pub(crate) n: i64,
    pub(crate) shard: i32,
}

/// How many keys are counted on. Each rung costs more than the one before, and follows it where that cannot count.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// In one statement; all shards exist.
    Together,
    /// In one statement that creates the missing shards, where a coalescer's batch commits at once; else as
    /// [`Creating`](Rung::Creating).
    #[cfg(feature = "r2d2")]
    Upserting,
    /// In one statement, after another one that creates the missing shards.
    Creating,
    /// Key by key, since some of them are one to the database, or some row cannot take its amount.
    EachAlone,
}

/// What became of many keys in one attempt.
#[doc(hidden)]
#[derive(Debug)]
pub enum Climbed {
    /// All were counted but these, by their numbers in the list: they have no row.
    Counted { missing: Vec<usize> },
    /// The transaction has to be undone, and to begin again on this rung.
    Again(Rung),
}

impl Climbed {
    const ALL: Climbed = Climbed::Counted { missing: vec![] };
}

/// Counts on many rows by one statement, in an open transaction; on every rung but the last one.
pub(crate) async fn count_together<C, DB, M, Conn>(
    link: &mut Link<'_, M, Conn>,
    rung: Rung,
    additions: &[Addition<<C::Table as ShardedTable>::Key>],
) -> QueryResult<Climbed>
where
    C: IntegerField<DB>,
    C::Table: KeyedTable<DB> + ShardedTable<Key: Ord, KeyValues: QueryFragment<DB>>,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    if rung != Rung::Together {
        create_shards::<C::Table, DB, _, _>(link, additions).await?;
    }
    let counted = match additions {
        [one] => {
            let mut add = ready_to_add::<C, DB>(one.key.clone(), one.n);
            add.send_step(link, Statement::CountByKey, one.shard)
                .await?
        }
        _ => {
            link.execute_prepared(count_each::<C, DB>(additions))
                .await?
        }
    };
    if counted == additions.len() {
        return Ok(Climbed::ALL);
    }
    if rung == Rung::Together {
        return Ok(Climbed::Again(Rung::Creating));
    }
    let found = rows_of::<C::Table, DB, _, _>(link, additions.iter()).await?;
    let is_missing = |number: &usize| !found.contains(&additions[*number].key);
    let missing: Vec<usize> = (0..additions.len()).filter(is_missing).collect();
    if !found.is_empty() && !missing.is_empty() {
        // One that is there now is another name of a row that was found, or was inserted meanwhile.
        let missing = missing.iter().map(|number| &additions[*number]);
        if !rows_of::<C::Table, DB, _, _>(link, missing)
            .await?
            .is_empty()
        {
            return Ok(Climbed::Again(Rung::EachAlone));
        }
    }
    Ok(match counted + missing.len() == additions.len() {
        true => Climbed::Counted { missing },
        false => Climbed::Again(Rung::EachAlone),
    })
}

/// The statement that adds to one shard of each row.
pub(crate) fn count_each<C, DB>(
    additions: &[Addition<<C::Table as ShardedTable>::Key>],
) -> CountEachRow<C, C::Table, DB>
where
    C: ShardedColumn<Table: KeyedTable<DB>>,
    DB: ShardedBackend,
{
    let row = |Addition { key, n, .. }: &Addition<<C::Table as ShardedTable>::Key>| CountedRow {
        key_values: C::Table::key_values(key),
        key_is: C::Table::key_is(key.clone()),
        n: *n,
    };
    let shards = by_shard(additions).into_iter();
    let shards = shards.map(|(shard, additions)| CountedShard {
        shard,
        rows: additions.into_iter().map(row).collect(),
    });
    CountEach::new(shards.collect())
}

type CountEachRow<C, T, DB> =
    CountEach<C, <T as KeyedTable<DB>>::KeyIs, <T as ShardedTable>::KeyValues>;

fn by_shard<Key>(additions: &[Addition<Key>]) -> BTreeMap<i32, Vec<&Addition<Key>>> {
    let mut shards = BTreeMap::<_, Vec<_>>::new();
    for addition in additions {
        shards.entry(addition.shard).or_default().push(addition);
    }
    shards
}

/// Creates the missing shards of the rows that exist.
async fn create_shards<T, DB, M, Conn>(
    link: &mut Link<'_, M, Conn>,
    additions: &[Addition<T::Key>],
) -> QueryResult<()>
where
    T: KeyedTable<DB>,
    DB: ShardedBackend,
    M: LoadIo<Conn, Backend = DB>,
{
    for (shard, additions) in by_shard(additions) {
        let create = CreateShards {
            names: Names::of::<T>(),
            filter: &keys_are::<T, DB>(additions),
            shard,
        };
        link.execute(create).await?;
    }
    Ok(())
}

/// The keys of those rows that exist.
async fn rows_of<'k, T, DB, M, Conn>(
    link: &mut Link<'_, M, Conn>,
    additions: impl IntoIterator<Item = &'k Addition<T::Key>>,
) -> QueryResult<BTreeSet<T::Key>>
where
    T: KeyedTable<DB, Key: Ord + 'k>,
    DB: ShardedBackend,
    M: LoadIo<Conn, Backend = DB>,
{
    let pick = PickKeys::<T, _> {
        filter: &keys_are::<T, DB>(additions),
        table: PhantomData,
    };
    let keys = T::load_keys(link, pick).await?;
    Ok(keys.into_iter().collect())
}

fn keys_are<'k, T, DB>(
    additions: impl IntoIterator<Item = &'k Addition<T::Key>>,
) -> KeysAre<T::KeyIs>
where
    T: KeyedTable<DB, Key: 'k>,
    DB: ShardedBackend,
{
    let keys = additions.into_iter().map(|addition| &addition.key);
    KeysAre(keys.cloned().map(T::key_is).collect())
}

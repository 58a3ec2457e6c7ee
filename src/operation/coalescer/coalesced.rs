//! The counters that a coalescer can add to.

use std::fmt::Debug;
use std::hash::Hash;
use std::marker::PhantomData;

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::query_builder::QueryFragment;

use crate::backend::{AtOnce, BackendOf};
use crate::connection::{Blocking, Io, Link, now};
use crate::engine::{KeyedTable, Statement, explain};
use crate::error::Error;
use crate::model::{ShardedColumn, ShardedTable};
use crate::operation::cached::CachedCounter;
pub use crate::operation::count_many::OnShard;
use crate::operation::count_many::{count_each, count_shards, create_shards, there};
use crate::operation::idempotency::{Idempotent, Request};
use crate::operation::named::{Counter, CounterBackend, counters};
use crate::operation::row_counter::{AddTo, IntegerField, RowCounter, ready_to_add};
use crate::operation::update::Changes;
use crate::query_builder::KeyIs;
use crate::shard_counts;

use super::at_once::CommitAtOnce;
use super::token::BatchMark;

/// A counter that a [`Coalescer`](super::Coalescer) adds to: a [`RowCounter`] or a named [`Counter`], each also with an
/// idempotency key.
#[diagnostic::on_unimplemented(
    message = "a coalescer over connections of type `{Conn}` cannot add to a `{Self}`",
    note = "it adds to a `RowCounter` of a field of integers that fit into an `i64`, whose key is \
            `Eq + Hash + Ord + Debug + Send`, and to a named `Counter`"
)]
pub trait Coalesced<Conn> {
    #[doc(hidden)]
    type Field: Field<Conn>;

    #[doc(hidden)]
    fn field(&self) -> Self::Field;

    /// # Errors
    /// If the counter's name or key is invalid.
    #[doc(hidden)]
    fn key(&self) -> Result<&KeyOf<Self::Field, Conn>, Error>;

    /// The idempotency key of adding `n`, if there is one.
    #[doc(hidden)]
    fn request(&self, n: i64) -> Result<Option<Request>, Error> {
        let _ = n;
        Ok(None)
    }

    /// The number of rows that adding `n` counts, where that is known without a look at the database, and nothing is to be counted.
    #[doc(hidden)]
    fn counted_unsent(&self, n: i64) -> Result<Option<usize>, Error> {
        let _ = n;
        Ok(None)
    }
}

#[diagnostic::do_not_recommend]
impl<K, Conn> Coalesced<Conn> for Idempotent<K>
where
    K: Coalesced<Conn> + CachedCounter<Conn>,
{
    type Field = K::Field;

    fn field(&self) -> K::Field {
        self.of.field()
    }

    fn key(&self) -> Result<&KeyOf<K::Field, Conn>, Error> {
        self.of.key()
    }

    fn request(&self, n: i64) -> Result<Option<Request>, Error> {
        Idempotent::request::<Conn>(self, n).map(Some)
    }
}

impl OnShard<String> {
    fn into_bytes(self) -> OnShard<Vec<u8>> {
        let amounts = self.amounts.into_iter();
        OnShard {
            shard: self.shard,
            amounts: amounts.map(|(name, n)| (name.into_bytes(), n)).collect(),
        }
    }
}

type KeyOf<F, Conn> = <F as Field<Conn>>::Key;

/// A field of some table, whose rows are counted on by their keys.
pub trait Field<Conn>: Send + 'static {
    type Key: Clone + Debug + Eq + Hash + Ord + Send + 'static;

    fn name(&self) -> String;

    /// The number of shards that writers choose from.
    fn shards(&self) -> u16;

    /// Adds to one shard of one row. Returns the number of shards that were there.
    fn count_shard(
        &self,
        conn: &mut Conn,
        key: Self::Key,
        n: i64,
        shard: i32,
    ) -> QueryResult<usize>;

    /// Adds to one shard of each row, in one statement. Returns the number of shards that were there.
    fn count_shards(&self, conn: &mut Conn, amounts: Vec<OnShard<Self::Key>>)
    -> QueryResult<usize>;

    /// The same together with the mark, as a commit of its own, where shards may be missing if it `upserts`. Returns whether it was
    /// committed.
    fn commit_at_once(
        &self,
        conn: &mut Conn,
        amounts: Vec<OnShard<Self::Key>>,
        upserts: bool,
        at_once: (AtOnce, BatchMark),
    ) -> QueryResult<bool>;

    /// Creates the missing shards of the rows that exist.
    fn create_shards(&self, conn: &mut Conn, keys: Vec<Self::Key>, shard: i32) -> QueryResult<()>;

    /// Those of the rows that exist.
    fn there(&self, conn: &mut Conn, keys: Vec<Self::Key>) -> QueryResult<Vec<Self::Key>>;

    /// Counts on one row as a counting update does. Returns the number of rows counted.
    fn count(&self, conn: &mut Conn, key: &Self::Key, n: i64) -> QueryResult<usize>;
}

/// A sharded field of the application's.
#[doc(hidden)]
#[derive(Debug)]
pub struct RowField<C>(PhantomData<fn() -> C>);

#[diagnostic::do_not_recommend]
impl<C, Conn> Coalesced<Conn> for RowCounter<C>
where
    C: ShardedColumn,
    RowField<C>: Field<Conn, Key = <C::Table as ShardedTable>::Key>,
{
    type Field = RowField<C>;

    fn field(&self) -> RowField<C> {
        RowField(PhantomData)
    }

    fn key(&self) -> Result<&<C::Table as ShardedTable>::Key, Error> {
        Ok(&self.key)
    }
}

#[diagnostic::do_not_recommend]
impl<C, T, Conn, DB> Field<Conn> for RowField<C>
where
    C: IntegerField<DB> + ShardedColumn<Table = T>,
    T: KeyedTable<DB> + ShardedTable<KeyValues: QueryFragment<DB>>,
    T::Key: Debug + Eq + Hash + Ord + Send + 'static,
    Conn: LoadConnection<Backend = DB>,
    DB: BackendOf<Conn>,
{
    type Key = T::Key;

    fn name(&self) -> String {
        format!("{}.{}", T::SHARDS_TABLE, C::NAME)
    }

    fn shards(&self) -> u16 {
        shard_counts::known::<T>(std::iter::once(C::NAME))
    }

    fn count_shard(&self, conn: &mut Conn, key: T::Key, n: i64, shard: i32) -> QueryResult<usize> {
        let changes = Changes::<T, AddTo<C>>::new(AddTo::new(n));
        let (count, key) = (Statement::CountByKey, KeyIs(T::key_is(key)));
        let counted = now(changes.send(&mut Link::blocking(conn), count, &key, shard));
        counted.map_err(|error| explain::<T, DB>(&DB::backend_of(conn), error))
    }

    fn count_shards(&self, conn: &mut Conn, amounts: Vec<OnShard<T::Key>>) -> QueryResult<usize> {
        let counted = now(count_shards::<C, DB, _, _>(
            &mut Link::blocking(conn),
            amounts,
        ));
        counted.map_err(|error| explain::<T, DB>(&DB::backend_of(conn), error))
    }

    fn commit_at_once(
        &self,
        conn: &mut Conn,
        amounts: Vec<OnShard<T::Key>>,
        upserts: bool,
        (form, mark): (AtOnce, BatchMark),
    ) -> QueryResult<bool> {
        let count = count_each::<C, DB>(amounts);
        let committed = now(Blocking::execute_kept(
            conn,
            CommitAtOnce::new(form, mark, count, upserts),
        ));
        Ok(committed.map_err(|error| explain::<T, DB>(&DB::backend_of(conn), error))? > 0)
    }

    fn create_shards(&self, conn: &mut Conn, keys: Vec<T::Key>, shard: i32) -> QueryResult<()> {
        let created = now(create_shards::<T, DB, _, _>(
            &mut Link::blocking(conn),
            keys,
            shard,
        ));
        created.map_err(|error| explain::<T, DB>(&DB::backend_of(conn), error))
    }

    fn there(&self, conn: &mut Conn, keys: Vec<T::Key>) -> QueryResult<Vec<T::Key>> {
        let keys = now(there::<T, DB, _, _>(&mut Link::blocking(conn), keys));
        keys.map_err(|error| explain::<T, DB>(&DB::backend_of(conn), error))
    }

    fn count(&self, conn: &mut Conn, key: &T::Key, n: i64) -> QueryResult<usize> {
        let mut add = ready_to_add::<C, DB>(key.clone(), n);
        now(add.count(&mut Link::blocking(conn)))
    }
}

/// The field of the named counters. Missing counters are created.
#[doc(hidden)]
#[derive(Debug)]
pub struct NamedField(RowField<counters::value>);

#[diagnostic::do_not_recommend]
impl<Conn> Coalesced<Conn> for Counter
where
    NamedField: Field<Conn, Key = String>,
{
    type Field = NamedField;

    fn field(&self) -> NamedField {
        NamedField(RowField(PhantomData))
    }

    fn key(&self) -> Result<&String, Error> {
        self.check()?;
        Ok(&self.name)
    }

    fn counted_unsent(&self, n: i64) -> Result<Option<usize>, Error> {
        self.check()?;
        Ok((n == 0).then_some(1))
    }
}

#[diagnostic::do_not_recommend]
impl<Conn> Field<Conn> for NamedField
where
    Conn: LoadConnection,
    Conn::Backend: CounterBackend<Conn>,
    RowField<counters::value>: Field<Conn, Key = Vec<u8>>,
{
    type Key = String;

    fn name(&self) -> String {
        "the named counter".into()
    }

    fn shards(&self) -> u16 {
        Field::<Conn>::shards(&self.0)
    }

    fn count_shard(&self, conn: &mut Conn, key: String, n: i64, shard: i32) -> QueryResult<usize> {
        self.0.count_shard(conn, key.into_bytes(), n, shard)
    }

    fn count_shards(&self, conn: &mut Conn, amounts: Vec<OnShard<String>>) -> QueryResult<usize> {
        let amounts = amounts.into_iter().map(OnShard::into_bytes);
        self.0.count_shards(conn, amounts.collect())
    }

    fn commit_at_once(
        &self,
        conn: &mut Conn,
        amounts: Vec<OnShard<String>>,
        upserts: bool,
        at_once: (AtOnce, BatchMark),
    ) -> QueryResult<bool> {
        let amounts = amounts.into_iter().map(OnShard::into_bytes);
        self.0
            .commit_at_once(conn, amounts.collect(), upserts, at_once)
    }

    fn create_shards(&self, conn: &mut Conn, keys: Vec<String>, shard: i32) -> QueryResult<()> {
        let keys = keys.into_iter().map(String::into_bytes);
        self.0.create_shards(conn, keys.collect(), shard)
    }

    fn there(&self, conn: &mut Conn, keys: Vec<String>) -> QueryResult<Vec<String>> {
        let keys = keys.into_iter().map(String::into_bytes);
        let there = self.0.there(conn, keys.collect())?;
        Ok(there
            .into_iter()
            .filter_map(|name| String::from_utf8(name).ok())
            .collect())
    }

    fn count(&self, conn: &mut Conn, key: &String, n: i64) -> QueryResult<usize> {
        Counter::named(key).add(n, conn).map(|()| 1)
    }
}

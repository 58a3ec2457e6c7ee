//! The counters that a coalescer can add to.

use std::fmt::Debug;
use std::hash::Hash;
use std::marker::PhantomData;

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::query_builder::QueryFragment;

use crate::backend::{AtOnce, BackendOf};
use crate::connection::{Blocking, Io, Link, now};
use crate::engine::{KeyedTable, explain};
use crate::error::Error;
use crate::model::{ShardedColumn, ShardedTable};
use crate::operation::cached::CachedCounter;
pub use crate::operation::count_many::{Addition, Climbed, Rung};
use crate::operation::count_many::{count_each, count_together};
use crate::operation::idempotency::{Idempotent, Request};
use crate::operation::named::{Counter, CounterBackend, counters};
use crate::operation::row_counter::{IntegerField, RowCounter, ready_to_add};
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

impl Addition<String> {
    fn into_bytes(self) -> Addition<Vec<u8>> {
        Addition {
            key: self.key.into_bytes(),
            n: self.n,
            shard: self.shard,
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

    /// Adds to one shard of each row, in one statement, on every rung but the last one.
    fn count_together(
        &self,
        conn: &mut Conn,
        rung: Rung,
        additions: Vec<Addition<Self::Key>>,
    ) -> QueryResult<Climbed>;

    /// The same together with the mark, as a commit of its own, where shards may be missing if it `upserts`. Returns whether it was
    /// committed.
    fn commit_at_once(
        &self,
        conn: &mut Conn,
        additions: Vec<Addition<Self::Key>>,
        upserts: bool,
        at_once: (AtOnce, BatchMark),
    ) -> QueryResult<bool>;

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

    fn count_together(
        &self,
        conn: &mut Conn,
        rung: Rung,
        additions: Vec<Addition<T::Key>>,
    ) -> QueryResult<Climbed> {
        let climbed = now(count_together::<C, DB, _, _>(
            &mut Link::blocking(conn),
            rung,
            &additions,
        ));
        climbed.map_err(|error| explain::<T, DB>(&DB::backend_of(conn), error))
    }

    fn commit_at_once(
        &self,
        conn: &mut Conn,
        additions: Vec<Addition<T::Key>>,
        upserts: bool,
        (form, mark): (AtOnce, BatchMark),
    ) -> QueryResult<bool> {
        let count = count_each::<C, DB>(&additions);
        let committed = now(Blocking::execute_prepared(
            conn,
            CommitAtOnce::new(form, mark, count, upserts),
        ));
        Ok(committed.map_err(|error| explain::<T, DB>(&DB::backend_of(conn), error))? > 0)
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

    fn count_together(
        &self,
        conn: &mut Conn,
        rung: Rung,
        additions: Vec<Addition<String>>,
    ) -> QueryResult<Climbed> {
        let additions = additions.into_iter().map(Addition::into_bytes);
        self.0.count_together(conn, rung, additions.collect())
    }

    fn commit_at_once(
        &self,
        conn: &mut Conn,
        additions: Vec<Addition<String>>,
        upserts: bool,
        at_once: (AtOnce, BatchMark),
    ) -> QueryResult<bool> {
        let additions = additions.into_iter().map(Addition::into_bytes);
        self.0
            .commit_at_once(conn, additions.collect(), upserts, at_once)
    }

    fn count(&self, conn: &mut Conn, key: &String, n: i64) -> QueryResult<usize> {
        Counter::<Blocking>::named(key).add(n, conn).map(|()| 1)
    }
}

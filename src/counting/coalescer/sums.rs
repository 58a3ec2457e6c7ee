//! The counters that a coalescer adds to and the values that it keeps, until they are written.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::query_builder::{QueryFragment, QueryId};

use crate::backend::BackendOf;
use crate::connection::{Link, now};
use crate::counting::count_many::CountMany;
use crate::counting::counter::{Counter, CounterBackend, InsertCounter, check};
use crate::counting::row_counter::{IntegerField, IntoKey, RowCounter};
use crate::counting::update::{Count, NO_INSERT};
use crate::engine::{self, KeyedTable};
use crate::error::Error;
use crate::model::{Merge, PeakType, PeakValue, ShardedColumn, ShardedTable, TotalColumn, shows};
use crate::query_builder::{KeyIs, NewPeak, PlainValue};

use super::buffer::Loss;

/// A counter that a [`Coalescer`](super::Coalescer) adds to: a [`RowCounter`] or a named [`Counter`].
#[diagnostic::on_unimplemented(
    message = "a coalescer over connections of type `{Conn}` cannot add to a `{Self}`",
    note = "it adds to a `RowCounter` of a field of integers that fit into an `i64`, whose key is `Ord + Debug + Send`, and to a named \
            `Counter`"
)]
pub trait Coalesced<Conn>: 'static {
    #[doc(hidden)]
    type Key: Clone + Debug + Ord + Send + 'static;

    /// The value that is written: a sum, or a greatest or least value.
    #[doc(hidden)]
    type Sum: Debug + Send + 'static;

    /// # Errors
    /// If the counter's name is invalid.
    #[doc(hidden)]
    fn key(&self) -> Result<&Self::Key, Error>;

    /// The counter as a text for people, and the amount that it loses with this sum.
    #[doc(hidden)]
    fn loss(key: &Self::Key, sum: &Self::Sum) -> (String, i128);

    #[doc(hidden)]
    fn add_to(sum: &mut Self::Sum, later: Self::Sum);

    /// Writes each sum to its row.
    #[doc(hidden)]
    fn count(sums: &BTreeMap<Self::Key, Self::Sum>, conn: &mut Conn) -> QueryResult<()>;
}

#[diagnostic::do_not_recommend]
impl<C, T, Conn, DB> Coalesced<Conn> for RowCounter<C>
where
    C: IntegerField<DB> + ShardedColumn<Table = T>,
    T: KeyedTable<DB> + ShardedTable<KeyValues: QueryFragment<DB>>,
    T::Key: Debug + Ord + Send + 'static,
    Conn: LoadConnection<Backend = DB>,
    DB: BackendOf<Conn>,
{
    type Key = T::Key;
    type Sum = i128;

    fn key(&self) -> Result<&T::Key, Error> {
        Ok(&self.key)
    }

    fn loss(key: &T::Key, sum: &i128) -> (String, i128) {
        let counter = format!("{}.{} of {key:?}", T::SHARDS_TABLE, C::NAME);
        (counter, *sum)
    }

    fn add_to(sum: &mut i128, n: i128) {
        *sum += n;
    }

    fn count(sums: &BTreeMap<T::Key, i128>, conn: &mut Conn) -> QueryResult<()> {
        let sums = sums.iter().map(|(key, n)| (key.clone(), vec![*n]));
        let many = CountMany::<C>::of_sums(sums.collect());
        let link = &mut Link::blocking(conn).in_own_transaction();
        now(many.count(link)).map(drop)
    }
}

/// Missing counters are created.
#[diagnostic::do_not_recommend]
impl<Conn, DB> Coalesced<Conn> for Counter
where
    Conn: LoadConnection<Backend = DB>,
    DB: CounterBackend<Conn>,
    <DB::Value as Column>::Table: ShardedTable<KeyValues: QueryFragment<DB>>,
{
    type Key = String;
    type Sum = i128;

    fn key(&self) -> Result<&String, Error> {
        check(&self.name)?;
        Ok(&self.name)
    }

    fn loss(name: &String, sum: &i128) -> (String, i128) {
        (format!("the named counter of {name:?}"), *sum)
    }

    fn add_to(sum: &mut i128, n: i128) {
        *sum += n;
    }

    fn count(sums: &BTreeMap<String, i128>, conn: &mut Conn) -> QueryResult<()> {
        let sums = sums
            .iter()
            .map(|(name, n)| (name.clone().into_bytes(), vec![*n]));
        let many = CountMany::<DB::Value>::of_sums(sums.collect())
            .inserting(|name: &Vec<u8>| InsertCounter::named(name));
        let link = &mut Link::blocking(conn).in_own_transaction();
        now(many.count(link)).map(drop)
    }
}

/// A `#[sharded(max)]` or `#[sharded(min)]` field of one row, which a coalescer raises or lowers to values of type `V`.
pub struct Peak<C: Column<Table: ShardedTable>, V> {
    key: <C::Table as ShardedTable>::Key,
    types: PhantomData<fn() -> (C, V)>,
}

impl<C: TotalColumn, V> Peak<C, V> {
    pub(super) fn of(key: impl IntoKey<<C::Table as ShardedTable>::Key>) -> Self {
        Peak {
            key: key.into_key(),
            types: PhantomData,
        }
    }
}

shows!([C: Column<Table: ShardedTable<Key: Debug>>, V] Peak<C, V>: |self| Peak { column: C::NAME, key: self.key } finish);

#[diagnostic::do_not_recommend]
impl<C, V, T, Conn, DB> Coalesced<Conn> for Peak<C, V>
where
    C: TotalColumn<SqlType: PeakType, Table = T> + QueryId,
    V: PlainValue<PeakValue<C>, Expression: QueryFragment<DB> + QueryId>,
    V: Clone + Debug + Ord + Send + 'static,
    T: KeyedTable<DB> + ShardedTable<Key: Debug + Ord>,
    Conn: LoadConnection<Backend = DB>,
    DB: BackendOf<Conn>,
{
    type Key = T::Key;
    type Sum = V;

    fn key(&self) -> Result<&T::Key, Error> {
        Ok(&self.key)
    }

    fn loss(key: &T::Key, value: &V) -> (String, i128) {
        let counter = format!("{}.{} of {key:?}: {value:?}", T::SHARDS_TABLE, C::NAME);
        (counter, 0)
    }

    fn add_to(kept: &mut V, later: V) {
        let is_beyond = match C::FIELD.merge {
            Merge::Min => later < *kept,
            Merge::Max | Merge::Sum => later > *kept,
        };
        if is_beyond {
            *kept = later;
        }
    }

    fn count(values: &BTreeMap<T::Key, V>, conn: &mut Conn) -> QueryResult<()> {
        let link = &mut Link::blocking(conn).in_own_transaction();
        for (key, value) in values {
            let change = NewPeak::<C, _>::new(value.clone().as_expression());
            let key = KeyIs(T::key_is(key.clone()));
            let (names, dialect) = (const { &[C::NAME] }, link.dialect());
            let mut raise = Count::by_key::<DB>(key, change, names, |_| false, NO_INSERT, dialect);
            let (facts, retry) = (raise.facts, raise.retry.clone());
            now(engine::count(link, facts, retry, &mut raise))?;
        }
        Ok(())
    }
}

/// The additions, by field and key.
pub(super) struct Fields<Conn>(HashMap<TypeId, Box<dyn AnySums<Conn>>>);

impl<Conn> Default for Fields<Conn> {
    fn default() -> Self {
        Fields(HashMap::new())
    }
}

impl<Conn: 'static> Fields<Conn> {
    pub(super) fn add<K: Coalesced<Conn>>(&mut self, key: &K::Key, n: K::Sum) {
        let sums = self.0.entry(TypeId::of::<K>());
        let sums = sums.or_insert_with(|| Box::new(Sums::<K, Conn>(BTreeMap::new())));
        let sums: &mut dyn Any = &mut **sums;
        let Some(Sums::<K, Conn>(sums)) = sums.downcast_mut() else {
            return; // a field's sums are under its own type
        };
        match sums.get_mut(key) {
            Some(sum) => K::add_to(sum, n),
            None => drop(sums.insert(key.clone(), n)),
        }
    }

    pub(super) fn absorb(&mut self, others: Self) {
        for sums in others.0.into_values() {
            sums.move_to(self);
        }
    }

    /// The number of counters that were added to.
    pub(super) fn len(&self) -> usize {
        self.0.values().map(|sums| sums.len()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sums of each field, with the type that stands for the field.
    pub(super) fn into_sums(self) -> impl Iterator<Item = (TypeId, Box<dyn AnySums<Conn>>)> {
        self.0.into_iter()
    }
}

struct Sums<K: Coalesced<Conn>, Conn>(BTreeMap<K::Key, K::Sum>);

/// The sums of one field, by key.
pub(super) trait AnySums<Conn>: Any + Send {
    fn move_to(self: Box<Self>, fields: &mut Fields<Conn>);

    fn len(&self) -> usize;

    /// Splits off all sums after the first `at`, if there are any.
    fn split_off(&mut self, at: usize) -> Option<Box<dyn AnySums<Conn>>>;

    /// Adds each sum to its row, in an open transaction.
    fn count(&self, conn: &mut Conn) -> QueryResult<()>;

    /// All of the sums, as losses by this error.
    fn lost(&self, error: &Arc<Error>) -> Vec<Loss>;
}

impl<K: Coalesced<Conn>, Conn: 'static> AnySums<Conn> for Sums<K, Conn> {
    fn move_to(self: Box<Self>, fields: &mut Fields<Conn>) {
        for (key, n) in self.0 {
            fields.add::<K>(&key, n);
        }
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn split_off(&mut self, at: usize) -> Option<Box<dyn AnySums<Conn>>> {
        let first = self.0.keys().nth(at)?.clone();
        Some(Box::new(Sums::<K, Conn>(self.0.split_off(&first))))
    }

    fn count(&self, conn: &mut Conn) -> QueryResult<()> {
        K::count(&self.0, conn)
    }

    fn lost(&self, error: &Arc<Error>) -> Vec<Loss> {
        let lost = self.0.iter().map(|(key, sum)| {
            let (counter, amount) = K::loss(key, sum);
            Loss {
                counter,
                amount,
                error: Arc::clone(error),
            }
        });
        lost.collect()
    }
}

//! The counters that a coalescer adds to, and their sums.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::Arc;

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::query_builder::QueryFragment;

use crate::backend::BackendOf;
use crate::connection::{Link, now};
use crate::engine::KeyedTable;
use crate::error::Error;
use crate::model::{ShardedColumn, ShardedTable};
use crate::operation::count_many::CountMany;
use crate::operation::named::{Counter, CounterBackend, InsertCounter, check};
use crate::operation::row_counter::{IntegerField, RowCounter};

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

    /// # Errors
    /// If the counter's name is invalid.
    #[doc(hidden)]
    fn key(&self) -> Result<&Self::Key, Error>;

    /// The field, for people.
    #[doc(hidden)]
    fn name() -> String;

    /// Adds each sum to its row.
    #[doc(hidden)]
    fn count(sums: &BTreeMap<Self::Key, i128>, conn: &mut Conn) -> QueryResult<()>;
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

    fn key(&self) -> Result<&T::Key, Error> {
        Ok(&self.key)
    }

    fn name() -> String {
        format!("{}.{}", T::SHARDS_TABLE, C::NAME)
    }

    fn count(sums: &BTreeMap<T::Key, i128>, conn: &mut Conn) -> QueryResult<()> {
        let sums = sums.iter().map(|(key, n)| (key.clone(), vec![*n]));
        let many = CountMany::<C>::of_sums(sums.collect());
        now(many.alone().count(&mut Link::blocking(conn))).map(drop)
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

    fn key(&self) -> Result<&String, Error> {
        check(&self.name)?;
        Ok(&self.name)
    }

    fn name() -> String {
        "the named counter".into()
    }

    fn count(sums: &BTreeMap<String, i128>, conn: &mut Conn) -> QueryResult<()> {
        let sums = sums
            .iter()
            .map(|(name, n)| (name.clone().into_bytes(), vec![*n]));
        let many = CountMany::<DB::Value>::of_sums(sums.collect())
            .inserting(|name: &Vec<u8>| InsertCounter::named(name));
        now(many.alone().count(&mut Link::blocking(conn))).map(drop)
    }
}

/// What was added, by field and key.
pub(super) struct Fields<Conn>(HashMap<TypeId, Box<dyn AnySums<Conn>>>);

impl<Conn> Default for Fields<Conn> {
    fn default() -> Self {
        Fields(HashMap::new())
    }
}

impl<Conn: 'static> Fields<Conn> {
    pub(super) fn add<K: Coalesced<Conn>>(&mut self, key: &K::Key, n: i128) {
        let sums = self.0.entry(TypeId::of::<K>());
        let sums = sums.or_insert_with(|| Box::new(Sums::<K, Conn>(BTreeMap::new())));
        let sums: &mut dyn Any = &mut **sums;
        let Some(Sums::<K, Conn>(sums)) = sums.downcast_mut() else {
            return; // a field's sums stand under its own type
        };
        match sums.get_mut(key) {
            Some(sum) => *sum += n,
            None => drop(sums.insert(key.clone(), n)),
        }
    }

    pub(super) fn absorb(&mut self, others: Self) {
        for sums in others.0.into_values() {
            sums.move_to(self);
        }
    }

    /// How many counters were added to.
    pub(super) fn len(&self) -> usize {
        self.0.values().map(|sums| sums.len()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each field's, with what stands for the field.
    pub(super) fn into_sums(self) -> impl Iterator<Item = (TypeId, Box<dyn AnySums<Conn>>)> {
        self.0.into_iter()
    }
}

struct Sums<K: Coalesced<Conn>, Conn>(BTreeMap<K::Key, i128>);

/// The sums of one field, by key.
pub(super) trait AnySums<Conn>: Any + Send {
    fn move_to(self: Box<Self>, fields: &mut Fields<Conn>);

    fn len(&self) -> usize;

    /// Takes away all behind the first `at`, if there are some.
    fn split_off(&mut self, at: usize) -> Option<Box<dyn AnySums<Conn>>>;

    /// Adds each sum to its row, in an open transaction.
    fn count(&self, conn: &mut Conn) -> QueryResult<()>;

    /// All of them, lost by this error.
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
        let lost = self.0.iter().map(|(key, n)| Loss {
            counter: format!("{} of {key:?}", K::name()),
            amount: *n,
            error: Arc::clone(error),
        });
        lost.collect()
    }
}

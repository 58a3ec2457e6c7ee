//! Shards tables and counter caches.

use std::ops::Deref;

use diesel::expression::{AppearsOnTable, Expression, NonAggregate};
use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use diesel::sql_types::BoolOrNullableBool;
use diesel_async::AsyncConnection;
use diesel_sharded::__bounds::{AllWithTotals, KeyedTable};
use diesel_sharded::asynchronous;
use diesel_sharded::backend::BackendOf;
use diesel_sharded::counter_cache::{
    CacheRecount, ChildTable, EveryRow, NotCounting, RefersTo, SummedInto,
};
use diesel_sharded::model::{ShardedColumn, ShardedTable};

use super::operations::Verify;
use super::wait;

#[derive(Debug)]
pub struct ShardsTable<T: ShardedTable>(asynchronous::ShardsTable<T>);

impl<T: ShardedTable> ShardsTable<T> {
    pub fn of(table: T) -> Self {
        ShardsTable(asynchronous::ShardsTable::of(table))
    }

    pub fn without_foreign_key(self) -> Self {
        ShardsTable(self.0.without_foreign_key())
    }

    pub fn without_triggers(self) -> Self {
        ShardsTable(self.0.without_triggers())
    }

    pub fn view(&self, name: &str) -> TotalsView<T> {
        TotalsView(self.0.view(name))
    }

    waits! {
        { T: QueryFragment<DB> }
        create(self: &Self) -> ();
        drop(self: &Self) -> ();
    }

    waits! {
        { T: KeyedTable<DB> }
        remove_orphans(self: &Self) -> usize;
    }
}

impl<T: ShardedTable> Clone for ShardsTable<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ShardedTable> Copy for ShardsTable<T> {}

/// The texts and the migration.
impl<T: ShardedTable> Deref for ShardsTable<T> {
    type Target = asynchronous::ShardsTable<T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

#[derive(Clone)]
pub struct TotalsView<T>(asynchronous::operation::TotalsView<T>);

impl<T> TotalsView<T>
where
    T: ShardedTable + Table<AllColumns: AllWithTotals>,
{
    waits! {
        { T: QueryFragment<DB> }
        create(self: &Self) -> ();
        drop(self: &Self) -> ();
    }
}

/// The texts and the migration.
impl<T> Deref for TotalsView<T> {
    type Target = asynchronous::operation::TotalsView<T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

#[derive(Clone, Copy)]
pub struct CounterCache<C, Child = NotCounting, W = EveryRow>(
    asynchronous::CounterCache<C, Child, W>,
);

impl<C: ShardedColumn> CounterCache<C> {
    pub fn of(column: C) -> Self {
        CounterCache(asynchronous::CounterCache::of(column))
    }

    pub fn counts<By, Kind>(self, by: By) -> CounterCache<C, By::Child>
    where
        By: RefersTo<C::Table, Kind>,
    {
        CounterCache(self.0.counts(by))
    }
}

impl<C: ShardedColumn, Child: Table> CounterCache<C, Child> {
    pub fn filter<W>(self, condition: W) -> CounterCache<C, Child, W>
    where
        W: Expression<SqlType: BoolOrNullableBool> + AppearsOnTable<Child> + NonAggregate,
    {
        CounterCache(self.0.filter(condition))
    }
}

impl<C: ShardedColumn, Child, W> CounterCache<C, Child, W> {
    pub fn sums<A>(self, amount: A) -> Self
    where
        A: Column<Table = Child, SqlType: SummedInto<C::SqlType>>,
    {
        CounterCache(self.0.sums(amount))
    }

    builds! { CounterCache:
        shards(number: u16);
    }

    waits! {
        { C::Table: QueryFragment<DB>, Child: ChildTable<DB>, W: QueryFragment<DB> + Sync }
        create(self: &Self) -> ();
        drop(self: &Self) -> ();
    }

    pub fn verify(&self) -> Verify<C::Table, C, CacheRecount<C, Child, W>>
    where
        W: Clone,
    {
        Verify(self.0.verify())
    }
}

/// The texts and the migration.
impl<C, Child, W> Deref for CounterCache<C, Child, W> {
    type Target = asynchronous::CounterCache<C, Child, W>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

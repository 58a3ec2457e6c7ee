//! Counter caches.

use diesel::expression::{AppearsOnTable, Expression, NonAggregate};
use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use diesel::sql_types::BoolOrNullableBool;
use diesel_async::AsyncConnection;
use diesel_sharded::backend::{BackendOf, ShardedBackend};
use diesel_sharded::counter_cache::{
    CacheRecount, ChildTable, EveryRow, NotCounting, RefersTo, SummedInto,
};
use diesel_sharded::model::ShardedColumn;
use diesel_sharded::operation::SqlMigration;

use super::operations::Verify;
use super::wait;

#[derive(Clone, Copy)]
pub struct CounterCache<C, Child = NotCounting, W = EveryRow>(
    diesel_sharded::CounterCache<C, Child, W>,
);

impl<C: ShardedColumn> CounterCache<C> {
    pub fn of(column: C) -> Self {
        CounterCache(diesel_sharded::CounterCache::of(column))
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

    pub fn shards(self, number: u16) -> Self {
        CounterCache(self.0.shards(number))
    }

    pub fn create<Conn, DB>(&self, conn: &mut Conn) -> QueryResult<()>
    where
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
        C::Table: QueryFragment<DB>,
        Child: ChildTable<DB>,
        W: QueryFragment<DB>,
    {
        wait(self.0.create_async(conn))
    }

    pub fn drop<Conn, DB>(&self, conn: &mut Conn) -> QueryResult<()>
    where
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
        C::Table: QueryFragment<DB>,
        Child: ChildTable<DB>,
        W: QueryFragment<DB>,
    {
        wait(self.0.drop_async(conn))
    }

    pub fn create_sql<DB>(&self, backend: &DB) -> QueryResult<String>
    where
        DB: ShardedBackend,
        C::Table: QueryFragment<DB>,
        Child: ChildTable<DB>,
        W: QueryFragment<DB>,
    {
        self.0.create_sql(backend)
    }

    pub fn migration(
        &self,
        version: &str,
    ) -> SqlMigration<diesel_sharded::CounterCache<C, Child, W>>
    where
        Child: Clone,
        W: Clone,
    {
        self.0.migration(version)
    }

    pub fn verify(&self) -> Verify<C::Table, C, CacheRecount<C, Child, W>>
    where
        Child: Clone,
        W: Clone,
    {
        Verify(self.0.verify_async())
    }
}

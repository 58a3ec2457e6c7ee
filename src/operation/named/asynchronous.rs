//! Named counters, on connections of `diesel_async`.

mod bounded;
mod idempotent;
mod list;

use std::fmt;
use std::ops::ControlFlow;

use diesel::prelude::*;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment};
use diesel::result::Error as DieselError;
use diesel_async::AsyncConnection;

pub use self::bounded::BoundedCounter;
pub use self::idempotent::IdempotentCounter;
pub use self::list::{CounterList, TopCounters};
use super::backend::{ByName, CounterBackend, MOST_CREATED, count_of, counter_backend, total_of};
use super::sql::{DeleteCounter, SelectCounters, explain_counters};
use super::table::counters;
use crate::backend::BackendOf;
use crate::connection::{Async, BoxFuture, Io, Link, TransactionOptions};
use crate::engine::{KeyedTable, RetryLoop, retry_loop};
use crate::operation::bounded::Bounded;
use crate::operation::cached::asynchronous::CachedCounter;
use crate::operation::fold::{Fold, Folded};
use crate::operation::idempotency::{Request, count_once};
use crate::operation::row_counter::{IntegerField, add_and_get};
use crate::operation::set_total::set_by_key;
use crate::operation::shard_counts;
use crate::operation::shard_counts::ShardCount;
use crate::policy::RetryPolicy;

counter_backend!(Async, AsyncConnection, Box::pin);

/// See [`Counter`](crate::Counter).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[must_use = "a counter does nothing by itself"]
pub struct Counter(crate::Counter);

impl Counter {
    /// The counter of that name; see [`Counter::named`](crate::Counter::named).
    pub fn named(name: impl Into<String>) -> Self {
        Counter(crate::Counter::named(name))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Adds 1.
    ///
    /// # Errors
    /// As [`add`](Self::add)'s.
    pub fn increment<'c, Conn>(&self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<()>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        self.add(1, conn)
    }

    /// Subtracts 1.
    ///
    /// # Errors
    /// As [`add`](Self::add)'s.
    pub fn decrement<'c, Conn>(&self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<()>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        self.add(-1, conn)
    }

    /// Adds `n`; see [`Counter::add`](crate::Counter::add).
    ///
    /// # Errors
    /// As there.
    pub fn add<'c, Conn>(&self, n: i64, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<()>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        let name = self.0.key();
        Box::pin(async move { Conn::Backend::add(conn, name?, n).await })
    }

    /// Adds `n` and returns the new total; see [`Counter::add_and_get`](crate::Counter::add_and_get).
    ///
    /// # Errors
    /// As there.
    pub fn add_and_get<'c, Conn>(
        &self,
        n: i64,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, QueryResult<i64>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        let name = self.0.key();
        Box::pin(async move { Conn::Backend::add_and_get(conn, name?, n).await })
    }

    /// The exact total; see [`Counter::get`](crate::Counter::get).
    ///
    /// # Errors
    /// As there.
    pub fn get<'c, Conn>(&'c self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<i64>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        Box::pin(async move { self.0.total(true, &mut Link::awaited(conn)).await })
    }

    /// The base alone; see [`Counter::estimate`](crate::Counter::estimate).
    ///
    /// # Errors
    /// As there.
    pub fn estimate<'c, Conn>(&'c self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<i64>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        Box::pin(async move { self.0.total(false, &mut Link::awaited(conn)).await })
    }

    /// The totals of many counters; see [`Counter::get_many`](crate::Counter::get_many).
    ///
    /// # Errors
    /// As there.
    pub fn get_many<'c, Conn, S>(
        names: &'c [S],
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, QueryResult<Vec<i64>>>
    where
        S: AsRef<str> + Sync,
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        Box::pin(async move { crate::Counter::totals(names, &mut Link::awaited(conn)).await })
    }

    /// Counters whose names begin so; see [`Counter::list`](crate::Counter::list).
    pub fn list(prefix: impl Into<String>) -> CounterList {
        CounterList::new(prefix.into())
    }

    /// The counters with the greatest totals; see [`Counter::top`](crate::Counter::top).
    pub fn top(prefix: impl Into<String>, n: u32) -> TopCounters {
        TopCounters::new(prefix.into(), n)
    }

    /// Sets the total; see [`Counter::set`](crate::Counter::set).
    ///
    /// # Errors
    /// As there.
    pub fn set<'c, Conn>(&self, total: i64, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<()>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        let name = self.0.key();
        Box::pin(async move { Conn::Backend::set(conn, name?, total).await })
    }

    /// Sets the total to 0.
    ///
    /// # Errors
    /// As [`set`](Self::set)'s.
    pub fn reset<'c, Conn>(&self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<()>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        self.set(0, conn)
    }

    /// Removes the counter; see [`Counter::delete`](crate::Counter::delete).
    ///
    /// # Errors
    /// As there.
    pub fn delete<'c, Conn>(&self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<bool>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        let name = self.0.key();
        Box::pin(async move { Conn::Backend::delete(conn, name?).await })
    }

    /// Moves the shards into the base; see [`Counter::fold`](crate::Counter::fold).
    ///
    /// # Errors
    /// As there.
    pub fn fold<'c, Conn>(
        &'c self,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, QueryResult<Folded<counters::table>>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        Box::pin(async move { self.0.folded(&mut Link::awaited(conn)).await })
    }

    /// How many shards writers choose from; see [`Counter::shards`](crate::Counter::shards).
    ///
    /// # Errors
    /// As there.
    pub fn shards<'c, Conn>(&'c self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<u16>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        Box::pin(async move {
            self.0.key()?;
            self.0.shard_count().number(&mut Link::awaited(conn)).await
        })
    }

    /// Raises the number of shards; see [`Counter::increase_shards`](crate::Counter::increase_shards).
    ///
    /// # Errors
    /// As there.
    pub fn increase_shards<'c, Conn>(
        &'c self,
        n: u16,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, QueryResult<u16>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        Box::pin(async move {
            self.0.key()?;
            self.0
                .shard_count()
                .write(n, true, &mut Link::awaited(conn))
                .await
        })
    }

    /// Sets the number of shards; see [`Counter::resize`](crate::Counter::resize).
    ///
    /// # Errors
    /// As there.
    pub fn resize<'c, Conn>(&'c self, n: u16, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<()>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        Box::pin(async move { self.0.resized(n, &mut Link::awaited(conn)).await })
    }

    /// The same counter, which never falls below `least`; see [`BoundedCounter`](crate::operation::BoundedCounter).
    pub fn never_below(self, least: i64) -> BoundedCounter {
        BoundedCounter::of(self.0).never_below(least)
    }

    /// The same counter, which never rises above `most`; see [`BoundedCounter`](crate::operation::BoundedCounter).
    pub fn never_above(self, most: i64) -> BoundedCounter {
        BoundedCounter::of(self.0).never_above(most)
    }

    /// Changes the counter only if nothing was done with this key before; see [`idempotency`](crate::idempotency).
    pub fn idempotency_key(&self, key: impl AsRef<[u8]>) -> IdempotentCounter {
        IdempotentCounter(self.0.idempotency_key(key))
    }
}

impl<Conn> CachedCounter<Conn> for Counter
where
    Conn: AsyncConnection,
    Conn::Backend: CounterBackend<Conn, Async>,
{
    fn cache_key(&self) -> String {
        self.0.cached_as()
    }

    fn read<'c>(&'c self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<i64>> {
        self.get(conn)
    }

    fn add<'c>(&'c self, n: i64, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<usize>> {
        Box::pin(async move { Counter::add(self, n, conn).await.map(|()| 1) })
    }
}

impl AsRef<str> for Counter {
    fn as_ref(&self) -> &str {
        self.0.as_ref()
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<crate::Counter> for Counter {
    fn from(counter: crate::Counter) -> Self {
        Counter(counter)
    }
}

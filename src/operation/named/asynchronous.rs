//! Named counters, on connections of `diesel_async`.

use std::fmt;
use std::ops::ControlFlow;

use diesel::prelude::*;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment};
use diesel::result::Error as DieselError;
use diesel_async::AsyncConnection;

use super::backend::{ByName, CounterBackend, counter_backend, ready};
use super::list;
use super::sql::{DeleteCounter, SelectCounters, explain_counters};
use super::table::counters;
use crate::backend::BackendOf;
use crate::connection::{Async, BoxFuture, Io, Link, TransactionOptions};
use crate::engine::{KeyedTable, RetryLoop, retry_loop};
use crate::operation::cached::asynchronous::CachedCounter;
use crate::operation::fold::{Fold, Folded};
use crate::operation::idempotency::{Idempotent, Request, count_once};
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
        CounterList(crate::Counter::list(prefix))
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

    /// Counts only if nothing was counted with this key before; see [`idempotency`](crate::idempotency).
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

/// A page of counters; made by [`Counter::list`].
#[derive(Debug, Clone)]
#[must_use = "nothing is read until it is `.load(conn)`-ed"]
pub struct CounterList(list::CounterList);

impl CounterList {
    /// Begins after the counter of this name.
    pub fn after(self, name: impl Into<String>) -> Self {
        CounterList(self.0.after(name))
    }

    /// Reads at most this number of counters.
    pub fn limit(self, counters: u32) -> Self {
        CounterList(self.0.limit(counters))
    }

    /// Reads names and totals, by name; see [`CounterList::load`](crate::operation::CounterList::load).
    ///
    /// # Errors
    /// As there.
    pub fn load<'c, Conn>(
        &'c self,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, QueryResult<Vec<(String, i64)>>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        Box::pin(async move { self.0.page(&mut Link::awaited(conn)).await })
    }
}

/// A named counter with an idempotency key; made by [`Counter::idempotency_key`].
#[derive(Debug, Clone)]
#[must_use = "nothing is counted until it is added to"]
pub struct IdempotentCounter(Idempotent<crate::Counter>);

impl IdempotentCounter {
    /// Adds `n`, unless this was done before; see [`Idempotent::add`].
    ///
    /// # Errors
    /// As there.
    pub fn add<'c, Conn>(&'c self, n: i64, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<usize>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        Box::pin(async move {
            let Idempotent { of, key } = &self.0;
            let request = Request::to_add(key, &of.cached_as(), n)?;
            let (counted, _) = Conn::Backend::add_once(conn, of.key()?, n, request).await?;
            Ok(counted)
        })
    }

    /// Adds 1, unless this was done before.
    ///
    /// # Errors
    /// As [`add`](Self::add)'s.
    pub fn increment<'c, Conn>(&'c self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<usize>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        self.add(1, conn)
    }

    /// Subtracts 1, unless this was done before.
    ///
    /// # Errors
    /// As [`add`](Self::add)'s.
    pub fn decrement<'c, Conn>(&'c self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<usize>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        self.add(-1, conn)
    }
}

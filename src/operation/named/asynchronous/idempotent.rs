//! Named counters with an idempotency key, on connections of `diesel_async`.

use diesel::prelude::*;
use diesel_async::AsyncConnection;

use crate::connection::{Async, BoxFuture, Link};
use crate::operation::idempotency::{Idempotent, Request};
use crate::operation::named::backend::CounterBackend;
use crate::operation::named::idempotent::{Change, change_once};

/// A named counter with an idempotency key; made by
/// [`Counter::idempotency_key`](super::Counter::idempotency_key).
#[derive(Debug, Clone)]
#[must_use = "nothing is counted until it is added to"]
pub struct IdempotentCounter(pub(super) Idempotent<crate::Counter>);

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
        if n == 0 {
            return self.once(Change::AddNothing, conn);
        }
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

    /// Sets the total, unless this was done before; see [`Idempotent::set`].
    ///
    /// # Errors
    /// As there.
    pub fn set<'c, Conn>(&'c self, total: i64, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<()>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        Box::pin(async move { self.once(Change::Set(total), conn).await.map(drop) })
    }

    /// Sets the total to 0, unless this was done before.
    ///
    /// # Errors
    /// As [`set`](Self::set)'s.
    pub fn reset<'c, Conn>(&'c self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<()>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        self.set(0, conn)
    }

    /// Removes the counter, unless this was done before; see [`Idempotent::delete`].
    ///
    /// # Errors
    /// As there.
    pub fn delete<'c, Conn>(&'c self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<bool>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        Box::pin(async move { Ok(self.once(Change::Delete, conn).await? > 0) })
    }

    fn once<'c, Conn>(
        &'c self,
        change: Change,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, QueryResult<usize>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        Box::pin(async move { change_once(&self.0, change, &mut Link::awaited(conn)).await })
    }
}

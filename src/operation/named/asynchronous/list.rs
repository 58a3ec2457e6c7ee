//! Named counters page by page, and the greatest of them.

use diesel::prelude::*;
use diesel_async::AsyncConnection;

use crate::connection::{Async, BoxFuture, Link};
use crate::operation::named::backend::CounterBackend;
use crate::operation::named::{list, top};

/// A page of counters; made by [`Counter::list`](super::Counter::list).
pub type CounterList = list::CounterList<Async>;

impl list::CounterList<Async> {
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
        Box::pin(async move { self.page(&mut Link::awaited(conn)).await })
    }
}

/// The named counters with the greatest totals; made by [`Counter::top`](super::Counter::top).
pub type TopCounters = top::TopCounters<Async>;

impl top::TopCounters<Async> {
    /// Reads names and totals, the greatest first; see [`TopCounters::load`](crate::operation::TopCounters::load).
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
        Box::pin(async move { self.rows(&mut Link::awaited(conn)).await })
    }
}

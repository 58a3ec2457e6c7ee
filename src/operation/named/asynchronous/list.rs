//! Named counters page by page, and the greatest of them.

use diesel::prelude::*;
use diesel_async::AsyncConnection;

use crate::connection::{Async, BoxFuture, Link};
use crate::operation::named::backend::CounterBackend;
use crate::operation::named::{list, top};

/// A page of counters; made by [`Counter::list`](super::Counter::list).
#[derive(Debug, Clone)]
#[must_use = "nothing is read until it is `.load(conn)`-ed"]
pub struct CounterList(pub(super) list::CounterList);

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

/// The named counters with the greatest totals; made by [`Counter::top`](super::Counter::top).
#[derive(Debug, Clone)]
#[must_use = "nothing is read until it is `.load(conn)`-ed"]
pub struct TopCounters(pub(super) top::TopCounters);

impl TopCounters {
    /// Leaves out the first `counters`.
    pub fn offset(self, counters: u32) -> Self {
        TopCounters(self.0.offset(counters))
    }

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
        Box::pin(async move { self.0.rows(&mut Link::awaited(conn)).await })
    }
}

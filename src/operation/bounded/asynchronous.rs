//! Counters with bounds, on connections of `diesel_async`.

use diesel::result::QueryResult;
use diesel_async::AsyncConnection;

use crate::backend::BackendOf;
use crate::connection::{Async, BoxFuture, Link};
use crate::model::ShardedColumn;
use crate::operation::row_counter::IntegerField;
use crate::operation::row_counter::asynchronous::RowCounter;

/// See [`Bounded`](crate::bounded::Bounded).
pub type Bounded<C> = crate::bounded::Bounded<C, Async>;

impl<C: ShardedColumn> RowCounter<C> {
    /// Bounds the total from below; see [`bounded`](crate::bounded).
    pub fn never_below(self, least: i64) -> Bounded<C> {
        Bounded::of(self.0).never_below(least)
    }

    /// Bounds the total from above; see [`bounded`](crate::bounded).
    pub fn never_above(self, most: i64) -> Bounded<C> {
        Bounded::of(self.0).never_above(most)
    }
}

impl<C: ShardedColumn> crate::bounded::Bounded<C, Async> {
    /// Adds `n` if the total stays within its bounds; see [`Bounded::add`](crate::bounded::Bounded::add).
    ///
    /// # Errors
    /// As [`Bounded::add`](crate::bounded::Bounded::add)'s.
    pub fn add<'c, Conn, DB>(
        &'c self,
        n: i64,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, QueryResult<bool>>
    where
        C: IntegerField<DB> + Send + Sync,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        Box::pin(async move { self.count(n, &mut Link::awaited(conn)).await })
    }
}

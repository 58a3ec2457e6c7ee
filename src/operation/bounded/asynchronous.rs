//! Counters with bounds, on connections of `diesel_async`.

use diesel::result::QueryResult;
use diesel_async::AsyncConnection;

use crate::backend::BackendOf;
use crate::connection::{BoxFuture, Link};
use crate::model::ShardedColumn;
use crate::operation::row_counter::IntegerField;
use crate::operation::row_counter::asynchronous::RowCounter;
use crate::policy::RetryPolicy;

/// See [`Bounded`](crate::bounded::Bounded).
#[must_use = "a counter does nothing by itself"]
pub struct Bounded<C: ShardedColumn>(crate::bounded::Bounded<C>);

impl<C: ShardedColumn> RowCounter<C> {
    /// Bounds the total from below; see [`bounded`](crate::bounded).
    pub fn never_below(self, least: i64) -> Bounded<C> {
        Bounded(self.0.never_below(least))
    }

    /// Bounds the total from above; see [`bounded`](crate::bounded).
    pub fn never_above(self, most: i64) -> Bounded<C> {
        Bounded(self.0.never_above(most))
    }
}

impl<C: ShardedColumn> Bounded<C> {
    /// Bounds the total from below.
    pub fn never_below(self, least: i64) -> Self {
        Bounded(self.0.never_below(least))
    }

    /// Bounds the total from above.
    pub fn never_above(self, most: i64) -> Self {
        Bounded(self.0.never_above(most))
    }

    /// Retries by `policy` instead of the [process-wide](RetryPolicy::global) one.
    pub fn retry(self, policy: RetryPolicy) -> Self {
        Bounded(self.0.retry(policy))
    }

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
        Box::pin(async move { self.0.count(n, &mut Link::awaited(conn)).await })
    }
}

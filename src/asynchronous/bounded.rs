//! Counters with bounds, on connections of `diesel_async`.

use diesel::result::QueryResult;
use diesel_async::AsyncConnection;

use super::{Async, BoxFuture};
use crate::dialect::BackendOf;
use crate::field::ShardedColumn;
use crate::retry::Retry;
use crate::row_counter::IntegerField;

/// See [`Bounded`](crate::bounded::Bounded).
#[must_use = "a counter does nothing by itself"]
pub struct Bounded<C: ShardedColumn>(pub(super) crate::bounded::Bounded<C>);

impl<C: ShardedColumn> Bounded<C> {
    /// Bounds the total from below.
    pub fn never_below(self, least: i64) -> Self {
        Bounded(self.0.never_below(least))
    }

    /// Bounds the total from above.
    pub fn never_above(self, most: i64) -> Self {
        Bounded(self.0.never_above(most))
    }

    /// Tries again by `policy` instead of the [process-wide](Retry::process_wide) one.
    pub fn retry(self, policy: Retry) -> Self {
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
        Box::pin(self.0.count::<Async, _, _>(n, conn))
    }
}

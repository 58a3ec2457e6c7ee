//! Named counters with bounds, on connections of `diesel_async`.

use diesel::prelude::*;
use diesel_async::AsyncConnection;

use crate::connection::{Async, BoxFuture};
use crate::operation::named::backend::CounterBackend;
use crate::operation::named::bounded;
use crate::policy::RetryPolicy;

/// See [`BoundedCounter`](crate::operation::BoundedCounter).
#[derive(Debug, Clone)]
#[must_use = "a counter does nothing by itself"]
pub struct BoundedCounter(pub(super) bounded::BoundedCounter);

impl BoundedCounter {
    /// Sets the lower bound.
    pub fn never_below(self, least: i64) -> Self {
        BoundedCounter(self.0.never_below(least))
    }

    /// Sets the upper bound.
    pub fn never_above(self, most: i64) -> Self {
        BoundedCounter(self.0.never_above(most))
    }

    /// Retries by `policy` instead of the [process-wide](RetryPolicy::global) one.
    pub fn retry(self, policy: RetryPolicy) -> Self {
        BoundedCounter(self.0.retry(policy))
    }

    /// Adds `n` if the total stays within its bounds; see
    /// [`BoundedCounter::add`](crate::operation::BoundedCounter::add).
    ///
    /// # Errors
    /// As there.
    pub fn add<'c, Conn>(&self, n: i64, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<bool>>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        let on_its_shards = self.0.on_its_shards();
        Box::pin(async move {
            let (bounded, name) = on_its_shards?;
            Conn::Backend::add_within(conn, bounded, name, n).await
        })
    }
}

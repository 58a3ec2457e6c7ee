//! Named counters with bounds, on connections of `diesel_async`.

use diesel::prelude::*;
use diesel_async::AsyncConnection;

use crate::connection::{Async, BoxFuture};
use crate::operation::named::backend::CounterBackend;
use crate::operation::named::bounded;

/// See [`BoundedCounter`](crate::operation::BoundedCounter).
pub type BoundedCounter = bounded::BoundedCounter<Async>;

impl bounded::BoundedCounter<Async> {
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
        let on_its_shards = self.on_its_shards();
        Box::pin(async move {
            let (bounded, name) = on_its_shards?;
            Conn::Backend::add_within(conn, bounded, name, n).await
        })
    }
}

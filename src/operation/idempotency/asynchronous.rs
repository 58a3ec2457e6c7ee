//! Idempotency keys, on connections of `diesel_async`; see [`idempotency`](crate::idempotency).

use std::time::Duration;

use diesel::result::QueryResult;
use diesel_async::AsyncConnection;

use super::remove::remove;
use crate::backend::BackendOf;
use crate::connection::{BoxFuture, Link};

/// Removes old keys; see [`remove_older_than`](crate::idempotency::remove_older_than).
///
/// # Errors
/// As there.
pub fn remove_older_than<Conn>(age: Duration, conn: &mut Conn) -> BoxFuture<'_, QueryResult<usize>>
where
    Conn: AsyncConnection,
    Conn::Backend: BackendOf<Conn>,
{
    Box::pin(async move { remove(age, &mut Link::awaited(conn)).await })
}

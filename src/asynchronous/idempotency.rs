//! Idempotency keys, on connections of `diesel_async`; see [`idempotency`].

use std::time::Duration;

use diesel::result::QueryResult;
use diesel_async::AsyncConnection;

use super::{Async, BoxFuture};
use crate::dialect::BackendOf;
use crate::idempotency;

/// Removes old keys; see [`remove_older_than`](idempotency::remove_older_than).
///
/// # Errors
/// As there.
pub fn remove_older_than<Conn>(age: Duration, conn: &mut Conn) -> BoxFuture<'_, QueryResult<usize>>
where
    Conn: AsyncConnection,
    Conn::Backend: BackendOf<Conn>,
{
    Box::pin(idempotency::remove::<Async, _>(age, conn))
}

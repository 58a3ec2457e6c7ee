//! How many shards writers choose from, on connections of `diesel_async`; see [`shard_counts`](crate::shard_counts).

use diesel::result::QueryResult;
use diesel_async::AsyncConnection;

use super::known::read_all;
use super::number;
use crate::backend::BackendOf;
use crate::connection::{Async, BoxFuture, Link};

/// The number of shards of one field; see [`operation::ShardCount`](crate::operation::ShardCount).
pub type ShardCount = number::ShardCount<Async>;

/// Reads all numbers; see [`refresh`](crate::shard_counts::refresh).
///
/// # Errors
/// As there.
pub fn refresh<Conn>(conn: &mut Conn) -> BoxFuture<'_, QueryResult<()>>
where
    Conn: AsyncConnection,
    Conn::Backend: BackendOf<Conn>,
{
    Box::pin(async move { read_all(&mut Link::awaited(conn)).await })
}

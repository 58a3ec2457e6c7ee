//! How many shards writers choose from, on connections of `diesel_async`; see [`shard_counts`](crate::shard_counts).

use diesel::result::QueryResult;
use diesel_async::AsyncConnection;

use super::known::read_all;
use super::number;
use crate::backend::BackendOf;
use crate::connection::{BoxFuture, Link};
use crate::model::TotalColumn;

/// See [`ShardCount`](crate::shard_counts::ShardCount).
#[derive(Debug, Clone)]
#[must_use = "a number does nothing until it is read or changed"]
pub struct ShardCount(number::ShardCount);

impl ShardCount {
    /// The number of a field.
    pub fn of<C: TotalColumn>(column: C) -> Self {
        ShardCount(number::ShardCount::of(column))
    }

    /// See [`ShardCount::get`](crate::shard_counts::ShardCount::get).
    ///
    /// # Errors
    /// As there.
    pub fn get<'c, Conn>(&'c self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<u16>>
    where
        Conn: AsyncConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        Box::pin(async move { self.0.number(&mut Link::awaited(conn)).await })
    }

    /// See [`ShardCount::increase`](crate::shard_counts::ShardCount::increase).
    ///
    /// # Errors
    /// As there.
    pub fn increase<'c, Conn>(
        &'c self,
        n: u16,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, QueryResult<u16>>
    where
        Conn: AsyncConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        Box::pin(async move { self.0.write(n, true, &mut Link::awaited(conn)).await })
    }

    /// See [`ShardCount::resize`](crate::shard_counts::ShardCount::resize).
    ///
    /// # Errors
    /// As there.
    pub fn resize<'c, Conn>(&'c self, n: u16, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<()>>
    where
        Conn: AsyncConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        Box::pin(async move {
            self.0
                .write(n, false, &mut Link::awaited(conn))
                .await
                .map(drop)
        })
    }
}

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

//! How many shards writers choose from, on connections of `diesel_async`; see [`shard_numbers`].

use diesel::result::QueryResult;
use diesel_async::AsyncConnection;

use super::{Async, BoxFuture};
use crate::dialect::BackendOf;
use crate::field::ShardedColumn;
use crate::shard_numbers;

/// See [`ShardNumber`](shard_numbers::ShardNumber).
#[derive(Debug, Clone)]
#[must_use = "a number does nothing until it is read or changed"]
pub struct ShardNumber(shard_numbers::ShardNumber);

impl ShardNumber {
    /// The number of a field.
    pub fn of<C: ShardedColumn>(column: C) -> Self {
        ShardNumber(shard_numbers::ShardNumber::of(column))
    }

    /// See [`ShardNumber::get`](shard_numbers::ShardNumber::get).
    ///
    /// # Errors
    /// As there.
    pub fn get<'c, Conn>(&'c self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<u16>>
    where
        Conn: AsyncConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        Box::pin(self.0.number::<Async, _>(conn))
    }

    /// See [`ShardNumber::increase`](shard_numbers::ShardNumber::increase).
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
        Box::pin(self.0.write::<Async, _>(n, true, conn))
    }

    /// See [`ShardNumber::resize`](shard_numbers::ShardNumber::resize).
    ///
    /// # Errors
    /// As there.
    pub fn resize<'c, Conn>(&'c self, n: u16, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<()>>
    where
        Conn: AsyncConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        Box::pin(async move { self.0.write::<Async, _>(n, false, conn).await.map(drop) })
    }
}

/// Reads all numbers; see [`refresh`](shard_numbers::refresh).
///
/// # Errors
/// As there.
pub fn refresh<Conn>(conn: &mut Conn) -> BoxFuture<'_, QueryResult<()>>
where
    Conn: AsyncConnection,
    Conn::Backend: BackendOf<Conn>,
{
    Box::pin(shard_numbers::read_all::<Async, _>(conn))
}

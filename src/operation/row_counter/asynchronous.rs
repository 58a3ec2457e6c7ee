//! One sharded field of one row, on connections of `diesel_async`.

mod idempotent;

use std::fmt;

use diesel::result::{Error as DieselError, QueryResult};
use diesel_async::AsyncConnection;

pub use self::idempotent::IdempotentRowCounter;
use crate::backend::BackendOf;
use crate::connection::{BoxFuture, Link};
use crate::model::{ShardedColumn, ShardedTable};
use crate::operation::cached::asynchronous::CachedCounter;

use super::field::IntegerField;

/// See [`RowCounter`](crate::RowCounter).
#[derive(Clone)]
#[must_use = "a counter does nothing by itself"]
pub struct RowCounter<C: ShardedColumn>(pub(crate) crate::RowCounter<C>);

impl<C: ShardedColumn> RowCounter<C> {
    /// The field `column` of the row with this key.
    pub fn of(column: C, key: <C::Table as ShardedTable>::Key) -> Self {
        RowCounter(crate::RowCounter::of(column, key))
    }

    /// Adds `n`; see [`RowCounter::add`](crate::RowCounter::add).
    ///
    /// # Errors
    /// As [`update`](crate::update())'s.
    pub fn add<'c, Conn, DB>(
        &'c self,
        n: i64,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, QueryResult<usize>>
    where
        C: IntegerField<DB> + Send + Sync,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        Box::pin(async move { self.0.count(n, &mut Link::awaited(conn)).await })
    }

    /// Adds `n` and returns the new total; see [`RowCounter::add_and_get`](crate::RowCounter::add_and_get).
    ///
    /// # Errors
    /// As [`update`](crate::update())'s.
    pub fn add_and_get<'c, Conn, DB>(
        &'c self,
        n: i64,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, QueryResult<Option<i64>>>
    where
        C: IntegerField<DB> + Send + Sync,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        Box::pin(async move { self.0.count_and_total(n, &mut Link::awaited(conn)).await })
    }

    /// The exact total; see [`RowCounter::get`](crate::RowCounter::get).
    ///
    /// # Errors
    /// As [`update`](crate::update())'s.
    pub fn get<'c, Conn, DB>(
        &'c self,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, QueryResult<Option<i64>>>
    where
        C: IntegerField<DB> + Send + Sync,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        Box::pin(async move { self.0.total(&mut Link::awaited(conn)).await })
    }

    /// The same counter, which counts only once for all additions with this key; see [`idempotency`](crate::idempotency).
    pub fn idempotency_key(&self, key: impl AsRef<[u8]>) -> IdempotentRowCounter<C>
    where
        <C::Table as ShardedTable>::Key: fmt::Debug,
    {
        IdempotentRowCounter(self.0.idempotency_key(key))
    }
}

impl<C, Conn, DB> CachedCounter<Conn> for RowCounter<C>
where
    C: IntegerField<DB> + Send + Sync,
    <C::Table as ShardedTable>::Key: fmt::Debug,
    Conn: AsyncConnection<Backend = DB>,
    DB: BackendOf<Conn>,
{
    fn cache_key(&self) -> String {
        self.0.cached_as()
    }

    fn read<'c>(&'c self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<i64>> {
        Box::pin(async move { self.get(conn).await?.ok_or(DieselError::NotFound) })
    }

    fn add<'c>(&'c self, n: i64, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<usize>> {
        RowCounter::add(self, n, conn)
    }
}

impl<C: ShardedColumn> From<crate::RowCounter<C>> for RowCounter<C> {
    fn from(counter: crate::RowCounter<C>) -> Self {
        RowCounter(counter)
    }
}

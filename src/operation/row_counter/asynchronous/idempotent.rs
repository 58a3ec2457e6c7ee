//! One sharded field of one row with an idempotency key, on connections of `diesel_async`.

use std::fmt;

use diesel::result::QueryResult;
use diesel_async::AsyncConnection;

use crate::backend::BackendOf;
use crate::connection::{Async, BoxFuture, Io, Link, LoadIo};
use crate::model::{ShardedColumn, ShardedTable};
use crate::operation::idempotency::{Idempotent, Request, Requested, count_once, once};
use crate::operation::row_counter::{IntegerField, ready_to_add};
use crate::policy::RetryPolicy;

/// One field of one row, with an idempotency key; made by [`RowCounter::idempotency_key`](super::RowCounter::idempotency_key).
#[derive(Debug, Clone)]
#[must_use = "nothing is counted until it is added to"]
pub struct IdempotentRowCounter<C: ShardedColumn>(pub(super) Idempotent<crate::RowCounter<C>>)
where
    <C::Table as ShardedTable>::Key: fmt::Debug;

impl<C: ShardedColumn> IdempotentRowCounter<C>
where
    <C::Table as ShardedTable>::Key: fmt::Debug,
{
    /// Adds `n`, unless this was done before; see [`Idempotent::add`].
    ///
    /// # Errors
    /// As there.
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
        Box::pin(async move {
            let Idempotent { of, key } = &self.0;
            let request = Request::to_add(key, &of.cached_as(), n)?;
            let link = &mut Link::awaited(conn);
            if n == 0 {
                return once(link, &request, RetryPolicy::default(), &mut AddNothing(of)).await;
            }
            let add = ready_to_add::<C, DB>(of.key.clone(), n);
            let (counted, _) = count_once(link, add, &request).await?;
            Ok(counted)
        })
    }

    /// Adds 1, unless this was done before.
    ///
    /// # Errors
    /// As [`add`](Self::add)'s.
    pub fn increment<'c, Conn, DB>(
        &'c self,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, QueryResult<usize>>
    where
        C: IntegerField<DB> + Send + Sync,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        self.add(1, conn)
    }

    /// Subtracts 1, unless this was done before.
    ///
    /// # Errors
    /// As [`add`](Self::add)'s.
    pub fn decrement<'c, Conn, DB>(
        &'c self,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, QueryResult<usize>>
    where
        C: IntegerField<DB> + Send + Sync,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        self.add(-1, conn)
    }
}

/// Writes the key alone, if there is such a row.
struct AddNothing<'a, C: ShardedColumn>(&'a crate::RowCounter<C>);

impl<C, Conn, DB> Requested<Async, Conn> for AddNothing<'_, C>
where
    C: IntegerField<DB> + Send + Sync,
    Async: LoadIo<Conn, Backend = DB> + Io<Conn>,
    DB: BackendOf<Conn>,
{
    type Told = usize;

    async fn carry_out(
        &mut self,
        link: &mut Link<'_, Async, Conn>,
        counted: Option<usize>,
    ) -> QueryResult<(usize, usize)> {
        let counted = match counted {
            Some(counted) => counted,
            None => usize::from(self.0.is_there(link).await?),
        };
        Ok((counted, counted))
    }
}

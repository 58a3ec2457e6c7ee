//! Totals that are set under an idempotency key, awaited.

use diesel::expression::Expression;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel_async::AsyncConnection;

use super::assignment::Assignment;
use super::builder::SetTotal;
use super::idempotent::set_once;
use crate::backend::BackendOf;
use crate::connection::{Async, BoxFuture, Link};
use crate::engine::KeyedTable;
use crate::operation::idempotency::Idempotent;

impl<Q, A, T, W> Idempotent<SetTotal<Q, A, Async>>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W>,
{
    /// Sets the totals, unless this was done before, and returns the number of rows.
    ///
    /// # Errors
    /// As [`SetTotal::execute`](crate::operation::SetTotal::execute)'s, and those of [`idempotency`](crate::idempotency).
    pub fn execute<'c, Conn, DB>(self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<usize>>
    where
        A: Assignment + QueryFragment<DB> + Send + Sync + 'c,
        T: KeyedTable<DB>,
        T::PrimaryKey: Expression + QueryId,
        W: QueryFragment<DB> + QueryId + Send + Sync + 'c,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        let (ready, key) = (self.of.ready(), self.key);
        Box::pin(async move {
            set_once::<T, _, _, _, _, _>(&ready, &key, &mut Link::awaited(conn)).await
        })
    }
}

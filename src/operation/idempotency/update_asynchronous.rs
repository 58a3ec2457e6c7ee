//! Counting updates with an idempotency key, on connections of `diesel_async`.

use std::marker::PhantomData;

use diesel::deserialize::FromSqlRow;
use diesel::dsl::SqlTypeOf;
use diesel::expression::QueryMetadata;
use diesel::prelude::*;
use diesel::query_builder::{AsChangeset, IntoUpdateTarget, QueryFragment, QueryId};
use diesel_async::AsyncConnection;

use super::idempotent::Idempotent;
use super::once::once;
use super::update::Counted;
use crate::backend::BackendOf;
use crate::connection::{Async, BoxFuture, Link};
use crate::engine::KeyedTable;
use crate::model::ShardedTable;
use crate::operation::update::asynchronous::{LoadCounted, first, gives_rows};
use crate::operation::update::returning::{ReadAs, Returning};
use crate::operation::update::{InsertRow, UpdateStatement, Values};

impl<Q, V, Ret, Ins, T, W> Idempotent<UpdateStatement<Q, Values<V>, Ret, Ins, Async>>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W>,
{
    /// Counts, unless this was done before, and returns the number of rows.
    ///
    /// # Errors
    /// As [`update`](crate::update())'s, and those of [`idempotency`](crate::idempotency).
    pub fn execute<'c, Conn, DB>(self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<usize>>
    where
        V: AsChangeset<Target = T, Changeset: QueryFragment<DB> + Send + 'c> + QueryId + 'c,
        T: ShardedTable + QueryFragment<DB> + QueryId,
        W: QueryFragment<DB> + QueryId + Send + 'c,
        Ins: InsertRow<T, DB, Statement: Send + 'c>,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        let mut ready = self.of.ready::<DB>();
        let (request, retry) = (ready.request::<DB>(&self.key), ready.retry());
        Box::pin(async move { once(&mut Link::awaited(conn), &request?, retry, &mut ready).await })
    }

    gives_rows!();
}

impl<'c, Q, V, Ret, Ins, T, W, U, Conn, DB>
    LoadCounted<'c, Idempotent<UpdateStatement<Q, Values<V>, Ret, Ins, Async>>, U> for Conn
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W>,
    V: AsChangeset<Target = T, Changeset: QueryFragment<DB> + Send + 'c> + QueryId + 'c,
    T: KeyedTable<DB>,
    T::PrimaryKey: QueryId,
    W: QueryFragment<DB> + QueryId + Send + 'c,
    Ins: InsertRow<T, DB, Statement: Send + 'c>,
    Ret: Returning<T, Selection: ReadAs<U, DB> + QueryFragment<DB> + QueryId + Send + 'c> + 'c,
    U: FromSqlRow<<Ret::Selection as ReadAs<U, DB>>::Row, DB> + Send + 'static,
    Conn: AsyncConnection<Backend = DB> + 'c,
    DB: BackendOf<Conn> + QueryMetadata<SqlTypeOf<Ret::Selection>>,
{
    fn load_counted(
        &'c mut self,
        update: Idempotent<UpdateStatement<Q, Values<V>, Ret, Ins, Async>>,
    ) -> BoxFuture<'c, QueryResult<Vec<U>>> {
        let mut selection = update.of.selection();
        let mut ready = update.of.ready::<DB>();
        let (request, retry) = (ready.request::<DB>(&update.key), ready.retry());
        Box::pin(async move {
            let mut counted = Counted::<_, _, _, _, Ret, U> {
                ready: &mut ready,
                selection: &mut selection,
                rows: PhantomData,
            };
            once(&mut Link::awaited(self), &request?, retry, &mut counted).await
        })
    }
}

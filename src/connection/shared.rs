//! A connection that several tasks share.

use diesel::connection::{
    CacheSize, Instrumentation, InstrumentationEvent, TransactionManagerStatus,
};
use diesel::prelude::*;
use diesel::query_builder::{AsQuery, QueryFragment, QueryId};
use diesel_async::{
    AsyncConnection, AsyncConnectionCore, SimpleAsyncConnection, TransactionManager,
};

use crate::error::Error;
use crate::model::shows;

/// A connection that several tasks share, `&AsyncPgConnection`, for operations that need no transaction: counts by key and by filter, and
/// `RowCounter`.
///
/// ```text
/// async fn viewed(video: i64, conn: &AsyncPgConnection) -> QueryResult<usize> {
///     let count = update(videos.find(video)).set(views.eq(views + 1));
///     count.execute(&mut Shared::of(conn)).await
/// }
/// ```
///
/// The statements of all tasks that share it may be pipelined, and would be part of any transaction or savepoint. So none begins here: what needs
/// one fails by [`SharedConnection`](crate::Error::SharedConnection), and changes nothing. That is `count_many`, sets, folds, bounds and
/// idempotency keys; and now and then a named counter, `or_insert` and rows that come back, where a shard is new. They need
/// `&mut AsyncPgConnection`. Reading totals needs no `Shared`, as any query of Diesel's.
///
/// Inside the caller's own transaction a count is part of it. So it is never [combined](crate::combine), and a conflict that the database reports
/// is not retried: nobody can tell whether it ended a transaction, since another task may have sent the `ROLLBACK` before the question. A count whose future is dropped was
/// made once, or not at all.
pub struct Shared<'c, Conn> {
    conn: &'c Conn,
    status: TransactionManagerStatus,
    instrumentation: fn(InstrumentationEvent<'_>),
}

impl<'c, Conn> Shared<'c, Conn> {
    /// The connection, as counts take it.
    pub fn of(conn: &'c Conn) -> Self {
        Shared {
            conn,
            status: TransactionManagerStatus::default(),
            instrumentation: |_| {},
        }
    }
}

shows!([Conn] Shared<'_, Conn>: |self| Shared {} finish_non_exhaustive);

impl<'c, Conn> SimpleAsyncConnection for Shared<'c, Conn>
where
    &'c Conn: SimpleAsyncConnection + Send,
{
    async fn batch_execute(&mut self, sql: &str) -> QueryResult<()> {
        self.conn.batch_execute(sql).await
    }
}

impl<'c, Conn> AsyncConnectionCore for Shared<'c, Conn>
where
    &'c Conn: AsyncConnectionCore,
{
    type ExecuteFuture<'conn, 'query> =
        <&'c Conn as AsyncConnectionCore>::ExecuteFuture<'conn, 'query>;
    type LoadFuture<'conn, 'query> = <&'c Conn as AsyncConnectionCore>::LoadFuture<'conn, 'query>;
    type Stream<'conn, 'query> = <&'c Conn as AsyncConnectionCore>::Stream<'conn, 'query>;
    type Row<'conn, 'query> = <&'c Conn as AsyncConnectionCore>::Row<'conn, 'query>;
    type Backend = <&'c Conn as AsyncConnectionCore>::Backend;

    fn load<'conn, 'query, T>(&'conn mut self, query: T) -> Self::LoadFuture<'conn, 'query>
    where
        T: AsQuery + 'query,
        T::Query: QueryFragment<Self::Backend> + QueryId + 'query,
    {
        self.conn.load(query)
    }

    fn execute_returning_count<'conn, 'query, T>(
        &'conn mut self,
        statement: T,
    ) -> Self::ExecuteFuture<'conn, 'query>
    where
        T: QueryFragment<Self::Backend> + QueryId + 'query,
    {
        self.conn.execute_returning_count(statement)
    }
}

impl<'c, Conn> AsyncConnection for Shared<'c, Conn>
where
    &'c Conn: AsyncConnectionCore,
{
    type TransactionManager = NoTransactions;

    async fn establish(_: &str) -> ConnectionResult<Self> {
        let text = "a shared connection is made of one that is there: `Shared::of(&conn)`";
        Err(ConnectionError::BadConnection(text.to_owned()))
    }

    fn transaction_state(&mut self) -> &mut TransactionManagerStatus {
        &mut self.status
    }

    fn instrumentation(&mut self) -> &mut dyn Instrumentation {
        &mut self.instrumentation
    }

    /// Nothing: the connection keeps its own.
    fn set_instrumentation(&mut self, _: impl Instrumentation) {}

    /// Nothing: the connection keeps its own.
    fn set_prepared_statement_cache_size(&mut self, _: CacheSize) {}
}

/// Begins none.
#[derive(Debug)]
pub struct NoTransactions;

impl<'c, Conn> TransactionManager<Shared<'c, Conn>> for NoTransactions
where
    &'c Conn: AsyncConnectionCore,
{
    type TransactionStateData = TransactionManagerStatus;

    async fn begin_transaction(_: &mut Shared<'c, Conn>) -> QueryResult<()> {
        Err(Error::SharedConnection.into())
    }

    async fn rollback_transaction(_: &mut Shared<'c, Conn>) -> QueryResult<()> {
        Err(Error::SharedConnection.into())
    }

    async fn commit_transaction(_: &mut Shared<'c, Conn>) -> QueryResult<()> {
        Err(Error::SharedConnection.into())
    }

    fn transaction_manager_status_mut<'s>(
        conn: &'s mut Shared<'c, Conn>,
    ) -> &'s mut TransactionManagerStatus {
        &mut conn.status
    }
}

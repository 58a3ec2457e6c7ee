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

/// A connection that several tasks share (`&AsyncPgConnection`), for operations that need no transaction: increments by key and by filter, and
/// `RowCounter`.
///
/// ```text
/// async fn viewed(video: i64, conn: &AsyncPgConnection) -> QueryResult<usize> {
///     let count = update(videos.find(video)).set(views.eq(views + 1));
///     count.execute(&mut Shared::of(conn)).await
/// }
/// ```
///
/// The connection may pipeline the statements of all these tasks, so a transaction or savepoint would contain other tasks' statements.
/// `Shared` begins none. An operation that needs one fails with [`SharedConnection`](crate::Error::SharedConnection) and changes nothing;
/// call it with `&mut AsyncPgConnection`. Such operations are `count_many`, sets, folds, bounds, idempotency keys and unique counts. Where a
/// shard is new, named counters, `or_insert` and increments that return rows need one too. Reading totals needs no `Shared`: it is an ordinary
/// Diesel query.
///
/// Inside the caller's own transaction an increment is part of that transaction, so it is never [combined](crate::combine). A conflict that the
/// database reports is not retried: another task may send a `ROLLBACK` before this one can ask whether a transaction has ended. If the
/// future of an increment is dropped, the increment was made once or not at all.
pub struct Shared<'c, Conn> {
    conn: &'c Conn,
    status: TransactionManagerStatus,
    instrumentation: fn(InstrumentationEvent<'_>),
}

impl<'c, Conn> Shared<'c, Conn> {
    /// Wraps the connection for increments.
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

/// Refuses to begin a transaction.
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

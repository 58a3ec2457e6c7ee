//! An [`Io`] over `diesel_async`.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::time::Duration;

use diesel::connection::{Instrumentation, TransactionManagerStatus};
use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::query_builder::{Query, QueryFragment, QueryId};
use diesel::result::{Error as DieselError, QueryResult};
use diesel_async::{AsyncConnection, TransactionManager};
use futures_util::{StreamExt, TryFutureExt, TryStreamExt, future};

use super::pause::{pause, within};
use super::shared::NoTransactions;
use super::wait::Waiting;
use crate::backend::{BackendOf, Reads, ShardedBackend};
use crate::connection::{Io, Link, LoadInto, LoadIo, Over, told};
use crate::policy::RetryPolicy;
use crate::query_builder::PreparedQuery;

/// The future of a step.
pub type BoxFuture<'c, T> = Pin<Box<dyn Future<Output = T> + Send + 'c>>;

/// Connections of `diesel_async`: the caller awaits each call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Async;

impl<Conn> Io for Over<Async, Conn>
where
    Conn: AsyncConnection,
    Conn::Backend: BackendOf<Conn>,
{
    type Conn = Conn;
    type Backend = Conn::Backend;
    type Future<'c, T: 'c> = BoxFuture<'c, T>;

    fn execute<'c, Q>(conn: &'c mut Conn, statement: Q) -> BoxFuture<'c, QueryResult<usize>>
    where
        Q: QueryFragment<Conn::Backend> + QueryId + 'c,
    {
        let dialect = Conn::Backend::backend_of(conn).dialect();
        let counted: Conn::ExecuteFuture<'c, 'c> = conn.execute_returning_count(statement);
        Box::pin(counted.map_err(move |error| told(dialect, error)))
    }

    fn execute_query<'c, Q>(conn: &'c mut Conn, query: Q) -> BoxFuture<'c, QueryResult<usize>>
    where
        Q: Query + QueryFragment<Conn::Backend> + QueryId + 'c,
    {
        let dialect = Conn::Backend::backend_of(conn).dialect();
        let rows: Conn::LoadFuture<'c, 'c> = conn.load(query);
        let number = rows.and_then(|rows| rows.try_fold(0, |number, _| future::ok(number + 1)));
        Box::pin(number.map_err(move |error| told(dialect, error)))
    }

    fn nothing(_: &mut Conn) -> BoxFuture<'_, QueryResult<usize>> {
        Box::pin(future::ok(0))
    }

    fn batch_execute<'c>(conn: &'c mut Conn, sql: &'c str) -> BoxFuture<'c, QueryResult<()>> {
        Box::pin(conn.batch_execute(sql))
    }

    fn begin(conn: &mut Conn) -> BoxFuture<'_, QueryResult<()>> {
        Box::pin(Conn::TransactionManager::begin_transaction(conn))
    }

    fn commit(conn: &mut Conn) -> BoxFuture<'_, QueryResult<()>> {
        Box::pin(Conn::TransactionManager::commit_transaction(conn))
    }

    fn roll_back(conn: &mut Conn) -> BoxFuture<'_, QueryResult<()>> {
        Box::pin(Conn::TransactionManager::rollback_transaction(conn))
    }

    fn transaction_status(conn: &mut Conn) -> &mut TransactionManagerStatus {
        Conn::TransactionManager::transaction_manager_status_mut(conn)
    }

    fn may_be_in_transaction(conn: &mut Conn) -> bool {
        Conn::TransactionManager::is_broken_transaction_manager(conn)
    }

    fn instrumentation(conn: &mut Conn) -> &mut dyn Instrumentation {
        conn.instrumentation()
    }

    fn set_instrumentation(conn: &mut Conn, instrumentation: impl Instrumentation) {
        conn.set_instrumentation(instrumentation);
    }

    fn is_shared() -> bool {
        typeid::of::<Conn::TransactionManager>() == typeid::of::<NoTransactions>()
    }

    fn wait<'c, W>(wait: &'c mut W, patience: Duration) -> BoxFuture<'c, Option<W::Turn>>
    where
        W: Waiting + Send,
    {
        Box::pin(within(patience, poll_fn(|context| wait.poll(context))))
    }

    fn sleep(_: &RetryPolicy, delay: Duration) -> BoxFuture<'_, ()> {
        Box::pin(pause(delay))
    }
}

impl<Conn> LoadIo for Over<Async, Conn>
where
    Conn: AsyncConnection,
    Conn::Backend: BackendOf<Conn>,
{
    fn load<'c, U, Q>(conn: &'c mut Conn, query: Q) -> BoxFuture<'c, QueryResult<Vec<U>>>
    where
        Q: Query + QueryFragment<Conn::Backend> + QueryId + 'c,
        U: Send + 'static,
        Conn::Backend: Reads<Q::SqlType, U>,
    {
        let dialect = Conn::Backend::backend_of(conn).dialect();
        let rows: Conn::LoadFuture<'c, 'c> = conn.load(query);
        let read = |row: QueryResult<Conn::Row<'c, 'c>>| {
            Conn::Backend::read(&row?).map_err(DieselError::DeserializationError)
        };
        let rows = rows.and_then(move |rows| rows.map(read).try_collect());
        Box::pin(rows.map_err(move |error| told(dialect, error)))
    }
}

impl<Conn, ST, U> LoadInto<ST, U> for Over<Async, Conn>
where
    Conn: AsyncConnection,
    Conn::Backend: BackendOf<Conn>,
    U: FromSqlRow<ST, Conn::Backend> + Send,
{
    fn load_into<'c, Q>(conn: &'c mut Conn, query: Q) -> BoxFuture<'c, QueryResult<Vec<U>>>
    where
        Q: Query + QueryFragment<Conn::Backend> + QueryId + 'c,
        Conn::Backend: QueryMetadata<Q::SqlType>,
        U: 'c,
    {
        let backend = Conn::Backend::backend_of(conn);
        let rows: Conn::LoadFuture<'c, 'c> = conn.load(PreparedQuery::new(query, &backend));
        let read = |row: QueryResult<Conn::Row<'c, 'c>>| {
            U::build_from_row(&row?).map_err(DieselError::DeserializationError)
        };
        let rows = rows.and_then(move |rows| rows.map(read).try_collect());
        Box::pin(rows.map_err(move |error| told(backend.dialect(), error)))
    }
}

impl<'c, Conn> Link<'c, Over<Async, Conn>>
where
    Over<Async, Conn>: Io<Conn = Conn>,
{
    /// A connection of `diesel_async`.
    pub(crate) fn awaited(conn: &'c mut Conn) -> Self {
        Self::new(conn)
    }
}

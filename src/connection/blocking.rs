//! An [`Io`] over Diesel's blocking connections.

use std::future::{Future, Ready, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use diesel::connection::{
    Connection, Instrumentation, LoadConnection, TransactionManager, TransactionManagerStatus,
};
use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::query_builder::{Query, QueryFragment, QueryId};
use diesel::result::{Error as DieselError, QueryResult};

use super::link::{Io, Link, LoadInto, LoadIo, Over, told};
use super::wait::Waiting;
use crate::backend::{BackendOf, Reads, ShardedBackend};
use crate::policy::RetryPolicy;
use crate::query_builder::PreparedQuery;

/// Diesel's own connections: each call returns when it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Blocking;

impl<Conn> Io for Over<Blocking, Conn>
where
    Conn: Connection,
    Conn::Backend: BackendOf<Conn>,
{
    type Conn = Conn;
    type Backend = Conn::Backend;
    type Future<'c, T: 'c> = Ready<T>;

    fn execute<'c, Q>(conn: &'c mut Conn, statement: Q) -> Ready<QueryResult<usize>>
    where
        Q: QueryFragment<Conn::Backend> + QueryId + 'c,
    {
        let dialect = Conn::Backend::backend_of(conn).dialect();
        let counted = conn.execute_returning_count(&statement);
        ready(counted.map_err(|error| told(dialect, error)))
    }

    fn execute_query<'c, Q>(conn: &'c mut Conn, query: Q) -> Ready<QueryResult<usize>>
    where
        Q: Query + QueryFragment<Conn::Backend> + QueryId + 'c,
    {
        Self::execute(conn, query)
    }

    fn nothing(_: &mut Conn) -> Ready<QueryResult<usize>> {
        ready(Ok(0))
    }

    fn batch_execute<'c>(conn: &'c mut Conn, sql: &'c str) -> Ready<QueryResult<()>> {
        ready(conn.batch_execute(sql))
    }

    fn begin(conn: &mut Conn) -> Ready<QueryResult<()>> {
        ready(Conn::TransactionManager::begin_transaction(conn))
    }

    fn commit(conn: &mut Conn) -> Ready<QueryResult<()>> {
        ready(Conn::TransactionManager::commit_transaction(conn))
    }

    fn roll_back(conn: &mut Conn) -> Ready<QueryResult<()>> {
        ready(Conn::TransactionManager::rollback_transaction(conn))
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

    fn wait<W>(wait: &mut W, patience: Duration) -> Ready<Option<W::Turn>>
    where
        W: Waiting + Send,
    {
        ready(wait.block(patience))
    }

    fn sleep(retry: &RetryPolicy, delay: Duration) -> Ready<()> {
        retry.sleep(delay);
        ready(())
    }
}

impl<Conn> LoadIo for Over<Blocking, Conn>
where
    Conn: LoadConnection,
    Conn::Backend: BackendOf<Conn>,
{
    fn load<'c, U, Q>(conn: &'c mut Conn, query: Q) -> Ready<QueryResult<Vec<U>>>
    where
        Q: Query + QueryFragment<Conn::Backend> + QueryId + 'c,
        Conn::Backend: Reads<Q::SqlType, U>,
    {
        let dialect = Conn::Backend::backend_of(conn).dialect();
        let rows = conn.load(query).and_then(|rows| {
            rows.map(|row| Conn::Backend::read(&row?).map_err(DieselError::DeserializationError))
                .collect()
        });
        ready(rows.map_err(|error| told(dialect, error)))
    }
}

impl<Conn, ST, U> LoadInto<ST, U> for Over<Blocking, Conn>
where
    Conn: LoadConnection,
    Conn::Backend: BackendOf<Conn>,
    U: FromSqlRow<ST, Conn::Backend>,
{
    fn load_into<'c, Q>(conn: &'c mut Conn, query: Q) -> Ready<QueryResult<Vec<U>>>
    where
        Q: Query + QueryFragment<Conn::Backend> + QueryId + 'c,
        Conn::Backend: QueryMetadata<Q::SqlType>,
        U: 'c,
    {
        let backend = Conn::Backend::backend_of(conn);
        let query = PreparedQuery::new(query, &backend);
        let rows = conn.load(query).and_then(|rows| {
            rows.map(|row| U::build_from_row(&row?).map_err(DieselError::DeserializationError))
                .collect()
        });
        ready(rows.map_err(|error| told(backend.dialect(), error)))
    }
}

impl<'c, Conn> Link<'c, Over<Blocking, Conn>>
where
    Over<Blocking, Conn>: Io<Conn = Conn>,
{
    /// One of Diesel's own connections.
    pub(crate) fn blocking(conn: &'c mut Conn) -> Self {
        Self::new(conn)
    }
}

/// Polls steps on a [`Blocking`] connection once. Each of them completes when it is called.
#[inline(always)] // otherwise the steps, which take kilobytes, are copied first
pub(crate) fn now<T>(steps: impl Future<Output = T>) -> T {
    let mut steps = pin!(steps);
    let mut context = Context::from_waker(Waker::noop());
    match steps.as_mut().poll(&mut context) {
        Poll::Ready(done) => done,
        Poll::Pending => {
            panic!("a step on a blocking connection is pending: diesel_sharded would wait for ever")
        }
    }
}

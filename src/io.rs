//! What the crate asks of a connection, and how one that blocks and one that is awaited do it.
//!
//! Everything that takes several statements is written once, as an `async fn` that is generic over [`Io`]. On a blocking
//! connection each of its steps is done by the time that it is called, so that the whole is done at its first poll: [`now`].
//! On an asynchronous one it is awaited.
//!
//! The futures of single steps name no query, but only the connection's lifetime: compilers cannot tell that what holds
//! anything else across an `.await` is `Send` (<https://github.com/rust-lang/rust/issues/100013>). For the same reason what is to
//! be tried again stands in a [loop](crate::retry) and not in a closure.

use std::future::{Future, Ready, ready};
use std::marker::PhantomData;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use diesel::connection::{
    Connection, LoadConnection, TransactionManager, TransactionManagerStatus,
};
use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::query_builder::{Query, QueryFragment, QueryId};
use diesel::result::{Error as DieselError, QueryResult};

use crate::dialect::{BackendOf, ShardedBackend};
use crate::prepared::{Keep, Kept, KeptQuery, Passing, told};
use crate::retry::Retry;

/// How statements reach a `Conn`.
pub trait Io<Conn> {
    /// The connection's backend.
    type Backend: BackendOf<Conn>;

    /// A step that is under way.
    type Future<'c, T: 'c>: Future<Output = T>;

    /// Sends a statement that the connection keeps prepared. The number of rows that it met.
    fn execute_kept<'c, Q>(
        conn: &'c mut Conn,
        statement: Q,
    ) -> Self::Future<'c, QueryResult<usize>>
    where
        Q: Keep<Self::Backend> + QueryId + 'c;

    /// Sends a statement. The number of rows that it met.
    fn execute<'c, Q>(conn: &'c mut Conn, statement: Q) -> Self::Future<'c, QueryResult<usize>>
    where
        Q: QueryFragment<Self::Backend> + QueryId + 'c;

    /// Sends a query whose rows are of no interest. The number of them.
    fn execute_query<'c, Q>(conn: &'c mut Conn, query: Q) -> Self::Future<'c, QueryResult<usize>>
    where
        Q: Query + QueryFragment<Self::Backend> + QueryId + 'c;

    /// Sends nothing, which meets no row.
    fn nothing(conn: &mut Conn) -> Self::Future<'_, QueryResult<usize>>;

    /// Sends statements without binds.
    fn batch_execute<'c>(conn: &'c mut Conn, sql: &'c str) -> Self::Future<'c, QueryResult<()>>;

    /// Begins a transaction, or a savepoint inside one.
    fn begin(conn: &mut Conn) -> Self::Future<'_, QueryResult<()>>;

    /// Commits the innermost transaction or savepoint.
    fn commit(conn: &mut Conn) -> Self::Future<'_, QueryResult<()>>;

    /// Rolls the innermost transaction or savepoint back.
    fn roll_back(conn: &mut Conn) -> Self::Future<'_, QueryResult<()>>;

    /// What Diesel knows of the transactions on the connection.
    fn transaction_status(conn: &mut Conn) -> &mut TransactionManagerStatus;

    /// Whether a transaction is open, or may be: its beginning or its end was sent and not answered.
    fn may_be_in_transaction(conn: &mut Conn) -> bool;

    /// Waits before the next attempt.
    fn sleep(retry: &Retry, delay: Duration) -> Self::Future<'_, ()>;
}

/// An [`Io`] whose connections give rows.
pub trait LoadIo<Conn>: Io<Conn> {
    /// Reads the rows of `query`, a `SELECT` without a limit that the connection keeps prepared where it can, as the SQL type `ST`.
    fn load_kept<'c, ST, U, Q>(
        conn: &'c mut Conn,
        query: Q,
    ) -> Self::Future<'c, QueryResult<Vec<U>>>
    where
        Q: Query + QueryFragment<Self::Backend> + QueryId + 'c,
        U: FromSqlRow<ST, Self::Backend> + Send + 'static,
        ST: 'static,
        Self::Backend: QueryMetadata<Q::SqlType>;

    /// Reads the rows of `query` as the SQL type `ST`.
    fn load<'c, ST, U, Q>(conn: &'c mut Conn, query: Q) -> Self::Future<'c, QueryResult<Vec<U>>>
    where
        Q: Query + QueryFragment<Self::Backend> + QueryId + 'c,
        U: FromSqlRow<ST, Self::Backend> + Send + 'static,
        ST: 'static,
        Self::Backend: QueryMetadata<Q::SqlType>;
}

/// An [`Io`] that can read an application's own `U`, which on a blocking connection has not to be `Send`.
pub trait LoadInto<Conn, ST, U>: LoadIo<Conn> {
    /// The same as [`LoadIo::load_kept`].
    fn load_into<'c, Q>(conn: &'c mut Conn, query: Q) -> Self::Future<'c, QueryResult<Vec<U>>>
    where
        Q: Query + QueryFragment<Self::Backend> + QueryId + 'c,
        Self::Backend: QueryMetadata<Q::SqlType>,
        U: 'c;
}

/// A connection while an operation's steps run on it.
///
/// A future that is dropped leaves its transaction open, in which whatever is counted next would be acknowledged and never committed; and
/// inside a caller's own nobody knows what would be committed with it. It leaves the answer to its last statement behind too:
/// tokio-postgres throws that away; mysql_async reads it in the place of the next statement's. It also leaves what MySQL is told before and
/// after a transaction (`SET autocommit`). Such a connection is broken: it takes no more, and a pool drops it. Only a statement that
/// commits by itself leaves a connection to PostgreSQL or SQLite as it was.
pub(crate) struct InUse<'c, M, Conn>
where
    M: Io<Conn>,
{
    pub(crate) conn: &'c mut Conn,
    /// In a caller's transaction.
    pub(crate) inside: bool,
    answered: bool,
    io: PhantomData<M>,
}

impl<'c, M, Conn> InUse<'c, M, Conn>
where
    M: Io<Conn>,
{
    pub(crate) fn new(conn: &'c mut Conn) -> Self {
        let inside = M::may_be_in_transaction(conn);
        InUse {
            conn,
            inside,
            answered: false,
            io: PhantomData,
        }
    }

    /// No step is under way any more.
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl<M, Conn> Drop for InUse<'_, M, Conn>
where
    M: Io<Conn>,
{
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let dialect = M::Backend::backend_of(self.conn).dialect();
        if self.inside || dialect.answers_in_turn() || M::may_be_in_transaction(self.conn) {
            M::transaction_status(self.conn).set_in_error();
        }
    }
}

/// Diesel's own connections: each call returns when it is done.
#[derive(Debug, Clone, Copy)]
pub struct Blocking;

impl<Conn> Io<Conn> for Blocking
where
    Conn: Connection,
    Conn::Backend: BackendOf<Conn>,
{
    type Backend = Conn::Backend;
    type Future<'c, T: 'c> = Ready<T>;

    fn execute_kept<'c, Q>(conn: &'c mut Conn, statement: Q) -> Ready<QueryResult<usize>>
    where
        Q: Keep<Conn::Backend> + QueryId + 'c,
    {
        let backend = Conn::Backend::backend_of(conn);
        let counted = conn.execute_returning_count(&Kept::new(statement, &backend));
        ready(counted.map_err(|error| told(backend.dialect(), error)))
    }

    fn execute<'c, Q>(conn: &'c mut Conn, statement: Q) -> Ready<QueryResult<usize>>
    where
        Q: QueryFragment<Conn::Backend> + QueryId + 'c,
    {
        let dialect = Conn::Backend::backend_of(conn).dialect();
        let counted = conn.execute_returning_count(&Passing::statement(statement));
        ready(counted.map_err(|error| told(dialect, error)))
    }

    fn execute_query<'c, Q>(conn: &'c mut Conn, query: Q) -> Ready<QueryResult<usize>>
    where
        Q: Query + QueryFragment<Conn::Backend> + QueryId + 'c,
    {
        let dialect = Conn::Backend::backend_of(conn).dialect();
        let counted = conn.execute_returning_count(&Passing::query(query));
        ready(counted.map_err(|error| told(dialect, error)))
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

    fn sleep(retry: &Retry, delay: Duration) -> Ready<()> {
        retry.sleep(delay);
        ready(())
    }
}

impl<Conn> LoadIo<Conn> for Blocking
where
    Conn: LoadConnection,
    Conn::Backend: BackendOf<Conn>,
{
    fn load_kept<'c, ST, U, Q>(conn: &'c mut Conn, query: Q) -> Ready<QueryResult<Vec<U>>>
    where
        Q: Query + QueryFragment<Conn::Backend> + QueryId + 'c,
        U: FromSqlRow<ST, Conn::Backend> + 'static,
        ST: 'static,
        Conn::Backend: QueryMetadata<Q::SqlType>,
    {
        <Blocking as LoadInto<Conn, ST, U>>::load_into(conn, query)
    }

    fn load<'c, ST, U, Q>(conn: &'c mut Conn, query: Q) -> Ready<QueryResult<Vec<U>>>
    where
        Q: Query + QueryFragment<Conn::Backend> + QueryId + 'c,
        U: FromSqlRow<ST, Conn::Backend> + 'static,
        ST: 'static,
        Conn::Backend: QueryMetadata<Q::SqlType>,
    {
        let dialect = Conn::Backend::backend_of(conn).dialect();
        let rows = load::<ST, U, _, _>(conn, Passing::query(query));
        ready(rows.map_err(|error| told(dialect, error)))
    }
}

impl<Conn, ST, U> LoadInto<Conn, ST, U> for Blocking
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
        let rows = load::<ST, U, _, _>(conn, KeptQuery::new(query, &backend));
        ready(rows.map_err(|error| told(backend.dialect(), error)))
    }
}

fn load<ST, U, Q, Conn>(conn: &mut Conn, query: Q) -> QueryResult<Vec<U>>
where
    Q: Query + QueryFragment<Conn::Backend> + QueryId,
    U: FromSqlRow<ST, Conn::Backend>,
    Conn: LoadConnection,
    Conn::Backend: QueryMetadata<Q::SqlType>,
{
    conn.load(query)?
        .map(|row| U::build_from_row(&row?).map_err(DieselError::DeserializationError))
        .collect()
}

/// What became of steps on a [`Blocking`] connection, each of which was done when it was called.
#[inline(always)] // or else the steps, which are kilobytes, are copied first
pub(crate) fn now<T>(steps: impl Future<Output = T>) -> T {
    let mut steps = pin!(steps);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = steps.as_mut().poll(&mut context) {
            return done;
        }
    }
}

/// The same as a step.
pub(crate) fn done<T>(steps: impl Future<Output = T>) -> Ready<T> {
    ready(now(steps))
}

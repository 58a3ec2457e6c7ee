//! What the crate asks of a connection, and how one that blocks and one that is awaited do it.
//!
//! Everything that takes several statements is written once, as an `async fn` that is generic over [`Io`]. On a blocking
//! connection each of its steps is done by the time that it is called, so that the whole is done at its first poll: [`now`].
//! On an asynchronous one it is awaited.
//!
//! The futures of single steps name no query, but only the connection's lifetime: compilers cannot tell that what holds
//! anything else across an `.await` is `Send` (<https://github.com/rust-lang/rust/issues/100013>). For the same reason what is to
//! be tried again stands in a [loop](crate::retry) and not in a closure.

use std::future::Future;
use std::time::Duration;

use diesel::connection::TransactionManagerStatus;
use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::query_builder::{Query, QueryFragment, QueryId};
use diesel::result::QueryResult;

use crate::backend::{BackendOf, Reads};
use crate::policy::RetryPolicy;
use crate::query_builder::Keep;

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
    fn sleep(retry: &RetryPolicy, delay: Duration) -> Self::Future<'_, ()>;
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
        Self::Backend: QueryMetadata<Q::SqlType>;

    /// Reads the rows of `query`.
    fn load<'c, U, Q>(conn: &'c mut Conn, query: Q) -> Self::Future<'c, QueryResult<Vec<U>>>
    where
        Q: Query + QueryFragment<Self::Backend> + QueryId + 'c,
        U: Send + 'static,
        Self::Backend: Reads<Q::SqlType, U>;
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

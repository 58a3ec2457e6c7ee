//! A connection as an operation sees it: a [`Link`] over an [`Io`]. Blocking and asynchronous connections each have an `Io`.
//!
//! An operation of several statements is written once, as an `async fn` over a [`Link`]. On a blocking connection every step completes when
//! it is called, so the operation completes at its first poll: [`now`](super::now). On an asynchronous connection the caller awaits it.
//!
//! The future of a step names the connection's lifetime and no query. If it held anything else across an `.await`, the compiler could not
//! tell that it is `Send` (<https://github.com/rust-lang/rust/issues/100013>). For the same reason a retried operation is the body of a
//! [loop](crate::retry) and not a closure.

use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;

use diesel::connection::{Instrumentation, TransactionManagerStatus};
use diesel::expression::QueryMetadata;
use diesel::query_builder::{Query, QueryFragment, QueryId};
use diesel::result::{Error as DieselError, QueryResult};

use super::wait::Waiting;
use crate::backend::{BackendOf, Dialect, ErrorDetail, Reads, ShardedBackend};
use crate::conflict::{Conflict, ErrorClass};
use crate::error::Error;
use crate::policy::RetryPolicy;
use crate::query_builder::{Prepare, Prepared, PreparedQuery, Unchecked, statement_was_lost};

/// A `Conn` whose calls return as `Run` says: [`Blocking`](super::Blocking) or [`Async`](super::Async).
#[derive(Debug)]
pub struct Over<Run, Conn>(PhantomData<fn() -> (Run, Conn)>);

/// How statements reach a connection.
pub trait Io {
    /// The connection.
    type Conn;

    /// The connection's backend.
    type Backend: BackendOf<Self::Conn>;

    /// A step in progress.
    type Future<'c, T: 'c>: Future<Output = T>;

    /// Sends a statement and returns the number of rows that it matched.
    fn execute<'c, Q>(
        conn: &'c mut Self::Conn,
        statement: Q,
    ) -> Self::Future<'c, QueryResult<usize>>
    where
        Q: QueryFragment<Self::Backend> + QueryId + 'c;

    /// Sends a query and returns the number of its rows.
    fn execute_query<'c, Q>(
        conn: &'c mut Self::Conn,
        query: Q,
    ) -> Self::Future<'c, QueryResult<usize>>
    where
        Q: Query + QueryFragment<Self::Backend> + QueryId + 'c;

    /// Sends nothing and returns 0 rows.
    fn nothing(conn: &mut Self::Conn) -> Self::Future<'_, QueryResult<usize>>;

    /// Sends statements without binds.
    fn batch_execute<'c>(
        conn: &'c mut Self::Conn,
        sql: &'c str,
    ) -> Self::Future<'c, QueryResult<()>>;

    /// Begins a transaction, or a savepoint inside one.
    fn begin(conn: &mut Self::Conn) -> Self::Future<'_, QueryResult<()>>;

    /// Commits the innermost transaction or savepoint.
    fn commit(conn: &mut Self::Conn) -> Self::Future<'_, QueryResult<()>>;

    /// Rolls back the innermost transaction or savepoint.
    fn roll_back(conn: &mut Self::Conn) -> Self::Future<'_, QueryResult<()>>;

    /// Diesel's own record of the transactions on the connection.
    fn transaction_status(conn: &mut Self::Conn) -> &mut TransactionManagerStatus;

    /// Whether a transaction is open, or may be because its `BEGIN` or `COMMIT` was sent and not answered.
    fn may_be_in_transaction(conn: &mut Self::Conn) -> bool;

    /// The receiver of Diesel's events about the connection.
    fn instrumentation(conn: &mut Self::Conn) -> &mut dyn Instrumentation;

    /// Replaces the connection's instrumentation.
    fn set_instrumentation(conn: &mut Self::Conn, instrumentation: impl Instrumentation);

    /// Whether other tasks also send statements on the connection. A transaction or savepoint on it would not be this caller's alone.
    fn is_shared() -> bool {
        false
    }

    /// Waits for another caller, for at most `patience`.
    #[allow(
        private_bounds,
        private_interfaces,
        reason = "only this crate implements and calls it"
    )]
    fn wait<'c, W>(wait: &'c mut W, patience: Duration) -> Self::Future<'c, Option<W::Turn>>
    where
        W: Waiting + Send;

    /// Waits before the next attempt.
    fn sleep(retry: &RetryPolicy, delay: Duration) -> Self::Future<'_, ()>;
}

/// An [`Io`] whose connections return rows.
pub trait LoadIo: Io {
    /// Reads the rows of `query`.
    fn load<'c, U, Q>(conn: &'c mut Self::Conn, query: Q) -> Self::Future<'c, QueryResult<Vec<U>>>
    where
        Q: Query + QueryFragment<Self::Backend> + QueryId + 'c,
        U: Send + 'static,
        Self::Backend: Reads<Q::SqlType, U>;
}

/// An [`Io`] that can read an application's own type `U`. On a blocking connection `U` need not be `Send`.
pub trait LoadInto<ST, U>: LoadIo {
    /// Reads the rows of `query`, of SQL type `ST`. The query is a `SELECT` without a limit; the connection keeps it prepared where it can.
    fn load_into<'c, Q>(
        conn: &'c mut Self::Conn,
        query: Q,
    ) -> Self::Future<'c, QueryResult<Vec<U>>>
    where
        Q: Query + QueryFragment<Self::Backend> + QueryId + 'c,
        Self::Backend: QueryMetadata<Q::SqlType>,
        U: 'c;
}

/// A connection on which an operation runs.
///
/// Each of its methods sends one step. If a future is dropped during an [operation](Self::enter) or a [query](Self::reads), the link marks
/// the connection broken wherever one of these could happen:
///
/// - The transaction stays open. The next increment would be acknowledged and never committed.
/// - The caller's transaction stays open. Nobody knows which steps would be committed with it.
/// - The answer to the last statement was not read. tokio-postgres discards it; mysql_async mistakes it for the next statement's.
/// - MySQL keeps a setting of the transaction (`SET autocommit`).
///
/// A broken connection refuses this crate's increments and Diesel's transactions, and a pool drops it; Diesel still sends a caller's own
/// single statements. On PostgreSQL and SQLite, a drop during a statement that commits by itself leaves the connection as it was.
pub struct Link<'c, M: Io> {
    pub(crate) conn: &'c mut M::Conn,
    /// Whether a caller's transaction is open. Diesel may not know of it.
    pub(crate) inside: bool,
    /// Whether the open transaction, if there is one, holds nothing but this operation.
    pub(crate) owns_transaction: bool,
    /// The number of nested operations in progress.
    under_way: u32,
    /// Whether a query outside of any operation is in progress. It can leave nothing behind but its answer.
    pub(crate) reads: bool,
    /// Whether the last failure in an increment was the insert of the application's row. That row may violate its own foreign keys.
    pub(crate) failed_at_insert: bool,
}

impl<'c, M: Io> Link<'c, M> {
    pub(crate) fn new(conn: &'c mut M::Conn) -> Self {
        Link {
            conn,
            inside: false,
            owns_transaction: false,
            under_way: 0,
            reads: false,
            failed_at_insert: false,
        }
    }

    /// The same link, whose transaction holds nothing but this operation.
    #[cfg(feature = "r2d2")]
    pub(crate) fn in_own_transaction(mut self) -> Self {
        self.owns_transaction = true;
        self
    }

    /// Begins an operation, which may be nested in another.
    pub(crate) fn enter(&mut self) {
        if self.under_way == 0 {
            self.inside = M::may_be_in_transaction(self.conn);
        }
        self.under_way += 1;
    }

    /// Ends the innermost operation.
    pub(crate) fn leave(&mut self) {
        self.under_way -= 1;
    }

    /// The backend of the connection.
    pub(crate) fn backend(&self) -> M::Backend {
        M::Backend::backend_of(self.conn)
    }

    /// The dialect of the connection.
    pub(crate) fn dialect(&self) -> Dialect {
        self.backend().dialect()
    }

    /// Sends a statement that the connection keeps prepared, and returns the number of rows that it matched.
    pub(crate) fn execute_prepared<'s>(
        &'s mut self,
        statement: impl Prepare<M::Backend> + QueryId + 's,
    ) -> M::Future<'s, QueryResult<usize>> {
        let statement = Prepared::new(statement, &self.backend());
        M::execute(self.conn, statement)
    }

    /// See [`Io::execute`].
    pub(crate) fn execute<'s>(
        &'s mut self,
        statement: impl QueryFragment<M::Backend> + QueryId + 's,
    ) -> M::Future<'s, QueryResult<usize>> {
        M::execute(self.conn, Unchecked::statement(statement))
    }

    /// See [`Io::execute_query`].
    pub(crate) fn execute_query<'s>(
        &'s mut self,
        query: impl Query + QueryFragment<M::Backend> + QueryId + 's,
    ) -> M::Future<'s, QueryResult<usize>> {
        M::execute_query(self.conn, Unchecked::query(query))
    }

    /// See [`Io::batch_execute`].
    pub(crate) fn batch_execute<'s>(&'s mut self, sql: &'s str) -> M::Future<'s, QueryResult<()>> {
        M::batch_execute(self.conn, sql)
    }

    /// See [`Io::transaction_status`].
    pub(crate) fn transaction_status(&mut self) -> &mut TransactionManagerStatus {
        M::transaction_status(self.conn)
    }

    /// See [`LoadIo::load`].
    pub(crate) fn load<'s, U, Q>(&'s mut self, query: Q) -> M::Future<'s, QueryResult<Vec<U>>>
    where
        M: LoadIo,
        Q: Query + QueryFragment<M::Backend> + QueryId + 's,
        U: Send + 'static,
        M::Backend: Reads<Q::SqlType, U>,
    {
        M::load(self.conn, Unchecked::query(query))
    }

    /// The same for a query that the client keeps prepared.
    pub(crate) fn load_prepared<'s, U, Q>(
        &'s mut self,
        query: Q,
    ) -> M::Future<'s, QueryResult<Vec<U>>>
    where
        M: LoadIo,
        Q: Query + QueryFragment<M::Backend> + QueryId + 's,
        U: Send + 'static,
        M::Backend: Reads<Q::SqlType, U>,
    {
        let query = PreparedQuery::new(query, &self.backend());
        M::load(self.conn, query)
    }
}

/// Awaits a query outside of any operation. It can leave nothing behind but its answer.
macro_rules! read {
    ($link:ident, $query:expr) => {{
        $link.reads = true;
        let rows = $query.await;
        $link.reads = false;
        rows
    }};
}
pub(crate) use read;

impl<M: Io> Drop for Link<'_, M> {
    fn drop(&mut self) {
        let is_under_way = self.under_way > 0;
        let may_be_unread = is_under_way || self.reads;
        if may_be_unread && self.dialect().unread_reply_breaks_connection()
            || is_under_way && (self.inside || M::may_be_in_transaction(self.conn))
        {
            self.transaction_status().set_in_error();
        }
    }
}

/// Turns a failure of the connection into this crate's own error. When a prepared statement was lost on the server, or a column's type
/// has changed beneath one, this process stops keeping statements prepared.
pub(crate) fn told(dialect: Dialect, error: DieselError) -> DieselError {
    let is_stale = || dialect.has_detail(&error, ErrorDetail::StalePlan);
    match (&error, dialect.classify(&error)) {
        (DieselError::DatabaseError(..), class)
            if class == ErrorClass::Conflict(Conflict::StatementLost)
                || class == ErrorClass::Other && is_stale() =>
        {
            statement_was_lost();
            Error::StatementLost { source: error }.into()
        }
        (DieselError::DatabaseError(_, information), ErrorClass::Other) => {
            match dialect.refused_by(information.message()) {
                Some((setting, remedy)) => Error::RefusedBySetting {
                    setting,
                    remedy,
                    source: error,
                }
                .into(),
                None => error,
            }
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diesel::result::DatabaseErrorKind;

    #[test]
    fn a_setting_that_refuses_a_statement_is_named() {
        let error = |text: &str| {
            DieselError::DatabaseError(DatabaseErrorKind::Unknown, Box::new(text.to_owned()))
        };
        let refused = |dialect, text| match Error::from(told(dialect, error(text))) {
            Error::RefusedBySetting { setting, .. } => Some(setting),
            _ => None,
        };
        let safe = "You are using safe update mode and you tried to update a table without a WHERE";
        assert_eq!(refused(Dialect::Mysql, safe), Some("sql_safe_updates"));
        assert_eq!(refused(Dialect::Postgres, safe), None);
        let log = "Cannot execute statement: impossible to write to binary log since BINLOG_FORMAT = STATEMENT and";
        assert_eq!(refused(Dialect::Mysql, log), Some("binlog_format"));
        let triggers =
            "You do not have the SUPER privilege and binary logging is enabled (you *might*";
        let setting = Some("log_bin_trust_function_creators");
        assert_eq!(refused(Dialect::Mysql, triggers), setting);
        let cluster = "The table does not comply with the requirements by an external plugin.";
        let setting = Some("group_replication_enforce_update_everywhere_checks");
        assert_eq!(refused(Dialect::Mysql, cluster), setting);
        assert_eq!(
            refused(Dialect::Mysql, "Deadlock found when trying to get lock"),
            None
        );
    }
}

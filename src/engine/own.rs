//! Transactions and statements of the crate's own on connections that block.

use diesel::Connection;
use diesel::result::QueryResult;

use super::retry_loop::{RetryLoop, retry_loop};
use crate::backend::BackendOf;
use crate::connection::{Link, TransactionOptions, now};
use crate::policy::RetryPolicy;

/// Runs one of the crate's own operations: in a transaction that is tried again, or in a savepoint of the caller's, where
/// the options are the caller's too.
pub(crate) fn own_transaction<Conn, T>(
    conn: &mut Conn,
    retry: RetryPolicy,
    options: TransactionOptions,
    mut f: impl FnMut(&mut Conn) -> QueryResult<T>,
) -> QueryResult<T>
where
    Conn: Connection,
    Conn::Backend: BackendOf<Conn>,
{
    let link = &mut Link::blocking(conn);
    now(async {
        let retrying = RetryLoop::transaction(link, retry, options)?;
        retry_loop!(link, retrying, f(link.conn))
    })
}

/// Runs one statement of the crate's own that commits by itself, and again after a conflict; inside a caller's transaction
/// once.
pub(crate) fn own_statement<Conn, T>(
    conn: &mut Conn,
    retry: RetryPolicy,
    mut f: impl FnMut(&mut Conn) -> QueryResult<T>,
) -> QueryResult<T>
where
    Conn: Connection,
    Conn::Backend: BackendOf<Conn>,
{
    let link = &mut Link::blocking(conn);
    now(async {
        let retrying = RetryLoop::statement(link, retry)?;
        retry_loop!(link, retrying, f(link.conn))
    })
}

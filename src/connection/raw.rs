//! Transactions that Diesel does not know of: begun by SQL text, or by work on a MySQL connection without autocommit.
//!
//! Inside such a transaction, `BEGIN` is only a warning on PostgreSQL, and on MySQL it commits the transaction. The `COMMIT` that follows
//! would end the caller's transaction. So the crate asks before each `BEGIN`:
//!
//! | database | question | round trips |
//! |---|---|---|
//! | PostgreSQL | a query that finds a row inside a transaction | one |
//! | MySQL, MariaDB | `SET TRANSACTION ISOLATION LEVEL`, which fails inside one; where no level is set, a query | none, or one |
//! | SQLite | `BEGIN`, which fails inside one | none |
//!
//! No question aborts the caller's transaction or logs an error on the server.
//!
//! A statement that commits by itself is sent without the question. Only after a conflict does the crate ask whether the statement was
//! part of a caller's transaction: that one must not be retried.

use diesel::prelude::*;
use diesel::query_builder::QueryId;

use super::link::{Io, Link};
use super::transaction::{Fixed, again_if_interrupted, clean_up, depth};
use crate::backend::{Dialect, ErrorDetail, OpenQuestion, ShardedBackend};
use crate::conflict::{Conflict, ErrorClass};
use crate::error::Error;
use crate::query_builder::{Identified, Prepare};

/// Whether any transaction is open, whether Diesel knows of it or not.
pub(crate) async fn in_any_transaction<M: Io>(link: &mut Link<'_, M>) -> QueryResult<bool> {
    if depth(link)? > 0 {
        return Ok(true);
    }
    link.enter();
    let found = is_open(link).await;
    link.leave();
    let dialect = link.dialect();
    found.map_err(|source| match dialect.classify(&source) {
        ErrorClass::ConnectionLost => Error::ConnectionLost { source }.into(),
        _ => source,
    })
}

/// Whether the next statement commits by itself. A caller that counts for others asks, because their increments need a commit.
pub(crate) async fn commits_by_itself<M: Io>(link: &mut Link<'_, M>) -> QueryResult<bool> {
    let dialect = link.dialect();
    let Some(sql) = dialect.asks_whether_commits() else {
        return Ok(!in_any_transaction(link).await?);
    };
    if depth(link)? > 0 {
        return Ok(false);
    }
    link.enter();
    let refused = is_refused(dialect, link.execute(Fixed(sql)).await);
    link.leave();
    Ok(!refused?)
}

/// Whether a transaction is open that Diesel does not know of.
pub(super) async fn is_open<M: Io>(link: &mut Link<'_, M>) -> QueryResult<bool> {
    let dialect = link.dialect();
    let answer = match dialect.asks_whether_open() {
        OpenQuestion::Rows { is_older, is_same } => {
            return is_open_by_rows(link, is_older, is_same).await;
        }
        OpenQuestion::Statement(sql) => link.execute(Fixed(sql)).await.map(drop),
        OpenQuestion::Batch(sql) => link.batch_execute(sql).await,
    };
    is_refused(dialect, answer)
}

/// How often the question is sent while a pooler loses its prepared statement.
const MOST_QUESTIONS: u8 = 32;

async fn is_open_by_rows<M: Io>(
    link: &mut Link<'_, M>,
    is_older: &'static str,
    is_same: &'static str,
) -> QueryResult<bool> {
    let mut tries = 0;
    loop {
        let open = match link
            .execute_prepared(Identified::<IsOlder, _>::new(Fixed(is_older)))
            .await
        {
            Ok(0) => return Ok(false),
            Ok(_) => link
                .execute_query(Fixed(is_same))
                .await
                .map(|rows| rows > 0),
            Err(error) => Err(error),
        };
        let Err(error) = open else { return open };
        tries += 1;
        match link.dialect().classify(&error) {
            // Behind a pooler, which keeps a transaction on one server connection: a transaction would already be aborted.
            ErrorClass::Conflict(Conflict::StatementLost) if tries < MOST_QUESTIONS => {}
            // An engine that speaks PostgreSQL's protocol may lack the functions in the question. If the error has aborted a
            // caller's transaction, the next statement reports that.
            ErrorClass::Other => return Ok(false),
            _ => return Err(error),
        }
    }
}

/// Whether a statement failed because it is refused inside a transaction.
fn is_refused<T>(dialect: Dialect, outcome: QueryResult<T>) -> QueryResult<bool> {
    match outcome {
        Ok(_) => Ok(false),
        Err(error) if dialect.has_detail(&error, ErrorDetail::RefusedInside) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether a statement that met a conflict was part of a caller's transaction that Diesel does not know of. Then no attempt may follow.
/// `ended` says whether this kind of conflict ends a transaction.
///
/// After an error PostgreSQL refuses every statement of the transaction, so any statement shows it; it is sent again if it is interrupted.
/// MySQL ends the transaction at a deadlock, but its session counts statements, and a `BEGIN` without its `COMMIT` or `ROLLBACK` shows. (A
/// `COMMIT` or `ROLLBACK` that ended nothing hides it. This crate [notes](note_surplus) its own; an application does not.)
pub(crate) async fn met_inside<M: Io>(link: &mut Link<'_, M>, ended: bool) -> QueryResult<bool> {
    let dialect = link.dialect();
    let refuses = dialect.refuses_after_errors();
    let met = again_if_interrupted!(
        link,
        match dialect.asks_whether_was_open() {
            Some(begun) if ended => match link.execute(Fixed(begun.reads)).await {
                Ok(_) => is_refused(dialect, link.execute(Fixed(begun.asks)).await),
                Err(error) => Err(error),
            },
            _ if refuses => link.batch_execute("SELECT 1").await.map(|()| false),
            _ => is_open(link).await,
        }
    );
    match met {
        Err(error) if refuses && dialect.may_succeed_again(&error) => Ok(true),
        met => met,
    }
}

/// Notes that this crate, or Diesel on its behalf, has sent a `ROLLBACK` that may have ended nothing. No transaction is open.
pub(crate) async fn note_surplus<M: Io>(link: &mut Link<'_, M>) {
    let begun = link.dialect().asks_whether_was_open();
    if let (Some(begun), Ok(0)) = (begun, depth(link)) {
        clean_up(link, begun.reads).await;
        clean_up(link, begun.notes).await;
    }
}

/// The first query of [`OpenQuestion::Rows`]. Only if it is kept prepared is its answer enough.
#[derive(QueryId)]
struct IsOlder;

impl<DB: ShardedBackend> Prepare<DB> for Fixed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "sqlite")]
    #[test]
    fn a_transaction_begun_by_text_is_found_and_left_as_it_is() {
        use crate::connection::{TransactionOptions, begin, now};
        use diesel::connection::SimpleConnection;
        let conn = &mut diesel::SqliteConnection::establish(":memory:").unwrap();
        let is_open = |conn: &mut diesel::SqliteConnection| now(is_open(&mut Link::blocking(conn)));
        assert_eq!(is_open(conn), Ok(false));
        conn.batch_execute("BEGIN; CREATE TABLE t (x INTEGER)")
            .unwrap();
        assert_eq!(is_open(conn), Ok(true));
        let savepoint = |conn: &mut diesel::SqliteConnection| {
            let options = TransactionOptions::guarded();
            now(begin(&mut Link::blocking(conn), options)).unwrap()
        };
        let (mut outer, nested) = (savepoint(conn), savepoint(conn));
        assert!(outer.is_in_anothers() && nested.is_in_anothers());
        conn.batch_execute("INSERT INTO t VALUES (1)").unwrap();
        now(nested.roll_back(&mut Link::blocking(conn)));
        conn.batch_execute("INSERT INTO t VALUES (2)").unwrap();
        assert_eq!(now(outer.commit(&mut Link::blocking(conn))), Ok(()));
        conn.batch_execute("COMMIT").unwrap();
        assert_eq!(is_open(conn), Ok(false));
        let kept = diesel::sql_query("DELETE FROM t WHERE x = 2").execute(conn);
        assert_eq!(kept, Ok(1));
        let taken_back = diesel::sql_query("DELETE FROM t").execute(conn);
        assert_eq!(taken_back, Ok(0));
    }
}

//! Transactions that Diesel does not know: begun by SQL text, or by work on a MySQL connection without autocommit.
//!
//! Inside one, `BEGIN` is a warning on PostgreSQL, and commits it on MySQL; the `COMMIT` that follows would end the caller's
//! transaction. So a question comes before each `BEGIN`:
//!
//! | database | question | round trips |
//! |---|---|---|
//! | PostgreSQL | a query that meets a row inside a transaction | one |
//! | MySQL, MariaDB | `SET TRANSACTION ISOLATION LEVEL`, which fails inside one; where none is set, a query | none, or one |
//! | SQLite | `BEGIN`, which fails inside one | none |
//!
//! None of them fails in a way that would abort the caller's transaction, or logs an error on the server.
//!
//! A statement that commits by itself is sent without the question, which follows only after a conflict: no retry may follow in the
//! place of a caller's transaction.

use diesel::prelude::*;
use diesel::query_builder::QueryId;

use super::link::{Io, Link};
use super::transaction::{Fixed, again_if_interrupted, clean_up, depth};
use crate::backend::{Dialect, Meaning, OpenQuestion, ShardedBackend};
use crate::conflict::{Conflict, Failure};
use crate::error::Error;
use crate::query_builder::{Identified, Prepare};

/// Whether any transaction is open, one that Diesel knows or another.
pub(crate) async fn in_any_transaction<M: Io<Conn>, Conn>(
    link: &mut Link<'_, M, Conn>,
) -> QueryResult<bool> {
    if depth(link)? > 0 {
        return Ok(true);
    }
    link.enter();
    let found = is_open(link).await;
    link.leave();
    let dialect = link.dialect();
    found.map_err(|source| match dialect.classify(&source) {
        Failure::ConnectionLost => Error::ConnectionLost { source }.into(),
        _ => source,
    })
}

/// Whether the next statement commits by itself. Whoever counts for others asks, since nothing is theirs before it is committed.
pub(crate) async fn commits_by_itself<M, Conn>(link: &mut Link<'_, M, Conn>) -> QueryResult<bool>
where
    M: Io<Conn>,
{
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

/// Whether a transaction is open that Diesel does not know.
pub(super) async fn is_open<M: Io<Conn>, Conn>(link: &mut Link<'_, M, Conn>) -> QueryResult<bool> {
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

/// How often the question is asked if a pooler loses its statement.
const MOST_LOOKS: u8 = 32;

async fn is_open_by_rows<M: Io<Conn>, Conn>(
    link: &mut Link<'_, M, Conn>,
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
            // Behind a pooler; a transaction stays on its connection, and would be aborted by now.
            Failure::Conflict(Conflict::StatementLost) if tries < MOST_LOOKS => {}
            // An engine that speaks PostgreSQL's protocol may lack what is asked. If that has aborted a transaction of the
            // caller's, the next statement says so.
            Failure::Other => return Ok(false),
            _ => return Err(error),
        }
    }
}

/// Whether a statement failed because it is refused inside a transaction.
fn is_refused<T>(dialect: Dialect, outcome: QueryResult<T>) -> QueryResult<bool> {
    match outcome {
        Ok(_) => Ok(false),
        Err(error) if dialect.means(&error, Meaning::RefusedInside) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether a statement that met a conflict was part of a caller's transaction that Diesel does not know. No further attempt may follow
/// then. `ended`: the conflict is one that ends a transaction.
///
/// PostgreSQL refuses every statement in a transaction that met an error; one that is interrupted is followed by another. MySQL ends the
/// transaction at a deadlock; but a connection counts its statements, among which a `BEGIN` without its `COMMIT` or `ROLLBACK` shows. (One
/// of these that ended nothing hides it: those of this crate are [noted](note_surplus), those of an application are not.)
pub(crate) async fn met_inside<M: Io<Conn>, Conn>(
    link: &mut Link<'_, M, Conn>,
    ended: bool,
) -> QueryResult<bool> {
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

/// Notes that this crate has sent a `ROLLBACK`, or Diesel for it, that may have ended nothing. No transaction is open.
pub(crate) async fn note_surplus<M: Io<Conn>, Conn>(link: &mut Link<'_, M, Conn>) {
    let begun = link.dialect().asks_whether_was_open();
    if let (Some(begun), Ok(0)) = (begun, depth(link)) {
        clean_up(link, begun.reads).await;
        clean_up(link, begun.notes).await;
    }
}

/// The first query of [`OpenQuestion::Rows`]. Kept prepared, since only then its answer is enough.
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

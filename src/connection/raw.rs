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

use std::sync::atomic::{AtomicU64, Ordering};

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::sql_types::Integer;

use super::depth::depth;
use super::link::{Io, Link, MOST_TRIES};
use crate::backend::{Dialect, ShardedBackend};
use crate::conflict::{Conflict, Failure};
use crate::error::Error;
use crate::query_builder::Keep;

/// Whether any transaction is open, one that Diesel knows or another.
pub(crate) async fn in_any_transaction<M, Conn>(link: &mut Link<'_, M, Conn>) -> QueryResult<bool>
where
    M: Io<Conn>,
{
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

/// Whether a transaction is open that Diesel does not know.
pub(super) async fn is_open<M, Conn>(link: &mut Link<'_, M, Conn>) -> QueryResult<bool>
where
    M: Io<Conn>,
{
    match link.dialect() {
        Dialect::Postgres => {
            let mut tries = 0;
            loop {
                let open = match link.execute_kept(IsOlder).await {
                    Ok(0) => return Ok(false),
                    Ok(_) => link.execute_query(IsSame).await.map(|rows| rows > 0),
                    Err(error) => Err(error),
                };
                let Err(error) = open else { return open };
                tries += 1;
                match Dialect::Postgres.classify(&error) {
                    // Behind a pooler; a transaction stays on its connection, and would be aborted by now.
                    Failure::Conflict(Conflict::StatementLost) if tries < MOST_LOOKS => {}
                    // An engine that speaks PostgreSQL's protocol may lack what is asked. If that has aborted a transaction of the
                    // caller's, the next statement says so.
                    Failure::Other => return Ok(false),
                    _ => return Err(error),
                }
            }
        }
        Dialect::Mysql => fails(link.execute(IsOpen).await),
        Dialect::Sqlite => fails(link.batch_execute("BEGIN; ROLLBACK").await),
    }
}

/// How often the question is asked if a pooler loses its statement.
const MOST_LOOKS: u8 = 32;

/// Whether a statement failed because it is refused inside a transaction.
fn fails<T>(outcome: QueryResult<T>) -> QueryResult<bool> {
    match outcome {
        Ok(_) => Ok(false),
        Err(error) if is_refused_inside(&error) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether a statement was refused inside a transaction: SQLite's `BEGIN`, MySQL's `SET TRANSACTION` (1568), and MariaDB's subquery,
/// which gives two rows there (1242).
pub(crate) fn is_refused_inside(error: &DieselError) -> bool {
    let DieselError::DatabaseError(DatabaseErrorKind::Unknown, information) = error else {
        return false;
    };
    REFUSED_INSIDE.contains(&information.message())
}

const REFUSED_INSIDE: [&str; 3] = [
    "cannot start a transaction within a transaction",
    "Transaction characteristics can't be changed while a transaction is in progress",
    "Subquery returns more than 1 row",
];

/// Whether a statement that met a conflict was part of a caller's transaction that Diesel does not know. No further attempt may follow
/// then. `ended`: the conflict is one that ends a transaction.
///
/// PostgreSQL refuses every statement in a transaction that met an error; one that is interrupted is followed by another. MySQL ends the transaction at a deadlock; but a connection
/// counts its statements, among which a `BEGIN` without its `COMMIT` or `ROLLBACK` shows. (A surplus of these, as after a `COMMIT`
/// that failed, hides one.)
pub(crate) async fn met_inside<M, Conn>(
    link: &mut Link<'_, M, Conn>,
    ended: bool,
) -> QueryResult<bool>
where
    M: Io<Conn>,
{
    let dialect = link.dialect();
    let mut tries = 0;
    loop {
        let met = match dialect {
            Dialect::Postgres => link.batch_execute("SELECT 1").await.map(|()| false),
            Dialect::Mysql if ended => fails(link.execute(WasOpen).await),
            Dialect::Mysql | Dialect::Sqlite => is_open(link).await,
        };
        tries += 1;
        match met {
            Err(error) if !dialect.may_succeed_again(&error) => return Err(error),
            Err(_) if tries < MOST_TRIES => {}
            Err(_) if dialect == Dialect::Postgres => return Ok(true),
            met => return met,
        }
    }
}

/// A savepoint in a transaction that Diesel does not know. Diesel does not know the savepoint either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Savepoint(u64);

impl Savepoint {
    /// Sets one under a name of its own: MySQL forgets an earlier savepoint of the same name.
    pub(super) async fn set<M, Conn>(link: &mut Link<'_, M, Conn>) -> QueryResult<Self>
    where
        M: Io<Conn>,
    {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let sql = format!("SAVEPOINT diesel_sharded_{number}");
        link.batch_execute(&sql).await?;
        Ok(Savepoint(number))
    }

    pub(super) async fn release<M, Conn>(self, link: &mut Link<'_, M, Conn>) -> QueryResult<()>
    where
        M: Io<Conn>,
    {
        let Savepoint(number) = self;
        let sql = format!("RELEASE SAVEPOINT diesel_sharded_{number}");
        link.batch_execute(&sql).await
    }

    pub(super) async fn roll_back<M, Conn>(self, link: &mut Link<'_, M, Conn>) -> QueryResult<()>
    where
        M: Io<Conn>,
    {
        let Savepoint(number) = self;
        let sql = format!("ROLLBACK TO SAVEPOINT diesel_sharded_{number}");
        link.batch_execute(&sql).await
    }
}

/// Queries that meet a row if the answer is yes.
macro_rules! questions {
    ($($(#[$doc:meta])+ $name:ident = $sql:expr;)+) => {$(
        $(#[$doc])+
        #[derive(QueryId)]
        struct $name;

        impl<DB: ShardedBackend> QueryFragment<DB> for $name {
            fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
                out.push_sql($sql);
                Ok(())
            }
        }

        impl Query for $name {
            type SqlType = Integer;
        }
    )+};
}

questions! {
    /// PostgreSQL: whether the transaction is older than the query, whose own portal is among the cursors and was made when its
    /// parameters came. (The query's own time is that of its execution, which is a later message.) Where a query is prepared and
    /// executed in one go, the answer is always yes; so the transaction's time is noted, in a variable that ends with it.
    IsOlder = "SELECT 1 FROM pg_catalog.pg_cursors WHERE name = '' AND creation_time <> transaction_timestamp() \
               AND set_config('diesel_sharded.began', transaction_timestamp()::text, true) IS NOT NULL";
    /// PostgreSQL: whether the transaction is the one in which `IsOlder` was asked.
    IsSame = "SELECT 1 WHERE current_setting('diesel_sharded.began', true) = transaction_timestamp()::text";
    /// MySQL, MariaDB: fails if a transaction is open. (Not every driver tells how many rows a query gives.) MySQL has no variable for
    /// that, but refuses inside of one to set the isolation of the next; outside it is set to what it would be anyway.
    IsOpen = "/*M!100000 SET @diesel_sharded_open = (SELECT 0 UNION SELECT @@in_transaction) */\
              /*!50720 SET @@transaction_isolation = @@session.transaction_isolation */";
    /// MySQL, MariaDB: fails if a transaction was open when it was ended by a deadlock. MySQL, whose table of a session's status lacks
    /// these numbers, wants a privilege for the other table; without it nobody can tell.
    WasOpen = "SET @diesel_sharded_open = (SELECT 0 UNION SELECT @@autocommit = 0 OR (\
               /*M!100000 SELECT SUM(IF(VARIABLE_NAME = 'Com_begin', VARIABLE_VALUE, -VARIABLE_VALUE)) \
               FROM information_schema.session_status \
               WHERE VARIABLE_NAME IN ('Com_begin', 'Com_commit', 'Com_rollback') */\
               /*!80016 SELECT SUM(IF(EVENT_NAME = 'statement/sql/begin', COUNT_STAR, -CAST(COUNT_STAR AS SIGNED))) \
               FROM performance_schema.events_statements_summary_by_thread_by_event_name \
               WHERE THREAD_ID = PS_CURRENT_THREAD_ID() AND EVENT_NAME IN \
               ('statement/sql/begin', 'statement/sql/commit', 'statement/sql/rollback') */) > 0)";
}

/// Kept prepared, since only then the first answer is enough.
impl<DB: ShardedBackend> Keep<DB> for IsOlder {}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(message: &str) -> DieselError {
        DieselError::DatabaseError(DatabaseErrorKind::Unknown, Box::new(message.to_owned()))
    }

    #[test]
    fn what_is_refused_inside_a_transaction() {
        for message in REFUSED_INSIDE {
            assert!(is_refused_inside(&error(message)));
            let kind = DatabaseErrorKind::UniqueViolation;
            let quoted = DieselError::DatabaseError(kind, Box::new(message.to_owned()));
            assert!(!is_refused_inside(&quoted));
        }
        assert!(!is_refused_inside(&error("database is locked")));
        assert!(!is_refused_inside(&DieselError::NotFound));
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn a_transaction_begun_by_text_is_found_and_left_as_it_is() {
        use crate::connection::now;
        use diesel::connection::SimpleConnection;
        let conn = &mut diesel::SqliteConnection::establish(":memory:").unwrap();
        let is_open = |conn: &mut diesel::SqliteConnection| now(is_open(&mut Link::blocking(conn)));
        assert_eq!(is_open(conn), Ok(false));
        conn.batch_execute("BEGIN; CREATE TABLE t (x INTEGER)")
            .unwrap();
        assert_eq!(is_open(conn), Ok(true));
        let savepoint = now(Savepoint::set(&mut Link::blocking(conn))).unwrap();
        let nested = now(Savepoint::set(&mut Link::blocking(conn))).unwrap();
        conn.batch_execute("INSERT INTO t VALUES (1)").unwrap();
        assert_eq!(now(nested.roll_back(&mut Link::blocking(conn))), Ok(()));
        conn.batch_execute("INSERT INTO t VALUES (2)").unwrap();
        assert_eq!(now(savepoint.release(&mut Link::blocking(conn))), Ok(()));
        conn.batch_execute("COMMIT").unwrap();
        assert_eq!(is_open(conn), Ok(false));
        let kept = diesel::sql_query("DELETE FROM t WHERE x = 2").execute(conn);
        assert_eq!(kept, Ok(1));
        let taken_back = diesel::sql_query("DELETE FROM t").execute(conn);
        assert_eq!(taken_back, Ok(0));
    }
}

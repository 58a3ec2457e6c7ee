//! The mark that a batch leaves in the transaction that commits it.
//!
//! If the connection is lost while COMMIT is in flight, the outcome is unknown. So each coalescer has a row in a
//! table of the library's own, and every batch writes its number there, in the same transaction as the counts. A new connection
//! then locks that row, which waits for anything that the old one may still be doing, and reads which batch was committed
//! last. A statement that the old connection sent is over by then, since its answer came before COMMIT was sent.
//!
//! Times are those of the database's own clock, so that no process with a wrong clock removes another's row. If the row is still
//! missing, the coalescer reports that the outcome of that COMMIT is unknown.

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Binary};

use crate::backend::{BackendOf, Dialect, ShardedBackend, Strength};
use crate::connection::{Blocking, Io, LoadIo, TransactionOptions, now};
use crate::engine::{explain_missing, own_statement, own_transaction};
use crate::per_process::random;
use crate::policy::RetryPolicy;
use crate::query_builder::{Sql, bind, id, on, sql};

pub(super) const TABLE: &str = "diesel_sharded_batches";

/// Rows that were not written for so long are removed. A coalescer whose row is gone makes a new one.
const KEPT_SECONDS: i64 = 30 * 24 * 3600;

/// One coalescer's row.
#[derive(Debug)]
pub(super) struct Token {
    coalescer: [u8; 16],
    /// The number of the last batch that was sent.
    batch: i64,
}

/// The values that a batch writes to the row.
#[derive(Debug, Clone, Copy)]
pub struct BatchMark {
    coalescer: [u8; 16],
    batch: i64,
}

impl Token {
    pub(super) fn new() -> QueryResult<Self> {
        let (coalescer, batch) = (random()?, 0);
        Ok(Token { coalescer, batch })
    }

    /// A number that is this coalescer's own, more or less.
    pub(super) fn number(&self) -> u16 {
        u16::from_ne_bytes([self.coalescer[0], self.coalescer[1]])
    }

    /// The mark of the next batch.
    pub(super) fn next(&mut self) -> BatchMark {
        self.batch += 1;
        self.mark()
    }

    fn mark(&self) -> BatchMark {
        BatchMark {
            coalescer: self.coalescer,
            batch: self.batch,
        }
    }

    /// Creates the row, and removes rows that crashed processes left long ago.
    ///
    /// ```sql
    /// DELETE FROM "diesel_sharded_batches" WHERE "written" < now - $1;
    /// INSERT INTO "diesel_sharded_batches" ("coalescer", "batch", "written") VALUES ($1, $2, now)
    /// ```
    pub(super) fn register<Conn>(&self, conn: &mut Conn) -> QueryResult<()>
    where
        Conn: LoadConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        let row = Insert(self.mark());
        let old = DeleteOld(KEPT_SECONDS);
        own_transaction(conn, RetryPolicy::default(), outermost(), |conn| {
            now(Blocking::execute(conn, &old))
                .and_then(|_| now(Blocking::execute(conn, &row)))
                .map_err(|error| explained(conn, error))
        })
        .map(drop)
    }

    /// Whether the last batch was committed; `None` if the row is gone. If it was not committed, it never will be: the row gets a
    /// higher number, so that a statement that is still on its way meets no row.
    ///
    /// ```sql
    /// SELECT "coalescer", "batch" FROM "diesel_sharded_batches" WHERE "coalescer" = $1 FOR UPDATE;
    /// UPDATE "diesel_sharded_batches" SET "batch" = $1, "written" = now WHERE "coalescer" = $2 AND "batch" < $3
    /// ```
    pub(super) fn was_committed<Conn>(&mut self, conn: &mut Conn) -> QueryResult<Option<bool>>
    where
        Conn: LoadConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        let sent = self.batch;
        let beyond = self.next();
        let committed = own_transaction(conn, RetryPolicy::default(), outermost(), |conn| {
            let find = Find(self.coalescer);
            let rows = now(<Blocking as LoadIo<Conn>>::load(conn, find))?;
            let committed = rows.first().map(|(_, batch)| *batch == sent);
            if committed == Some(false) {
                stamp(conn, beyond)?;
            }
            Ok(committed)
        });
        if committed.is_err() {
            self.batch = sent; // so that it can be asked again
        }
        committed
    }

    /// ```sql
    /// DELETE FROM "diesel_sharded_batches" WHERE "coalescer" = $1
    /// ```
    pub(super) fn remove<Conn>(&self, conn: &mut Conn, retry: RetryPolicy) -> QueryResult<()>
    where
        Conn: LoadConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        own_statement(conn, retry, |conn| {
            now(Blocking::execute(conn, Delete(self.coalescer)))
        })
        .map(drop)
    }
}

/// Refuses a transaction that somebody else has begun on the connection: its owner decides whether the mark is committed.
fn outermost() -> TransactionOptions {
    TransactionOptions {
        outermost: true,
        ..TransactionOptions::guarded()
    }
}

/// Writes the mark. Returns whether the row exists and holds an earlier batch.
///
/// ```sql
/// UPDATE "diesel_sharded_batches" SET "batch" = $1, "written" = now WHERE "coalescer" = $2 AND "batch" < $3
/// ```
pub(super) fn stamp<Conn>(conn: &mut Conn, mark: BatchMark) -> QueryResult<bool>
where
    Conn: LoadConnection,
    Conn::Backend: BackendOf<Conn>,
{
    let stamped = now(Blocking::execute(conn, Stamp(mark)));
    Ok(stamped.map_err(|error| explained(conn, error))? > 0)
}

fn explained<Conn>(conn: &Conn, error: diesel::result::Error) -> diesel::result::Error
where
    Conn: LoadConnection,
    Conn::Backend: BackendOf<Conn>,
{
    explain_missing(&Conn::Backend::backend_of(conn), TABLE, error)
}

impl BatchMark {
    /// `batch = $1, written = now`
    pub(super) fn assignments<'b, DB: ShardedBackend>(&'b self) -> impl Sql<'b, DB> {
        sql! { id("batch"), " = ", bind(BigInt, &self.batch), ", ", id("written"), " = ", on(Dialect::seconds_since_1970) }
    }

    /// `coalescer = $1 AND batch < $2`
    pub(super) fn filter<'b, DB: ShardedBackend>(&'b self) -> impl Sql<'b, DB> {
        sql! { coalescer_is(&self.coalescer), " AND ", id("batch"), " < ", bind(BigInt, &self.batch) }
    }
}

#[derive(QueryId)]
struct Stamp(BatchMark);

impl<DB: ShardedBackend> QueryFragment<DB> for Stamp {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        sql!(out; "UPDATE ", id(TABLE), " SET ", self.0.assignments(), " WHERE ", self.0.filter())
    }
}

#[derive(QueryId)]
struct Insert(BatchMark);

impl<DB: ShardedBackend> QueryFragment<DB> for Insert {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        sql!(out;
            "INSERT INTO ", id(TABLE), " (", id("coalescer"), ", ", id("batch"), ", ", id("written"), ") VALUES (",
            bind(Binary, &self.0.coalescer[..]), ", ", bind(BigInt, &self.0.batch), ", ", on(Dialect::seconds_since_1970), ")")
    }
}

#[derive(QueryId)]
struct DeleteOld(i64);

impl<DB: ShardedBackend> QueryFragment<DB> for DeleteOld {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        sql!(out;
            "DELETE FROM ", id(TABLE), " WHERE ", id("written"), " < ", on(Dialect::seconds_since_1970), " - ", bind(BigInt, &self.0),
            on(Dialect::deletes_all))
    }
}

#[derive(QueryId)]
struct Find([u8; 16]);

impl<DB: ShardedBackend> QueryFragment<DB> for Find {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        sql!(out;
            "SELECT ", id("coalescer"), ", ", id("batch"), " FROM ", id(TABLE), " WHERE ", coalescer_is(&self.0),
            on(Dialect::all_rows), on(|dialect| dialect.locks_rows(Strength::Exclusive)))
    }
}

impl Query for Find {
    type SqlType = (Binary, BigInt);
}

#[derive(QueryId)]
struct Delete([u8; 16]);

impl<DB: ShardedBackend> QueryFragment<DB> for Delete {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        sql!(out; "DELETE FROM ", id(TABLE), " WHERE ", coalescer_is(&self.0))
    }
}

/// `coalescer = $n`
fn coalescer_is<'b, DB: ShardedBackend>(coalescer: &'b [u8]) -> impl Sql<'b, DB> {
    sql! { id("coalescer"), " = ", bind(Binary, coalescer) }
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::sql;
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::sqlite::Sqlite;

    /// No statement carries a process' time.
    #[test]
    fn the_time_is_the_databases() {
        let mark = Token::new().unwrap().next();
        assert_eq!(
            sql!(Pg, Stamp(mark)),
            r#"UPDATE "diesel_sharded_batches" SET "batch" = $1, "written" = EXTRACT(EPOCH FROM statement_timestamp())::BIGINT WHERE "coalescer" = $2 AND "batch" < $3"#
        );
        assert_eq!(
            sql!(Mysql, Insert(mark)),
            "INSERT INTO `diesel_sharded_batches` (`coalescer`, `batch`, `written`) VALUES (?, ?, CAST(UNIX_TIMESTAMP() AS SIGNED))"
        );
        assert_eq!(
            sql!(Sqlite, DeleteOld(KEPT_SECONDS)),
            "DELETE FROM `diesel_sharded_batches` WHERE `written` < CAST(strftime('%s', 'now') AS INTEGER) - ?"
        );
    }
}

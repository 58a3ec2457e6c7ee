//! The databases and their connection types, with all statements of the clients and of the checker.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use clap::ValueEnum;
use diesel::connection::{LoadConnection, SimpleConnection};
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::r2d2::R2D2Connection;
use diesel::sql_types::BigInt;
use diesel_async::AsyncPgConnection;
use diesel_migrations::MigrationHarness;
use diesel_sharded::backend::BackendOf;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::Isolation;
use diesel_sharded::{Error, MIGRATIONS, RowCounter, ShardsTable};
use diesel_sharded_tests::awaited::{self, Awaited};
use serde::{Deserialize, Serialize};

use crate::operation::{Begin, Counter, Operation, Totals};
use crate::schema::chaos_rows::dsl::*;
use crate::schema::{chaos_rows, chaos_tokens, idempotency_keys};

/// The kinds of databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Backend {
    #[value(alias = "postgresql")]
    Postgres,
    #[value(alias = "mysql")]
    Mariadb,
    Sqlite,
}

impl Backend {
    pub const ALL: [Backend; 3] = [Backend::Postgres, Backend::Mariadb, Backend::Sqlite];
    /// The databases with a server process.
    pub const SERVERS: [Backend; 2] = [Backend::Postgres, Backend::Mariadb];
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Backend::Postgres => "PostgreSQL",
            Backend::Mariadb => "MariaDB",
            Backend::Sqlite => "SQLite",
        })
    }
}

/// Runs an expression in which a name stands for the connection type of a [`Backend`].
#[macro_export]
macro_rules! with_connection {
    ($backend:expr, $Conn:ident => $run:expr) => {
        match $backend {
            $crate::backend::Backend::Postgres => {
                type $Conn = ::diesel::PgConnection;
                $run
            }
            $crate::backend::Backend::Mariadb => {
                type $Conn = ::diesel::MysqlConnection;
                $run
            }
            $crate::backend::Backend::Sqlite => {
                type $Conn = ::diesel::SqliteConnection;
                $run
            }
        }
    };
}

/// A connection of a client, or of the checker.
pub trait ChaosConnection:
    LoadConnection<Backend: BackendOf<Self>> + R2D2Connection + Send + Sized + 'static
{
    /// The SQL expression of the number of other connections to this database; `None` if there is no server.
    const OTHERS: Option<&'static str>;

    /// Runs one operation of the library on this connection.
    ///
    /// # Errors
    /// The library's errors, unchanged.
    fn run(&mut self, operation: &Operation) -> Result<Done, Error>;

    /// Counts through the coalescer, with an idempotency key if `request` is set.
    ///
    /// # Errors
    /// The library's errors, unchanged.
    fn coalesce(
        coalescer: &Coalescer<Self>,
        row: i64,
        n: i64,
        request: Option<&str>,
    ) -> Result<usize, Error>;

    /// Sets the number of shards, in the database and for this process.
    fn resize(&mut self, shards: u16) -> QueryResult<()>;

    /// Creates the clients' tables and the library's own.
    fn create_tables(&mut self);

    /// Inserts rows, with the team of each.
    fn insert_rows(&mut self, rows: &[(i64, Option<i64>)], base: i64) -> QueryResult<()>;

    /// Returns the number of other connections to this database; 0 if there is no server.
    fn others(&mut self) -> QueryResult<i64>;

    /// Reads the tokens and the idempotency keys that begin with `prefix`.
    fn tokens(&mut self, prefix: &str) -> QueryResult<Vec<String>>;

    /// Configures a new connection whose calls have this deadline.
    fn set_up(&mut self, deadline: Duration) -> QueryResult<()>;

    /// Makes the server end one other connection. Returns whether there was one.
    fn terminate_another(&mut self) -> QueryResult<bool>;
}

/// The result of an operation.
#[derive(Debug)]
pub enum Done {
    Read(Totals),
    /// The number of rows that were counted, and the number of rows that are there.
    Rows(usize, usize),
    Nothing,
}

/// Bounds that no client's counts reach.
const BOUNDS: RangeInclusive<i64> = -1_000_000..=1_000_000;

/// The connection's type, and the module of the operations on it: the library's own, or those that wait for its futures.
macro_rules! chaos_connection {
    ($Conn:ty, $library:ident { $($item:item)* }) => {
        impl ChaosConnection for $Conn {
            $($item)*

            fn coalesce(
                coalescer: &Coalescer<Self>,
                row: i64,
                n: i64,
                request: Option<&str>,
            ) -> Result<usize, Error> {
                let counter = RowCounter::of(views, row);
                match request {
                    None => coalescer.add(&counter, n),
                    Some(request) => coalescer.add(&counter.idempotency_key(request), n),
                }
            }

            fn run(&mut self, operation: &Operation) -> Result<Done, Error> {
                use $library::retry::Transaction;
                use $library::{Counter as NamedCounter, fold, set_total, update};
                let conn = self;
                match operation {
                    Operation::Count { row, views: n, likes: None } => {
                        let counted = update(chaos_rows.find(*row)).set(views.eq(views + n));
                        Ok(Done::Rows(counted.execute(conn)?, 1))
                    }
                    Operation::Count { row, views: n, likes: Some(m) } => {
                        let counted = update(chaos_rows.find(*row))
                            .set((views.eq(views + n), likes.eq(likes + m)));
                        Ok(Done::Rows(counted.execute(conn)?, 1))
                    }
                    Operation::CountTeam { team: of, rows, n } => {
                        let counted = update(chaos_rows.filter(team.eq(*of))).set(views.eq(views + n));
                        Ok(Done::Rows(counted.execute(conn)?, rows.len()))
                    }
                    Operation::CountOrInsert { row, n } => {
                        let counted = update(chaos_rows.find(*row))
                            .set(views.eq(views + n))
                            .or_insert((chaos_rows::id.eq(*row), views.eq(0), likes.eq(0)));
                        Ok(Done::Rows(counted.execute(conn)?, 1))
                    }
                    Operation::CountNamed { name, n } => {
                        let counter = NamedCounter::named(name);
                        match n {
                            1 => counter.increment(conn)?,
                            -1 => counter.decrement(conn)?,
                            _ => counter.add(*n, conn)?,
                        }
                        Ok(Done::Nothing)
                    }
                    Operation::CountCoalesced { .. } | Operation::CountOnce { coalesced: true, .. } => {
                        unreachable!("the coalescer runs it on a connection of its own")
                    }
                    Operation::CountOnce { request, row, n, coalesced: false } => {
                        let counter = RowCounter::of(views, *row).idempotency_key(request);
                        Ok(Done::Rows(counter.add(*n, conn)?, 1))
                    }
                    Operation::CountBounded { row, n } => {
                        let bounded = $library::RowCounter::of(views, *row)
                            .never_below(*BOUNDS.start())
                            .never_above(*BOUNDS.end());
                        Ok(Done::Rows(usize::from(bounded.add(*n, conn)?), 1))
                    }
                    Operation::Transaction { token, counts, begin, reads_first } => {
                        let mut transaction = Transaction::new();
                        if *begin == Begin::Serializable {
                            transaction = transaction.isolation(Isolation::Serializable).deferred();
                        }
                        let counted: QueryResult<usize> = transaction.run(conn, |conn| {
                            if *reads_first {
                                let of = counts.iter().filter_map(|(counter, _)| match counter {
                                    Counter::Views(row) => Some(*row),
                                    Counter::Likes(_) | Counter::Named(_) => None,
                                });
                                let read = chaos_rows.filter(id.eq_any(of.collect::<Vec<i64>>()));
                                read.select(views.total()).load::<i64>(conn)?;
                            }
                            diesel::insert_into(chaos_tokens::table)
                                .values(chaos_tokens::token.eq(token))
                                .execute(conn)?;
                            let mut counted = 0;
                            for (counter, n) in counts {
                                counted += match counter {
                                    Counter::Views(row) => update(chaos_rows.find(*row))
                                        .set(views.eq(views + n))
                                        .execute(conn)?,
                                    Counter::Likes(row) => {
                                        let n = i32::try_from(*n).expect("a small amount");
                                        update(chaos_rows.find(*row))
                                            .set(likes.eq(likes + n))
                                            .execute(conn)?
                                    }
                                    Counter::Named(name) => {
                                        NamedCounter::named(name).add(*n, conn)?;
                                        1
                                    }
                                };
                            }
                            Ok(counted)
                        });
                        Ok(Done::Rows(counted?, counts.len()))
                    }
                    Operation::SetTotal { row, total } => {
                        Ok(Done::Rows(set_total(chaos_rows.find(*row), views, *total).execute(conn)?, 1))
                    }
                    Operation::Fold { first, last, keep } => {
                        fold(chaos_rows.filter(id.between(*first, *last)))
                            .keep_shards(*keep)
                            .run(conn)?;
                        Ok(Done::Nothing)
                    }
                    Operation::Resize { shards } => {
                        conn.resize(*shards)?;
                        Ok(Done::Nothing)
                    }
                    Operation::ReadRows { first, last } => {
                        // MariaDB misses removed shards now and then in a read outside a transaction; see decision 0003.
                        let read: QueryResult<Vec<(i64, i64, i32)>> = conn.transaction(|conn| {
                            chaos_rows
                                .filter(id.between(*first, *last))
                                .select((id, views.total(), likes.total()))
                                .load(conn)
                        });
                        let read = read?;
                        let totals = read.into_iter().flat_map(|(row, of_views, of_likes)| {
                            [
                                (Counter::Views(row), of_views),
                                (Counter::Likes(row), i64::from(of_likes)),
                            ]
                        });
                        Ok(Done::Read(totals.collect()))
                    }
                    Operation::ReadNamed { name } => {
                        let total = NamedCounter::named(name).get(conn)?;
                        Ok(Done::Read(vec![(Counter::Named(name.clone()), total)]))
                    }
                }
            }

            fn resize(&mut self, shards: u16) -> QueryResult<()> {
                $library::shard_counts::ShardCount::of(views).resize(shards, self)
            }

            fn create_tables(&mut self) {
                for statement in [
                    "CREATE TABLE chaos_rows (id BIGINT PRIMARY KEY, team BIGINT, \
                     views BIGINT NOT NULL, likes INTEGER NOT NULL)",
                    "CREATE TABLE chaos_tokens (token VARCHAR(100) PRIMARY KEY)",
                ] {
                    self.batch_execute(statement)
                        .unwrap_or_else(|error| panic!("{statement}: {error}"));
                }
                ShardsTable::of(chaos_rows).create(self).expect("a shards table");
                self.run_pending_migrations(MIGRATIONS).expect("the library's own tables");
            }

            fn insert_rows(&mut self, rows: &[(i64, Option<i64>)], base: i64) -> QueryResult<()> {
                let rows: Vec<_> = rows
                    .iter()
                    .map(|(row, of)| (id.eq(*row), team.eq(*of), views.eq(base), likes.eq(0)))
                    .collect();
                diesel::insert_into(chaos_rows).values(rows).execute(self).map(drop)
            }

            fn others(&mut self) -> QueryResult<i64> {
                match Self::OTHERS {
                    Some(others) => diesel::select(sql::<BigInt>(others)).get_result(self),
                    None => Ok(0),
                }
            }

            fn tokens(&mut self, prefix: &str) -> QueryResult<Vec<String>> {
                let tokens = chaos_tokens::table
                    .select(chaos_tokens::token)
                    .filter(chaos_tokens::token.like(format!("{prefix}%")));
                let mut tokens = tokens.load::<String>(self)?;
                let keys = idempotency_keys::table.select(idempotency_keys::key);
                let keys = keys.load::<Vec<u8>>(self)?.into_iter();
                let keys = keys.map(|key| String::from_utf8(key).expect("the clients' keys are texts"));
                tokens.extend(keys.filter(|key| key.starts_with(prefix)));
                Ok(tokens)
            }
        }
    };
}

/// On PostgreSQL.
const TERMINATE_ANOTHER: &str = "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity \
     WHERE datname = current_database() AND backend_type = 'client backend' \
     AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1) AS another";

chaos_connection!(PgConnection, diesel_sharded {
    const OTHERS: Option<&'static str> = Some(
        "(SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
         AND backend_type = 'client backend' AND pid <> pg_backend_pid())",
    );

    fn set_up(&mut self, _: Duration) -> QueryResult<()> {
        Ok(())
    }

    fn terminate_another(&mut self) -> QueryResult<bool> {
        Ok(diesel::sql_query(TERMINATE_ANOTHER).execute(self)? > 0)
    }
});

/// A connection of tokio-postgres, on which each call waits for the library's future.
pub type AwaitedPg = Awaited<AsyncPgConnection>;

chaos_connection!(AwaitedPg, awaited {
    const OTHERS: Option<&'static str> = PgConnection::OTHERS;

    fn set_up(&mut self, _: Duration) -> QueryResult<()> {
        Ok(())
    }

    fn terminate_another(&mut self) -> QueryResult<bool> {
        Ok(diesel::sql_query(TERMINATE_ANOTHER).execute(self)? > 0)
    }
});

chaos_connection!(MysqlConnection, diesel_sharded {
    const OTHERS: Option<&'static str> = Some(
        "(SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID())",
    );

    fn set_up(&mut self, _: Duration) -> QueryResult<()> {
        Ok(())
    }

    fn terminate_another(&mut self) -> QueryResult<bool> {
        let another = sql::<BigInt>(
            "(SELECT id FROM information_schema.processlist WHERE db = DATABASE() \
             AND id <> CONNECTION_ID() ORDER BY RAND() LIMIT 1)",
        );
        let another = diesel::select(another.nullable()).get_result::<Option<i64>>(self)?;
        // The connection may have been closed meanwhile.
        Ok(another.is_some_and(|another| self.batch_execute(&format!("KILL {another}")).is_ok()))
    }
});

chaos_connection!(SqliteConnection, diesel_sharded {
    const OTHERS: Option<&'static str> = None;

    /// The deadline does not interrupt a statement that waits for the lock, so each statement waits for a small part of it only.
    fn set_up(&mut self, deadline: Duration) -> QueryResult<()> {
        let wait = deadline.as_millis() / 20;
        self.batch_execute(&format!("PRAGMA busy_timeout = {wait}; PRAGMA synchronous = FULL"))
    }

    fn terminate_another(&mut self) -> QueryResult<bool> {
        Ok(false)
    }
});

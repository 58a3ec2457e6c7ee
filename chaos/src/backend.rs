//! The databases and their connection types, with all statements of the clients and of the checker.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use diesel::connection::{LoadConnection, SimpleConnection};
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::r2d2::R2D2Connection;
use diesel::result::Error as DieselError;
use diesel::sql_types::BigInt;
use diesel_async::AsyncPgConnection;
use diesel_migrations::MigrationHarness;
use diesel_sharded::backend::BackendOf;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::Isolation;
use diesel_sharded::{Error, MIGRATIONS};
use diesel_sharded_tests::awaited::{self, Awaited, Done};
use serde::{Deserialize, Serialize};

use crate::operation::{Answer, Begin, By, Count, Counter, Folded, On, Operation, Totals};
use crate::patiently;
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

/// Writes reported bases to the end of a file.
fn append(file: &Path, bases: &[(i64, i64)]) {
    let lines: String = bases.iter().map(|(_, base)| format!("{base}\n")).collect();
    let file = File::options().create(true).append(true).open(file);
    let written = file.and_then(|mut file| file.write_all(lines.as_bytes()));
    written.expect("a file of reports");
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

/// How statements wait for locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Locks {
    Waited,
    /// As usual, but on SQLite the library retries: SQLite's own wait for its one lock would grow longer and longer.
    Retried,
}

/// How a connection is set up.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Settings {
    /// The deadline of each call.
    pub deadline: Duration,
    pub locks: Locks,
}

/// How a server lists its connections, in SQL.
#[derive(Debug)]
pub struct Sessions {
    /// The connections to this database but this one: a table and a condition.
    others: &'static str,
    /// The column with the number of a connection.
    number: &'static str,
    /// The number of this connection.
    own: &'static str,
    random: &'static str,
    /// The beginning and the end of the statement that ends a connection.
    end: [&'static str; 2],
}

const ON_POSTGRES: Sessions = Sessions {
    others: "pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()",
    number: "pid::BIGINT",
    own: "pg_backend_pid()::BIGINT",
    random: "random()",
    end: ["SELECT pg_terminate_backend(", ")"],
};

const ON_MARIADB: Sessions = Sessions {
    others: "information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()",
    number: "id",
    own: "CONNECTION_ID()",
    random: "RAND()",
    end: ["KILL ", ""],
};

/// A connection of a client, or of the checker.
pub trait ChaosConnection:
    LoadConnection<Backend: BackendOf<Self>> + R2D2Connection + Send + Sized + 'static
{
    /// `None` if there is no server.
    const SESSIONS: Option<Sessions>;

    /// Runs one operation of the library on this connection.
    ///
    /// # Errors
    /// The library's errors, unchanged.
    fn run(&mut self, operation: &Operation) -> Result<Answer, Error>;

    /// Counts, and returns the number of rows.
    fn count(&mut self, count: &Count) -> Result<Answer, Error>;

    /// Counts through the coalescer, and waits for the flush. The row is there.
    fn coalesce(coalescer: &Coalescer<Self>, count: &Count) -> Result<Answer, Error>;

    /// Creates the clients' tables and the library's own.
    fn create_tables(&mut self);

    /// Creates the shards table if it is missing.
    fn create_shards(&mut self);

    /// Inserts rows, with the team of each.
    fn insert_rows(&mut self, rows: &[(i64, Option<i64>)], base: i64) -> QueryResult<()>;

    /// Evaluates an SQL expression.
    fn number(&mut self, expression: &str) -> QueryResult<i64>;

    /// Reads the tokens and the idempotency keys that begin with `prefix`.
    fn tokens(&mut self, prefix: &str) -> QueryResult<Vec<String>>;

    /// Returns the number of other connections to this database; 0 if there is no server.
    fn others(&mut self) -> QueryResult<i64> {
        self.number(
            &Self::SESSIONS.map_or("0".into(), |Sessions { others, .. }| {
                format!("(SELECT COUNT(*) FROM {others})")
            }),
        )
    }

    /// Returns the server's number for this connection; 0 if there is no server.
    fn own_number(&mut self) -> QueryResult<i64> {
        self.number(Self::SESSIONS.map_or("0", |sessions| sessions.own))
    }

    /// Whether another connection has this number. SQLite's locks end with the process.
    fn is_there(&mut self, connection: i64) -> QueryResult<bool> {
        let Some(Sessions { others, number, .. }) = Self::SESSIONS else {
            return Ok(false);
        };
        let there = format!("(SELECT COUNT(*) FROM {others} AND {number} = {connection})");
        Ok(self.number(&there)? > 0)
    }

    /// Makes the server end one other connection. Returns whether there was one.
    fn terminate_another(&mut self) -> QueryResult<bool> {
        let Some(sessions) = Self::SESSIONS else {
            return Ok(false);
        };
        let Sessions {
            others,
            number,
            random,
            end: [end, at],
            ..
        } = sessions;
        let another = self.number(&format!(
            "COALESCE((SELECT {number} FROM {others} ORDER BY {random} LIMIT 1), 0)"
        ))?;
        // The connection may have been closed meanwhile.
        Ok(another > 0 && self.batch_execute(&format!("{end}{another}{at}")).is_ok())
    }

    /// Configures a new connection. A deadline does not interrupt a statement that waits for SQLite's lock, so each statement waits for a
    /// small part of it only.
    fn set_up(&mut self, Settings { deadline, locks }: Settings) -> QueryResult<()> {
        let wait = match locks {
            Locks::Waited => deadline.as_millis() / 20,
            Locks::Retried => 0,
        };
        match Self::SESSIONS {
            None => self.batch_execute(&format!(
                "PRAGMA busy_timeout = {wait}; PRAGMA synchronous = FULL"
            )),
            Some(_) => Ok(()),
        }
    }
}

/// A row as it is read: its id and its totals.
type Read = (i64, i64, i32);

fn totals(read: Vec<Read>) -> Totals {
    let totals = read.into_iter().flat_map(|(row, of_views, of_likes)| {
        [
            (Counter::Views(row), of_views),
            (Counter::Likes(row), i64::from(of_likes)),
        ]
    });
    totals.collect()
}

/// The connection's type, its sessions, and the module of the operations on it: the library's own, or those that wait for its futures.
macro_rules! chaos_connection {
    ($Conn:ty, $sessions:expr, $library:ident) => {
        impl ChaosConnection for $Conn {
            const SESSIONS: Option<Sessions> = $sessions;

            fn coalesce(
                coalescer: &Coalescer<Self>,
                Count { on, n, .. }: &Count,
            ) -> Result<Answer, Error> {
                match on {
                    On::Row(row) => {
                        coalescer.add_later(&diesel_sharded::RowCounter::of(views, *row), *n)
                    }
                    On::Named(name) => {
                        coalescer.add_later(&diesel_sharded::Counter::named(name), *n)
                    }
                    On::Team { .. } => unreachable!("a coalescer takes counters"),
                }?;
                coalescer.flush()?;
                Ok(Answer::Rows(1))
            }

            fn count(&mut self, count: &Count) -> Result<Answer, Error> {
                use $library::{Counter as NamedCounter, RowCounter, update};
                let conn = self;
                let Count { n, request, .. } = count;
                macro_rules! send {
                    ($count:expr) => {
                        match request {
                            None => $count.execute(conn).done()?,
                            Some(key) => $count.idempotency_key(key).execute(conn).done()?,
                        }
                    };
                }
                let on_row = |row| update(chaos_rows.find(row)).set(views.eq(views + n));
                let counted = match (&count.on, count.by) {
                    (On::Row(row), By::Update) => match count.likes {
                        None => send!(on_row(*row)),
                        Some(m) => {
                            let both = (views.eq(views + n), likes.eq(likes + m));
                            send!(update(chaos_rows.find(*row)).set(both))
                        }
                    },
                    (On::Row(row), By::OrInsert) => {
                        let inserted = (chaos_rows::id.eq(*row), views.eq(0), likes.eq(0));
                        send!(on_row(*row).or_insert(inserted))
                    }
                    (On::Row(row), By::Bounded(lowest, highest)) => {
                        let bounded = RowCounter::of(views, *row)
                            .never_below(lowest)
                            .never_above(highest);
                        match bounded.add(*n, conn).done() {
                            Ok(true) => 1,
                            Ok(false) => return Ok(Answer::Unchanged),
                            Err(DieselError::NotFound) => 0,
                            Err(error) => return Err(error.into()),
                        }
                    }
                    (On::Row(row), By::Counter) => {
                        let counter = RowCounter::of(views, *row);
                        match request {
                            None => counter.add(*n, conn).done()?,
                            Some(key) => counter.idempotency_key(key).add(*n, conn).done()?,
                        }
                    }
                    (On::Team { team: of, .. }, _) => {
                        let rows = update(chaos_rows.filter(team.eq(*of)));
                        send!(rows.set(views.eq(views + n)))
                    }
                    (On::Named(name), _) => {
                        let counter = NamedCounter::named(name);
                        match (request, n) {
                            (Some(key), _) => counter
                                .idempotency_key(key)
                                .add(*n, conn)
                                .done()
                                .map(drop)?,
                            (None, 1) => counter.increment(conn).done()?,
                            (None, -1) => counter.decrement(conn).done()?,
                            (None, _) => counter.add(*n, conn).done()?,
                        }
                        1
                    }
                    (_, By::Coalescer) => {
                        unreachable!("the coalescer counts on a connection of its own")
                    }
                };
                Ok(Answer::Rows(counted))
            }

            fn run(&mut self, operation: &Operation) -> Result<Answer, Error> {
                use $library::retry::Transaction;
                use $library::shard_counts::ShardCount;
                use $library::{Counter as NamedCounter, fold, set_total, update, verify};
                let conn = self;
                let columns = (id, views.total(), likes.total());
                let rows = match operation {
                    Operation::Count(count) => return conn.count(count),
                    Operation::Transaction {
                        token,
                        counts,
                        begin,
                        reads_first,
                    } => {
                        let mut transaction = Transaction::new();
                        if *begin == Begin::Serializable {
                            transaction = transaction.isolation(Isolation::Serializable).deferred();
                        }
                        let counted: QueryResult<usize> = transaction.run(conn, |conn| {
                            if *reads_first {
                                let of = counts.iter().filter_map(|(counter, _)| match counter {
                                    Counter::Views(row) => Some(*row),
                                    _ => None,
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
                                        .execute(conn)
                                        .done()?,
                                    Counter::Likes(row) => {
                                        let n = i32::try_from(*n).expect("a small amount");
                                        update(chaos_rows.find(*row))
                                            .set(likes.eq(likes + n))
                                            .execute(conn)
                                            .done()?
                                    }
                                    Counter::Named(name) => {
                                        NamedCounter::named(name).add(*n, conn).done()?;
                                        1
                                    }
                                };
                            }
                            Ok(counted)
                        });
                        counted?
                    }
                    Operation::SetTotal { row, total } => {
                        set_total(chaos_rows.find(*row), views, *total)
                            .execute(conn)
                            .done()?
                    }
                    Operation::Repair { row, total } => {
                        let row = chaos_rows.find(*row);
                        let recount = row.select((id, (*total).into_sql::<BigInt>()));
                        match verify(row, views, recount).repair(conn).done()?.len() {
                            0 => return Ok(Answer::Unchanged),
                            rows => rows,
                        }
                    }
                    Operation::Fold { what, keep } => {
                        macro_rules! parents {
                            ($fold:expr) => {
                                $fold.keep_shards(*keep).run(conn).done()?.parents
                            };
                        }
                        let between = |first, last| chaos_rows.filter(id.between(first, last));
                        let parents = match what {
                            Folded::Row(row) => parents!(fold(chaos_rows.find(*row))),
                            Folded::Rows(first, last) => parents!(fold(between(*first, *last))),
                            Folded::Team(of) => parents!(fold(chaos_rows.filter(team.eq(*of)))),
                            Folded::Table => parents!(fold(chaos_rows).batch(5)),
                            Folded::Named(name) => {
                                NamedCounter::named(name).fold(conn).done()?.parents
                            }
                            Folded::Reported(row, file) => {
                                let file = file.clone();
                                let report = move |bases: &[(i64, i64)]| append(&file, bases);
                                let fold = fold(chaos_rows.find(*row)).cold_below(2);
                                parents!(fold.on_folded(views, report))
                            }
                        };
                        parents as usize
                    }
                    Operation::Resize { shards } => {
                        ShardCount::of(views).resize(*shards, conn).done()?;
                        1
                    }
                    Operation::Increase { shards } => {
                        ShardCount::of(views).increase(*shards, conn).done()?;
                        1
                    }
                    Operation::DropShards => {
                        let shards = $library::ShardsTable::of(chaos_rows);
                        patiently(|| shards.drop(conn).done());
                        1
                    }
                    Operation::ReadRows { first, last } => {
                        // MariaDB misses removed shards now and then in a read outside a transaction; see decision 0003.
                        let read: QueryResult<Vec<Read>> = conn.transaction(|conn| {
                            let rows = chaos_rows.filter(id.between(*first, *last));
                            rows.select(columns).load(conn)
                        });
                        return Ok(Answer::Totals(totals(read?)));
                    }
                    Operation::ReadNamed { name } => {
                        let total = NamedCounter::named(name).get(conn).done()?;
                        return Ok(Answer::Totals(vec![(Counter::Named(name.clone()), total)]));
                    }
                };
                Ok(Answer::Rows(rows))
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
                self.create_shards();
                self.run_pending_migrations(MIGRATIONS)
                    .expect("the library's own tables");
            }

            fn create_shards(&mut self) {
                // A read shows whether the table is there.
                patiently(|| {
                    let read = chaos_rows.select(views.total()).limit(1).load::<i64>(self);
                    let shards = $library::ShardsTable::of(chaos_rows);
                    read.map(drop).or_else(|_| shards.create(self).done())
                });
            }

            fn insert_rows(&mut self, rows: &[(i64, Option<i64>)], base: i64) -> QueryResult<()> {
                let rows: Vec<_> = rows
                    .iter()
                    .map(|(row, of)| (id.eq(*row), team.eq(*of), views.eq(base), likes.eq(0)))
                    .collect();
                diesel::insert_into(chaos_rows)
                    .values(rows)
                    .execute(self)
                    .map(drop)
            }

            fn number(&mut self, expression: &str) -> QueryResult<i64> {
                diesel::select(sql::<BigInt>(expression)).get_result(self)
            }

            fn tokens(&mut self, prefix: &str) -> QueryResult<Vec<String>> {
                let tokens = chaos_tokens::table
                    .select(chaos_tokens::token)
                    .filter(chaos_tokens::token.like(format!("{prefix}%")));
                let mut tokens = tokens.load::<String>(self)?;
                let keys = idempotency_keys::table.select(idempotency_keys::key);
                let keys = keys.load::<Vec<u8>>(self)?.into_iter();
                // The clients' keys are texts, and those of a coalescer's batches are not.
                let keys = keys.filter_map(|key| String::from_utf8(key).ok());
                tokens.extend(keys.filter(|key| key.starts_with(prefix)));
                Ok(tokens)
            }
        }
    };
}

/// A connection of tokio-postgres, on which each call waits for the library's future.
pub type AwaitedPg = Awaited<AsyncPgConnection>;

chaos_connection!(PgConnection, Some(ON_POSTGRES), diesel_sharded);
chaos_connection!(AwaitedPg, Some(ON_POSTGRES), awaited);
chaos_connection!(MysqlConnection, Some(ON_MARIADB), diesel_sharded);
chaos_connection!(SqliteConnection, None, diesel_sharded);

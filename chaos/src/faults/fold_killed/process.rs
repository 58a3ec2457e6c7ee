//! The process that is killed: this program, started again with orders for one action.

use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::InstrumentationEvent;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::shard_counts::ShardCount;
use diesel_sharded::{Counter, Error, RowCounter, ShardsTable, fold, set_total, update, verify};
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, ChaosConnection};
use crate::schema::chaos_rows::dsl::*;
use crate::with_connection;

/// The subcommand that makes this program the process that is killed.
pub const SUBCOMMAND: &str = "step";

/// An action that is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Action {
    FoldRow,
    FoldByFilter,
    FoldTable,
    FoldNamed,
    Resize,
    SetTotal,
    Repair,
    Bounded,
    Drop,
}

impl Action {
    /// The actions beside the counts and reads of clients.
    pub(super) const UNDER_LOAD: [Action; 8] = [
        Action::FoldRow,
        Action::FoldByFilter,
        Action::FoldTable,
        Action::FoldNamed,
        Action::Resize,
        Action::SetTotal,
        Action::Repair,
        Action::Bounded,
    ];
}

/// The action of the process, and the step at which it kills itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Orders {
    pub(super) backend: Backend,
    pub(super) url: String,
    pub(super) action: Action,
    /// The number of the round that is played.
    pub(super) round: i64,
    /// The row that only this process changes.
    pub(super) row: i64,
    /// The total that it sets, or the amount that it adds.
    pub(super) n: i64,
    /// The step at which it is killed; the first is 1.
    pub(super) step: u32,
    /// The delay of the kill after that step; `None` kills at once.
    pub(super) later: Option<Duration>,
}

pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// `views` at the beginning, the result of a recount, and the upper bound.
pub(super) const BASE: i64 = 5;
pub(super) const RECOUNT: i64 = 5000;
const MOST: i64 = 10;

/// Follows the orders. Returns only if the action ends before the step.
pub fn step(orders: &str) -> io::Result<()> {
    let orders: Orders = serde_json::from_str(orders)?;
    patient().set_global();
    with_connection!(orders.backend, Conn => step_on::<Conn>(&orders)).map_err(io::Error::other)
}

fn patient() -> RetryPolicy {
    RetryPolicy::new()
        .with_attempts(u32::MAX)
        .with_deadline(PATIENCE)
        .with_max_delay(Duration::from_millis(2))
}

fn step_on<Conn: Stepping>(orders: &Orders) -> Result<(), Error> {
    let mut conn = Conn::establish(&orders.url)
        .map_err(|error| Error::Diesel(diesel::result::Error::QueryBuilderError(error.into())))?;
    set_up(&mut conn);
    println!("{}", conn.id()?);
    let (last, later) = (orders.step, orders.later);
    let mut steps = 0;
    conn.set_instrumentation(move |_: InstrumentationEvent<'_>| {
        steps += 1;
        match later {
            None if steps == last => end(),
            Some(later) if steps == last => {
                thread::spawn(move || {
                    thread::sleep(later);
                    end();
                });
            }
            _ => {}
        }
    });
    conn.act(orders)?;
    Ok(())
}

/// Configures a connection. SQLite's own wait for its one lock would grow longer and longer beside clients that never pause, so it is
/// switched off.
pub(super) fn set_up<Conn: Stepping>(conn: &mut Conn) {
    patiently(|| conn.set_up(PATIENCE));
    if Conn::OTHERS.is_none() {
        patiently(|| conn.batch_execute("PRAGMA busy_timeout = 0"));
    }
}

fn end() {
    kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
}

/// A connection with the actions of this fault.
pub(super) trait Stepping: ChaosConnection {
    /// Returns the server's number for this connection.
    fn id(&mut self) -> QueryResult<i64>;

    /// Waits until the server has no connection of this number.
    fn wait_until_gone(&mut self, number: i64);

    fn act(&mut self, orders: &Orders) -> Result<(), Error>;

    fn count(&mut self, row: i64, n: i64) -> Result<usize, Error>;

    fn total(&mut self, row: i64) -> i64;

    /// Creates the shards table if it is missing.
    fn create_again(&mut self);
}

macro_rules! stepping {
    ($($Conn:ty: $id:literal, $there:expr);+) => {$(
        impl Stepping for $Conn {
            fn id(&mut self) -> QueryResult<i64> {
                diesel::select(sql::<BigInt>($id)).get_result(self)
            }

            fn wait_until_gone(&mut self, number: i64) {
                let there: fn(i64) -> String = $there;
                let patience = Instant::now() + Duration::from_secs(60);
                loop {
                    let there = diesel::select(sql::<BigInt>(&there(number)));
                    if there.get_result(self) == Ok(0) {
                        return;
                    }
                    assert!(Instant::now() < patience, "the connection of a killed process stays open");
                    thread::sleep(Duration::from_millis(1));
                }
            }

            fn act(&mut self, orders: &Orders) -> Result<(), Error> {
                let conn = self;
                let Orders { action, round, row, n, .. } = *orders;
                match action {
                    Action::FoldRow => drop(fold(chaos_rows.find(1000 * round + 4)).run(conn)?),
                    Action::FoldByFilter => {
                        drop(fold(chaos_rows.filter(team.eq(round))).keep_shards(2).run(conn)?);
                    }
                    Action::FoldTable => drop(fold(chaos_rows).batch(5).run(conn)?),
                    Action::FoldNamed => drop(Counter::named(format!("round {round}")).fold(conn)?),
                    Action::Resize => {
                        ShardCount::of(views).resize(u16::try_from(n).unwrap_or(1), conn)?;
                        ShardCount::of(views).increase(20, conn)?;
                    }
                    Action::SetTotal => {
                        set_total(chaos_rows.find(row), views, n).execute(conn)?;
                    }
                    Action::Repair => {
                        let recount = chaos_rows.filter(id.eq(row)).select((id, n.into_sql::<BigInt>()));
                        verify(chaos_rows.filter(id.eq(row)), views, recount).repair(conn)?;
                    }
                    Action::Bounded => {
                        let bounded = RowCounter::of(views, row).never_below(0).never_above(MOST);
                        if !bounded.add(n, conn)? {
                            return Err(Error::Diesel(diesel::result::Error::NotFound));
                        }
                    }
                    Action::Drop => patiently(|| ShardsTable::of(chaos_rows).drop(conn)),
                }
                Ok(())
            }

            fn count(&mut self, row: i64, n: i64) -> Result<usize, Error> {
                let count = update(chaos_rows.find(row)).set(views.eq(views + n));
                Ok(count.retry(patient()).execute(self)?)
            }

            fn total(&mut self, row: i64) -> i64 {
                patiently(|| chaos_rows.find(row).select(views.total()).first(self))
            }

            fn create_again(&mut self) {
                // A read shows whether the table is there.
                patiently(|| {
                    let read = chaos_rows.select(views.total()).limit(1).load::<i64>(self);
                    read.map(drop).or_else(|_| ShardsTable::of(chaos_rows).create(self))
                });
            }
        }
    )+};
}

stepping!(
    PgConnection: "pg_backend_pid()::BIGINT",
        |number| format!("(SELECT COUNT(*) FROM pg_stat_activity WHERE pid = {number})");
    MysqlConnection: "CONNECTION_ID()",
        |number| format!("(SELECT COUNT(*) FROM information_schema.processlist WHERE id = {number})");
    // SQLite's locks end with the process.
    SqliteConnection: "0", |_| "0".to_owned()
);

/// Retries a statement until it succeeds: on SQLite any statement may meet a conflict.
pub(super) fn patiently<T>(mut statement: impl FnMut() -> QueryResult<T>) -> T {
    let patience = Instant::now() + PATIENCE;
    loop {
        match statement() {
            Ok(done) => return done,
            Err(_) if Instant::now() < patience => thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    }
}

/// The end of a process.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Killed,
    Through,
    Failed,
}

impl Orders {
    /// Starts a process with these orders, and waits until the server has closed its connection.
    pub(super) fn play<Conn: Stepping>(&self, conn: &mut Conn) -> Ended {
        let orders = serde_json::to_string(self).expect("plain values");
        let this = std::env::current_exe().expect("this program");
        let mut process = Command::new(this)
            .args([SUBCOMMAND, &orders])
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program again");
        let mut number = String::new();
        let output = process.stdout.take().expect("a piped output");
        BufReader::new(output)
            .read_line(&mut number)
            .expect("a number");
        let status = process.wait().expect("a process");
        if let Ok(number) = number.trim().parse() {
            conn.wait_until_gone(number);
        }
        match (status.success(), status.code()) {
            (true, _) => Ended::Through,
            (false, None) => Ended::Killed,
            (false, Some(_)) => Ended::Failed,
        }
    }
}

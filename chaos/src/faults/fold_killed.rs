//! A process that folds is killed at every step of it, while others count and read: and so one that sets, resizes, repairs, drops
//! the shards table, or counts within bounds.
//!
//! The steps are what Diesel tells its instrumentation: each statement before it is sent and when it is answered, and each begin, commit
//! and rollback of a transaction. The process ends itself at one of them by SIGKILL, at a later one each time, until it comes through. In
//! every second round it does so a moment later, from another thread, when the statement is on its way.

use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
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

use super::{Crew, Extent, Fault, Process, play};
use crate::backend::{Backend, ChaosConnection};
use crate::place::Place;
use crate::report::Line;
use crate::schema::chaos_rows::dsl::*;
use crate::with_connection;
use crate::workload::{Kind, everything};

pub const FAULT: Fault = Fault {
    name: "fold-killed",
    about: "a process that folds, sets, resizes, repairs or drops is killed at every step, while others count and read",
    backends: &Backend::ALL,
    rounds: (6, 1),
    run,
};

/// The subcommand by which this program is the process that is killed.
pub const SUBCOMMAND: &str = "step";

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Action {
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
    /// Under everybody else's counts and reads.
    const UNDER_LOAD: [Action; 8] = [
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

/// What the process does, and when it ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Orders {
    backend: Backend,
    url: String,
    action: Action,
    /// The number of the round that is played.
    round: i64,
    /// The row that nobody else counts on.
    row: i64,
    /// What it sets, or adds.
    n: i64,
    /// The step at which it is killed, from 1, and how much later.
    step: u32,
    later: Option<Duration>,
}

const PATIENCE: Duration = Duration::from_secs(30);
/// `views` at the beginning, what a recount gives, and the bounds.
const BASE: i64 = 5;
const RECOUNT: i64 = 5000;
const MOST: i64 = 10;

/// Follows the orders, and comes to an end only if the step is never reached.
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

/// SQLite's own waiting for its one lock grows longer and longer beside clients that never rest.
fn set_up<Conn: Stepping>(conn: &mut Conn) {
    patiently(|| conn.set_up(PATIENCE));
    if Conn::OTHERS.is_none() {
        patiently(|| conn.batch_execute("PRAGMA busy_timeout = 0"));
    }
}

fn end() {
    kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
}

/// What is done on each connection type.
trait Stepping: ChaosConnection {
    /// The server's number for this connection.
    fn id(&mut self) -> QueryResult<i64>;

    /// Waits until the server has no connection of this number.
    fn wait_until_gone(&mut self, number: i64);

    fn act(&mut self, orders: &Orders) -> Result<(), Error>;

    fn count(&mut self, row: i64, n: i64) -> Result<usize, Error>;

    fn total(&mut self, row: i64) -> i64;

    /// Creates the shards table again, if it is gone.
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
                    assert!(Instant::now() < patience, "a connection that is gone stays");
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
                // Whether it is there is seen by reading from it.
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
    // Its locks end with the process.
    SqliteConnection: "0", |_| "0".to_owned()
);

/// Tries again what meets conflicts, as everything does on SQLite.
fn patiently<T>(mut statement: impl FnMut() -> QueryResult<T>) -> T {
    let patience = Instant::now() + PATIENCE;
    loop {
        match statement() {
            Ok(done) => return done,
            Err(_) if Instant::now() < patience => thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    }
}

/// How a process came to its end.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Killed,
    Through,
    Failed,
}

impl Orders {
    /// Lets a process follow them, and waits until the server has forgotten it.
    fn play<Conn: Stepping>(&self, conn: &mut Conn) -> Ended {
        let orders = serde_json::to_string(self).expect("plain values");
        let this = std::env::current_exe().expect("this program");
        let mut process = Command::new(this)
            .args([SUBCOMMAND, &orders])
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program again");
        let mut number = String::new();
        let output = process.stdout.take().expect("it is piped");
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

/// Kills an action at one step after the other until it comes through, or fails; gives the number of kills.
fn sweep(extent: &Extent, mut play: impl FnMut(u32) -> Ended) -> u32 {
    let stride = extent.choose(1, 12);
    let mut kills = 0;
    let mut at = rand::random_range(1..=stride.min(2)); // the shortest ones have few steps
    while play(at) == Ended::Killed {
        kills += 1;
        at += stride;
    }
    kills
}

fn run(extent: &Extent, backend: Backend) -> Line {
    with_connection!(backend, Conn => run_on::<Conn>(extent, backend))
}

fn run_on<Conn: Stepping>(extent: &Extent, backend: Backend) -> Line {
    let mut line = Line::new(FAULT.name, backend);
    let mut place = Place::new(backend).unwrap_or_else(|missing| panic!("{missing}"));
    let not_mine =
        |(kind, _): &(Kind, u32)| !matches!(kind, Kind::Fold | Kind::Resize | Kind::SetOwn);
    let crew = Crew {
        processes: vec![
            Process {
                clients: extent.choose(2, 1),
                mix: everything().into_iter().filter(not_mine).collect(),
            };
            // SQLite has one writer at a time, and lets the others wait.
            if backend == Backend::Sqlite { 1 } else { 2 }
        ],
        deadline: PATIENCE,
        ..Crew::of_all_trades(0)
    };
    let mut kills = vec![0; Action::UNDER_LOAD.len() + 1];
    while extent.goes_on(line.rounds) {
        let round = i64::from(line.rounds) + 1;
        let later = later(line.rounds);
        let mut findings = vec![];
        let mut find = |finding: String| findings.push(finding);
        // Before anybody is in the way.
        let mut conn = place.connect::<Conn>();
        set_up(&mut conn);
        play(&mut place, &crew, extent, &mut line, |place, playing| {
            let mut conn = conn; // gone when the round is judged, which waits until all are
            playing.wait_for(50);
            for (n, action) in Action::UNDER_LOAD.into_iter().enumerate() {
                let row = 1000 * round + 900 + n as i64;
                patiently(|| conn.insert_rows(&[(row, None)], BASE));
                let mut own = Own {
                    place,
                    conn: &mut conn,
                    action,
                    round,
                    row,
                    later,
                };
                kills[n] += sweep(extent, |step| own.play(step, &mut find));
            }
            playing.wait_for(20);
        });
        let mut conn = place.connect::<Conn>();
        set_up(&mut conn);
        let row = 1000 * round + 950;
        patiently(|| conn.insert_rows(&[(row, None)], BASE));
        kills[Action::UNDER_LOAD.len()] +=
            drop_under_counts(extent, &place, &mut conn, row, later, &mut find);
        findings.into_iter().for_each(|finding| line.find(finding));
        line.progress(extent);
    }
    let actions = Action::UNDER_LOAD.into_iter().chain([Action::Drop]);
    let told = actions
        .zip(&kills)
        .map(|(action, kills)| format!("{kills} of {action:?}"));
    line.remarks
        .push(format!("kills: {}", told.collect::<Vec<_>>().join(", ")));
    if kills.contains(&0) {
        line.find("some action was never killed".into());
    }
    line.finish()
}

/// At once in the first round and every second one after it.
fn later(round: u32) -> Option<Duration> {
    (!round.is_multiple_of(2)).then(|| Duration::from_micros(rand::random_range(20..2_000)))
}

/// An action, and the row that it alone works on.
struct Own<'a, Conn> {
    place: &'a Place,
    conn: &'a mut Conn,
    action: Action,
    round: i64,
    row: i64,
    later: Option<Duration>,
}

impl<Conn: Stepping> Own<'_, Conn> {
    /// Either nothing has happened or everything.
    fn play(&mut self, step: u32, find: &mut impl FnMut(String)) -> Ended {
        if self.action == Action::Repair {
            let drifted = self.conn.count(self.row, 3);
            drifted.expect("nobody else is there");
        }
        let before = self.conn.total(self.row);
        let (n, after) = match self.action {
            Action::SetTotal => (2000 + i64::from(step), 2000 + i64::from(step)),
            Action::Repair => (RECOUNT, RECOUNT),
            Action::Bounded if before >= 3 => (-3, before - 3),
            Action::Bounded => (3, before + 3),
            Action::Resize => (1 + i64::from(step % 8), before),
            _ => (0, before),
        };
        let orders = Orders {
            backend: self.place.backend,
            url: self.place.url.clone(),
            action: self.action,
            round: self.round,
            row: self.row,
            n,
            step,
            later: self.later,
        };
        let ended = orders.play(self.conn);
        let is = self.conn.total(self.row);
        let right = match ended {
            Ended::Killed => is == before || is == after,
            Ended::Through => is == after,
            Ended::Failed => false,
        };
        if !right {
            find(format!(
                "{orders:?}: {ended:?}, it was {before} and is {is}"
            ));
        }
        ended
    }
}

/// The shards table is dropped and created again, while somebody counts.
fn drop_under_counts<Conn: Stepping>(
    extent: &Extent,
    place: &Place,
    conn: &mut Conn,
    row: i64,
    later: Option<Duration>,
    find: &mut impl FnMut(String),
) -> u32 {
    let (stop, told) = (AtomicBool::new(false), AtomicI64::new(0));
    let (kills, strange) = thread::scope(|scope| {
        let counting = scope.spawn(|| count_until::<Conn>(place, row, &stop, &told));
        let play = |step| {
            let more = told.load(Ordering::SeqCst) + 3;
            let patience = Instant::now() + Duration::from_secs(60);
            while told.load(Ordering::SeqCst) < more && !counting.is_finished() {
                assert!(Instant::now() < patience, "the counts do not get on");
                thread::sleep(Duration::from_millis(1));
            }
            let orders = Orders {
                backend: place.backend,
                url: place.url.clone(),
                action: Action::Drop,
                round: 0,
                row,
                n: 0,
                step,
                later,
            };
            let ended = orders.play(conn);
            conn.create_again();
            if ended == Ended::Failed {
                find(format!("{orders:?} failed"));
            }
            ended
        };
        let kills = sweep(extent, play);
        stop.store(true, Ordering::SeqCst);
        (kills, counting.join().expect("no panic"))
    });
    strange.into_iter().for_each(&mut *find);
    let (is, told) = (conn.total(row), told.into_inner());
    if is != BASE + told {
        find(format!(
            "dropped and created: {is} where {} was told",
            BASE + told
        ));
    }
    kills
}

/// Counts, and gives the errors that must not be.
fn count_until<Conn: Stepping>(
    place: &Place,
    row: i64,
    stop: &AtomicBool,
    told: &AtomicI64,
) -> Vec<String> {
    let mut conn = place.connect::<Conn>();
    let mut strange = vec![];
    while !stop.load(Ordering::SeqCst) && strange.len() < 10 {
        match conn.count(row, 1) {
            Ok(1) => {
                told.fetch_add(1, Ordering::SeqCst);
            }
            Err(Error::MissingShardsTable { .. } | Error::ConflictPersisted { .. }) => {
                thread::sleep(Duration::from_millis(1));
            }
            other => strange.push(format!("a count while the table was dropped: {other:?}")),
        }
    }
    strange
}

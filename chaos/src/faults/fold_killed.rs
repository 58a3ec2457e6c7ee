//! A process is killed at every step of a fold while others count and read. So are processes that set a total, resize, repair, drop the
//! shards table, or count within bounds.
//!
//! The steps are the events of Diesel's instrumentation: before each statement is sent, after it is answered, and at each begin, commit
//! and rollback of a transaction. The process kills itself (SIGKILL) at one step, one step later each time, until it completes. In every
//! second round another thread kills it a moment later, while the statement is on its way.

use std::io::{self, BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use diesel::connection::InstrumentationEvent;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::shard_counts::ShardCount;
use diesel_sharded::{Counter, Error, RowCounter, ShardsTable, fold, set_total, update, verify};
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

use super::{Fault, patiently};
use crate::backend::Backend;
use crate::client::this_program;
use crate::place::Place;
use crate::report::Line;
use crate::round::{Crew, Process, play};
use crate::schema::chaos_rows::dsl::*;
use crate::workload::{Kind, everything};
use crate::{on_each_connection, until, with_connection};

pub const FAULT: Fault = Fault {
    name: "fold-killed",
    about: "a process that folds, sets, resizes, repairs or drops is killed at every step, while others count and read",
    backends: &Backend::ALL,
    rounds: (6, 1),
    run: |line| with_connection!(line.backend, Conn => run_on::<Conn>(line)),
};

/// Kills an action at one step after the other until it completes or fails. Returns the number of kills.
fn sweep(stride: u32, mut play: impl FnMut(u32) -> Ended) -> u32 {
    let mut kills = 0;
    let mut at = rand::random_range(1..=stride.min(2)); // the shortest actions have few steps
    while play(at) == Ended::Killed {
        kills += 1;
        at += stride;
    }
    kills
}

fn run_on<Conn: Stepping>(line: &mut Line) {
    let mut place = Place::new(line.backend);
    let is_of_clients =
        |(kind, _): &(Kind, u32)| !matches!(kind, Kind::Fold | Kind::Resize | Kind::SetOwn);
    let mix = everything().into_iter().filter(is_of_clients).collect();
    let process = Process::new(line.choose(2, 1), mix);
    // SQLite has one writer at a time and makes the others wait.
    let processes = if line.backend == Backend::Sqlite {
        1
    } else {
        2
    };
    let crew = Crew {
        deadline: PATIENCE,
        ..Crew::of(vec![process; processes])
    };
    let stride = line.choose(1, 12);
    let actions = Action::value_variants();
    let mut kills = vec![0; actions.len()];
    while line.goes_on() {
        let round = i64::from(line.rounds) + 1;
        let later = later(line.rounds);
        let mut findings = vec![];
        let mut find = |finding: String| findings.push(finding);
        // Before the clients hold locks.
        let mut conn = place.connect::<Conn>();
        set_up(&mut conn);
        play(&mut place, &crew, line, |place, playing| {
            let mut conn = conn; // dropped before the round is judged, which waits for all connections to close
            playing.wait_for(50);
            for (n, &action) in actions
                .iter()
                .enumerate()
                .filter(|(_, action)| **action != Action::Drop)
            {
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
                kills[n] += sweep(stride, |step| own.play(step, &mut find));
            }
            playing.wait_for(20);
        });
        let mut conn = place.connect::<Conn>();
        set_up(&mut conn);
        let row = 1000 * round + 950;
        patiently(|| conn.insert_rows(&[(row, None)], BASE));
        kills[Action::Drop as usize] +=
            drop_under_counts(stride, &place, &mut conn, row, later, &mut find);
        findings.into_iter().for_each(|finding| line.find(finding));
    }
    let told = actions.iter().zip(&kills);
    let told = told.map(|(action, kills)| format!("{kills} of {action:?}"));
    line.remark(format!("kills: {}", told.collect::<Vec<_>>().join(", ")));
    if kills.contains(&0) {
        line.find("some action was never killed".into());
    }
}

/// The delay of the kills: none in the first round and every second one after it.
fn later(round: u32) -> Option<Duration> {
    (!round.is_multiple_of(2)).then(|| Duration::from_micros(rand::random_range(20..2_000)))
}

/// An action, and the row that only it changes.
struct Own<'a, Conn> {
    place: &'a Place,
    conn: &'a mut Conn,
    action: Action,
    round: i64,
    row: i64,
    later: Option<Duration>,
}

impl<Conn: Stepping> Own<'_, Conn> {
    /// Plays the action, and checks that it happened completely or not at all.
    fn play(&mut self, step: u32, find: &mut impl FnMut(String)) -> Ended {
        if self.action == Action::Repair {
            let drifted = self.conn.count(self.row, 3);
            drifted.expect("no other client counts on this row");
        }
        let before = patiently(|| self.conn.total(self.row));
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
        let is = patiently(|| self.conn.total(self.row));
        let right = match ended {
            Ended::Killed => is == before || is == after,
            Ended::Through => is == after,
            Ended::Failed => false,
        };
        if !right {
            find(format!(
                "{orders:?}: {ended:?}, the total was {before} and is {is}"
            ));
        }
        ended
    }
}

/// Drops the shards table and creates it again, while a client counts.
fn drop_under_counts<Conn: Stepping>(
    stride: u32,
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
            until("the counts make progress", || {
                told.load(Ordering::SeqCst) >= more || counting.is_finished()
            });
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
        let kills = sweep(stride, play);
        stop.store(true, Ordering::SeqCst);
        (kills, counting.join().expect("no panic"))
    });
    strange.into_iter().for_each(&mut *find);
    let (is, told) = (patiently(|| conn.total(row)), told.into_inner());
    if is != BASE + told {
        let told = BASE + told;
        find(format!(
            "dropped and created: the total is {is}, and {told} was acknowledged"
        ));
    }
    kills
}

/// Counts until `stop` is set, and returns the unexpected errors.
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

/// The subcommand that makes this program the process that is killed.
pub const SUBCOMMAND: &str = "step";

/// An action that is killed: all but the last beside the counts and reads of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
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

/// The action of the process, and the step at which it kills itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Orders {
    backend: Backend,
    url: String,
    action: Action,
    /// The number of the round that is played.
    round: i64,
    /// The row that only this process changes.
    row: i64,
    /// The total that it sets, or the amount that it adds.
    n: i64,
    /// The step at which it is killed; the first is 1.
    step: u32,
    /// The delay of the kill after that step; `None` kills at once.
    later: Option<Duration>,
}

const PATIENCE: Duration = Duration::from_secs(30);
/// `views` at the beginning, the result of a recount, and the upper bound.
const BASE: i64 = 5;
const RECOUNT: i64 = 5000;
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
    println!("{}", conn.own_number()?);
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
fn set_up<Conn: Stepping>(conn: &mut Conn) {
    patiently(|| conn.set_up(PATIENCE));
    if Conn::SQL.sessions.is_none() {
        patiently(|| conn.batch_execute("PRAGMA busy_timeout = 0"));
    }
}

fn end() {
    kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
}

on_each_connection! {
    /// A connection with the actions of this fault.
    trait Stepping {
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

        /// Creates the shards table if it is missing.
        fn create_again(&mut self) {
            // A read shows whether the table is there.
            patiently(|| {
                let read = chaos_rows.select(views.total()).limit(1).load::<i64>(self);
                read.map(drop).or_else(|_| ShardsTable::of(chaos_rows).create(self))
            });
        }
    }
}

/// The end of a process.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Killed,
    Through,
    Failed,
}

impl Orders {
    /// Starts a process with these orders, and waits until the server has closed its connection.
    fn play<Conn: Stepping>(&self, conn: &mut Conn) -> Ended {
        let mut this = this_program(SUBCOMMAND, self).expect("this program");
        let process = this.stdout(Stdio::piped()).spawn();
        let mut process = process.expect("this program again");
        let output = process.stdout.take().expect("a piped output");
        let mut number = String::new();
        let read = BufReader::new(output).read_line(&mut number);
        read.expect("a number");
        let status = process.wait().expect("a process");
        if let Ok(number) = number.trim().parse() {
            let is_gone = || conn.is_there(number) == Ok(false);
            until("the connection of a killed process is closed", is_gone);
        }
        match (status.success(), status.code()) {
            (true, _) => Ended::Through,
            (false, None) => Ended::Killed,
            (false, Some(_)) => Ended::Failed,
        }
    }
}

//! A process is killed at every step of a fold while others count and read. So are processes that set a total, resize, repair, drop the
//! shards table, or count within bounds.
//!
//! The steps are the events of Diesel's instrumentation: before each statement is sent, after it is answered, and at each begin, commit
//! and rollback of a transaction. The process kills itself (SIGKILL) at one step, one step later each time, until it completes. In every
//! second round another thread kills it a moment later, while the statement is on its way. Its operation is in the history, like that of
//! any client.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use diesel::connection::InstrumentationEvent;
use diesel_sharded::retry::RetryPolicy;
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

use super::Fault;
use crate::backend::{Backend, ChaosConnection, Locks, Settings};
use crate::client::this_program;
use crate::history::Log;
use crate::operation::{By, Folded, On, Operation, Store};
use crate::place::Place;
use crate::report::Line;
use crate::round::{Crew, Playing, Process, play};
use crate::sql_store::SqlStore;
use crate::workload::{Kind, Round, everything};
use crate::{patiently, until, with_connection};

pub const FAULT: Fault = Fault {
    name: "fold-killed",
    about: "a process that folds, sets, resizes, repairs or drops is killed at every step, while others count and read",
    backends: &Backend::ALL,
    rounds: (12, 2), // half of them drop
    run: |line| with_connection!(line.backend, Conn => run_on::<Conn>(line)),
};

/// What the operation of an action depends on: a round and its logs, the step, and a row that nothing else changes.
struct Victim<'r> {
    round: Round,
    logs: &'r Path,
    step: i64,
    row: i64,
}

/// An action that is killed, with its name.
type Action = (&'static str, fn(&Victim<'_>) -> Operation);

fn fold(what: Folded, keep: u16) -> Operation {
    Operation::Fold { what, keep }
}

/// The actions beside the increments and reads of clients. The row of an action has a total of 3, all of it in shards.
const ACTIONS: [Action; 10] = [
    ("fold of a row", |of| {
        fold(Folded::Row(of.round.team()[0]), 16)
    }),
    ("fold by a filter", |of| {
        fold(Folded::Team(of.round.number), 2)
    }),
    ("fold of a table", |_| fold(Folded::Table, 16)),
    ("fold of a name", |of| {
        fold(Folded::Named(of.round.named()), 16)
    }),
    ("reporting fold", |of| {
        let file = of.logs.join(format!("reported-{}", of.row));
        fold(
            Folded::Reported(of.row, file),
            [0, 16][of.step as usize % 2],
        )
    }),
    ("resize", |of| Operation::Resize {
        shards: 1 + of.step as u16 % 8,
    }),
    ("increase", |of| Operation::Increase {
        shards: 20 + of.step as u16,
    }),
    ("set", |of| Operation::SetTotal {
        row: of.row,
        total: 2000 + of.step,
    }),
    ("repair", |of| Operation::Repair {
        row: of.row,
        total: 5000,
    }),
    ("count within bounds", |of| {
        let n = if of.step % 2 == 0 { 3 } else { -3 };
        Operation::count(On::Row(of.row), By::Bounded(0, 10), n)
    }),
];

/// The action beside nothing but increments, since reads fail too while the table is gone.
const DROP: Action = ("drop", |_| Operation::DropShards);

/// Each victim leaves a row, which costs a fold of a table several steps where it meets locks: on MariaDB it would never get through.
const MOST_STEPS: u32 = 400;

const SETTINGS: Settings = Settings {
    deadline: Duration::from_secs(30),
    locks: Locks::Retried,
};

fn run_on<Conn: ChaosConnection>(line: &mut Line) {
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
    let crew = Crew::of(vec![process; processes]).with_deadline(SETTINGS.deadline);
    let counting = Crew::of(vec![Process::new(1, vec![(Kind::Count, 1)])]);
    let stride = line.choose(1, 12);
    let mut kills = vec![0; ACTIONS.len() + 1];
    while line.goes_on() {
        let later = (line.rounds / 2 % 2 == 1)
            .then(|| Duration::from_micros(rand::random_range(20..2_000)));
        let mut failures = vec![];
        let mut sweep = |place: &Place, playing: &mut Playing, actions: &[Action]| {
            let mut victims = Victims::<Conn>::new(place, playing, later);
            actions
                .iter()
                .map(|action| {
                    let mut killed = 0;
                    let mut step = rand::random_range(1..=stride.min(2)); // the shortest actions have few steps
                    loop {
                        match victims.play(*action, step) {
                            Ended::Killed => killed += 1,
                            Ended::Through => return killed,
                            Ended::Failed(orders) => {
                                failures.push(format!("{orders:?} failed"));
                                return killed;
                            }
                        }
                        step += stride;
                        if step > MOST_STEPS {
                            return killed;
                        }
                    }
                })
                .collect::<Vec<u32>>()
        };
        let mut killed = vec![];
        play(&mut place, &crew, line, |place, playing| {
            playing.wait_for(50);
            killed.extend(sweep(place, playing, &ACTIONS));
            playing.wait_for(20);
        });
        play(&mut place, &counting, line, |place, playing| {
            killed.extend(sweep(place, playing, &[DROP]));
        });
        kills
            .iter_mut()
            .zip(killed)
            .for_each(|(all, more)| *all += more);
        failures.into_iter().for_each(|failure| line.find(failure));
    }
    let names = ACTIONS.iter().chain([&DROP]).map(|(name, _)| name);
    let told = names
        .zip(&kills)
        .map(|(name, kills)| format!("{kills} of {name}"));
    line.remark(format!("kills: {}", told.collect::<Vec<_>>().join(", ")));
    if kills.contains(&0) {
        line.find("some action was never killed".into());
    }
}

/// The processes that are killed in a round.
struct Victims<'a, Conn: ChaosConnection> {
    place: &'a Place,
    playing: &'a mut Playing,
    later: Option<Duration>,
    /// The connection and the log of what is done before and after the actions.
    store: SqlStore<Conn>,
    log: Log,
    /// The number of processes so far.
    number: i64,
}

impl<'a, Conn: ChaosConnection> Victims<'a, Conn> {
    fn new(place: &'a Place, playing: &'a mut Playing, later: Option<Duration>) -> Self {
        Victims {
            place,
            later,
            store: connected(&place.url),
            log: Log::create(&playing.logs.join("beside.jsonl")).expect("a log"),
            playing,
            number: 0,
        }
    }

    /// Starts a process and waits for its end. It has a row of its own, since the outcome of a killed process is never known.
    fn play(&mut self, (name, action): Action, step: u32) -> Ended {
        self.number += 1;
        let round = self.playing.round;
        let row = round.row(100 + self.number);
        if name == DROP.0 {
            self.playing.wait_for(3);
        } else {
            let conn = self.store.connection().expect("a connection");
            patiently(|| conn.insert_rows(&[(row, None)], 0));
            self.run(&Operation::count(On::Row(row), By::Update, 3));
        }
        let logs = &self.playing.logs;
        let log = logs.join(format!("killed-{}.jsonl", self.number));
        let operation = action(&Victim {
            round,
            logs,
            step: step.into(),
            row,
        });
        let orders = Orders {
            backend: self.place.backend,
            url: self.place.url.clone(),
            operation,
            log,
            step,
            later: self.later,
        };
        let conn = self.store.connection().expect("a connection");
        let mut ended = orders.play(conn);
        conn.create_shards();
        if let Operation::Fold { what, .. } = &orders.operation
            && let Folded::Reported(_, file) = what
        {
            self.run(&orders.operation); // reports what the other did not come to
            let reported = fs::read_to_string(file).unwrap_or_default();
            if !reported.lines().any(|base| base == "3") {
                ended = Ended::Failed(orders.clone());
            }
        }
        self.run(&Operation::ReadRows {
            first: row,
            last: row,
        });
        ended
    }

    /// Runs an operation until it succeeds: on SQLite any may meet a conflict.
    fn run(&mut self, operation: &Operation) {
        let Victims { store, log, .. } = self;
        until("an operation succeeds", || {
            store.prepare();
            let done = log.record(operation, |operation| store.run(operation));
            done.expect("a log").is_ok()
        });
    }
}

/// A store whose connection is established.
fn connected<Conn: ChaosConnection>(url: &str) -> SqlStore<Conn> {
    let mut store = SqlStore::new(url, SETTINGS, None);
    until("there is a connection", || {
        store.prepare();
        store.connection().is_some()
    });
    store
}

/// The subcommand that makes this program the process that is killed.
pub const SUBCOMMAND: &str = "step";

/// The operation of the process, and the step at which it kills itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Orders {
    backend: Backend,
    url: String,
    operation: Operation,
    log: PathBuf,
    /// The step at which it is killed; the first is 1.
    step: u32,
    /// The delay of the kill after that step; `None` kills at once.
    later: Option<Duration>,
}

/// Follows the orders. Returns only if the operation ends before the step.
pub fn step(orders: &str) -> io::Result<()> {
    let orders: Orders = serde_json::from_str(orders)?;
    RetryPolicy::new()
        .with_attempts(u32::MAX)
        .with_deadline(SETTINGS.deadline)
        .with_max_delay(Duration::from_millis(2))
        .set_global();
    with_connection!(orders.backend, Conn => step_on::<Conn>(&orders))
}

fn step_on<Conn: ChaosConnection>(orders: &Orders) -> io::Result<()> {
    let mut store = connected::<Conn>(&orders.url);
    let conn = store.connection().expect("a connection");
    println!("{}", conn.own_number().map_err(io::Error::other)?);
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
    let mut log = Log::create(&orders.log)?;
    let done = log.record(&orders.operation, |operation| store.run(operation))?;
    done.map(drop)
        .map_err(|refused| io::Error::other(refused.to_string()))
}

fn end() {
    kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
}

/// The end of a process.
enum Ended {
    Killed,
    Through,
    Failed(Orders),
}

impl Orders {
    /// Starts a process with these orders, and waits until the server has closed its connection.
    fn play<Conn: ChaosConnection>(&self, conn: &mut Conn) -> Ended {
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
            (false, Some(_)) => Ended::Failed(self.clone()),
        }
    }
}

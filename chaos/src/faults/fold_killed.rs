//! A process is killed at every step of a fold while others count and read. So are processes that set a total, resize, repair, drop the
//! shards table, or count within bounds.
//!
//! The steps are the events of Diesel's instrumentation: before each statement is sent, after it is answered, and at each begin, commit
//! and rollback of a transaction. The process kills itself (SIGKILL) at one step, one step later each time, until it completes. In every
//! second round another thread kills it a moment later, while the statement is on its way.

mod process;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use diesel_sharded::Error;

use self::process::{Action, BASE, Ended, Orders, PATIENCE, RECOUNT, Stepping, patiently, set_up};
pub use self::process::{SUBCOMMAND, step};
use crate::backend::Backend;
use crate::extent::Extent;
use crate::fault::Fault;
use crate::place::Place;
use crate::report::Line;
use crate::round::{Crew, Process, play};
use crate::with_connection;
use crate::workload::{Kind, everything};

pub const FAULT: Fault = Fault {
    name: "fold-killed",
    about: "a process that folds, sets, resizes, repairs or drops is killed at every step, while others count and read",
    backends: &Backend::ALL,
    rounds: (6, 1),
    run: |extent, backend, line| with_connection!(backend, Conn => run_on::<Conn>(extent, backend, line)),
};

/// Kills an action at one step after the other until it completes or fails. Returns the number of kills.
fn sweep(extent: &Extent, mut play: impl FnMut(u32) -> Ended) -> u32 {
    let stride = extent.choose(1, 12);
    let mut kills = 0;
    let mut at = rand::random_range(1..=stride.min(2)); // the shortest actions have few steps
    while play(at) == Ended::Killed {
        kills += 1;
        at += stride;
    }
    kills
}

fn run_on<Conn: Stepping>(extent: &Extent, backend: Backend, line: &mut Line) {
    let mut place = Place::new(backend);
    let is_of_clients =
        |(kind, _): &(Kind, u32)| !matches!(kind, Kind::Fold | Kind::Resize | Kind::SetOwn);
    let mix = everything().into_iter().filter(is_of_clients).collect();
    let process = Process::new(extent.choose(2, 1), mix);
    // SQLite has one writer at a time and makes the others wait.
    let processes = if backend == Backend::Sqlite { 1 } else { 2 };
    let crew = Crew {
        deadline: PATIENCE,
        ..Crew::of(vec![process; processes])
    };
    let mut kills = vec![0; Action::UNDER_LOAD.len() + 1];
    while extent.goes_on(line.rounds) {
        let round = i64::from(line.rounds) + 1;
        let later = later(line.rounds);
        let mut findings = vec![];
        let mut find = |finding: String| findings.push(finding);
        // Before the clients hold locks.
        let mut conn = place.connect::<Conn>();
        set_up(&mut conn);
        play(&mut place, &crew, extent, line, |place, playing| {
            let mut conn = conn; // dropped before the round is judged, which waits for all connections to close
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
                "{orders:?}: {ended:?}, the total was {before} and is {is}"
            ));
        }
        ended
    }
}

/// Drops the shards table and creates it again, while a client counts.
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
                assert!(Instant::now() < patience, "the counts make no progress");
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
            "dropped and created: the total is {is}, and {} was acknowledged",
            BASE + told
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

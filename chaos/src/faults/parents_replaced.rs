//! Rows are deleted, inserted again and renamed, and named counters are deleted, while others count, fold, set and repair.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use diesel_sharded::retry::RetryPolicy;

use super::Fault;
use crate::backend::Backend;
use crate::history::Log;
use crate::lives::sql::{LivesConnection, SqlLives};
use crate::lives::workload::{Role, Round, Scene, Workload};
use crate::lives::{Answer, History, Operation};
use crate::place::Place;
use crate::report::Line;
use crate::round::keep_logs;
use crate::store::Store;
use crate::with_connection;

pub const FAULT: Fault = Fault {
    name: "parents-replaced",
    about: "rows are deleted, inserted again and renamed beside counts, folds, sets and repairs; no count is lost or doubled",
    backends: &Backend::ALL,
    rounds: (30 * SCENES, SCENES),
    run: |line| with_connection!(line.backend, Conn => run_on::<Conn>(line)),
};

/// The number of scenes. Each round plays one of them.
const SCENES: u32 = 5;

/// The deadline of every call of the library.
const DEADLINE: Duration = Duration::from_secs(10);

/// The patience for clients: longer than a server waits for a lock.
const PATIENCE: Duration = Duration::from_secs(120);

/// A round goes on until rows were replaced this often and folds moved something this often.
const ENOUGH: usize = 5;

fn run_on<Conn: LivesConnection>(line: &mut Line) {
    let place = Place::new(line.backend);
    if line.backend == Backend::Sqlite {
        place.execute("PRAGMA journal_mode = WAL"); // readers wait for nobody
    }
    place.connect::<Conn>().create_lives();
    let before = RetryPolicy::global();
    RetryPolicy::new()
        .with_attempts(u32::MAX)
        .with_deadline(DEADLINE)
        .with_max_delay(Duration::from_millis(5))
        .set_global();
    let scenes = Scene::value_variants();
    let mut played = [(); SCENES as usize].map(|()| Played::default());
    while line.goes_on() {
        let n = line.rounds as usize % scenes.len();
        let round = Round {
            scene: scenes[n],
            number: i64::from(line.rounds) + 1,
        };
        play::<Conn>(&place, round, line, &mut played[n]);
    }
    before.set_global();
    for (scene, played) in scenes.iter().zip(played) {
        let Played {
            replaced,
            folded,
            findings,
        } = played;
        line.remark(format!(
            "{scene:?}: {replaced} times deleted or renamed beside {folded} folds that moved something, {findings} findings"
        ));
    }
}

/// The sums over all rounds of a scene.
#[derive(Debug, Default)]
struct Played {
    /// The number of deletes and renames of rows and named counters.
    replaced: usize,
    /// The number of folds that moved something.
    folded: usize,
    findings: usize,
}

/// The state that the clients of a round share.
struct Shared {
    round: Round,
    stop: AtomicBool,
    replaced: AtomicUsize,
    folded: AtomicUsize,
}

impl Shared {
    /// Runs a client's operations until `stop` is set.
    fn work(
        &self,
        role: Role,
        seed: u64,
        store: &mut impl Store<Operation, Answer>,
        log: &mut Log,
    ) {
        let mut workload = Workload::new(self.round, role, seed);
        while !self.stop.load(Ordering::SeqCst) {
            let operation = workload.draw();
            let answer = log.record(&operation, |operation| store.run(operation));
            let counter = match (&operation, answer.expect("a log")) {
                (Operation::Delete { .. } | Operation::Rename { .. }, Ok(Answer::Lives(seen)))
                    if !seen.is_empty() =>
                {
                    &self.replaced
                }
                (Operation::DeleteNamed { .. }, Ok(Answer::Rows(1..))) => &self.replaced,
                (Operation::Fold { .. } | Operation::FoldNamed { .. }, Ok(Answer::Rows(1..))) => {
                    &self.folded
                }
                _ => continue,
            };
            counter.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn is_enough(&self) -> bool {
        let is_enough = |counter: &AtomicUsize| counter.load(Ordering::SeqCst) >= ENOUGH;
        is_enough(&self.replaced) && is_enough(&self.folded)
    }
}

fn play<Conn: LivesConnection>(place: &Place, round: Round, line: &mut Line, played: &mut Played) {
    let logs = place.folder().join(format!("round-{}", round.number));
    fs::create_dir(&logs).expect("a folder for logs");
    let shared = Arc::new(Shared {
        round,
        stop: AtomicBool::new(false),
        replaced: AtomicUsize::new(0),
        folded: AtomicUsize::new(0),
    });
    // All clients connect before any of them works: on SQLite even connecting has to wait for the lock.
    let clients = Role::of(round.scene).into_iter().enumerate();
    let clients = clients.map(|(client, role)| {
        let mut conn = place.connect::<Conn>();
        conn.batch_execute(Conn::SQL.hurry).expect("settings");
        let seed = line
            .extent
            .seed
            .wrapping_add(1000 * u64::from(line.rounds) + client as u64);
        let log = Log::create(&logs.join(format!("{client}.jsonl"))).expect("a log");
        (role, seed, SqlLives(conn), log)
    });
    let clients: Vec<_> = clients.collect();
    let threads = clients.into_iter().map(|(role, seed, mut store, mut log)| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || shared.work(role, seed, &mut store, &mut log))
    });
    let threads: Vec<_> = threads.collect();
    let time = line.choose(Duration::from_secs(2), Duration::from_millis(500));
    let began = Instant::now();
    while began.elapsed() < time || !shared.is_enough() && began.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(5));
    }
    shared.stop.store(true, Ordering::SeqCst);
    let told = Instant::now();
    while threads.iter().any(|client| !client.is_finished()) && told.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(5));
    }
    // A client that waits forever is left alone. The checker reports its operation, which has no end in the log.
    let ended = threads.into_iter().filter(JoinHandle::is_finished);
    ended.for_each(|client| client.join().expect("a client does not panic"));
    let aftermath = round.aftermath(&mut SqlLives(place.connect::<Conn>()));
    let history = History::read(&logs).expect("the logs");
    let judgement = round.judge(&history, &aftermath);
    line.add(&history, &judgement);
    if !shared.is_enough() {
        let round = line.rounds;
        line.find(format!("round {round}: the clients make no progress"));
    }
    played.replaced += shared.replaced.load(Ordering::SeqCst);
    played.folded += shared.folded.load(Ordering::SeqCst);
    played.findings += judgement.findings.len();
    if judgement.findings.is_empty() {
        fs::remove_dir_all(&logs).expect("a folder for logs");
    } else {
        keep_logs(line, round.number, &logs, &aftermath);
    }
}

//! The server stops answering for a while. On SQLite a process that holds the lock is stopped.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;

use super::Fault;
use crate::backend::Backend;
use crate::history::Done;
use crate::place::Place;
use crate::report::Line;
use crate::round::{Crew, Playing, Process, play};
use crate::workload::{Kind, Mix, everything};

pub const FAULT: Fault = Fault {
    name: "server-stopped",
    about: "the server, on SQLite the holder of the lock, is stopped (SIGSTOP) for 5 to 20 s; calls end by their deadlines, no drift",
    backends: &Backend::ALL,
    rounds: (20, 1),
    run,
};

/// The clients of each process.
const CLIENTS: u16 = 4;

fn run(line: &mut Line) {
    let backend = line.backend;
    let mut place = Place::new(backend);
    if backend == Backend::Sqlite {
        place.execute("PRAGMA journal_mode = WAL"); // without it, readers would wait for a writer that is stopped in its commit
    }
    let (coalescing, others): (Mix, Mix) = everything()
        .into_iter()
        .partition(|(kind, _)| *kind == Kind::CountCoalesced);
    let [coalescing, others] = [coalescing, others].map(|mix| Process::new(CLIENTS, mix));
    let mut processes = vec![coalescing, others.clone()];
    if backend == Backend::Sqlite {
        processes.insert(0, others); // without a server, the first process is the one that is stopped
    }
    let deadline = line.choose(Duration::from_secs(2), Duration::from_secs(1));
    let crew = Crew::of(processes).with_deadline(deadline);
    let bound = deadline.mul_f64(1.1);
    let mut longest_stop = Duration::ZERO;
    let mut latest = Duration::ZERO;
    while line.goes_on() {
        let seconds = match line.extent.short {
            true => 2.5,
            false => rand::random_range(5.0..20.0),
        };
        let meter = Meter::start();
        let played = play(&mut place, &crew, line, |place, playing| {
            playing.wait_for(20);
            let began = Instant::now();
            stop(place, playing, Duration::from_secs_f64(seconds));
            longest_stop = longest_stop.max(began.elapsed());
            playing.wait_for(20);
        });
        let late = meter.stop();
        latest = latest.max(late);
        for done in &played.history.operations {
            let took = done.took;
            if has_a_deadline(backend, done) && took > bound + late {
                let (round, at) = (line.rounds, done.at());
                let late =
                    format!("a deadline of {deadline:.2?}, where sleepers were late by {late:.0?}");
                line.find(format!(
                    "round {round}: {at} took {took:.2?} with {late}: {:?}",
                    done.outcome
                ));
            }
        }
    }
    line.remark(format!(
        "deadline {deadline:.1?}, longest stop {longest_stop:.1?}, a sleeper woken up to {latest:.0?} late"
    ));
}

/// Measures how late the machine wakes sleeping threads. Every deadline is late by as much.
struct Meter {
    stop: Sender<()>,
    late: JoinHandle<Duration>,
}

impl Meter {
    fn start() -> Self {
        const NAP: Duration = Duration::from_millis(10);
        let (stop, stopped) = mpsc::channel();
        let late = thread::spawn(move || {
            let mut latest = Duration::ZERO;
            loop {
                let began = Instant::now();
                let woken = stopped.recv_timeout(NAP);
                if woken != Err(RecvTimeoutError::Timeout) {
                    return latest;
                }
                latest = latest.max(began.elapsed().saturating_sub(NAP));
            }
        });
        Meter { stop, late }
    }

    fn stop(self) -> Duration {
        drop(self.stop);
        self.late.join().expect("no panic")
    }
}

/// Stops the server, or on SQLite the holder of the lock, for this time.
fn stop(place: &mut Place, playing: &Playing, time: Duration) {
    if place.backend != Backend::Sqlite {
        place.server().pause();
        thread::sleep(time);
        place.server().resume();
        return;
    }
    let holder = &playing.clients[0];
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < patience, "the lock is never held");
        holder.pause();
        if is_locked(place) {
            break;
        }
        holder.resume().expect("a process");
        thread::sleep(Duration::from_micros(rand::random_range(0..5_000)));
    }
    thread::sleep(time);
    holder.resume().expect("a process");
}

/// Whether a process holds SQLite's lock for longer than a running process would.
fn is_locked(place: &Place) -> bool {
    let mut conn: SqliteConnection = place.connect();
    conn.batch_execute("PRAGMA busy_timeout = 500")
        .expect("a setting");
    conn.batch_execute("BEGIN IMMEDIATE; ROLLBACK").is_err()
}

/// Whether a call must end by the deadline.
///
/// A call through a C library cannot be interrupted while it waits for its server, and ends when the server answers again. Flushes of
/// the coalescer wait for their own process, and SQLite itself stops waiting for a lock; both must end by the deadline.
/// Not where the process itself is stopped.
fn has_a_deadline(backend: Backend, done: &Done) -> bool {
    match backend {
        Backend::Sqlite => done.client_number() >= CLIENTS,
        _ => done.operation.is_coalesced(),
    }
}

//! Clients, servers and connections are killed.

use std::thread;
use std::time::{Duration, Instant};

use super::Fault;
use crate::backend::{Backend, ChaosConnection};
use crate::place::Place;
use crate::report::Line;
use crate::round::{Crew, Process, play};
use crate::with_connection;
use crate::workload::{Kind, everything};

pub const CLIENT: Fault = Fault {
    name: "client-killed",
    about: "a client process is killed (SIGKILL) at random; nothing acknowledged is lost, nothing is doubled",
    backends: &Backend::ALL,
    rounds: (200, 5),
    run: kill_clients,
};

pub const SERVER: Fault = Fault {
    name: "server-killed",
    about: "the server is killed (SIGKILL) and restarted, on SQLite every writer; nothing acknowledged is lost",
    backends: &Backend::ALL,
    rounds: (50, 3),
    run: kill_the_server,
};

pub const CONNECTIONS: Fault = Fault {
    name: "backends-terminated",
    about: "the server ends ten connections per second (pg_terminate_backend, KILL) under 64 writers, for 5 s in each round; no drift",
    backends: &Backend::SERVERS,
    rounds: (12, 1), // several, so that unknown outcomes of one round do not widen the bounds of another
    run: end_connections,
};

/// Waits until the moment is a random one.
fn wait_at_random() {
    thread::sleep(Duration::from_micros(rand::random_range(0..20_000)));
}

/// Kills a client process while another continues.
fn kill_clients(line: &mut Line) {
    let mut place = Place::new(line.backend);
    let crew = Crew::of_all_trades(2);
    let operations = line.choose(100, 20);
    while line.goes_on() {
        play(&mut place, &crew, line, |_, playing| {
            playing.wait_for(operations);
            wait_at_random();
            playing.kill(0);
            playing.wait_for(10); // the dead process's locks do not stop the other
        });
    }
}

/// Kills the server with all its processes and restarts it; on SQLite, kills all writers at once.
fn kill_the_server(line: &mut Line) {
    let mut place = Place::new(line.backend);
    let is_sqlite = line.backend == Backend::Sqlite;
    let crew = Crew::of_all_trades(if is_sqlite { 1 } else { 2 });
    let operations = line.choose(100, 20);
    while line.goes_on() {
        if is_sqlite {
            // Recovery rolls a journal back, and ignores the unfinished part of a write-ahead log.
            let journal = ["DELETE", "WAL"][line.rounds as usize % 2];
            place.execute(&format!("PRAGMA journal_mode = {journal}"));
        }
        play(&mut place, &crew, line, |place, playing| {
            playing.wait_for(operations);
            wait_at_random();
            if is_sqlite {
                playing.kill(0);
                return;
            }
            place.server().kill();
            thread::sleep(Duration::from_millis(50)); // calls meet no server
            place.server().restart();
            playing.wait_for(operations);
        });
    }
}

/// Ends ten connections per second under many writers.
fn end_connections(line: &mut Line) {
    let mut place = Place::new(line.backend);
    // Many folds at once would only wait for each other's locks.
    let is_writing = |kind| !matches!(kind, Kind::Fold | Kind::ReadRows | Kind::ReadNamed);
    let (writing, other) = everything()
        .into_iter()
        .partition(|(kind, _)| is_writing(*kind));
    let crew = Crew::of(vec![Process::new(64, writing), Process::new(2, other)]);
    let time = line.choose(Duration::from_secs(5), Duration::from_secs(3));
    let (mut terminated, mut tried) = (0, 0);
    while line.goes_on() {
        play(&mut place, &crew, line, |place, playing| {
            playing.wait_for(100);
            with_connection!(place.backend, Conn => {
                let mut conn = place.connect::<Conn>();
                let began = Instant::now();
                let mut next = began;
                while next < began + time {
                    let ended = conn.terminate_another();
                    terminated += u32::from(ended.expect("the server answers"));
                    tried += 1;
                    next += Duration::from_millis(100);
                    thread::sleep(next.saturating_duration_since(Instant::now()));
                }
            });
            playing.wait_for(100);
        });
    }
    if terminated * 10 < tried * 9 {
        line.find(format!(
            "only {terminated} connections of {tried} were ended"
        ));
    }
    line.remark(format!("{terminated} connections were ended"));
}

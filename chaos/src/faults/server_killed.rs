//! The server is killed with all its processes and restarted. On SQLite all writers are killed at once.

use std::thread;
use std::time::Duration;

use crate::backend::Backend;
use crate::extent::Extent;
use crate::fault::Fault;
use crate::place::Place;
use crate::report::Line;
use crate::round::{Crew, play};

pub const FAULT: Fault = Fault {
    name: "server-killed",
    about: "the server is killed (SIGKILL) and restarted, on SQLite every writer; nothing acknowledged is lost",
    backends: &Backend::ALL,
    rounds: (50, 3),
    run,
};

fn run(extent: &Extent, backend: Backend, line: &mut Line) {
    let mut place = Place::new(backend);
    let crew = match backend {
        Backend::Sqlite => Crew::of_all_trades(1),
        _ => Crew::of_all_trades(2),
    };
    let operations = extent.choose(100, 20);
    while extent.goes_on(line.rounds) {
        if backend == Backend::Sqlite {
            // Recovery rolls a journal back, and ignores the unfinished part of a write-ahead log.
            let journal = ["DELETE", "WAL"][line.rounds as usize % 2];
            place.execute(&format!("PRAGMA journal_mode = {journal}"));
        }
        play(&mut place, &crew, extent, line, |place, playing| {
            playing.wait_for(operations);
            thread::sleep(Duration::from_micros(rand::random_range(0..20_000)));
            if backend == Backend::Sqlite {
                playing.kill(0);
                return;
            }
            place.server().kill();
            thread::sleep(Duration::from_millis(50)); // calls meet no server
            place.server().restart();
            playing.wait_for(operations);
        });
        line.progress(extent);
    }
}

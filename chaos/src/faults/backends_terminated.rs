//! The server ends ten connections per second under many writers.

use std::thread;
use std::time::{Duration, Instant};

use crate::backend::{Backend, ChaosConnection};
use crate::extent::Extent;
use crate::fault::Fault;
use crate::place::Place;
use crate::report::Line;
use crate::round::{Crew, Process, play};
use crate::with_connection;
use crate::workload::{Kind, everything};

pub const FAULT: Fault = Fault {
    name: "backends-terminated",
    about: "the server ends ten connections per second (pg_terminate_backend, KILL) under 64 writers, for 5 s in each round; no drift",
    backends: &Backend::SERVERS,
    rounds: (12, 1), // several, so that unknown outcomes of one round do not widen the bounds of another
    run,
};

fn run(extent: &Extent, backend: Backend, line: &mut Line) {
    let mut place = Place::new(backend);
    // Many folds at once would only wait for each other's locks.
    let is_writing = |kind| !matches!(kind, Kind::Fold | Kind::ReadRows | Kind::ReadNamed);
    let (writing, other) = everything()
        .into_iter()
        .partition(|(kind, _)| is_writing(*kind));
    let crew = Crew::of(vec![Process::new(64, writing), Process::new(2, other)]);
    let time = extent.choose(Duration::from_secs(5), Duration::from_secs(3));
    let (mut terminated, mut tried) = (0, 0);
    while extent.goes_on(line.rounds) {
        play(&mut place, &crew, extent, line, |place, playing| {
            playing.wait_for(100);
            with_connection!(backend, Conn => {
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
        line.progress(extent);
    }
    if terminated * 10 < tried * 9 {
        line.find(format!(
            "only {terminated} connections of {tried} were ended"
        ));
    }
    line.remarks
        .push(format!("{terminated} connections were ended"));
}

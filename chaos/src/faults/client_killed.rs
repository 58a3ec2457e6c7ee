//! A client process is killed at a random moment while another continues.

use std::thread;
use std::time::Duration;

use crate::backend::Backend;
use crate::extent::Extent;
use crate::fault::Fault;
use crate::place::Place;
use crate::report::Line;
use crate::round::{Crew, play};

pub const FAULT: Fault = Fault {
    name: "client-killed",
    about: "a client process is killed (SIGKILL) at random; nothing acknowledged is lost, nothing is doubled",
    backends: &Backend::ALL,
    rounds: (200, 5),
    run,
};

fn run(extent: &Extent, backend: Backend, line: &mut Line) {
    let mut place = Place::new(backend);
    let crew = Crew::of_all_trades(2);
    let operations = extent.choose(100, 20);
    while extent.goes_on(line.rounds) {
        play(&mut place, &crew, extent, line, |_, playing| {
            playing.wait_for(operations);
            thread::sleep(Duration::from_micros(rand::random_range(0..20_000)));
            playing.kill(0);
            playing.wait_for(10); // the dead process's locks do not stop the other
        });
        line.progress(extent);
    }
}

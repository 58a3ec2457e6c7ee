//! Client processes fall silent in the middle of their calls, and never return. The server keeps what they have locked.

use std::time::Duration;

use diesel_sharded_tests::link::Link;

use super::Fault;
use crate::backend::Backend;
use crate::place::Place;
use crate::report::Line;
use crate::round::{Crew, Playing, play};

pub const STOPPED: Fault = Fault {
    name: "client-stopped",
    about: "two of four client processes are stopped (SIGSTOP) for good, with all their locks; the others make progress",
    backends: &Backend::SERVERS,
    rounds: (20, 1),
    run: |line| {
        fall_silent(line, |playing, _| {
            for client in &playing.clients[SILENT] {
                client.pause();
            }
        });
    },
};

pub const CUT: Fault = Fault {
    name: "answers-cut",
    about: "no answer reaches two of four client processes any more, though their requests arrive; the others make progress",
    backends: &Backend::SERVERS,
    rounds: (20, 1),
    run: |line| fall_silent(line, |_, link| link.cut_answers()),
};

/// The processes that fall silent. One of two neighbours combines.
const SILENT: std::ops::Range<usize> = 0..2;

fn fall_silent(line: &mut Line, strike: fn(&mut Playing, &Link)) {
    let mut place = Place::new(line.backend);
    place.limit_waits_for_locks();
    let operations = line.choose(50, 10);
    while line.goes_on() {
        let link = Link::to(&place.url);
        let mut crew = Crew::of_all_trades(4).with_deadline(Duration::from_secs(3));
        for process in &mut crew.processes[SILENT] {
            process.url = Some(link.by_way(&place.url));
        }
        let silent = 0..crew.clients_of(SILENT.end).start;
        play(&mut place, &crew, line, |_, playing| {
            playing.wait_for(50);
            strike(playing, &link);
            let before = playing.acknowledged_of(silent.clone());
            playing.wait_for_each(silent.end..playing.round.clients, operations);
            let after = playing.acknowledged_of(silent.clone());
            // The answer to one call may have arrived before.
            assert!(
                after
                    .iter()
                    .zip(&before)
                    .all(|(after, before)| after - before <= 1),
                "they are not silent: {before:?}, {after:?}"
            );
            SILENT.rev().for_each(|process| playing.kill(process));
        });
    }
}

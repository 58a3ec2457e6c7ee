//! Transactions conflict with each other all the time.

use std::time::Duration;

use super::Fault;
use crate::backend::Backend;
use crate::history::Outcome;
use crate::operation::{Begin, NO_CONNECTION};
use crate::place::Place;
use crate::report::Line;
use crate::round::{Crew, Process, play};
use crate::workload::Kind;

pub const DEADLOCKS: Fault = Fault {
    name: "deadlock-storm",
    about: "transactions lock two rows in opposite orders; 99.99 % succeed within the deadline",
    backends: &Backend::ALL,
    rounds: (10, 1),
    run: |line| run(Begin::Plainly, line),
};

pub const SERIALIZATION: Fault = Fault {
    name: "serialization-storm",
    about: "SERIALIZABLE transactions read two totals and count on both; 99.99 % succeed within the deadline",
    backends: &Backend::ALL,
    rounds: (10, 1),
    run: |line| run(Begin::Serializable, line),
};

/// One transaction in this many may fail.
const ONE_IN: usize = 10_000;

fn run(begin: Begin, line: &mut Line) {
    let backend = line.backend;
    let mut place = Place::new(backend);
    if backend == Backend::Postgres {
        // PostgreSQL looks for deadlocks after 1 s by default, which makes too few for a storm.
        place.execute("ALTER DATABASE chaos SET deadlock_timeout = '10ms'");
    }
    let process = Process::new(4, vec![(Kind::Crossing(begin), 40), (Kind::ReadRows, 1)]);
    let crew = Crew {
        attempts: Some(u32::MAX),
        shards: Some(1), // with more, few transactions would meet
        ..Crew::of(vec![process; 2])
    };
    let crew = crew.with_deadline(Duration::from_secs(line.choose(10, 30))); // CI's machines are slow
    let operations = line.choose(1000, 100);
    let (mut begun, mut succeeded) = (0, 0);
    let mut conflicts = 0;
    let mut longest = Duration::ZERO;
    while line.goes_on() {
        let played = play(&mut place, &crew, line, |_, playing| {
            playing.wait_for(operations);
        });
        for done in &played.history.operations {
            let was_sent =
                !matches!(&done.outcome, Outcome::Failed(refused) if refused.kind == NO_CONNECTION);
            if done.operation.token().is_some() && was_sent {
                begun += 1;
                let in_time = done.is_ok() && done.took <= crew.settings.deadline;
                succeeded += usize::from(in_time);
                longest = longest.max(done.took);
            }
        }
        conflicts += played.conflicts;
    }
    if (begun - succeeded) * ONE_IN > begun {
        line.find(format!(
            "only {succeeded} of {begun} transactions succeeded in time"
        ));
    }
    // A transaction that takes SQLite's one lock at its beginning waits for it inside SQLite, and meets a conflict only if it waits too
    // long.
    let waits_inside = backend == Backend::Sqlite && begin == Begin::Plainly;
    if conflicts == 0 && !waits_inside {
        line.find("no transaction met a conflict: that was no storm".into());
    }
    line.remark(format!(
        "{succeeded} of {begun} transactions succeeded ({:.3} %), the longest in {longest:.2?} of {:.0?}; {conflicts} retries",
        100.0 * succeeded as f64 / begun as f64,
        crew.settings.deadline,
    ));
}

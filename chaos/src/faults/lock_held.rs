//! A transaction locks a row and one of its shards, and never returns.

use std::time::Duration;

use diesel::connection::SimpleConnection;

use super::Fault;
use crate::backend::Backend;
use crate::place::Place;
use crate::report::{Line, Longest};
use crate::round::{Crew, Process, play};
use crate::with_connection;
use crate::workload::{Kind, everything};

pub const FAULT: Fault = Fault {
    name: "lock-held",
    about: "a transaction keeps a row and one of its shards locked for the whole round; everybody else counts on",
    backends: &[Backend::Postgres, Backend::Mariadb],
    rounds: (10, 1),
    run,
};

/// As in the schema.
const SHARDS: u16 = 16;

fn run(line: &mut Line) {
    let mut place = Place::new(line.backend);
    place.limit_waits_for_locks();
    // One process counts on the locked row alone, the other does everything.
    let crew = Crew::of(vec![
        Process::new(2, vec![(Kind::Count, 1)]),
        Process::new(4, everything()),
    ])
    .with_deadline(Duration::from_secs(3));
    let operations = line.choose(100, 10);
    let mut longest = Longest::default();
    while line.goes_on() {
        let played = play(&mut place, &crew, line, |place, playing| {
            playing.wait_for(20);
            let row = playing.round.plain();
            let lock = format!("BEGIN; SELECT 1 FROM chaos_rows WHERE id = {row} FOR UPDATE");
            // While the row is locked nobody creates a shard of it: all are there before.
            let fill = (0..SHARDS).map(|shard| {
                format!(
                    "; INSERT INTO chaos_rows_shards (id, shard) SELECT {row}, {shard} FROM chaos_rows WHERE id = {row} \
                     AND NOT EXISTS (SELECT 1 FROM chaos_rows_shards WHERE id = {row} AND shard = {shard})"
                )
            });
            let fill = lock.clone() + &fill.collect::<String>() + "; COMMIT";
            with_connection!(place.backend, Conn => {
                let mut holder = place.connect::<Conn>();
                holder.batch_execute(&fill).expect("shards");
                holder
                    .batch_execute(&format!(
                        "{lock}; SELECT 1 FROM chaos_rows_shards WHERE id = {row} ORDER BY shard LIMIT 1 FOR UPDATE"
                    ))
                    .expect("the locks");
                playing.wait_for_each(0..playing.round.clients, operations);
                holder.batch_execute("ROLLBACK").expect("the server answers");
            });
        });
        for done in &played.history.operations {
            longest.add(done);
        }
    }
    line.remark(longest.to_string());
}

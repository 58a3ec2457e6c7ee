//! A snapshot that stays open on PostgreSQL: meanwhile each count leaves a row version that vacuum cannot remove.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use diesel::prelude::*;
use diesel_sharded_benches::report::{Course, tenths};
use indicatif::ProgressBar;

use crate::arena::{Arena, Disk, Stage};
use crate::contenders::{Contender, Contenders};
use crate::write_behind::Redis;

const THREADS: usize = 8;
/// The rate is measured in this many parts of the counts.
const PARTS: usize = 10;

/// Counts on one hot row with the contender `name`, without and with an old snapshot; `table` holds its row versions.
pub fn measure(
    name: &str,
    table: &str,
    counts: usize,
    redis: &Redis,
    bar: &ProgressBar,
) -> Vec<Course> {
    let run = |pinned| {
        bar.set_message(format!("snapshot, {name}"));
        let stage = Stage::<PgConnection>::new(Disk::Free);
        let mut old = stage.connect();
        if pinned {
            old.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
            old.integer("(SELECT COUNT(*) FROM one_row)"); // takes the snapshot
        }
        let all = PgConnection::alone(&stage, redis);
        let contender = all.iter().find(|contender| contender.name == name);
        let contender = contender.expect("a contender");
        let rates = count(contender, &stage, counts);
        let mut conn = stage.connect();
        assert_eq!(
            conn.integer(&contender.total),
            counts as i64,
            "lost or doubled counts: {name}"
        );
        // The threads' connections report their dead row versions when they end.
        let dead =
            format!("(SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = '{table}')");
        Course {
            contender: contender.name.to_owned(),
            old_snapshot: pinned,
            per_second_of_tenths: rates.into_iter().map(tenths).collect(),
            table_bytes: conn.integer(&format!("pg_relation_size('{table}')")),
            dead_versions: conn.integer(&dead),
        }
    };
    vec![run(false), run(true)]
}

fn count(
    contender: &Contender<PgConnection>,
    stage: &Stage<PgConnection>,
    counts: usize,
) -> Vec<f64> {
    let next = AtomicUsize::new(0);
    let ends = Mutex::new(vec![]);
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut conn = stage.connect();
                let mut way = (contender.counting)().expect("a way to count");
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= counts {
                        return;
                    }
                    way(&mut conn, 1).expect("a count");
                    if (number + 1).is_multiple_of(counts / PARTS) {
                        ends.lock().expect("no panic").push(Instant::now());
                    }
                }
            });
        }
    });
    let mut ends = ends.into_inner().expect("no panic");
    ends.sort();
    let starts = [start].into_iter().chain(ends.clone());
    let times = starts.zip(&ends).map(|(start, end)| *end - start);
    times
        .map(|time| (counts / PARTS) as f64 / time.as_secs_f64())
        .collect()
}

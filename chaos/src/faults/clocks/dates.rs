//! Moves the dates that the database has written, as if its clock had jumped in between.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use diesel::prelude::*;

use super::ways::{BASE, LONGEST, OLD_BATCHES, OLD_KEYS, Timed};
use crate::place::Place;
use crate::report::Line;
use crate::sql_store::coalescer;

/// More than the days for which a coalescer's row is kept.
const MONTHS: i64 = 100 * 24 * 3600;

/// Moves the dates of idempotency keys and of the coalescer's batches, and checks that keys and counts are right.
pub(super) fn judge_database_clock<Conn: Timed>(
    place: &Place,
    conn: &mut Conn,
    first: i64,
    line: &mut Line,
) {
    let age = Duration::from_secs(30 * 24 * 3600);
    let row = first + OLD_KEYS;
    let key = format!("clocks {first}");
    let mut is = vec![];
    // Each removal comes after a move of the dates: by nothing; ahead, as if the clock had gone back; and far back.
    for (by, removed) in [(0, 0), (MONTHS, 0), (-2 * MONTHS, 1)] {
        conn.batch_execute(&format!(
            "UPDATE diesel_sharded_idempotency_keys SET created = created + {by}"
        ))
        .expect("keys");
        is.push((conn.remove_keys(age), Ok(removed)));
        let counted = conn.count_once(row, &key);
        is.push((counted, Ok(1)));
    }
    // By the documentation, a request that comes again after its key was removed is counted again.
    let told = conn.total(row);
    if is.iter().any(|(is, expected)| is != expected) || told != BASE + 2 {
        line.find(format!("idempotency keys: {is:?}, {told}"));
    }
    judge_batches(place, conn, first + OLD_BATCHES, line);
    conn.batch_execute("DELETE FROM diesel_sharded_idempotency_keys")
        .expect("keys");
}

/// Checks that a coalescer keeps counting while its row is dated months back or ahead, and others remove old rows.
fn judge_batches<Conn: Timed>(place: &Place, conn: &mut Conn, row: i64, line: &mut Line) {
    let deadline = Duration::from_secs(60);
    let make = || coalescer::<Conn>(&place.url, deadline).expect("a coalescer");
    let at_work = make();
    let stop = AtomicBool::new(false);
    let removed = AtomicUsize::new(0);
    let counted = thread::scope(|scope| {
        scope.spawn(|| {
            let mut conn = place.connect::<Conn>();
            for by in [-MONTHS, MONTHS, -2 * MONTHS].into_iter().cycle() {
                let moved = retry_busy(|| {
                    conn.batch_execute(&format!(
                        "UPDATE diesel_sharded_batches SET written = written + {by}"
                    ))
                });
                moved.expect("batches");
                drop(make()); // removes old rows
                removed.fetch_add(1, Ordering::SeqCst);
                if stop.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        let mut counted = 0;
        let patience = Instant::now() + deadline;
        while removed.load(Ordering::SeqCst) < 9 && Instant::now() < patience {
            match Conn::coalesce(&at_work, row, 1, None) {
                Ok(1) => counted += 1,
                told => line.find(format!("a coalescer at work: {told:?}")),
            }
        }
        stop.store(true, Ordering::SeqCst);
        counted
    });
    let is = conn.total(row);
    if is != BASE + counted {
        line.find(format!(
            "a coalescer at work: the total is {is}, and {} was acknowledged",
            BASE + counted
        ));
    }
}

/// Retries a statement until it succeeds.
fn retry_busy<T>(mut statement: impl FnMut() -> QueryResult<T>) -> QueryResult<T> {
    let patience = Instant::now() + LONGEST;
    loop {
        match statement() {
            Err(_) if Instant::now() < patience => thread::sleep(Duration::from_millis(1)),
            done => return done,
        }
    }
}

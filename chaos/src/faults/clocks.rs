//! Clocks jump by up to centuries, forwards and backwards, while clients meet conflicts.
//!
//! The process's clock, on which its attempts and its choice of shards depend, is injected. The database's clock stays as it is, and
//! the dates in its tables are moved instead: a comparison of the two has the same result.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use diesel_sharded::idempotency;
use diesel_sharded::retry::RetryPolicy;

use super::Fault;
use crate::backend::{Backend, ChaosConnection, Locks, Settings};
use crate::operation::{Answer, Begin, By, Count, On};
use crate::place::Place;
use crate::report::Line;
use crate::round::{Crew, Process, play};
use crate::with_connection;
use crate::workload::{Kind, Round};

pub const FAULT: Fault = Fault {
    name: "clocks",
    about: "clocks jump by up to centuries, both ways, under conflicts; no drift, and every call ends",
    backends: &Backend::ALL,
    rounds: (30, 1),
    run: |line| with_connection!(line.backend, Conn => run_on::<Conn>(line)),
};

/// No call takes this long, whatever its clock says: the locks in its way are released much sooner.
const LONGEST: Duration = Duration::from_secs(30);
/// The longest sleep of a policy.
const CAP: Duration = Duration::from_millis(20);
/// The acknowledged operations of a round.
const OPERATIONS: usize = 600;

fn run_on<Conn: ChaosConnection>(line: &mut Line) {
    let mut place = Place::new(line.backend);
    let mix = vec![
        (Kind::Count, 4),
        (Kind::CountNamed, 4),
        (Kind::CountCoalesced, 4),
        (Kind::Crossing(Begin::Plainly), 4),
        (Kind::Fold, 1),
        (Kind::ReadRows, 1),
    ];
    let mut crew = Crew::of(vec![Process::new(5, mix); 2]);
    crew.settings = Settings {
        deadline: Duration::from_secs(1),
        locks: Locks::Impatient,
    };
    crew.clock_jumps = true;
    let mut conflicts = 0;
    while line.goes_on() {
        // In one round retries end by their number, in the next only by the clock.
        crew.attempts = Some([32, u32::MAX][line.rounds as usize % 2]);
        let played = play(&mut place, &crew, line, |place, playing| {
            let mut conn = place.connect::<Conn>();
            let enough = playing.acknowledged() + OPERATIONS;
            let patience = Instant::now() + Duration::from_secs(120);
            while playing.acknowledged() < enough {
                assert!(Instant::now() < patience, "the clients make no progress");
                be_in_the_way(&mut conn, playing.round);
                thread::sleep(Duration::from_millis(5));
            }
        });
        for done in &played.history.operations {
            if done.took > LONGEST {
                line.find(format!("{} took {:?}", done.at(), done.took));
            }
        }
        if played.conflicts.contains_key(BEYOND_THE_CAP) {
            line.find(BEYOND_THE_CAP.into());
        }
        let met = played.conflicts.values().sum::<u64>();
        if met == 0 {
            line.find("no conflict was met".into());
        }
        conflicts += met;
        judge_database_clock(&mut place.connect::<Conn>(), played.round, line);
    }
    line.remark(format!("{conflicts} conflicts"));
}

/// Locks all shards of the clients' rows for a while.
fn be_in_the_way<Conn: ChaosConnection>(conn: &mut Conn, round: Round) {
    let lock = match Conn::SESSIONS {
        None => "BEGIN IMMEDIATE".to_owned(),
        Some(_) => format!(
            "BEGIN; SELECT 1 FROM chaos_rows_shards WHERE id BETWEEN {} AND {} FOR UPDATE",
            round.row(0),
            round.row(10)
        ),
    };
    // Its own wait for the locks may end in a deadlock.
    if conn.batch_execute(&lock).is_ok() {
        thread::sleep(CAP);
    }
    let _ = conn.batch_execute("ROLLBACK");
}

/// More than the age of the keys that are removed.
const MONTHS: i64 = 100 * 24 * 3600;

/// Moves the dates of idempotency keys, and checks that keys and counts are right.
fn judge_database_clock<Conn: ChaosConnection>(conn: &mut Conn, round: Round, line: &mut Line) {
    let age = Duration::from_secs(30 * 24 * 3600);
    let of_coalescers = conn.batch_execute("DELETE FROM diesel_sharded_idempotency_keys");
    of_coalescers.expect("keys of the clients and of their coalescers");
    let row = round.row(900);
    let inserted = conn.insert_rows(&[(row, None)], 0);
    inserted.expect("a row of no client");
    let request = Count {
        on: On::Row(row),
        by: By::Update,
        n: 1,
        likes: None,
        request: Some(format!("clocks {row}")),
    };
    let mut is = vec![];
    // Each removal comes after a move of the dates: by nothing; ahead, as if the clock had gone back; and far back.
    for (by, removed) in [(0, 0), (MONTHS, 0), (-2 * MONTHS, 1)] {
        let moved = format!("UPDATE diesel_sharded_idempotency_keys SET created = created + {by}");
        conn.batch_execute(&moved).expect("keys");
        is.push((idempotency::remove_older_than(age, conn), Ok(removed)));
        let counted = conn.count(&request).expect("a count");
        is.push((Ok(usize::from(counted == Answer::Rows(1))), Ok(1)));
    }
    // By the documentation, a request that comes again after its key was removed is counted again.
    let total = conn.total(row);
    if is.iter().any(|(is, expected)| is != expected) || total != Some(2) {
        line.find(format!("idempotency keys: {is:?}, {total:?}"));
    }
    conn.batch_execute("DELETE FROM diesel_sharded_idempotency_keys")
        .expect("keys");
}

/// The note of a client whose policy slept for longer than its cap.
const BEYOND_THE_CAP: &str = "a sleep beyond the cap";

/// A policy whose clock jumps.
pub(crate) fn jumping(
    policy: RetryPolicy,
    note: impl Fn(&str) + Send + Sync + 'static,
) -> RetryPolicy {
    policy
        .with_max_delay(CAP)
        .with_clock(clock)
        .with_sleep(move |delay| {
            if delay > CAP {
                note(BEYOND_THE_CAP);
            }
            thread::sleep(delay.min(CAP));
        })
}

/// Moves the clock to other times, nearby or far away, until `stop` is set.
pub(crate) fn jump_until(stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        let longest = [0, 1, 3_600, 86_400, 86_400 * 365 * 500][rand::random_range(0..5)];
        OFF.store(rand::random_range(-longest..=longest), Ordering::Relaxed);
        thread::sleep(Duration::from_micros(500));
    }
}

/// The seconds by which the clock is off.
static OFF: AtomicI64 = AtomicI64::new(0);
/// Far from the earliest instant, so that the clock can go back.
static BEGAN: LazyLock<Instant> = LazyLock::new(|| Instant::now() + years(1000));

fn years(number: u64) -> Duration {
    Duration::from_secs(number * 365 * 24 * 3600)
}

/// The time by this clock.
fn clock() -> Instant {
    let since = Instant::now() + years(1000) - *BEGAN;
    let off = OFF.load(Ordering::Relaxed);
    let by = Duration::from_secs(off.unsigned_abs());
    let now = *BEGAN + since;
    if off < 0 { now - by } else { now + by }
}

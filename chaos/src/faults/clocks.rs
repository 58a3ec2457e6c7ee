//! Clocks jump by up to centuries, forwards and backwards, while clients meet conflicts.
//!
//! The process's clock, on which its attempts and its choice of shards depend, is injected. The database's clock stays as it is, and
//! the dates in its tables are moved instead: a comparison of the two has the same result.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::{Counter, Error, fold, idempotency, set_total, update};

use super::{Fault, Findings, patiently};
use crate::backend::Backend;
use crate::place::Place;
use crate::report::Line;
use crate::schema::chaos_rows::dsl::*;
use crate::sql_store::coalescer;
use crate::{on_each_connection, with_connection};

pub const FAULT: Fault = Fault {
    name: "clocks",
    about: "clocks jump by up to centuries, both ways, under conflicts; no drift, and every call ends",
    backends: &Backend::ALL,
    rounds: (30, 1),
    run: |line| with_connection!(line.backend, Conn => run_on::<Conn>(line)),
};

/// `views` of every row at the beginning.
const BASE: i64 = 1000;
/// No call takes this long, whatever its clock says: the locks in its way are released much sooner.
const LONGEST: Duration = Duration::from_secs(30);

/// The ways to count, each on a row of its own.
const ON_ONE_SHARD: i64 = 0;
const ADAPTIVE: i64 = 1;
const TRANSACTION: i64 = 2;
const COALESCED: i64 = 3;
const NAMED: i64 = 4;
/// The rows that no client counts on.
const SET: i64 = 5;
const OLD_KEYS: i64 = 6;
const OLD_BATCHES: i64 = 7;

/// The counts that each client makes in a round.
const COUNTS: u64 = 60;
/// The longest sleep of a policy.
const CAP: Duration = Duration::from_millis(20);

fn run_on<Conn: Timed>(line: &mut Line) {
    let place = Place::new(line.backend);
    let mut conflicts = 0;
    let mut jumps = 0;
    while line.goes_on() {
        let first = 10 * i64::from(line.rounds);
        let mut conn = place.connect::<Conn>();
        let rows: Vec<_> = (first..first + 10).map(|row| (row, None)).collect();
        conn.insert_rows(&rows, BASE).expect("the rows of a round");
        let round = Round {
            place: &place,
            first,
            told: (0..5).map(|_| AtomicI64::new(0)).collect(),
            ok: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            conflicts: Arc::default(),
            longest_sleep: Arc::default(),
            findings: Findings::default(),
            working: AtomicUsize::new(0),
        };
        jumps += round.play::<Conn>();
        round.judge(&mut conn, line);
        judge_database_clock(&place, &mut conn, first, line);
        line.rounds += 1;
        line.ok += round.ok.into_inner() as usize;
        line.failed += round.failed.into_inner() as usize;
        conflicts += round.conflicts.load(Ordering::Relaxed);
    }
    let remark = format!("{jumps} jumps of the clock, {conflicts} conflicts");
    line.remark(remark);
}

/// The state that the clients of a round share.
struct Round<'a> {
    place: &'a Place,
    first: i64,
    /// The acknowledged counts, by way to count.
    told: Vec<AtomicI64>,
    ok: AtomicU64,
    failed: AtomicU64,
    conflicts: Arc<AtomicU64>,
    longest_sleep: Arc<Mutex<Duration>>,
    findings: Findings,
    working: AtomicUsize,
}

impl Round<'_> {
    fn policy(&self, attempts: u32) -> RetryPolicy {
        let conflicts = Arc::clone(&self.conflicts);
        let longest = Arc::clone(&self.longest_sleep);
        RetryPolicy::new()
            .with_attempts(attempts)
            .with_deadline(Duration::from_secs(1))
            .with_max_delay(CAP)
            .with_clock(clock)
            .with_notify(move |_| {
                conflicts.fetch_add(1, Ordering::Relaxed);
            })
            .with_sleep(move |delay| {
                let mut longest = longest.lock().expect("no panic while it is held");
                *longest = delay.max(*longest);
                drop(longest);
                thread::sleep(delay.min(CAP));
            })
    }

    /// Plays the round, and returns the number of jumps.
    fn play<Conn: Timed>(&self) -> u64 {
        let before = RetryPolicy::global();
        self.policy(u32::MAX).set_global();
        let deadline = Duration::from_secs(60);
        let coalescer = coalescer::<Conn>(&self.place.url, deadline).expect("a coalescer");
        let jumps = thread::scope(|scope| {
            for way in [ON_ONE_SHARD, ADAPTIVE, TRANSACTION, COALESCED, NAMED] {
                for client in 0..2 {
                    self.working.fetch_add(1, Ordering::SeqCst);
                    let coalescer = &coalescer;
                    scope.spawn(move || {
                        // One client's retries end by their number, the other's only by the clock.
                        let policy = self.policy([32, u32::MAX][client]);
                        let mut conn = self.place.connect::<Conn>();
                        conn.batch_execute(Conn::SQL.impatient).expect("a setting");
                        let mut counted = 0;
                        while counted < COUNTS {
                            counted += u64::from(self.time(way, || match way {
                                COALESCED => Conn::coalesce(coalescer, self.first + way, 1, None),
                                way => conn.count(way, self.first + way, policy.clone()),
                            }));
                        }
                        self.working.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            }
            scope.spawn(|| self.be_in_the_way::<Conn>());
            let mut jumps = 0;
            while self.working.load(Ordering::SeqCst) > 0 {
                jump();
                jumps += 1;
                thread::sleep(Duration::from_micros(500));
            }
            jumps
        });
        drop(coalescer);
        set_right();
        before.set_global();
        jumps
    }

    /// Takes and releases locks on the rows that the others count on, again and again.
    fn be_in_the_way<Conn: Timed>(&self) {
        let mut conn = self.place.connect::<Conn>();
        while self.working.load(Ordering::SeqCst) > 0 {
            conn.hold(self.first, Duration::from_millis(20));
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Makes a call, and checks that it ends and reports its outcome. Returns whether it counted.
    fn time(&self, way: i64, call: impl FnOnce() -> Result<usize, Error>) -> bool {
        match self.findings.time(&format!("way {way}"), LONGEST, call) {
            Ok(1) => {
                self.told[usize::try_from(way).expect("a few")].fetch_add(1, Ordering::SeqCst);
                self.ok.fetch_add(1, Ordering::SeqCst);
                return true;
            }
            Err(error) if is_used_up(&error) => {
                self.failed.fetch_add(1, Ordering::SeqCst);
            }
            told => self.findings.find(format!("way {way}: {told:?}")),
        }
        false
    }

    fn judge<Conn: Timed>(&self, conn: &mut Conn, line: &mut Line) {
        self.findings.tell(line);
        let longest = *self
            .longest_sleep
            .lock()
            .expect("no panic while it is held");
        if longest > CAP {
            line.find(format!("a sleep of {longest:?}"));
        }
        for (way, told) in self.told.iter().enumerate() {
            let way = way as i64;
            let told = told.load(Ordering::SeqCst);
            let (is, expected) = match way {
                NAMED => (conn.named(self.first + way), told),
                way => (conn.total(self.first + way).expect("a total"), BASE + told),
            };
            line.reads += 1;
            if is != expected {
                line.find(format!(
                    "way {way}: the total is {is}, and {expected} was acknowledged"
                ));
            }
        }
        if self.conflicts.load(Ordering::Relaxed) == 0 {
            line.find("no conflict was met".into());
        }
    }
}

/// Whether an error reports that nothing was changed because all attempts met conflicts.
fn is_used_up(error: &Error) -> bool {
    match error {
        Error::ConflictPersisted { .. } => true,
        Error::InBatch { source } => is_used_up(source),
        // Statements in a caller's closure report Diesel's errors.
        Error::Diesel(diesel::result::Error::DatabaseError(_, information)) => {
            let text = information.message();
            // PostgreSQL reports a lock timeout as a user's request if it grants the lock at the same moment.
            let conflicts = [
                "lock timeout",
                "due to user request",
                "Lock wait timeout",
                "database is locked",
            ];
            conflicts.iter().any(|conflict| text.contains(conflict))
        }
        _ => false,
    }
}

/// More than the days for which a coalescer's row is kept.
const MONTHS: i64 = 100 * 24 * 3600;

/// Moves the dates of idempotency keys and of the coalescer's batches, and checks that keys and counts are right.
fn judge_database_clock<Conn: Timed>(place: &Place, conn: &mut Conn, first: i64, line: &mut Line) {
    let age = Duration::from_secs(30 * 24 * 3600);
    let row = first + OLD_KEYS;
    let key = format!("clocks {first}");
    let mut is = vec![];
    // Each removal comes after a move of the dates: by nothing; ahead, as if the clock had gone back; and far back.
    for (by, removed) in [(0, 0), (MONTHS, 0), (-2 * MONTHS, 1)] {
        let moved = format!("UPDATE diesel_sharded_idempotency_keys SET created = created + {by}");
        conn.batch_execute(&moved).expect("keys");
        is.push((conn.remove_keys(age), Ok(removed)));
        is.push((conn.count_once(row, &key), Ok(1)));
    }
    // By the documentation, a request that comes again after its key was removed is counted again.
    let told = conn.total(row).expect("a total");
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
                let moved = format!("UPDATE diesel_sharded_batches SET written = written + {by}");
                patiently(|| conn.batch_execute(&moved));
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
    let is = conn.total(row).expect("a total");
    if is != BASE + counted {
        let told = BASE + counted;
        line.find(format!(
            "a coalescer at work: the total is {is}, and {told} was acknowledged"
        ));
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

/// Moves the clock to another time, nearby or far away.
fn jump() {
    let longest = [0, 1, 3_600, 86_400, 86_400 * 365 * 500][rand::random_range(0..5)];
    OFF.store(rand::random_range(-longest..=longest), Ordering::Relaxed);
}

/// Ends all jumps.
fn set_right() {
    OFF.store(0, Ordering::Relaxed);
}

/// The name of a way's counter.
fn name(row: i64) -> String {
    format!("clocks {row}")
}

on_each_connection! {
    /// A connection with the statements of this fault.
    trait Timed {
        fn count(&mut self, way: i64, row: i64, policy: RetryPolicy) -> Result<usize, Error> {
            let conn = self;
            let count = || update(chaos_rows.find(row)).set(views.eq(views + 1));
            Ok(match way {
                ON_ONE_SHARD => {
                    let policy = policy.with_random(|| 0);
                    count().shard_choice(ShardChoice::Random).retry(policy).execute(conn)?
                }
                ADAPTIVE => count().shard_choice(ShardChoice::Adaptive).retry(policy).execute(conn)?,
                NAMED => {
                    Counter::named(name(row)).add(1, conn)?;
                    1
                }
                _ => retry::transaction(conn, policy, |conn| {
                    let counted = count().execute(conn)?;
                    // Locks a row, so that the transactions conflict.
                    set_total(chaos_rows.find(row - way + SET), views, BASE).execute(conn)?;
                    QueryResult::Ok(counted)
                })?,
            })
        }

        /// Locks the shards of a round for this time.
        fn hold(&mut self, first: i64, time: Duration) {
            let held = RetryPolicy::new().with_attempts(u32::MAX).with_deadline(LONGEST);
            let held: QueryResult<()> = retry::transaction(self, held, |conn| {
                // A fold locks its rows and all their shards, and moves the counts into the rows.
                fold(chaos_rows.filter(id.between(first, first + 4))).run(conn)?;
                thread::sleep(time);
                Ok(())
            });
            held.expect("locks");
        }

        fn named(&mut self, row: i64) -> i64 {
            Counter::named(name(row)).get(self).expect("a total")
        }

        /// Counts with an idempotency key.
        fn count_once(&mut self, row: i64, key: &str) -> QueryResult<usize> {
            update(chaos_rows.find(row)).set(views.eq(views + 1)).idempotency_key(key).execute(self)
        }

        fn remove_keys(&mut self, age: Duration) -> QueryResult<usize> {
            idempotency::remove_older_than(age, self)
        }
    }
}

//! Clocks jump by anything from a moment to centuries, forwards and backwards, while clients meet conflicts.
//!
//! The clock of a process, by which its attempts and its choice of shards go, is injected. The database's own is not moved; what
//! it has dated is: that is the same to whoever compares.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::{LoadConnection, SimpleConnection};
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::{Counter, Error, fold, idempotency, set_total, update};

use super::{Extent, Fault};
use crate::backend::{Backend, ChaosConnection};
use crate::place::Place;
use crate::report::Line;
use crate::schema::chaos_rows::dsl::*;
use crate::sql_store::coalescer;
use crate::with_connection;

pub const FAULT: Fault = Fault {
    name: "clocks",
    about: "clocks jump by up to centuries, both ways, under conflicts; no drift, and every call ends",
    backends: &Backend::ALL,
    rounds: (30, 1),
    run,
};

const BASE: i64 = 1000;
/// Counts that have to be told in a round, each way.
const COUNTS: u64 = 60;
/// The longest sleep of a policy.
const CAP: Duration = Duration::from_millis(20);
/// No call takes so long, whatever its clock says: what is in the way is taken away much sooner.
const LONGEST: Duration = Duration::from_secs(30);
/// More than the days for which a coalescer's row is kept.
const MONTHS: i64 = 100 * 24 * 3600;

/// Seconds by which the clock is off.
static OFF: AtomicI64 = AtomicI64::new(0);
/// Far from the least instant there is, so that it can go back.
static BEGAN: LazyLock<Instant> = LazyLock::new(|| Instant::now() + years(1000));

fn years(number: u64) -> Duration {
    Duration::from_secs(number * 365 * 24 * 3600)
}

fn clock() -> Instant {
    let since = Instant::now() + years(1000) - *BEGAN;
    let off = OFF.load(Ordering::Relaxed);
    let by = Duration::from_secs(off.unsigned_abs());
    let now = *BEGAN + since;
    if off < 0 { now - by } else { now + by }
}

/// Another time, nearby or far away.
fn jump() {
    let longest = [0, 1, 3_600, 86_400, 86_400 * 365 * 500][rand::random_range(0..5)];
    OFF.store(rand::random_range(-longest..=longest), Ordering::Relaxed);
}

fn run(extent: &Extent, backend: Backend) -> Line {
    with_connection!(backend, Conn => run_on::<Conn>(extent, backend))
}

fn run_on<Conn: Timed + LoadConnection + Send>(extent: &Extent, backend: Backend) -> Line
where
    Conn::Backend: diesel_sharded::backend::BackendOf<Conn>,
{
    let mut line = Line::new(FAULT.name, backend);
    let place = Place::new(backend).unwrap_or_else(|missing| panic!("{missing}"));
    let mut conflicts = 0;
    let mut jumps = 0;
    while extent.goes_on(line.rounds) {
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
            findings: Mutex::default(),
            working: AtomicUsize::new(0),
        };
        jumps += round.play::<Conn>();
        round.judge(&mut conn, &mut line);
        judge_database_clock(&place, &mut conn, first, &mut line);
        line.rounds += 1;
        line.ok += round.ok.into_inner() as usize;
        line.failed += round.failed.into_inner() as usize;
        conflicts += round.conflicts.load(Ordering::Relaxed);
        line.progress(extent);
    }
    let remark = format!("{jumps} jumps of the clock, {conflicts} conflicts");
    line.remarks.push(remark);
    line.finish()
}

/// What the clients of a round share.
struct Round<'a> {
    place: &'a Place,
    first: i64,
    /// What was acknowledged, for each of the ways to count.
    told: Vec<AtomicI64>,
    ok: AtomicU64,
    failed: AtomicU64,
    conflicts: Arc<AtomicU64>,
    longest_sleep: Arc<Mutex<Duration>>,
    findings: Mutex<Vec<String>>,
    working: AtomicUsize,
}

/// The ways to count, each on a row of its own.
const ON_ONE_SHARD: i64 = 0;
const ADAPTIVE: i64 = 1;
const TRANSACTION: i64 = 2;
const COALESCED: i64 = 3;
const NAMED: i64 = 4;
/// Rows that are not counted on.
const SET: i64 = 5;
const OLD_KEYS: i64 = 6;
const OLD_BATCHES: i64 = 7;

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

    /// Gives the number of jumps.
    fn play<Conn: Timed + LoadConnection + Send>(&self) -> u64
    where
        Conn::Backend: diesel_sharded::backend::BackendOf<Conn>,
    {
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
                        // Some rely on attempts alone, which end, others on the clock.
                        let policy = self.policy([32, u32::MAX][client]);
                        let mut conn = self.place.connect::<Conn>();
                        conn.be_impatient();
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
        OFF.store(0, Ordering::Relaxed);
        before.set_global();
        jumps
    }

    /// Holds locks on what the others count on, again and again.
    fn be_in_the_way<Conn: Timed>(&self) {
        let mut conn = self.place.connect::<Conn>();
        while self.working.load(Ordering::SeqCst) > 0 {
            conn.hold(self.first, Duration::from_millis(20));
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// A call ends, and tells what it did; gives whether it counted.
    fn time(&self, way: i64, call: impl FnOnce() -> Result<usize, Error>) -> bool {
        let began = Instant::now();
        let told = call();
        let took = began.elapsed();
        if took > LONGEST {
            self.find(format!("way {way} took {took:?}"));
        }
        match told {
            Ok(1) => {
                self.told[usize::try_from(way).expect("a few")].fetch_add(1, Ordering::SeqCst);
                self.ok.fetch_add(1, Ordering::SeqCst);
                return true;
            }
            Err(error) if is_used_up(&error) => {
                self.failed.fetch_add(1, Ordering::SeqCst);
            }
            told => self.find(format!("way {way}: {told:?}")),
        }
        false
    }

    fn find(&self, finding: String) {
        let mut findings = self.findings.lock().expect("no panic while it is held");
        findings.push(finding);
    }

    fn judge<Conn: Timed>(&self, conn: &mut Conn, line: &mut Line) {
        let mut findings = self.findings.lock().expect("no panic while it is held");
        findings.drain(..).for_each(|finding| line.find(finding));
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
                way => (conn.total(self.first + way), BASE + told),
            };
            line.reads += 1;
            if is != expected {
                line.find(format!("way {way}: {is} where {expected} was told"));
            }
        }
        if self.conflicts.load(Ordering::Relaxed) == 0 {
            line.find("no conflict was met".into());
        }
    }
}

/// Whether it tells that nothing was changed, since all attempts met conflicts.
fn is_used_up(error: &Error) -> bool {
    match error {
        Error::ConflictPersisted { .. } => true,
        Error::InBatch { source } => is_used_up(source),
        // What a caller's own statements meet in his closure he is told as Diesel tells it.
        Error::Diesel(diesel::result::Error::DatabaseError(_, information)) => {
            let text = information.message();
            // PostgreSQL calls a lock timeout a user's request where the lock is given just as it fires.
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

/// What is done on each connection type.
trait Timed: ChaosConnection {
    /// Waits for no lock, or hardly.
    fn be_impatient(&mut self);

    fn count(&mut self, way: i64, row: i64, policy: RetryPolicy) -> Result<usize, Error>;

    /// Locks the shards of a round for so long.
    fn hold(&mut self, first: i64, time: Duration);

    fn total(&mut self, row: i64) -> i64;

    fn named(&mut self, row: i64) -> i64;

    /// Counts with a key.
    fn count_once(&mut self, row: i64, key: &str) -> QueryResult<usize>;

    fn remove_keys(&mut self, age: Duration) -> QueryResult<usize>;
}

fn name(row: i64) -> String {
    format!("clocks {row}")
}

macro_rules! timed {
    ($($Conn:ty: $impatient:literal),+) => {$(
        impl Timed for $Conn {
            fn be_impatient(&mut self) {
                self.batch_execute($impatient).expect("a setting");
            }

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
                        // Takes the row's lock, and is in the way of others.
                        set_total(chaos_rows.find(row - way + SET), views, BASE).execute(conn)?;
                        QueryResult::Ok(counted)
                    })?,
                })
            }

            fn hold(&mut self, first: i64, time: Duration) {
                let held = RetryPolicy::new().with_attempts(u32::MAX).with_deadline(LONGEST);
                let held: QueryResult<()> = retry::transaction(self, held, |conn| {
                    // A fold locks its rows and all their shards, and takes the counts into the rows.
                    fold(chaos_rows.filter(id.between(first, first + 4))).run(conn)?;
                    thread::sleep(time);
                    Ok(())
                });
                held.expect("locks");
            }

            fn total(&mut self, row: i64) -> i64 {
                chaos_rows.find(row).select(views.total()).first(self).expect("a total")
            }

            fn named(&mut self, row: i64) -> i64 {
                Counter::named(name(row)).get(self).expect("a total")
            }

            fn count_once(&mut self, row: i64, key: &str) -> QueryResult<usize> {
                update(chaos_rows.find(row)).set(views.eq(views + 1)).idempotency_key(key).execute(self)
            }

            fn remove_keys(&mut self, age: Duration) -> QueryResult<usize> {
                idempotency::remove_older_than(age, self)
            }
        }
    )+};
}

timed!(
    PgConnection: "SET lock_timeout = '3ms'",
    MysqlConnection: "SET innodb_lock_wait_timeout = 0",
    SqliteConnection: "PRAGMA busy_timeout = 1"
);

/// What the database has dated is as old, or as far ahead, as if its clock had jumped in between.
fn judge_database_clock<Conn: Timed + LoadConnection + Send>(
    place: &Place,
    conn: &mut Conn,
    first: i64,
    line: &mut Line,
) where
    Conn::Backend: diesel_sharded::backend::BackendOf<Conn>,
{
    let age = Duration::from_secs(30 * 24 * 3600);
    let row = first + OLD_KEYS;
    let key = format!("clocks {first}");
    let mut is = vec![];
    // Ahead, since the clock was set back; a month old; and as it is.
    for (by, removed) in [(0, 0), (MONTHS, 0), (-2 * MONTHS, 1)] {
        conn.batch_execute(&format!(
            "UPDATE diesel_sharded_idempotency_keys SET created = created + {by}"
        ))
        .expect("keys");
        is.push((conn.remove_keys(age), Ok(removed)));
        let counted = conn.count_once(row, &key);
        is.push((counted, Ok(1)));
    }
    // What came again after it was removed is counted again, as it is documented.
    let told = conn.total(row);
    if is.iter().any(|(is, expected)| is != expected) || told != BASE + 2 {
        line.find(format!("idempotency keys: {is:?}, {told}"));
    }
    judge_batches(place, conn, first + OLD_BATCHES, line);
    conn.batch_execute("DELETE FROM diesel_sharded_idempotency_keys")
        .expect("keys");
}

/// A coalescer counts on while its row seems months old or to come, and others remove what is old.
fn judge_batches<Conn: Timed + LoadConnection + Send>(
    place: &Place,
    conn: &mut Conn,
    row: i64,
    line: &mut Line,
) where
    Conn::Backend: diesel_sharded::backend::BackendOf<Conn>,
{
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
                drop(make()); // removes what is old
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
            "a coalescer at work: {is} where {} was told",
            BASE + counted
        ));
    }
}

/// Tries again what met a conflict.
fn retry_busy<T>(mut statement: impl FnMut() -> QueryResult<T>) -> QueryResult<T> {
    let patience = Instant::now() + LONGEST;
    loop {
        match statement() {
            Err(_) if Instant::now() < patience => thread::sleep(Duration::from_millis(1)),
            done => return done,
        }
    }
}

//! Clocks jump by up to centuries, forwards and backwards, while clients meet conflicts.
//!
//! The process's clock, on which its attempts and its choice of shards depend, is injected. The database's clock stays as it is, and
//! the dates in its tables are moved instead: a comparison of the two has the same result.

mod clock;
mod dates;
mod ways;

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use diesel_sharded::Error;
use diesel_sharded::retry::RetryPolicy;

use self::clock::{clock, jump, set_right};
use self::dates::judge_database_clock;
use self::ways::{ADAPTIVE, BASE, COALESCED, LONGEST, NAMED, ON_ONE_SHARD, TRANSACTION, Timed};
use crate::backend::Backend;
use crate::extent::Extent;
use crate::fault::Fault;
use crate::place::Place;
use crate::report::Line;
use crate::sql_store::coalescer;
use crate::with_connection;

pub const FAULT: Fault = Fault {
    name: "clocks",
    about: "clocks jump by up to centuries, both ways, under conflicts; no drift, and every call ends",
    backends: &Backend::ALL,
    rounds: (30, 1),
    run: |extent, backend, line| with_connection!(backend, Conn => run_on::<Conn>(extent, backend, line)),
};

/// The counts that each client makes in a round.
const COUNTS: u64 = 60;
/// The longest sleep of a policy.
const CAP: Duration = Duration::from_millis(20);

fn run_on<Conn: Timed>(extent: &Extent, backend: Backend, line: &mut Line) {
    let place = Place::new(backend);
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
        round.judge(&mut conn, line);
        judge_database_clock(&place, &mut conn, first, line);
        line.rounds += 1;
        line.ok += round.ok.into_inner() as usize;
        line.failed += round.failed.into_inner() as usize;
        conflicts += round.conflicts.load(Ordering::Relaxed);
        line.progress(extent);
    }
    let remark = format!("{jumps} jumps of the clock, {conflicts} conflicts");
    line.remarks.push(remark);
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
    findings: Mutex<Vec<String>>,
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

//! A Redis server that caches totals is flushed, killed and stopped, while clients count and read through it.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_sharded::cached::{Cached, CachedCounter};
use diesel_sharded::{Counter, RowCounter};
use diesel_sharded_redis_cache::RedisCache;
use diesel_sharded_tests::redis::{CountsFailures, RedisServer};

use super::Fault;
use crate::backend::{Backend, ChaosConnection};
use crate::place::Place;
use crate::report::Line;
use crate::schema::chaos_rows::views;
use crate::{until, with_connection};

pub const FAULT: Fault = Fault {
    name: "cache",
    about: "the Redis server that caches totals is flushed, killed and stopped; counts and reads still work",
    backends: &Backend::ALL,
    rounds: (15, 1),
    run: |line| with_connection!(line.backend, Conn => run_on::<Conn>(line)),
};

const BASE: i64 = 1000;
const TTL: Duration = Duration::from_secs(1);
/// The time for which the server is stopped: longer than any call may take.
const STOPPED: Duration = Duration::from_secs(4);
/// The longest wait for the server's connection, and for its answer.
const PATIENCE: Duration = Duration::from_millis(100);
/// The longest time of a call: a tenth of a second each for the cache's connection and answer before it is bypassed, and a reserve for the
/// database on a busy machine.
const LONGEST: Duration = Duration::from_secs(3);

fn run_on<Conn: ChaosConnection>(line: &mut Line)
where
    RowCounter<views>: CachedCounter<Conn>,
    Counter: CachedCounter<Conn>,
{
    let place = Place::new(line.backend);
    let mut redis = RedisServer::start();
    let mut slowest = Duration::ZERO;
    let mut failures = 0;
    while line.goes_on() {
        let row = i64::from(line.rounds);
        let mut conn = place.connect::<Conn>();
        let inserted = conn.insert_rows(&[(row, None)], BASE);
        inserted.expect("the row of a round");
        let cache = RedisCache::open(redis.url(), PATIENCE).expect("an address");
        let (cache, failed) = CountsFailures::of(cache);
        let round = Round {
            cached: Cached::new(cache)
                .with_ttl(TTL)
                .with_pause(Duration::from_millis(200)),
            failures: failed,
            row: RowCounter::of(views, row),
            named: Counter::named(format!("cached-{row}")),
            begun: AtomicI64::new(0),
            added: AtomicI64::new(0),
            past: Mutex::default(),
            counts: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            findings: Mutex::default(),
            slowest: Mutex::default(),
            stop: AtomicBool::new(false),
        };
        thread::scope(|scope| {
            for client in 0..4 {
                let (place, round) = (&place, &round);
                scope.spawn(move || round.work(&mut place.connect::<Conn>(), client));
            }
            round.strike(&mut redis);
            round.stop.store(true, Ordering::SeqCst);
        });
        round.judge(&mut conn, &redis, line);
        line.rounds += 1;
        line.ok += round.counts.into_inner() as usize;
        line.reads += round.reads.into_inner() as usize;
        failures += round.failures.load(Ordering::SeqCst);
        slowest = slowest.max(round.slowest.into_inner().expect("no panic"));
    }
    line.remark(format!(
        "the slowest call took {} ms; Redis failed {failures} times",
        slowest.as_millis()
    ));
}

/// The state that the clients of a round share.
struct Round {
    cached: Cached<CountsFailures<RedisCache>>,
    /// How often the cache failed.
    failures: Arc<AtomicU64>,
    row: RowCounter<views>,
    named: Counter,
    /// The sum of all counts that have begun on each of the two counters.
    begun: AtomicI64,
    /// The sum of all acknowledged counts on each of the two counters.
    added: AtomicI64,
    /// The acknowledged sums and their moments.
    past: Mutex<Vec<(Instant, i64)>>,
    counts: AtomicU64,
    reads: AtomicU64,
    findings: Mutex<Vec<String>>,
    /// The time of the slowest call.
    slowest: Mutex<Duration>,
    stop: AtomicBool,
}

impl Round {
    /// Counts or reads until the round stops. Half of the clients count. On SQLite only one does: it has one writer at a time, and
    /// so nobody waits long.
    fn work<Conn: ChaosConnection>(&self, conn: &mut Conn, client: usize)
    where
        RowCounter<views>: CachedCounter<Conn>,
        Counter: CachedCounter<Conn>,
    {
        let counting = if Conn::SESSIONS.is_some() { 2 } else { 1 };
        while !self.stop.load(Ordering::SeqCst) {
            if client < counting {
                self.begun.fetch_add(2, Ordering::SeqCst);
                self.time("a count", || self.cached.add(&self.row, 2, conn));
                self.time("a count by name", || self.cached.add(&self.named, 2, conn));
                let added = self.added.fetch_add(2, Ordering::SeqCst) + 2;
                let mut past = self.past.lock().expect("no panic while it is held");
                past.push((Instant::now(), added));
                drop(past);
                self.counts.fetch_add(2, Ordering::SeqCst);
            } else {
                self.read("a read", BASE, || self.cached.get(&self.row, conn));
                self.read("a read by name", 0, || self.cached.get(&self.named, conn));
                self.reads.fetch_add(2, Ordering::SeqCst);
            }
        }
    }

    /// Reads a total and checks its bounds.
    ///
    /// A total contains only counts that have begun. It may contain a count of each counting client twice, if the count overlapped the
    /// read that filled the cache. And it contains all counts that were acknowledged before that read: a stopped server keeps its
    /// entries until it continues.
    fn read(&self, what: &str, base: i64, call: impl FnOnce() -> QueryResult<i64>) {
        let long_ago = Instant::now().checked_sub(LONGEST + STOPPED + TTL);
        let Some(total) = self.time(what, call) else {
            return;
        };
        let twice = 2 * 2; // 2 by each of the two counting clients
        let highest = base + self.begun.load(Ordering::SeqCst) + twice;
        let past = self.past.lock().expect("no panic while it is held");
        let old = past.partition_point(|(at, _)| Some(*at) <= long_ago);
        let old = past[..old].iter().map(|(_, added)| *added);
        let lowest = base + old.max().unwrap_or(0);
        drop(past);
        if !(lowest..=highest).contains(&total) {
            let bounds = format!("{lowest} to {highest}");
            self.find(format!("{what} returned {total}, outside of {bounds}"));
        }
    }

    /// Makes a call, and checks that it succeeds in time.
    fn time<T>(&self, what: &str, call: impl FnOnce() -> QueryResult<T>) -> Option<T> {
        let began = Instant::now();
        let told = call();
        let took = began.elapsed();
        if took > LONGEST {
            self.find(format!("{what} took {took:?}"));
        }
        let mut slowest = self.slowest.lock().expect("no panic while it is held");
        *slowest = took.max(*slowest);
        drop(slowest);
        let failed = |error: &_| self.find(format!("{what} failed: {error}"));
        told.inspect_err(failed).ok()
    }

    fn find(&self, finding: String) {
        self.found().push(finding);
    }

    fn found(&self) -> MutexGuard<'_, Vec<String>> {
        self.findings.lock().expect("no panic while it is held")
    }

    /// Waits until the clients have made `more` further counts and reads.
    fn wait_for(&self, more: u64) {
        let done = || {
            let counts = self.counts.load(Ordering::SeqCst);
            counts.min(self.reads.load(Ordering::SeqCst))
        };
        let enough = done() + more;
        let is_enough = || done() >= enough || !self.found().is_empty();
        until("the clients make progress", is_enough);
    }

    fn strike(&self, redis: &mut RedisServer) {
        for _ in 0..5 {
            self.wait_for(50);
            redis.send("FLUSHALL").expect("the server runs");
        }
        self.wait_for(20);
        redis.kill();
        self.wait_for(20);
        redis.restart();
        self.wait_for(20);
        redis.pause();
        let until = Instant::now() + STOPPED;
        while Instant::now() < until {
            self.wait_for(2); // while the server is stopped
            thread::sleep(Duration::from_millis(50));
        }
        redis.resume();
        self.wait_for(20);
    }

    /// Checks that the database is exact, and the cache too once its totals have expired.
    fn judge<Conn: ChaosConnection>(&self, conn: &mut Conn, redis: &RedisServer, line: &mut Line)
    where
        RowCounter<views>: CachedCounter<Conn>,
        Counter: CachedCounter<Conn>,
    {
        self.found()
            .drain(..)
            .for_each(|finding| line.find(finding));
        thread::sleep(TTL + Duration::from_millis(300)); // longer than the pause after the last failure
        let added = self.added.load(Ordering::SeqCst);
        let counters: [(&dyn CachedCounter<Conn>, i64); 2] =
            [(&self.row, BASE + added), (&self.named, added)];
        for (counter, total) in counters {
            let read = counter.read(conn).expect("a total");
            let cached = self.cached.get(counter, conn).expect("a total");
            let key = format!("diesel_sharded:{}", counter.cache_key());
            let kept = redis.send(&format!("GET '{key}'"));
            let kept = kept.expect("the server runs");
            if (read, cached, &kept) != (total, total, &total.to_string()) {
                line.find(format!(
                    "{key}: {total} was counted, the database has {read}, a read returns {cached}, and the cache holds {kept:?}"
                ));
            }
        }
        if self.failures.load(Ordering::SeqCst) == 0 {
            line.find("the cache never failed".into());
        }
    }
}

//! Totals in a real Redis server: the contract of a cache, and what becomes of increments when the server dies, hangs or holds other values.

use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_sharded::RowCounter;
use diesel_sharded::cached::{CacheError, Cached, TotalCache};
use diesel_sharded_redis_cache::RedisCache;
use diesel_sharded_tests::TestConnection;
use diesel_sharded_tests::redis::{CountsFailures, RedisServer};
use diesel_sharded_tests::schema::{self, videos::dsl::views};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(100);
const KEY: &str = "diesel_sharded:videos_shards.views:1";

fn open(server: &RedisServer, timeout: Duration) -> RedisCache {
    RedisCache::open(server.url(), timeout).unwrap()
}

#[test]
fn the_contract_of_a_cache() {
    let server = RedisServer::start();
    let cache = open(&server, LONG);
    cache.increment_if_present("a", 5).unwrap();
    assert_eq!(cache.get("a").unwrap(), None);
    cache.add_if_absent("a", 1, Duration::MAX).unwrap();
    cache.add_if_absent("a", 2, LONG).unwrap();
    cache.increment_if_present("a", -3).unwrap();
    assert_eq!(cache.get("a").unwrap(), Some(-2));
    cache.remove("a").unwrap();
    assert_eq!(cache.get("a").unwrap(), None);
    for (kept, by) in [(i64::MAX, 1), (i64::MIN, -1)] {
        cache.add_if_absent("a", kept, LONG).unwrap();
        cache.increment_if_present("a", by).unwrap();
        assert_eq!(cache.get("a").unwrap(), None, "{kept} + {by}");
    }
    cache.add_if_absent("b", 1, Duration::ZERO).unwrap();
    cache.add_if_absent("c", 1, SHORT).unwrap();
    cache.increment_if_present("c", 1).unwrap(); // and keeps the expiry
    thread::sleep(2 * SHORT);
    assert_eq!(
        (cache.get("b").unwrap(), cache.get("c").unwrap()),
        (None, None)
    );
}

#[test]
fn processes_share_totals_and_lose_no_increment() {
    let server = RedisServer::start();
    let (database, conn) = &mut schema::database::<SqliteConnection>();
    let of_video_1 = RowCounter::of(views, 1);
    let one = Cached::new(open(&server, LONG));
    assert_eq!(one.get(&of_video_1, conn), Ok(100));
    thread::scope(|scope| {
        for n in [1, 2, -3, -4] {
            let (database, of_video_1, other) = (&*database, &of_video_1, open(&server, LONG));
            scope.spawn(move || {
                let conn = &mut SqliteConnection::connect(database);
                let other = Cached::new(other);
                (0..25).for_each(|_| assert_eq!(other.add(of_video_1, n, conn), Ok(1)));
            });
        }
    });
    assert_eq!(one.get(&of_video_1, conn), Ok(0));
    assert_eq!(of_video_1.get(conn), Ok(Some(0)));
    assert_eq!(server.send(&format!("GET {KEY}")).unwrap(), "0");
}

#[test]
fn a_server_that_dies_or_hangs_fails_nothing() {
    let mut server = RedisServer::start();
    let (_database, conn) = &mut schema::database::<SqliteConnection>();
    let of_video_1 = RowCounter::of(views, 1);
    let cached = |timeout| {
        let (cache, failures) = CountsFailures::of(open(&server, timeout));
        let failures = move || failures.load(Ordering::Relaxed);
        (Cached::new(cache).with_pause(SHORT), failures)
    };
    let (patient, failures_of_patient) = cached(LONG);
    let (hasty, failures_of_hasty) = cached(SHORT);
    let mut total = 100;
    let mut count_and_read = |cached: &Cached<CountsFailures<RedisCache>>, exact: bool| {
        let started = Instant::now();
        for _ in 0..5 {
            total += 1;
            assert_eq!(cached.add(&of_video_1, 1, conn), Ok(1));
            let read = cached.get(&of_video_1, conn).unwrap();
            assert!(read == total || !exact, "{read} of {total}");
            thread::sleep(SHORT / 2);
        }
        assert!(started.elapsed() < LONG);
    };
    count_and_read(&patient, true);
    server.send("FLUSHALL").unwrap();
    count_and_read(&patient, true);
    server.kill();
    count_and_read(&patient, true);
    server.restart();
    thread::sleep(2 * SHORT);
    count_and_read(&patient, true);
    let failed = failures_of_patient();
    assert!(failed > 0);
    server.pause();
    count_and_read(&hasty, true);
    server.resume();
    count_and_read(&patient, false); // the total from before the pause lacks its increments
    assert_eq!(failures_of_patient(), failed);
    // A client that was too hasty uses the cache again, even if some answers are late.
    let mut is_used = || {
        let failed = failures_of_hasty();
        thread::sleep(2 * SHORT);
        hasty.get(&of_video_1, conn).unwrap();
        failures_of_hasty() == failed
    };
    assert!((0..100).any(|_| is_used()));
}

#[test]
fn a_value_of_somebody_else_is_reported_and_left_alone() {
    let server = RedisServer::start();
    let cache = open(&server, LONG);
    for (foreign, check) in [("SET a 1.5", "GET a"), ("RPUSH a 1", "LLEN a")] {
        server.send("FLUSHALL").unwrap();
        server.send(foreign).unwrap();
        let before = server.send(check).unwrap();
        let got = cache.get("a");
        assert!(matches!(got, Err(CacheError::NotATotal { .. })), "{got:?}");
        let added = cache.increment_if_present("a", 1);
        assert!(
            matches!(added, Err(CacheError::NotATotal { .. })),
            "{added:?}"
        );
        assert_eq!(server.send(check).unwrap(), before);
    }
}

#[test]
fn a_server_that_never_answers_is_left_after_the_timeout() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("redis://:secret@{}/1", silent.local_addr().unwrap());
    for (address, timeout) in [
        (address.as_str(), Duration::ZERO),
        ("redis://127.0.0.1:1", SHORT),
    ] {
        let cache = RedisCache::open(address, timeout).unwrap();
        assert!(!format!("{cache:?}").contains("secret"));
        let started = Instant::now();
        let late = cache.get("a");
        assert!(
            matches!(late, Err(CacheError::Unavailable { .. })),
            "{late:?}"
        );
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}

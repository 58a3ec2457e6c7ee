//! Cached totals: the contract of every cache, and what happens to counts and reads when a Redis server dies, hangs or
//! forgets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::cached::{
    CacheError, Cached, CachedCounter, MokaCache, RedisCache, TotalCache,
};
use diesel_sharded::prelude::*;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::{Error, update};
use diesel_sharded_tests::redis::RedisServer;
use diesel_sharded_tests::schema::{self, comments, videos::dsl::*};
use diesel_sharded_tests::{Database, TestConnection};

const LONG: Duration = Duration::from_secs(60);

/// The views of a video.
struct Views(i64);

macro_rules! views_on {
    ($($conn:ty),+) => {$(
        impl CachedCounter<$conn> for Views {
            fn cache_key(&self) -> String {
                format!("videos:{}:views", self.0)
            }

            fn read(&self, conn: &mut $conn) -> QueryResult<i64> {
                videos.find(self.0).select(views.total()).first(conn)
            }

            fn add(&self, n: i64, conn: &mut $conn) -> QueryResult<usize> {
                update(videos.find(self.0)).set(views.eq(views + n)).execute(conn)
            }
        }
    )+};
}

views_on!(SqliteConnection, PgConnection);

/// Videos 1 to 3, with 100, 200 and 300 views.
fn sqlite() -> (Database, SqliteConnection) {
    let database = SqliteConnection::database();
    let mut conn = SqliteConnection::connect(&database);
    schema::create(&mut conn);
    (database, conn)
}

/// The total in the database itself.
fn total(conn: &mut SqliteConnection) -> i64 {
    Views(1).read(conn).unwrap()
}

/// The cases that every cache passes.
macro_rules! both_caches {
    ($($case:ident),+ $(,)?) => {
        mod in_the_process {
            $(#[test]
            fn $case() {
                super::$case(super::MokaCache::new(1_000));
            })+
        }

        mod in_redis {
            $(#[test]
            fn $case() {
                let server = super::RedisServer::start();
                let cache = super::RedisCache::open(server.url()).unwrap();
                super::$case(cache.with_timeout(super::LONG)); // the machine may be busy
            })+
        }
    };
}

both_caches!(
    the_first_total_is_kept,
    only_a_total_that_is_there_is_incremented,
    increments_go_below_zero_and_to_the_ends_of_the_range,
    an_overflow_removes_the_total,
    an_increment_keeps_the_expiry,
    any_ttl_will_do,
    no_increment_is_lost,
    reads_and_counts,
    transactions,
    threads_that_count_and_read_agree_with_the_database,
);

fn the_first_total_is_kept(cache: impl TotalCache) {
    assert_eq!(cache.get("a").unwrap(), None);
    cache.add_if_absent("a", 1, LONG).unwrap();
    cache.add_if_absent("a", 2, LONG).unwrap();
    assert_eq!(cache.get("a").unwrap(), Some(1));
    assert_eq!(cache.get("b").unwrap(), None);
    cache.remove("a").unwrap();
    cache.remove("b").unwrap();
    assert_eq!(cache.get("a").unwrap(), None);
}

fn only_a_total_that_is_there_is_incremented(cache: impl TotalCache) {
    cache.increment_if_present("a", 5).unwrap();
    assert_eq!(cache.get("a").unwrap(), None);
    cache.add_if_absent("a", 1, LONG).unwrap();
    cache.increment_if_present("a", 5).unwrap();
    assert_eq!(cache.get("a").unwrap(), Some(6));
}

fn increments_go_below_zero_and_to_the_ends_of_the_range(cache: impl TotalCache) {
    cache.add_if_absent("a", 1, LONG).unwrap();
    cache.increment_if_present("a", -3).unwrap();
    assert_eq!(cache.get("a").unwrap(), Some(-2));
    cache.increment_if_present("a", i64::MAX).unwrap();
    assert_eq!(cache.get("a").unwrap(), Some(i64::MAX - 2));
    cache.increment_if_present("a", 2 - i64::MAX).unwrap();
    cache.increment_if_present("a", i64::MIN).unwrap();
    assert_eq!(cache.get("a").unwrap(), Some(i64::MIN));
}

fn an_overflow_removes_the_total(cache: impl TotalCache) {
    for (kept, by) in [(i64::MAX, 1), (i64::MIN, -1), (-1, i64::MIN)] {
        cache.add_if_absent("a", kept, LONG).unwrap();
        cache.increment_if_present("a", by).unwrap();
        assert_eq!(cache.get("a").unwrap(), None, "{kept} + {by}");
    }
}

fn an_increment_keeps_the_expiry(cache: impl TotalCache) {
    let ttl = Duration::from_millis(400);
    let added = Instant::now();
    cache.add_if_absent("a", 0, ttl).unwrap();
    while added.elapsed() < ttl {
        cache.increment_if_present("a", 1).unwrap();
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_millis(50)); // the server's clock is another one
    assert_eq!(cache.get("a").unwrap(), None);
}

fn any_ttl_will_do(cache: impl TotalCache) {
    cache.add_if_absent("a", 1, Duration::MAX).unwrap();
    assert_eq!(cache.get("a").unwrap(), Some(1));
    cache.add_if_absent("b", 1, Duration::ZERO).unwrap();
    thread::sleep(Duration::from_millis(50));
    assert_eq!(cache.get("b").unwrap(), None);
}

fn no_increment_is_lost(cache: impl TotalCache) {
    cache.add_if_absent("a", 0, LONG).unwrap();
    thread::scope(|scope| {
        for by in [1, 1, 1, 1, 1, 1, -1, -1] {
            let cache = &cache;
            scope
                .spawn(move || (0..250).for_each(|_| cache.increment_if_present("a", by).unwrap()));
        }
    });
    assert_eq!(cache.get("a").unwrap(), Some(1_000));
}

fn reads_and_counts(cache: impl TotalCache) {
    let (_database, conn) = &mut sqlite();
    let cached = Cached::new(&cache);
    assert_eq!(cached.add(&Views(1), 1, conn), Ok(1));
    assert_eq!(cached.get(&Views(1), conn), Ok(101));
    // A count past the cache shows where the next total comes from.
    Views(1).add(1_000, conn).unwrap();
    assert_eq!(cached.get(&Views(1), conn), Ok(101));
    assert_eq!(cached.add(&Views(1), -102, conn), Ok(1));
    assert_eq!(cached.get(&Views(1), conn), Ok(-1));
    assert_eq!(cached.add(&Views(9), 1, conn), Ok(0));
    let missing = cached.get(&Views(9), conn);
    assert_eq!(missing, Err(diesel::NotFound));
    assert_eq!(cached.failures(), 0);
}

fn transactions(cache: impl TotalCache) {
    let (_database, conn) = &mut sqlite();
    let cached = Cached::new(&cache);
    for video in [1, 2] {
        cached.get(&Views(video), conn).unwrap();
    }
    let counted = cached.transaction(conn, RetryPolicy::default(), |conn, uncommitted| {
        uncommitted.add(&Views(1), -300, conn)?;
        uncommitted.add(&Views(2), 5, conn)?;
        cached.get(&Views(1), conn)
    });
    assert_eq!(counted, Ok(-200));
    let rolled_back: QueryResult<()> =
        cached.transaction(conn, RetryPolicy::default(), |conn, uncommitted| {
            uncommitted.add(&Views(2), 5, conn)?;
            Err(diesel::result::Error::RollbackTransaction)
        });
    assert!(rolled_back.is_err());
    for (video, expected) in [(1, -200), (2, 205)] {
        assert_eq!(cached.get(&Views(video), conn), Ok(expected));
        assert_eq!(Views(video).read(conn), Ok(expected));
    }
}

/// A total that was cached before the first count misses no count.
fn threads_that_count_and_read_agree_with_the_database(cache: impl TotalCache) {
    let (database, mut conn) = sqlite();
    let cached = Cached::new(&cache);
    cached.get(&Views(1), &mut conn).unwrap();
    thread::scope(|scope| {
        for n in [1, 2, -3, -4] {
            let (cached, database) = (&cached, &database);
            scope.spawn(move || {
                let conn = &mut SqliteConnection::connect(database);
                for _ in 0..50 {
                    assert_eq!(cached.add(&Views(1), n, conn), Ok(1));
                    cached.get(&Views(1), conn).unwrap();
                }
            });
        }
    });
    assert_eq!(total(&mut conn), 100 - 4 * 50);
    assert_eq!(cached.get(&Views(1), &mut conn), Ok(-100));
    assert_eq!(cached.failures(), 0);
}

/// Counts and reads by four threads, each checked against the database, and how long the slowest took.
fn count_and_read(cached: &Cached<RedisCache>, database: &Database) -> Duration {
    let slowest = AtomicU64::new(0);
    let before = total(&mut SqliteConnection::connect(database));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let conn = &mut SqliteConnection::connect(database);
                for _ in 0..25 {
                    let started = Instant::now();
                    assert_eq!(cached.add(&Views(1), 1, conn), Ok(1));
                    cached.get(&Views(1), conn).unwrap();
                    slowest.fetch_max(started.elapsed().as_millis() as u64, Ordering::Relaxed);
                }
            });
        }
    });
    let conn = &mut SqliteConnection::connect(database);
    assert_eq!(total(conn), before + 100);
    Duration::from_millis(slowest.into_inner())
}

/// The longest that a count and a read may take while the cache fails: two timeouts of 100 ms, and a lot for a busy machine.
const BOUND: Duration = Duration::from_secs(5);

fn redis(server: &RedisServer) -> Cached<RedisCache> {
    let cache = RedisCache::open(server.url()).unwrap();
    Cached::new(cache).with_pause(Duration::from_millis(500))
}

#[test]
fn a_dead_server_fails_nothing_and_is_used_again_when_it_is_back() {
    let mut server = RedisServer::start();
    let (database, conn) = &mut sqlite();
    let cached = redis(&server);
    count_and_read(&cached, database);
    server.kill();
    let failures = cached.failures();
    let slowest = count_and_read(&cached, database);
    assert!(slowest < BOUND, "{slowest:?}");
    assert!(cached.failures() > failures);
    // Without a cache, reads go to the database and are exact.
    assert_eq!(cached.get(&Views(1), conn), Ok(total(conn)));
    server.restart();
    thread::sleep(Duration::from_millis(600));
    let failures = cached.failures();
    assert_eq!(cached.get(&Views(1), conn), Ok(300));
    assert_eq!(cached.failures(), failures);
    let kept = server.send("GET diesel_sharded:videos:1:views").unwrap();
    assert_eq!(kept, "300");
}

#[test]
fn a_server_that_was_never_there_fails_nothing() {
    let (database, conn) = &mut sqlite();
    let server = RedisServer::start();
    server.kill();
    let cached = redis(&server);
    let slowest = count_and_read(&cached, database);
    assert!(slowest < BOUND, "{slowest:?}");
    assert_eq!(cached.get(&Views(1), conn), Ok(200));
}

#[test]
fn a_server_that_hangs_fails_nothing_and_is_used_again_when_it_goes_on() {
    let server = RedisServer::start();
    let (database, conn) = &mut sqlite();
    let cached = redis(&server);
    count_and_read(&cached, database);
    server.pause();
    let slowest = count_and_read(&cached, database);
    assert!(slowest < BOUND, "{slowest:?}");
    assert!(cached.failures() > 0);
    assert_eq!(cached.get(&Views(1), conn), Ok(300));
    server.resume();
    thread::sleep(Duration::from_millis(600));
    let failures = cached.failures();
    // A total that was cached before lacks the counts made meanwhile, until it expires.
    let behind = cached.get(&Views(1), conn).unwrap();
    assert!((200..=300).contains(&behind), "{behind}");
    cached.add(&Views(1), 1, conn).unwrap();
    assert_eq!(cached.get(&Views(1), conn), Ok(behind + 1));
    assert_eq!(cached.failures(), failures);
}

#[test]
fn the_ttl_bounds_what_a_failure_left_behind() {
    let server = RedisServer::start();
    let (_database, conn) = &mut sqlite();
    let ttl = Duration::from_millis(700);
    let cached = redis(&server).with_ttl(ttl);
    cached.get(&Views(1), conn).unwrap();
    server.pause();
    cached.add(&Views(1), 1, conn).unwrap();
    server.resume();
    thread::sleep(ttl + Duration::from_millis(50));
    assert_eq!(cached.get(&Views(1), conn), Ok(101));
}

#[test]
fn a_server_that_forgets_is_filled_again() {
    let server = RedisServer::start();
    let (_database, conn) = &mut sqlite();
    let cached = redis(&server);
    cached.get(&Views(1), conn).unwrap();
    for expected in 101..105 {
        server.send("FLUSHALL").unwrap();
        assert_eq!(cached.add(&Views(1), 1, conn), Ok(1));
        assert_eq!(cached.get(&Views(1), conn), Ok(expected));
    }
    assert_eq!(cached.failures(), 0);
}

#[test]
fn what_somebody_else_keeps_is_told_and_left_alone() {
    let server = RedisServer::start();
    let (_database, conn) = &mut sqlite();
    let key = "diesel_sharded:videos:1:views";
    for (foreign, check) in [
        (format!("SET {key} hello"), format!("GET {key}")),
        (format!("RPUSH {key} 1"), format!("LLEN {key}")),
        (format!("SET {key} 1.5"), format!("GET {key}")),
        (
            format!("SET {key} 9223372036854775808"),
            format!("GET {key}"),
        ),
    ] {
        server.send("FLUSHALL").unwrap();
        server.send(&foreign).unwrap();
        let before = server.send(&check).unwrap();
        let cache = RedisCache::open(server.url()).unwrap();
        let got = cache.get(key);
        assert!(
            matches!(got, Err(CacheError::NotATotal { .. })),
            "{foreign}: {got:?}"
        );
        let incremented = cache.increment_if_present(key, 1);
        assert!(
            matches!(incremented, Err(CacheError::NotATotal { .. })),
            "{foreign}: {incremented:?}"
        );
        // It makes neither a count nor a read fail, and the other totals are cached all the same.
        let cached = Cached::new(cache);
        let expected = total(conn) + 1;
        assert_eq!(cached.add(&Views(1), 1, conn), Ok(1));
        assert_eq!(cached.get(&Views(1), conn), Ok(expected));
        assert_eq!(cached.get(&Views(2), conn), Ok(200));
        assert_eq!(
            server.send("GET diesel_sharded:videos:2:views").unwrap(),
            "200"
        );
        assert_eq!(server.send(&check).unwrap(), before);
    }
}

#[test]
fn processes_share_what_a_server_keeps() {
    let server = RedisServer::start();
    let (_database, conn) = &mut sqlite();
    let (one, other) = (redis(&server), redis(&server));
    one.get(&Views(1), conn).unwrap();
    other.add(&Views(1), 1, conn).unwrap();
    assert_eq!(one.get(&Views(1), conn), Ok(101));
    let apart = redis(&server).with_prefix("apart:");
    assert_eq!(apart.get(&Views(1), conn), Ok(101));
    assert_eq!(server.send("GET apart:videos:1:views").unwrap(), "101");
}

/// On PostgreSQL, where a test can make `COMMIT` lose the connection.
#[test]
fn a_transaction_whose_outcome_is_unknown_removes_its_totals() {
    let database = PgConnection::database();
    let mut conn = PgConnection::connect(&database);
    schema::create(&mut conn);
    conn.batch_execute(
        "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER die AFTER INSERT ON comments DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION die()",
    )
    .unwrap();
    let cache = MokaCache::new(10);
    let cached = Cached::new(&cache);
    let kept = || {
        ["1", "2"].map(|n| {
            cache
                .get(&format!("diesel_sharded:videos:{n}:views"))
                .unwrap()
        })
    };
    for video in [1, 2] {
        cached.get(&Views(video), &mut conn).unwrap();
    }

    let aborted = cached.transaction(&mut conn, RetryPolicy::never(), |conn, uncommitted| {
        uncommitted.add(&Views(1), 1, conn)?;
        let _ = conn.batch_execute("SELECT 1 / 0");
        QueryResult::Ok(())
    });
    let aborted = Error::from(aborted.unwrap_err());
    assert!(matches!(aborted, Error::TransactionAborted), "{aborted:?}");
    assert_eq!(kept(), [None, Some(200)]);

    cached.get(&Views(1), &mut conn).unwrap();
    let unknown: QueryResult<usize> =
        cached.transaction(&mut conn, RetryPolicy::never(), |conn, uncommitted| {
            uncommitted.add(&Views(1), 1, conn)?;
            diesel::insert_into(comments::table)
                .values((comments::id.eq(9), comments::video_id.eq(1)))
                .execute(conn)
        });
    let unknown = Error::from(unknown.unwrap_err());
    assert!(
        matches!(unknown, Error::OutcomeUnknown { .. }),
        "{unknown:?}"
    );
    assert_eq!(kept(), [None, Some(200)]);
}

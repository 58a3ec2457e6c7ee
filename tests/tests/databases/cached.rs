//! Cached totals: the contract of a cache, and what an unknown outcome does to them.

use std::thread;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::cached::{Cached, CachedCounter, MokaCache, TotalCache};
use diesel_sharded::prelude::*;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::{Error, update};
use diesel_sharded_tests::schema::{self, comments, videos::dsl::*};
use diesel_sharded_tests::{TestConnection, assert_matches};

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

/// The first total is kept, and only one that is there is incremented: below zero, and to the ends of the range.
#[test]
fn the_contract_of_a_cache() {
    let cache = MokaCache::new(1_000);
    let total = || cache.get("a").unwrap();
    let increment = |by| cache.increment_if_present("a", by).unwrap();
    increment(5);
    assert_eq!(total(), None);
    cache.add_if_absent("a", 1, LONG).unwrap();
    cache.add_if_absent("a", 2, LONG).unwrap();
    assert_eq!((total(), cache.get("b").unwrap()), (Some(1), None));
    increment(5);
    assert_eq!(total(), Some(6));
    increment(-8);
    assert_eq!(total(), Some(-2));
    increment(i64::MAX);
    assert_eq!(total(), Some(i64::MAX - 2));
    increment(2 - i64::MAX);
    increment(i64::MIN);
    assert_eq!(total(), Some(i64::MIN));
    cache.remove("a").unwrap();
    cache.remove("b").unwrap();
    assert_eq!(total(), None);
}

/// A total that was cached before the first count misses no count.
#[test]
fn threads_that_count_and_read_agree_with_the_database() {
    let cache = MokaCache::new(1_000);
    let (database, mut conn) = schema::database::<SqliteConnection>();
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
    assert_eq!(Views(1).read(&mut conn), Ok(100 - 4 * 50));
    assert_eq!(cached.get(&Views(1), &mut conn), Ok(-100));
    assert_eq!(cached.failures(), 0);
}

/// On PostgreSQL, where a test can make `COMMIT` lose the connection.
#[test]
fn a_transaction_whose_outcome_is_unknown_removes_its_totals() {
    let (_database, mut conn) = schema::database::<PgConnection>();
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
    assert_matches!(aborted, Error::TransactionAborted);
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
    assert_matches!(unknown, Error::OutcomeUnknown { .. });
    assert_eq!(kept(), [None, Some(200)]);
}

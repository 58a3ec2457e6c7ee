//! Cached totals on connections of `diesel_async`: in the process, and in a cache that hangs.

use std::time::Duration;

use diesel::QueryResult;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use diesel_sharded::asynchronous::{Counter, RowCounter};
use diesel_sharded::cached::{CacheError, Cached, MokaCache};
use diesel_sharded_tests::Database;
use diesel_sharded_tests::refusing::Refusing;
use diesel_sharded_tests::schema::{self, videos::dsl::*};

pub type Conn = AsyncPgConnection;

/// Videos 1 to 3, with 100, 200 and 300 views.
pub async fn database() -> (Database, Conn) {
    let create = || schema::database_with_counters::<diesel::PgConnection>().0;
    let database = tokio::task::spawn_blocking(create).await.unwrap();
    let conn = Conn::establish(database.url()).await.unwrap();
    (database, conn)
}

#[tokio::test]
async fn in_the_process() {
    let (_database, mut conn) = database().await;
    let conn = &mut conn;
    let cached = Cached::new(MokaCache::new(100));
    let of_video_1 = RowCounter::of(views, 1);
    let named = Counter::named("x");
    assert_eq!(cached.get_async(&of_video_1, conn).await, Ok(100));
    assert_eq!(cached.get_async(&named, conn).await, Ok(0));
    assert_eq!(cached.add_async(&of_video_1, 5, conn).await, Ok(1));
    assert_eq!(cached.add_async(&named, -3, conn).await, Ok(1));
    // An increment that bypasses the cache does not show: the cache answers these reads.
    of_video_1.add(1000, conn).await.unwrap();
    named.add(1000, conn).await.unwrap();
    assert_eq!(cached.get_async(&of_video_1, conn).await, Ok(105));
    assert_eq!(cached.get_async(&named, conn).await, Ok(-3));
    cached.forget_async(&of_video_1, conn).await;
    assert_eq!(cached.get_async(&of_video_1, conn).await, Ok(1105));
    let absent = RowCounter::of(views, 99);
    let not_found = Err(diesel::NotFound);
    assert_eq!(cached.get_async(&absent, conn).await, not_found);
    assert_eq!(cached.add_async(&absent, 1, conn).await, Ok(0));
    // Inside a transaction reads go to the database alone, and leave the cache as it is.
    let inside: QueryResult<i64> = conn
        .transaction(async |conn| {
            cached.add_async(&of_video_1, 1, conn).await?;
            cached.get_async(&of_video_1, conn).await
        })
        .await;
    assert_eq!(inside, Ok(1106));
    assert_eq!(cached.get_async(&of_video_1, conn).await, Ok(1105));
}

/// A runtime with one thread keeps running other tasks while the cache does not answer.
#[tokio::test]
async fn a_cache_that_hangs_fails_nothing_and_blocks_no_task() {
    let (_database, mut conn) = database().await;
    // A cache in another process that does not answer.
    let cached = Cached::new(Refusing(|_: &str| {
        std::thread::sleep(Duration::from_millis(500));
        CacheError::Unavailable {
            source: "no answer".into(),
        }
    }));
    let of_video_1 = RowCounter::of(views, 1);
    let mut ticks = 0;
    let ticking = async {
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            ticks += 1;
        }
    };
    tokio::select! {
        counted = cached.add_async(&of_video_1, 1, &mut conn) => assert_eq!(counted, Ok(1)),
        _ = ticking => {}
    }
    assert!(ticks > 0, "the runtime stood still");
    assert_eq!(cached.get_async(&of_video_1, &mut conn).await, Ok(101));
    assert_eq!(of_video_1.get(&mut conn).await, Ok(Some(101)));
}

//! Cached totals on connections of `diesel_async`: in the process, and in a cache that hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use diesel::QueryResult;
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use diesel_migrations::MigrationHarness;
use diesel_sharded::MIGRATIONS;
use diesel_sharded::asynchronous::{self, BoxFuture, Counter, RowCounter, cached::CachedCounter};
use diesel_sharded::cached::{CacheError, Cached, MokaCache, TotalCache};
use diesel_sharded_tests::schema::{self, videos::dsl::*};
use diesel_sharded_tests::{Database, TestConnection};

type Conn = AsyncPgConnection;

/// Videos 1 to 3, with 100, 200 and 300 views.
async fn database() -> (Database, Conn) {
    let database = tokio::task::spawn_blocking(|| {
        let database = diesel::PgConnection::database();
        let mut conn = diesel::PgConnection::connect(&database);
        schema::create(&mut conn);
        conn.run_pending_migrations(MIGRATIONS).unwrap();
        database
    })
    .await
    .unwrap();
    let conn = Conn::establish(database.url()).await.unwrap();
    (database, conn)
}

async fn reads_and_counts(cached: Cached<impl TotalCache + 'static>) {
    let (_database, conn) = &mut database().await;
    let (of_video_1, named) = (RowCounter::of(views, 1), Counter::named("x"));
    assert_eq!(cached.get_async(&of_video_1, conn).await, Ok(100));
    assert_eq!(cached.get_async(&named, conn).await, Ok(0));
    assert_eq!(cached.add_async(&of_video_1, 5, conn).await, Ok(1));
    assert_eq!(cached.add_async(&named, -3, conn).await, Ok(1));
    // A count that bypasses the cache does not show: the cache answers these reads.
    of_video_1.add(1000, conn).await.unwrap();
    named.add(1000, conn).await.unwrap();
    assert_eq!(cached.get_async(&of_video_1, conn).await, Ok(105));
    assert_eq!(cached.get_async(&named, conn).await, Ok(-3));
    cached.forget_async(&of_video_1, conn).await;
    assert_eq!(cached.get_async(&of_video_1, conn).await, Ok(1105));
    let absent = RowCounter::of(views, 99);
    let not_found = Err(diesel::result::Error::NotFound);
    assert_eq!(cached.get_async(&absent, conn).await, not_found);
    assert_eq!(cached.add_async(&absent, 1, conn).await, Ok(0));
    // Inside a transaction reads go to the database alone, and leave the cache as it is.
    let inside: QueryResult<i64> = conn
        .transaction(async |conn| {
            let of_video_1 = RowCounter::of(views, 1);
            cached.add_async(&of_video_1, 1, conn).await?;
            cached.get_async(&of_video_1, conn).await
        })
        .await;
    assert_eq!(inside, Ok(1106));
    assert_eq!(cached.get_async(&of_video_1, conn).await, Ok(1105));
    assert_eq!(cached.failures(), 0);
}

#[tokio::test]
async fn in_the_process() {
    reads_and_counts(Cached::new(MokaCache::new(100))).await;
}

/// A counter whose reads are slow, and are counted.
struct Slow<'a> {
    reads: &'a AtomicU64,
}

impl CachedCounter<Conn> for Slow<'_> {
    fn cache_key(&self) -> String {
        "slow".into()
    }

    fn read<'c>(&'c self, _: &'c mut Conn) -> BoxFuture<'c, QueryResult<i64>> {
        Box::pin(async {
            self.reads.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(300)).await;
            Ok(7)
        })
    }

    fn add<'c>(&'c self, _: i64, _: &'c mut Conn) -> BoxFuture<'c, QueryResult<usize>> {
        Box::pin(async { Ok(1) })
    }
}

/// Tasks that miss the same total share one read, on one thread.
#[tokio::test]
async fn tasks_share_one_read() {
    let (database, _conn) = database().await;
    let pool = Pool::builder(AsyncDieselConnectionManager::<Conn>::new(database.url()))
        .max_size(8)
        .build()
        .unwrap();
    let cached = Cached::new(MokaCache::new(100)).with_wait(Duration::from_secs(60));
    static READS: AtomicU64 = AtomicU64::new(0);
    let tasks = (0..8).map(|_| {
        let (pool, cached) = (pool.clone(), cached.clone());
        tokio::spawn(async move {
            let mut conn = pool.get().await.unwrap();
            let slow = Slow { reads: &READS };
            cached.get_async(&slow, &mut *conn).await.unwrap()
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        assert_eq!(task.await.unwrap(), 7);
    }
    assert_eq!(READS.load(Ordering::Relaxed), 1);
}

/// A reader whose future is dropped leaves nobody waiting: the next one reads for itself.
#[tokio::test]
async fn a_cancelled_reader_holds_up_nobody() {
    let (database, mut conn) = database().await;
    let cached = Cached::new(MokaCache::new(100)).with_wait(Duration::from_secs(60));
    static READS: AtomicU64 = AtomicU64::new(0);
    let slow = Slow { reads: &READS };
    let mut other = Conn::establish(database.url()).await.unwrap();
    let cut_short = tokio::time::timeout(
        Duration::from_millis(50),
        cached.get_async(&slow, &mut other),
    );
    assert!(cut_short.await.is_err());
    let began = Instant::now();
    assert_eq!(cached.get_async(&slow, &mut conn).await, Ok(7));
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(READS.load(Ordering::Relaxed), 2);
}

/// A cache in another process that does not answer.
struct Hanging;

impl Hanging {
    fn no_answer<T>(&self) -> Result<T, CacheError> {
        std::thread::sleep(Duration::from_millis(500));
        Err(CacheError::Unavailable {
            source: "no answer".into(),
        })
    }
}

impl TotalCache for Hanging {
    fn get(&self, _: &str) -> Result<Option<i64>, CacheError> {
        self.no_answer()
    }

    fn add_if_absent(&self, _: &str, _: i64, _: Duration) -> Result<(), CacheError> {
        self.no_answer()
    }

    fn increment_if_present(&self, _: &str, _: i64) -> Result<(), CacheError> {
        self.no_answer()
    }

    fn remove(&self, _: &str) -> Result<(), CacheError> {
        self.no_answer()
    }
}

/// A runtime with one thread keeps running other tasks while the cache does not answer.
#[tokio::test]
async fn a_cache_that_hangs_fails_nothing_and_blocks_no_task() {
    let (_database, mut conn) = database().await;
    let cached = Cached::new(Hanging);
    let of_video_1 = asynchronous::RowCounter::of(views, 1);
    let ticks = Arc::new(AtomicU64::new(0));
    let ticking = tokio::spawn({
        let ticks = Arc::clone(&ticks);
        async move {
            loop {
                tokio::time::sleep(Duration::from_millis(10)).await;
                ticks.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    assert_eq!(cached.add_async(&of_video_1, 1, &mut conn).await, Ok(1));
    assert!(ticks.load(Ordering::Relaxed) > 0, "the runtime stood still");
    ticking.abort();
    assert_eq!(cached.failures(), 1);
    assert_eq!(cached.get_async(&of_video_1, &mut conn).await, Ok(101));
    assert_eq!(of_video_1.get(&mut conn).await, Ok(Some(101)));
}

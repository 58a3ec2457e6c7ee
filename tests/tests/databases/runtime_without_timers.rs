//! Awaited operations on a tokio runtime that was built without `enable_time`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use diesel::prelude::*;
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use diesel_sharded::asynchronous::{retry, update};
use diesel_sharded::prelude::*;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{conflict, recording, schema};

/// A runtime of one thread that can wait for sockets, and for nothing else.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .unwrap()
}

/// With pauses of 20 ms.
fn paused(policy: RetryPolicy) -> RetryPolicy {
    let delay = Duration::from_millis(20);
    let policy = policy.with_min_delay(delay).with_max_delay(delay);
    policy.with_jitter(false)
}

#[test]
fn a_conflict_is_slept_on_and_tried_again_on_postgres() {
    let (database, conn) = &mut schema::database::<PgConnection>();
    runtime().block_on(async {
        let mut awaited = AsyncPgConnection::establish(database.url()).await.unwrap();
        let attempts = AtomicU32::new(0);
        let beside = AtomicU32::new(0);
        let counting = retry::transaction(&mut awaited, paused(RetryPolicy::new()), async |conn| {
            let count = update(videos.find(1)).set(views.eq(views + 1));
            count.execute(conn).await?;
            match attempts.fetch_add(1, Ordering::SeqCst) {
                0..3 => Err(conflict()),
                _ => Ok(()),
            }
        });
        // A pause does not block the thread of the runtime: other tasks run meanwhile.
        let mut counting = std::pin::pin!(counting);
        let counted: QueryResult<()> = std::future::poll_fn(|context| {
            beside.fetch_add(1, Ordering::SeqCst);
            counting.as_mut().poll(context)
        })
        .await;
        assert_eq!(counted, Ok(()));
        assert_eq!(attempts.load(Ordering::SeqCst), 4);
        assert!(beside.load(Ordering::SeqCst) > 4);
    });
    let total = videos.find(1).select(views.total()).first::<i64>(conn);
    assert_eq!(total, Ok(101));
}

/// A count that meets the lock of another writer.
#[test]
fn a_busy_database_is_waited_for_on_sqlite() {
    let (database, conn) = &mut schema::database::<SqliteConnection>();
    let run = |conn: &mut SqliteConnection, text: &str| {
        diesel::connection::SimpleConnection::batch_execute(conn, text).unwrap();
    };
    run(conn, "BEGIN IMMEDIATE");
    let (policy, met) = recording();
    let policy = paused(policy);
    std::thread::scope(|scope| {
        let counting = scope.spawn(|| {
            runtime().block_on(async {
                type Conn = SyncConnectionWrapper<SqliteConnection>;
                let mut awaited = Conn::establish(database.url()).await.unwrap();
                awaited
                    .batch_execute("PRAGMA busy_timeout = 0")
                    .await
                    .unwrap();
                let count = update(videos.find(1)).set(views.eq(views + 1));
                count.retry(policy).execute(&mut awaited).await
            })
        });
        while met.lock().unwrap().len() < 2 && !counting.is_finished() {
            std::thread::yield_now();
        }
        run(conn, "COMMIT");
        assert_eq!(counting.join().unwrap(), Ok(1));
    });
    let total = videos.find(1).select(views.total()).first::<i64>(conn);
    assert_eq!(total, Ok(101));
}

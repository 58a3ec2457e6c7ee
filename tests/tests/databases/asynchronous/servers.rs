//! Tests that need a server with many writers.

use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use diesel_async::async_connection_wrapper::AsyncConnectionWrapper;
use diesel_migrations::MigrationHarness;
use diesel_sharded::asynchronous::{retry, update};
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::Isolation;
use diesel_sharded::{MIGRATIONS, RowCounter};
use diesel_sharded_tests::own_server::OwnServer;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{pool, schema};

use super::tasks::{connect, database, total};
use super::{Blocking, Conn, MAINTENANCE, SERVER};

/// All statements of a transaction see what the first one saw, or each what was committed before it.
#[tokio::test]
async fn a_transaction_has_the_isolation_that_was_asked_for() {
    let (database, mut other) = database();
    let conn = &mut connect(database.url()).await.unwrap();
    for (isolation, seen) in [
        (Isolation::RepeatableRead, 0),
        (Isolation::ReadCommitted, 1),
    ] {
        let other = std::sync::Mutex::new(&mut other);
        let transaction = retry::Transaction::new().isolation(isolation);
        let more: QueryResult<i64> = transaction
            .run(conn, async |conn| {
                let read = || videos.find(1).select(views.total());
                let before: i64 = read().first(conn).await?;
                let count = diesel_sharded::update(videos.find(1)).set(views.eq(views + 1));
                diesel::RunQueryDsl::execute(count, &mut **other.lock().unwrap())?;
                let after: i64 = read().first(conn).await?;
                Ok(after - before)
            })
            .await;
        assert_eq!(more, Ok(seen), "{isolation:?}");
    }
}

/// A coalescer whose own connection is an asynchronous one, and waits for it on the coalescer's thread: no C library.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coalescer_without_a_c_library() {
    let (database, mut conn) = database();
    let url = database.url().to_owned();
    let built = tokio::task::spawn_blocking(move || {
        Coalescer::new(pool::<AsyncConnectionWrapper<Conn>>(&url)).unwrap()
    });
    let coalescer = built.await.unwrap();
    for _ in 0..2_000 {
        coalescer.add_later(&RowCounter::of(views, 1), 1).unwrap();
    }
    let other = &mut connect(database.url()).await.unwrap();
    for commits in [false, true] {
        let renamed: QueryResult<usize> = coalescer
            .transaction_async(other, async |(conn, counts)| {
                counts.add(&RowCounter::of(views, 1), 1)?;
                let rename = diesel::update(videos.find(1)).set(title.eq("renamed"));
                let renamed = rename.execute(conn).await?;
                match commits {
                    true => Ok(renamed),
                    false => Err(diesel::result::Error::RollbackTransaction),
                }
            })
            .await;
        assert_eq!(renamed.is_ok(), commits, "{renamed:?}");
    }
    tokio::task::spawn_blocking(move || coalescer.close())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(total(&mut conn), 2_101);
}

/// A server of its own, since others cannot work while it is stopped, and a database there with all tables.
fn server_to_stop() -> (OwnServer, String, Blocking) {
    let server = OwnServer::start(SERVER).unwrap();
    let mut conn = Blocking::establish(&format!("{}/{MAINTENANCE}", server.address())).unwrap();
    conn.batch_execute("CREATE DATABASE stopped").unwrap();
    let url = format!("{}/stopped", server.address());
    let mut conn = Blocking::establish(&url).unwrap();
    schema::create(&mut conn);
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    (server, url, conn)
}

/// A task gives up at any moment, and retries with the same key: it counts once, whatever became of the first attempt.
#[tokio::test]
async fn a_task_that_gave_up_on_a_stopped_server_asks_again() {
    let (server, url, mut blocking) = server_to_stop();
    let count = || {
        update(videos.find(1))
            .set(views.eq(views + 1))
            .idempotency_key("once")
    };
    let mut conn = connect(&url).await.unwrap();
    server.pause();
    let gave_up = tokio::time::timeout(Duration::from_millis(200), count().execute(&mut conn));
    assert!(gave_up.await.is_err());
    server.resume();
    let again = count().execute(&mut conn).await;
    // The connection is broken, or nothing had been begun on it.
    assert!(again.is_err() || again == Ok(1), "{again:?}");
    let mut conn = connect(&url).await.unwrap();
    for _ in 0..2 {
        assert_eq!(count().execute(&mut conn).await, Ok(1));
    }
    assert_eq!(total(&mut blocking), 101);
}

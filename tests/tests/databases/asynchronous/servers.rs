//! Tests that need a server with many writers.

use std::time::Duration;

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use diesel_async::async_connection_wrapper::AsyncConnectionWrapper;
use diesel_migrations::MigrationHarness;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::{Error, MIGRATIONS, RowCounter};
use diesel_sharded_tests::fixture::Run;
use diesel_sharded_tests::own_server::OwnServer;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{pool, schema};

use super::tasks::{connect, database, total};
use super::{Blocking, Conn, MAINTENANCE, SERVER};

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
    conn.run("CREATE DATABASE stopped");
    let url = format!("{}/stopped", server.address());
    let mut conn = Blocking::establish(&url).unwrap();
    schema::create(&mut conn);
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    (server, url, conn)
}

/// While the server is stopped: counts in flight at the deadline have an unknown outcome, and unsent ones were not counted.
#[tokio::test]
async fn a_deadline_passes_while_the_server_is_stopped() {
    const DEADLINE: Duration = Duration::from_millis(500);
    let (server, url, mut conn) = server_to_stop();
    let coalescer = Coalescer::builder(pool::<Blocking>(&url)).deadline(DEADLINE);
    let coalescer = coalescer.build().unwrap();
    let counter = RowCounter::of(views, 1);
    assert_eq!(coalescer.add_async(&counter, 1).await.unwrap(), 1);
    server.pause();
    let begun = Instant::now();
    let in_flight = coalescer.add_async(&counter, 1);
    let behind_it = async {
        tokio::time::sleep(DEADLINE / 2).await;
        coalescer.add_async(&counter, 10).await
    };
    let (in_flight, behind_it) = tokio::join!(in_flight, behind_it);
    let elapsed = begun.elapsed();
    assert_matches!(in_flight, Err(Error::OutcomeUnknown { .. }));
    assert_matches!(behind_it, Err(Error::DeadlinePassed { .. }));
    assert!(
        elapsed >= DEADLINE && elapsed < 10 * DEADLINE,
        "{elapsed:?}"
    );
    server.resume();
    let told = coalescer.add_async(&counter, 100).await;
    until("all are counted", || total(&mut conn) == 202).await;
    assert_eq!(told.unwrap(), 1);
}

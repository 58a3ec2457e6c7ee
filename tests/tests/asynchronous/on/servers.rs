//! Tests that need a server with many writers.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use diesel_async::async_connection_wrapper::AsyncConnectionWrapper;
use diesel_sharded::RowCounter;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded_tests::pool;
use diesel_sharded_tests::schema::videos::dsl::*;

use super::Conn;
use super::tasks::{connect, database, total};

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

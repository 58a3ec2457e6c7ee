//! Tests that need a server with many writers.

use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::result::Error::NotFound;
use diesel_async::RunQueryDsl;
use diesel_async::async_connection_wrapper::AsyncConnectionWrapper;
use diesel_async::pooled_connection::deadpool;
use diesel_sharded::asynchronous::update;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::combine::Combiner;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::{Error, RowCounter};
use diesel_sharded_tests::pool;
use diesel_sharded_tests::schema::videos::dsl::*;

use super::tasks::{connect, database, manager, total};
use super::{Conn, LOCK};

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

/// Ten thousand tasks meet at a locked row, with sixteen connections. Nobody waits for the lock, or for a turn, much longer than it was told
/// to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_tasks_end_at_their_deadlines_in_a_stall() {
    const TASKS: usize = 10_000;
    const DEADLINE: Duration = Duration::from_secs(5);
    const STALL: Duration = Duration::from_secs(30);
    let (database, mut conn) = database();
    let count = || update(videos.find(1)).set(views.eq(views + 1));
    let mut first = connect(database.url()).await.unwrap();
    assert_eq!(count().execute(&mut first).await, Ok(1));
    // Its shard, and the row, without which no other shard is created.
    let lock = format!("{LOCK}; UPDATE videos SET slug = slug WHERE id = 1");
    conn.batch_execute(&lock).unwrap();
    let pool = deadpool::Pool::builder(manager(&database)).max_size(16);
    let (pool, combiner) = (pool.build().unwrap(), Combiner::new());
    let retry = RetryPolicy::new().with_deadline(DEADLINE);
    let began = Instant::now();
    let tasks = (0..TASKS).map(|_| {
        let (pool, count) = (
            pool.clone(),
            count().retry(retry.clone()).combine(&combiner),
        );
        tokio::spawn(async move {
            let began = Instant::now();
            let acquire = async move || pool.get().await.map_err(|_| NotFound);
            (count.execute_with(acquire).await, began.elapsed())
        })
    });
    let tasks: Vec<_> = tasks.collect();
    // They end a second after their deadlines, and later on a starved machine, while the row is locked.
    let ended = || tasks.iter().filter(|task| task.is_finished()).count();
    while ended() < TASKS - 16 && began.elapsed() < STALL {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let early = ended();
    conn.batch_execute("ROLLBACK").unwrap();
    let (mut counted, mut unknown, mut times) = (0, 0, vec![]);
    for task in tasks {
        let (told, took) = task.await.unwrap();
        times.push(took);
        match told.map_err(Error::from) {
            Ok(rows) => counted += rows as i64,
            Err(Error::OutcomeUnknown { .. }) => unknown += 1,
            Err(Error::DeadlinePassed { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    times.sort_unstable();
    let (waited, longest) = (times[TASKS - 17], times[TASKS - 1]);
    println!("{counted} counted, {unknown} unknown, after {waited:?}; the last after {longest:?}");
    // Those who hold a connection wait for the lock, and nobody waits for them.
    assert!(early >= TASKS - 16, "{early}, {waited:?}");
    assert!(longest < STALL + Duration::from_secs(30), "{longest:?}");
    let sum = total(&mut conn) - 101;
    assert!(
        (counted..=counted + unknown).contains(&sum),
        "{sum}, {counted} counted, {unknown} unknown"
    );
}

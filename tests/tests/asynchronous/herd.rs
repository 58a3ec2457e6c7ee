//! Thousands of tasks that combine on a SQLite database which another process has locked.

use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::result::Error::NotFound;
use diesel::{ExpressionMethods, QueryDsl, QueryResult, SqliteConnection};
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, deadpool};
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_sharded::asynchronous::update;
use diesel_sharded::combine::Combiner;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::{Conflict, Error};
use diesel_sharded_tests::schema::{self, videos::dsl::*};

type Conn = SyncConnectionWrapper<SqliteConnection>;

const TASKS: i64 = 2_000;
const STALL: Duration = Duration::from_secs(3);

/// The outcome of each task, how long the longest took, and by how much the total has grown. Connections wait for no lock inside SQLite.
async fn herd(
    deadline: Duration,
    is_over: impl Fn() -> bool,
) -> (Vec<QueryResult<usize>>, Duration, i64) {
    let (database, mut writer) = schema::database_with_counters::<SqliteConnection>();
    let manager = AsyncDieselConnectionManager::<Conn>::new(database.url());
    let pool = deadpool::Pool::builder(manager)
        .max_size(4)
        .build()
        .unwrap();
    let combiner = Combiner::new();
    writer.batch_execute("BEGIN IMMEDIATE").unwrap();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (pool, combiner) = (pool.clone(), combiner.clone());
            tokio::spawn(async move {
                let began = Instant::now();
                let count = update(videos.find(1)).set(views.eq(views + 1));
                let count = count.retry(RetryPolicy::new().with_deadline(deadline));
                let acquire = async move || pool.get().await.map_err(|_| NotFound);
                let counted = count.combine(&combiner).execute_with(acquire).await;
                (counted, began.elapsed())
            })
        })
        .collect();
    tokio::time::sleep(STALL).await;
    if is_over() {
        writer.batch_execute("ROLLBACK").unwrap();
    }
    let (mut outcomes, mut longest) = (vec![], Duration::ZERO);
    for task in tasks {
        let (counted, took) = task.await.unwrap();
        outcomes.push(counted);
        longest = longest.max(took);
    }
    if !is_over() {
        writer.batch_execute("ROLLBACK").unwrap();
    }
    let total: i64 =
        diesel::RunQueryDsl::first(videos.find(1).select(views.total()), &mut writer).unwrap();
    (outcomes, longest, total - 100)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stall_that_ends_in_time_fails_nobody() {
    let (outcomes, _, counted) = herd(Duration::from_secs(120), || true).await;
    assert!(outcomes.iter().all(|counted| *counted == Ok(1)));
    assert_eq!(counted, TASKS);
}

/// They do not wait for each other's attempts beyond it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_stall_all_fail_at_their_deadline() {
    const DEADLINE: Duration = Duration::from_secs(4);
    let (outcomes, longest, counted) = herd(DEADLINE, || false).await;
    assert_eq!(counted, 0);
    for counted in outcomes {
        let error = Error::from(counted.unwrap_err());
        let waited = match &error {
            Error::ConflictPersisted {
                conflict: Conflict::Busy,
                elapsed,
                ..
            } => *elapsed,
            Error::DeadlinePassed { waited, .. } => *waited,
            _ => panic!("{error}"),
        };
        assert!(waited + Duration::from_millis(200) >= DEADLINE, "{error}");
    }
    assert!(longest < DEADLINE + Duration::from_secs(30), "{longest:?}");
}

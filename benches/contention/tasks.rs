//! Increments by more tasks than there are connections. The tasks share a pool.

use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::pooled_connection::{
    AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod,
};
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_async::{AsyncConnection, AsyncMysqlConnection, AsyncPgConnection, RunQueryDsl};
use diesel_sharded::asynchronous::{BoxFuture, update};
use diesel_sharded::combine::Combiner;
use diesel_sharded_benches::names::{COMBINED, DEFAULT, ONE_ROW, TASKS};
use diesel_sharded_benches::report::Cell;
use diesel_sharded_benches::{in_turns, percentiles};
use indicatif::ProgressBar;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::arena::{Arena, Disk, Stage};
use crate::contenders::{Outcome, total_of, total_of_shards};
use crate::load::{self, Scene, Slice};
use crate::schema::{adaptive, combined, one_row};

/// The connections of the pool.
const CONNECTIONS: usize = 16;

/// One way to count the hot row.
pub struct Way {
    name: &'static str,
    /// The SQL expression of the total so far.
    total: String,
    count: Arc<Count>,
}

type Count = dyn Fn() -> BoxFuture<'static, Outcome<usize>> + Send + Sync;

impl Way {
    /// Each task counts at least `counts` times, and goes on until the time is over; that is later if all tasks take longer.
    ///
    /// All tasks start at once and the pool serves them in turn, so the latency of a task's first increment only shows its place in
    /// the queue. Each later increment waits behind all other tasks.
    async fn slice(&self, tasks: usize, counts: usize, duration: Duration) -> Slice {
        let began = Instant::now();
        let mut running = JoinSet::new();
        for _ in 0..tasks {
            let count = Arc::clone(&self.count);
            running.spawn(async move {
                let (mut slice, mut latencies) = (Slice::default(), vec![]);
                let mut begun = Instant::now();
                while slice.succeeded + slice.failed < counts || begun < began + duration {
                    let is_first = slice.succeeded + slice.failed == 0;
                    let outcome = count().await;
                    let done = Instant::now();
                    match outcome {
                        Ok(1) => slice.succeeded += 1,
                        _ => slice.failed += 1,
                    }
                    if !is_first && matches!(outcome, Ok(1)) {
                        latencies.push(done - begun);
                    }
                    begun = done;
                }
                (slice, latencies)
            });
        }
        let (slices, latencies): (Vec<_>, Vec<_>) = running.join_all().await.into_iter().unzip();
        let succeeded = slices.iter().map(|slice| slice.succeeded).sum();
        Slice {
            rate: succeeded as f64 / began.elapsed().as_secs_f64(),
            succeeded,
            failed: slices.iter().map(|slice| slice.failed).sum(),
            latencies: percentiles(latencies.concat()),
        }
    }
}

/// Measures each way to count.
///
/// # Panics
/// If an increment is lost or doubled: the measurement would be worth nothing.
pub fn measure<Conn: Tasks>(quick: bool, rounds: usize, bar: &ProgressBar) -> Vec<Cell> {
    let (tasks, duration) = match quick {
        true => (1_000, Duration::from_millis(100)),
        false => (10_000, Duration::from_secs(1)),
    };
    let stage = Stage::<Conn>::new(Disk::Local);
    let scene = Scene::hot(tasks);
    let runtime = Runtime::new().expect("a runtime");
    let conn = &mut stage.connect();
    let ways = Conn::ways(&stage);
    let slices = in_turns(rounds + 1, ways.len(), |round, number| {
        let way = &ways[number];
        bar.set_message(format!("{TASKS}, {}: {}", Conn::NAME, way.name));
        let before = conn.integer(&way.total);
        let slice = runtime.block_on(async {
            match round {
                0 => way.slice(tasks, 1, Duration::ZERO).await, // only warms up
                _ => way.slice(tasks, 2, duration).await,
            }
        });
        assert_eq!(
            conn.integer(&way.total) - before,
            slice.succeeded as i64,
            "lost or doubled counts: {}, {}, {scene:?}",
            way.name,
            Conn::NAME
        );
        slice
    });
    let cells = ways.iter().zip(slices);
    cells
        .map(|(way, slices)| load::cell(scene, &stage, way.name, &slices[1..]))
        .collect()
}

/// A connection type that has an awaited counterpart.
pub trait Tasks: Arena {
    /// The ways to count on a pool of awaited connections, which lends them without a query that checks them.
    fn ways(stage: &Stage<Self>) -> Vec<Way>;
}

macro_rules! tasks {
    ($connection:ty, $awaited:ty, $connect:expr) => {
        impl Tasks for $connection {
            fn ways(stage: &Stage<Self>) -> Vec<Way> {
                let mut config = ManagerConfig::<$awaited>::default();
                config.recycling_method = RecyclingMethod::Fast;
                let here = stage.clone();
                config.custom_setup = Box::new(move |_| Box::pin($connect(here.clone())));
                let manager = AsyncDieselConnectionManager::new_with_config(stage.url(), config);
                let pool = Pool::builder(manager).max_size(CONNECTIONS);
                let pool = pool.build().expect("a pool");
                let (same_pool, lent_pool) = (pool.clone(), pool.clone());
                let combiner = Combiner::new();
                let way = |name, total, count: Arc<Count>| Way { name, total, count };
                macro_rules! on_the_pool {
                    ($pool:ident, $update:path, $table:ident) => {
                        Arc::new(move || -> BoxFuture<'static, Outcome<usize>> {
                            let pool = $pool.clone();
                            Box::pin(async move {
                                let conn = &mut pool.get().await?;
                                let counted = $update($table::table.find(1))
                                    .set($table::views.eq($table::views + 1));
                                Ok(counted.execute(conn).await?)
                            })
                        })
                    };
                }
                vec![
                    way(
                        ONE_ROW,
                        total_of("one_row", "views"),
                        on_the_pool!(pool, diesel::update, one_row),
                    ),
                    way(
                        DEFAULT,
                        total_of_shards("adaptive"),
                        on_the_pool!(same_pool, update, adaptive),
                    ),
                    way(
                        COMBINED,
                        total_of_shards("combined"),
                        Arc::new(move || {
                            let (pool, combiner) = (lent_pool.clone(), combiner.clone());
                            let count = update(combined::table.find(1))
                                .set(combined::views.eq(combined::views + 1))
                                .combine(&combiner);
                            count.execute_with(async move || Ok(pool.get().await?))
                        }),
                    ),
                ]
            }
        }
    };
}

tasks!(PgConnection, AsyncPgConnection, async |stage: Stage<
    PgConnection,
>| {
    AsyncPgConnection::establish(stage.url()).await
});
tasks!(
    MysqlConnection,
    AsyncMysqlConnection,
    async |stage: Stage<MysqlConnection>| AsyncMysqlConnection::establish(stage.url()).await
);
tasks!(
    SqliteConnection,
    SyncConnectionWrapper<SqliteConnection>,
    async |stage: Stage<SqliteConnection>| Ok(SyncConnectionWrapper::new(stage.connect()))
);

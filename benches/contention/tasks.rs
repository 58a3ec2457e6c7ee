//! Counts by more tasks than there are connections. The tasks share a pool, or pass their counts to the coalescer.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel::r2d2;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::pooled_connection::{
    AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod,
};
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_async::{AsyncConnection, AsyncMysqlConnection, AsyncPgConnection, RunQueryDsl};
use diesel_sharded::RowCounter;
use diesel_sharded::asynchronous::{BoxFuture, update};
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded_benches::names::{COALESCED, DEFAULT, ONE_ROW, TASKS};
use diesel_sharded_benches::report::Cell;
use indicatif::ProgressBar;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::arena::{Arena, Stage};
use crate::contender::{Outcome, total_of, total_of_shards};
use crate::load::{self, Scene, Slice, percentiles};
use crate::schema::{adaptive, coalesced, one_row};

/// The connections of the pool.
const CONNECTIONS: usize = 16;

/// The extent of the measurement.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    pub tasks: usize,
    pub rounds: usize,
    /// The shortest time of a slice. It lasts longer if two counts of every task take longer.
    pub slice: Duration,
}

impl Extent {
    pub fn of(quick: bool, rounds: usize) -> Self {
        let (tasks, slice) = match quick {
            true => (1_000, Duration::from_millis(100)),
            false => (10_000, Duration::from_secs(1)),
        };
        Extent {
            tasks,
            rounds,
            slice,
        }
    }
}

/// A task's share of a slice: it counts at least `counts` times, and goes on until `end`.
///
/// All tasks start at once and the pool serves them in turn, so the latency of a task's first count only shows its place in
/// the queue. Each later count waits behind all other tasks.
#[derive(Debug, Clone, Copy)]
struct Share {
    counts: usize,
    end: Instant,
}

/// One way to count the hot row.
pub struct Way {
    name: &'static str,
    /// The SQL expression of the total so far.
    total: String,
    count: Arc<Count>,
}

type Count = dyn Fn() -> BoxFuture<'static, Outcome<usize>> + Send + Sync;

/// One task's counts in one slice.
#[derive(Default)]
struct Counted {
    succeeded: usize,
    failed: usize,
    latencies: Vec<Duration>,
}

impl Way {
    fn new<F>(
        name: &'static str,
        total: String,
        count: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Outcome<usize>> + Send + 'static,
    {
        Way {
            name,
            total,
            count: Arc::new(move || Box::pin(count())),
        }
    }

    async fn slice(&self, tasks: usize, counts: usize, duration: Duration) -> Slice {
        let began = Instant::now();
        let share = Share {
            counts,
            end: began + duration,
        };
        let mut running = JoinSet::new();
        for _ in 0..tasks {
            running.spawn(share.count(Arc::clone(&self.count)));
        }
        let counted = running.join_all().await;
        let time = began.elapsed();
        let succeeded = counted.iter().map(|task| task.succeeded).sum();
        let failed = counted.iter().map(|task| task.failed).sum();
        let latencies = counted.into_iter().flat_map(|task| task.latencies);
        Slice {
            rate: succeeded as f64 / time.as_secs_f64(),
            succeeded,
            failed,
            latencies: percentiles(latencies.collect()),
        }
    }
}

impl Share {
    async fn count(self, count: Arc<Count>) -> Counted {
        let mut counted = Counted::default();
        let (mut counts, mut begun) = (0, Instant::now());
        while counts < self.counts || begun < self.end {
            let outcome = count().await;
            let done = Instant::now();
            match outcome {
                Ok(1) => {
                    counted.succeeded += 1;
                    if counts > 0 {
                        counted.latencies.push(done - begun);
                    }
                }
                _ => counted.failed += 1,
            }
            counts += 1;
            begun = done;
        }
        counted
    }
}

/// Measures each way to count.
///
/// # Panics
/// If a count is lost or doubled: the measurement would be worth nothing.
pub fn measure<Conn: Tasks>(stage: &Stage<Conn>, extent: Extent, bar: &ProgressBar) -> Vec<Cell> {
    let scene = Scene::hot(extent.tasks);
    let runtime = Runtime::new().expect("a runtime");
    let conn = &mut stage.connect();
    let ways = Conn::ways(stage);
    let mut slices: Vec<Vec<Slice>> = ways.iter().map(|_| vec![]).collect();
    for round in 0..=extent.rounds {
        for turn in 0..ways.len() {
            let number = (round + turn) % ways.len();
            let way = &ways[number];
            bar.set_message(format!("{TASKS}, {}: {}", Conn::NAME, way.name));
            let before = conn.integer(&way.total);
            let slice = runtime.block_on(async {
                match round {
                    0 => way.slice(extent.tasks, 1, Duration::ZERO).await, // only warms up
                    _ => way.slice(extent.tasks, 2, extent.slice).await,
                }
            });
            assert_eq!(
                conn.integer(&way.total) - before,
                slice.succeeded as i64,
                "lost or doubled counts: {}, {}, {scene:?}",
                way.name,
                Conn::NAME
            );
            if round > 0 {
                slices[number].push(slice);
            }
        }
    }
    let cells = ways.iter().zip(slices);
    cells
        .map(|(way, slices)| load::cell(scene, stage, way.name, &slices))
        .collect()
}

/// A connection type that has an awaited counterpart.
pub trait Tasks: Arena {
    /// The ways to count: on a pool of awaited connections, and through the coalescer, which has blocking connections of its
    /// own. The pool lends a connection without a query that checks it.
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
                let same_pool = pool.clone();
                let own_pool = r2d2::Pool::builder().max_size(2).build(stage.clone());
                let coalescer = Coalescer::new(own_pool.expect("a connection"));
                let coalescer = coalescer.expect("a coalescer");
                vec![
                    Way::new(ONE_ROW, total_of("one_row"), move || {
                        let pool = pool.clone();
                        async move {
                            let conn = &mut pool.get().await?;
                            let counted = diesel::update(one_row::table.find(1))
                                .set(one_row::views.eq(one_row::views + 1))
                                .execute(conn);
                            Ok(counted.await?)
                        }
                    }),
                    Way::new(DEFAULT, total_of_shards("adaptive"), move || {
                        let pool = same_pool.clone();
                        async move {
                            let conn = &mut pool.get().await?;
                            let counted = update(adaptive::table.find(1))
                                .set(adaptive::views.eq(adaptive::views + 1))
                                .execute(conn);
                            Ok(counted.await?)
                        }
                    }),
                    Way::new(COALESCED, total_of_shards("coalesced"), move || {
                        let coalescer = coalescer.clone();
                        async move {
                            let counter = RowCounter::of(coalesced::views, 1);
                            Ok(coalescer.add_async(&counter, 1).await?)
                        }
                    }),
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

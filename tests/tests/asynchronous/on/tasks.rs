//! Tests that hold on every database.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::DerefMut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::connection::{InstrumentationEvent, SimpleConnection};
use diesel::result::Error::NotFound;
use diesel::{ConnectionResult, ExpressionMethods, QueryDsl, QueryResult};
use diesel_async::pooled_connection::{
    AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod, bb8, deadpool, mobc,
};
use diesel_async::{AsyncConnection, SimpleAsyncConnection};
use diesel_sharded::Error;
use diesel_sharded::asynchronous::idempotency::remove_older_than;
use diesel_sharded::asynchronous::{Counter, RowCounter, fold, retry, set_total, update};
use diesel_sharded::combine::Combiner;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{Isolation, RetryPolicy};
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{self, Video};
use diesel_sharded_tests::{Database, conflict, own_key};

use super::super::{Dropped, polled, until};
use super::{Backend, Blocking, Conn, LOCK, SETUP, others};

pub fn database() -> (Database, Blocking) {
    schema::database_with_counters()
}

pub async fn connect(url: &str) -> ConnectionResult<Conn> {
    let mut conn = Conn::establish(url).await?;
    let set_up = conn.batch_execute(SETUP).await;
    set_up.map_err(diesel::ConnectionError::CouldntSetupConfiguration)?;
    Ok(conn)
}

fn config() -> ManagerConfig<Conn> {
    let mut config = ManagerConfig::default();
    config.custom_setup = Box::new(|url| Box::pin(connect(url)));
    config
}

pub fn manager(database: &Database) -> AsyncDieselConnectionManager<Conn> {
    AsyncDieselConnectionManager::new_with_config(database.url(), config())
}

/// A pool of one connection, which checks only whether that is broken.
fn pool_of_one(database: &Database) -> deadpool::Pool<Conn> {
    let mut config = config();
    config.recycling_method = RecyclingMethod::Fast;
    let manager = AsyncDieselConnectionManager::new_with_config(database.url(), config);
    let pool = deadpool::Pool::builder(manager).max_size(1);
    pool.build().unwrap()
}

pub fn total(conn: &mut Blocking) -> i64 {
    total_of(1, conn)
}

fn total_of(video: i64, conn: &mut Blocking) -> i64 {
    let total = videos.find(video).select(views.total());
    diesel::RunQueryDsl::first(total, conn).unwrap()
}

/// Counts video 1, in one of six ways.
async fn count(conn: &mut Conn, way: usize) -> QueryResult<()> {
    let its_slug = String::from("a");
    let by_key = || update(videos.find(1)).set(views.eq(views + 1));
    let by_slug = || update(videos.filter(slug.eq(&its_slug))).set(views.eq(views + 1));
    let counted = match way {
        0 => by_key().execute(conn).await?,
        1 => by_slug().execute(conn).await?,
        2 => {
            let video = Video {
                id: 1,
                slug: its_slug.clone(),
                views: 0,
                likes: 0,
            };
            let count = update(&video).set(views.eq(views + 1));
            count.execute(conn).await?
        }
        3 => by_slug().into_boxed::<Backend>().execute(conn).await?,
        4 => {
            let read: i64 = by_key().returning(views).get_result(conn).await?;
            usize::from(read > 100)
        }
        _ => {
            let counted = conn.transaction(async |conn| by_key().execute(conn).await);
            counted.await?
        }
    };
    assert_eq!(counted, 1, "way {way}");
    Ok(())
}

/// A thousand tasks, each with a connection of a pool.
async fn thousand_tasks<C, G>(get: impl Fn() -> G + Clone + Send + 'static)
where
    C: DerefMut<Target = Conn> + Send + 'static,
    G: Future<Output = C> + Send + 'static,
{
    let tasks: Vec<_> = (0..1_000)
        .map(|task| {
            let get = get.clone();
            tokio::spawn(async move {
                let mut conn = get().await;
                match task % 7 {
                    6 => {
                        let counted = retry::transaction(&mut *conn, patient(), async |conn| {
                            count(conn, 0).await
                        });
                        counted.await
                    }
                    way => count(&mut conn, way).await,
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
}

/// The last of a thousand tasks waits for most of the others, on a starved machine for more than a pool's default of 30 s.
const AMPLE: Duration = Duration::from_secs(600);

macro_rules! thousand_tasks_on {
    ($($name:ident: |$database:ident| $pool:expr, $get:ident;)+) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let ($database, mut conn) = database();
            let pool = $pool;
            thousand_tasks(move || {
                let pool = pool.clone();
                async move { pool.$get().await.unwrap() }
            })
            .await;
            assert_eq!(total(&mut conn), 1_100);
        }
    )+};
}

thousand_tasks_on! {
    a_thousand_tasks_on_a_deadpool: |database| deadpool::Pool::builder(manager(&database)).max_size(8).build().unwrap(), get;
    a_thousand_tasks_on_bb8: |database| bb8::Pool::builder().max_size(8).connection_timeout(AMPLE).build(manager(&database)).await.unwrap(), get_owned;
    a_thousand_tasks_on_mobc: |database| mobc::Builder::<Conn>::new().max_open(8).get_timeout(Some(AMPLE)).build(manager(&database)), get;
}

/// Waits until no more connections are left to the database than a pool of one has.
async fn settled(database: &Database, conn: &mut Blocking) {
    until("the others are gone", || others(database, conn) <= 1).await;
}

const OPERATIONS: usize = 13;

/// One of the operations; returns how much it has counted on video 1.
async fn step(operation: usize, conn: &mut Conn) -> QueryResult<i64> {
    match operation {
        0..=5 => count(conn, operation).await.map(|()| 1),
        6 => fold(videos).run(conn).await.map(|_| 0),
        7 => {
            let set = set_total(videos.find(2), views, 7);
            set.execute(conn).await.map(|_| 0)
        }
        8 => Counter::named("page").reset(conn).await.map(|()| 0),
        10 => RowCounter::of(views, 1).get(conn).await.map(|_| 0),
        11 => Counter::named("page").get(conn).await.map(|_| 0),
        12 => remove_older_than(Duration::ZERO, conn).await.map(|_| 0),
        _ => {
            let transaction = retry::Transaction::new().isolation(Isolation::ReadCommitted);
            let counted = transaction.run(conn, async |conn| {
                count(conn, 0).await?;
                count(conn, 1).await
            });
            counted.await.map(|()| 2)
        }
    }
}

/// Wherever its future is dropped, an operation neither doubles nor loses an increment, and the pool lends no open transaction: the next
/// increment on it is committed by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_future_leaves_nothing_behind() {
    let (database, mut conn) = database();
    let pool = pool_of_one(&database);
    let mut before = total(&mut conn);
    let mut drops = 0;
    for operation in 0..OPERATIONS {
        for dropped in [Dropped::Waiting, Dropped::Woken] {
            for polls in 0.. {
                assert!(polls < 1_000, "operation {operation} never ends");
                let done = polled(
                    polls,
                    dropped,
                    step(operation, &mut pool.get().await.unwrap()),
                )
                .await;
                let next = count(&mut pool.get().await.unwrap(), 0).await;
                let at = format!("operation {operation}, {dropped:?} after {polls} polls");
                assert_eq!(next, Ok(()), "{at}");
                settled(&database, &mut conn).await;
                let counted = total(&mut conn) - before - 1;
                before += counted + 1;
                match done {
                    Some(told) => {
                        assert_eq!(counted, told.unwrap(), "{at}");
                        break;
                    }
                    None => {
                        let at_most = match operation {
                            0..=5 => 1,
                            6..=8 | 10.. => 0,
                            _ => 2,
                        };
                        assert!(counted == 0 || counted == at_most, "{at}: {counted}");
                        drops += 1;
                    }
                }
            }
        }
    }
    assert!(drops > 20, "{drops}"); // as many were not even polled
}

/// A connection that no pool checks: either it is broken, or whatever it acknowledges next is committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_dropped_future_nothing_is_acknowledged_in_vain() {
    let (database, mut conn) = database();
    let mut expected = 300;
    let (mut told, mut refused) = (0, 0);
    let of_diesel_async = 5; // what its transactions leave behind is its own
    for operation in (0..OPERATIONS).filter(|operation| *operation != of_diesel_async) {
        for polls in 0.. {
            assert!(polls < 1_000, "operation {operation} never ends");
            let mut own = connect(database.url()).await.unwrap();
            let done = polled(polls, Dropped::Woken, step(operation, &mut own)).await;
            let next = update(videos.find(3)).set(views.eq(views + 1));
            let next = next.execute(&mut own).await.map_err(Error::from);
            drop(own);
            let at = format!("operation {operation} after {polls} polls");
            match next {
                Ok(1) => {
                    expected += 1;
                    told += 1;
                }
                Err(Error::ConnectionLost { .. }) => refused += 1,
                other => panic!("{at}: {other:?}"),
            }
            let counted = videos.find(3).select(views.total());
            let counted = diesel::RunQueryDsl::first(counted, &mut conn);
            assert_eq!(counted, Ok(expected), "{at}");
            if done.is_some() {
                break;
            }
        }
    }
    assert!(refused > 10, "{refused} refused, {told} told");
}

/// A task whose future was dropped, and which retries with the same key until it gets an answer, is counted once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_future_with_a_key_is_asked_again() {
    let (database, mut conn) = database();
    let pool = pool_of_one(&database);
    let mut drops_under_way = 0;
    // On a busy machine an increment may have ended whenever it is polled again: then another round begins.
    for round in 0.. {
        for (by_key, dropped) in [
            (true, Dropped::Waiting),
            (true, Dropped::Woken),
            (false, Dropped::Waiting),
            (false, Dropped::Woken),
        ] {
            for polls in 0.. {
                let key = format!("{round} {by_key} {dropped:?} {polls}");
                let before = total(&mut conn);
                let ask = async |conn: &mut Conn| match by_key {
                    true => {
                        let count = update(videos.find(1)).set(views.eq(views + 1));
                        count.idempotency_key(&key).execute(conn).await
                    }
                    false => {
                        let count = update(videos.filter(slug.eq("a"))).set(views.eq(views + 1));
                        count.idempotency_key(&key).execute(conn).await
                    }
                };
                let done = polled(polls, dropped, ask(&mut pool.get().await.unwrap())).await;
                let again = ask(&mut pool.get().await.unwrap()).await;
                assert_eq!(again, Ok(1), "{key}");
                settled(&database, &mut conn).await;
                assert_eq!(total(&mut conn), before + 1, "{key}");
                match done {
                    Some(told) => {
                        assert_eq!(told, Ok(1), "{key}");
                        break;
                    }
                    None => drops_under_way += u32::from(polls > 0),
                }
            }
        }
        if drops_under_way > 0 {
            break;
        }
    }
}

/// Retries for as long as a test may hold a lock.
fn patient() -> RetryPolicy {
    diesel_sharded_tests::patient().with_attempts(u32::MAX)
}

/// The connections of a pool, which admits each of them when it makes it. What is rolled back takes nobody's increment with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admitted_connections_of_a_pool_combine() {
    const TASKS: i64 = 24;
    static UPDATES: AtomicU32 = AtomicU32::new(0);
    let (database, mut conn) = database();
    let combiner = Combiner::new().instrumented_by(|| {
        Some(Box::new(|event: InstrumentationEvent<'_>| match event {
            InstrumentationEvent::StartQuery { query, .. }
                if query.to_string().starts_with("UPDATE") =>
            {
                UPDATES.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }))
    });
    let mut config = config();
    config.recycling_method = RecyclingMethod::Fast;
    config.custom_setup = Box::new(move |url| {
        let (url, combiner) = (url.to_owned(), combiner.clone());
        Box::pin(async move {
            let mut conn = connect(&url).await?;
            assert_eq!(combiner.admit_async(&mut conn).await, Ok(true));
            Ok(conn)
        })
    });
    let manager = AsyncDieselConnectionManager::new_with_config(database.url(), config);
    let pool = deadpool::Pool::builder(manager).max_size(TASKS as usize);
    let pool = pool.build().unwrap();
    let tasks = (0..TASKS).map(|task| {
        let pool = pool.clone();
        tokio::spawn(async move {
            for round in 0..20 {
                let mut conn = pool.get().await.unwrap();
                let rolls_back = task == 0 && round % 2 == 0;
                if rolls_back {
                    conn.batch_execute("BEGIN").await.unwrap();
                }
                let count = update(videos.find(1)).set(views.eq(views + 1));
                assert_eq!(count.retry(patient()).execute(&mut conn).await, Ok(1));
                if rolls_back {
                    conn.batch_execute("ROLLBACK").await.unwrap();
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let counts = TASKS * 20 - 10;
    assert_eq!(total(&mut conn), 100 + counts);
    let updates = i64::from(UPDATES.load(Ordering::Relaxed));
    assert!(updates < counts, "{updates} statements for {counts} counts");
}

/// Those who wait for a task that is dropped are counted all the same, and a task that is dropped while it waits is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_task_takes_no_combined_count_with_it() {
    let (database, mut conn) = database();
    let key = own_key();
    let alone = format!("INSERT INTO videos VALUES ({key}, 'alone', 'Alone', 0, 0, NULL)");
    conn.batch_execute(&alone).unwrap();
    let add = async |n: i64, combiner: Combiner| {
        let mut conn = connect(database.url()).await.unwrap();
        let count = update(videos.find(key)).set(views.eq(views + n));
        let count = count.shard_choice(ShardChoice::Striped); // all on the one shard of this thread
        count.combine(&combiner).execute(&mut conn).await
    };
    assert_eq!(add(1, Combiner::new()).await, Ok(1)); // creates the shard that is locked
    conn.batch_execute(&LOCK.replace("id = 1", &format!("id = {key}")))
        .unwrap();
    // It has measured nothing yet, so one leads.
    let combiner = Combiner::new();
    let tasks = [10, 100, 1_000, 10_000].map(|n| Box::pin(add(n, combiner.clone())));
    let mut tasks = Vec::from(tasks);
    // The first one leads, and the others join it: each is polled until it waits for something other than its own connection.
    for task in &mut tasks {
        let waits = tokio::time::timeout(Duration::from_millis(500), task);
        assert!(waits.await.is_err());
    }
    drop(tasks.remove(2));
    drop(tasks.remove(0));
    conn.batch_execute("ROLLBACK").unwrap();
    for task in tasks {
        assert_eq!(task.await, Ok(1));
    }
    let total = total_of(key, &mut conn) - 1;
    assert!([10_100, 10_110].contains(&total), "{total}");
}

/// A leader sleeps: its connection does not come, or nobody polls its task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_sleeps_stops_nobody() {
    let (database, mut conn) = database();
    let combiner = Combiner::new();
    let count = |n: i64| {
        let count = update(videos.find(1)).set(views.eq(views + n));
        count.retry(patient()).combine(&combiner)
    };
    let never = || std::future::pending::<QueryResult<Box<Conn>>>();
    let mut asleep = [1, 2, 3].map(|n| Box::pin(count(n).execute_with(never)));
    for sleeps in &mut asleep {
        // The others come to lead after a while.
        let waits = tokio::time::timeout(Duration::from_millis(1_500), sleeps);
        assert!(waits.await.is_err());
    }
    let mut own = connect(database.url()).await.unwrap();
    let awake = async {
        for _ in 0..100 {
            assert_eq!(count(10).execute(&mut own).await, Ok(1));
        }
    };
    let counted = tokio::time::timeout(Duration::from_secs(90), awake);
    assert!(counted.await.is_ok(), "waits for a leader that sleeps");
    assert_eq!(total(&mut conn), 1_100);
}

/// A leader has sent a batch, and nobody polls it any more. Its members do not wait for it beyond their deadlines, nor do later callers.
async fn a_batch_of_a_leader_that_is_not_polled() {
    let (database, mut conn) = database();
    let combiner = Combiner::new();
    let count = |n: i64, policy: RetryPolicy| {
        let count = update(videos.find(1)).set(views.eq(views + n));
        let count = count.shard_choice(ShardChoice::Striped); // on a shard that is locked
        count.retry(policy).combine(&combiner)
    };
    let mut own = connect(database.url()).await.unwrap();
    let mut others = connect(database.url()).await.unwrap();
    assert_eq!(count(1, patient()).execute(&mut own).await, Ok(1));
    conn.batch_execute(LOCK).unwrap();
    let never = || std::future::pending::<QueryResult<Box<Conn>>>();
    // As many as may lead, so that the next callers wait.
    let mut asleep = [(); 16].map(|()| count(0, patient()).execute_with(never));
    for sleeps in &mut asleep {
        assert_eq!(polled(1, Dropped::Waiting, sleeps).await, None);
    }
    let mut leads = count(10, patient()).execute(&mut own);
    assert_eq!(polled(1, Dropped::Waiting, &mut leads).await, None);
    let in_two_seconds = patient().with_deadline(Duration::from_secs(2));
    let mut waits = count(100, in_two_seconds).execute_with(never);
    assert_eq!(polled(1, Dropped::Waiting, &mut waits).await, None);
    // It leads after a second, and its batch waits for the lock.
    let sent = tokio::time::timeout(Duration::from_millis(1_500), &mut leads);
    assert!(sent.await.is_err());
    let unknown = waits.await.map_err(Error::from);
    assert!(
        matches!(unknown, Err(Error::OutcomeUnknown { .. })),
        "{unknown:?}"
    );
    conn.batch_execute("ROLLBACK").unwrap();
    let late = count(1_000, patient()).execute(&mut others);
    // On SQLite the leader, once it has begun a transaction, is the only writer.
    match LOCK.contains("videos_shards") {
        true => {
            assert_eq!(late.await, Ok(1));
            assert_eq!(leads.await, Ok(1));
        }
        false => assert_eq!(tokio::join!(late, leads), (Ok(1), Ok(1))),
    }
    drop(asleep);
    assert_eq!(total(&mut conn), 100 + 1_111);
}

#[tokio::test]
async fn a_batch_of_a_leader_that_is_not_polled_on_one_thread() {
    a_batch_of_a_leader_that_is_not_polled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_a_leader_that_is_not_polled_on_two_threads() {
    a_batch_of_a_leader_that_is_not_polled().await;
}

/// A request whose client goes while it counts for others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_caller_counts_for_others_to_the_end() {
    let (database, mut conn) = database();
    let pool = deadpool::Pool::builder(manager(&database)).max_size(2);
    let (pool, combiner) = (pool.build().unwrap(), Combiner::new());
    let add = |n: i64| {
        let (pool, combiner) = (pool.clone(), combiner.clone());
        let count = update(videos.find(1)).set(views.eq(views + n));
        let count = count.shard_choice(ShardChoice::Striped); // on a shard that is locked or cannot be created
        let count = count.retry(patient()).combine(&combiner);
        count.execute_with(async move || pool.get().await.map_err(|_| NotFound))
    };
    assert_eq!(add(1).await, Ok(1)); // creates the shard that is locked
    conn.batch_execute(LOCK).unwrap();
    assert_eq!(polled(1, Dropped::Waiting, add(10)).await, None);
    let mut waits = [add(100), add(1_000)];
    for wait in &mut waits {
        assert!(tokio::time::timeout(Duration::ZERO, wait).await.is_err());
    }
    conn.batch_execute("ROLLBACK").unwrap();
    for wait in waits {
        assert_eq!(wait.await, Ok(1));
    }
    // Where several lead, the one without a caller may be the last.
    until("all are counted", || total(&mut conn) == 100 + 1_111).await;
}

/// What `combine` warns of: one combiner for two databases. No increment is lost or doubled, but one that waits is counted where the leader counts.
#[tokio::test]
async fn a_combiner_of_two_databases_counts_in_the_leaders() {
    let ((database, mut of_leader), (others, mut of_others)) = (database(), database());
    let mut conn = connect(others.url()).await.unwrap();
    let combiner = Combiner::new();
    let count = |n: i64| {
        let count = update(videos.find(1)).set(views.eq(views + n));
        count.retry(patient()).combine(&combiner)
    };
    let (release, released) = tokio::sync::watch::channel(false);
    let lead = |n| {
        let (url, mut released) = (database.url().to_owned(), released.clone());
        count(n).execute_with(async move || {
            released.wait_for(|it_is| *it_is).await.unwrap();
            connect(&url).await.map(Box::new).map_err(|_| NotFound)
        })
    };
    let mut leads = lead(1);
    let mut waits = count(10).execute(&mut conn);
    for comes in [&mut leads, &mut waits] {
        assert_eq!(polled(1, Dropped::Waiting, comes).await, None);
    }
    release.send(true).unwrap();
    for comes in [leads, waits] {
        assert_eq!(comes.await, Ok(1));
    }
    assert_eq!((total(&mut of_leader), total(&mut of_others)), (111, 100));
    assert_eq!(count(1_000).execute(&mut conn).await, Ok(1));
    assert_eq!((total(&mut of_leader), total(&mut of_others)), (111, 1_100));
}

/// Tasks that outnumber the connections share them: who is counted by another needs none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tasks_combine_on_a_pool_of_two() {
    let (database, mut conn) = database();
    let pool = deadpool::Pool::builder(manager(&database)).max_size(2);
    let (pool, combiner) = (pool.build().unwrap(), Combiner::new());
    let tasks: Vec<_> = (0..1_000)
        .map(|_| {
            let (pool, combiner) = (pool.clone(), combiner.clone());
            tokio::spawn(async move {
                let count = update(videos.find(1)).set(views.eq(views + 1));
                let count = count.retry(patient()).combine(&combiner);
                let acquire = async move || pool.get().await.map_err(|_| NotFound);
                count.execute_with(acquire).await
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), Ok(1));
    }
    assert_eq!(total(&mut conn), 1_100);
}

/// The clock of pauses is tokio's.
#[tokio::test]
async fn pauses_pass_by_the_runtimes_clock() {
    const HOUR: Duration = Duration::from_secs(3600);
    let (database, mut conn) = database();
    let mut counting = connect(database.url()).await.unwrap();
    let policy = RetryPolicy::new()
        .with_min_delay(HOUR)
        .with_max_delay(HOUR)
        .with_random(|| u64::MAX)
        .with_attempts(5)
        .with_deadline(100 * HOUR);
    let attempts = AtomicU32::new(0);
    let begun = Instant::now();
    tokio::time::pause();
    let paused = tokio::time::Instant::now();
    let counted: QueryResult<()> = retry::transaction(&mut counting, policy, async |conn| {
        count(conn, 0).await?;
        match attempts.fetch_add(1, Ordering::SeqCst) {
            0..4 => Err(conflict()),
            _ => Ok(()),
        }
    })
    .await;
    assert_eq!(counted, Ok(()));
    let passed = paused.elapsed();
    assert!(passed >= 4 * HOUR, "{passed:?}");
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert_eq!(total(&mut conn), 101);
}

/// A background fold in a task folds on connections of a pool, reports what fails, and is cancelled when it is dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_folds_by_itself() {
    let (database, mut blocking) = database();
    let pool = deadpool::Pool::builder(manager(&database)).max_size(2);
    let pool = pool.build().unwrap();
    let often = Duration::from_millis(20);
    let refused = AtomicU32::new(0);
    let folding = pool.clone();
    let reported = Arc::new(Mutex::new(BTreeMap::new()));
    let reports = Arc::clone(&reported);
    let folder = fold(videos)
        .on_folded(views, move |rows: &[(i64, i64)]| {
            reports.lock().unwrap().extend(rows.iter().copied());
        })
        .every(often)
        .start(move || {
            let number = refused.fetch_add(1, Ordering::Relaxed);
            assert_ne!(number, 0, "on purpose");
            let folding = folding.clone();
            async move {
                assert_ne!(number, 1, "on purpose");
                folding.get().await
            }
        })
        .unwrap();
    let mut conn = pool.get().await.unwrap();
    let counted = update(videos).set(views.eq(views + 5));
    assert_eq!(counted.execute(&mut conn).await, Ok(3));
    until("cold rows have no shards", || {
        folder.stats().shards_removed == 3
    })
    .await;
    let stats = folder.stats();
    assert_eq!((stats.failed_passes, stats.parents), (2, 3));
    let bases = BTreeMap::from([(1, 105), (2, 205), (3, 305)]);
    assert_eq!(*reported.lock().unwrap(), bases);
    assert_eq!(stats.last_error.as_deref(), Some("the pass panicked"));
    drop(folder);
    let counted = update(videos).set(views.eq(views + 5));
    assert_eq!(counted.execute(&mut conn).await, Ok(3));
    tokio::time::sleep(often * 5).await;
    let base = diesel::QueryDsl::select(videos.find(1), views);
    let base = diesel::RunQueryDsl::first(base, &mut blocking);
    assert_eq!((base, total(&mut blocking)), (Ok(105_i64), 110));
}

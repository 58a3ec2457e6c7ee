//! Statements that are interrupted, and connections that are cut.
//!
//! Each statement of each operation by each fault, in `interrupted/table.rs`, and each step of a compound statement, in
//! `interrupted/compound.rs`. Then statements that MariaDB interrupts in the middle of their
//! rows: by `max_statement_time`, and by `KILL QUERY`. Its client may wait forever on such a connection, so that each round runs in
//! a process of its own that can be ended.

#![expect(
    clippy::duplicate_mod,
    reason = "the same table, once for each kind of connections"
)]

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::{SimpleConnection, TransactionManager};
use diesel::prelude::*;
use diesel_sharded::backend::keep_queries_on_mysql;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::unique::Unique;
use diesel_sharded::{Counter, CounterCache, RowCounter, fold, set_total, update};
use diesel_sharded_tests::fixture::{Fixture, Run};
use diesel_sharded_tests::schema;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{Database, HUNDRED_YEARS, TestConnection, count, number, until};

macro_rules! tables {
    ($($name:ident: $conn:ty, $api:path, $is_async:literal, $only:literal;)+) => {$(
        #[path = "interrupted"]
        mod $name {
            #[path = "../operations/mod.rs"]
            #[expect(dead_code, reason = "what other programs use")]
            mod operations;
            mod table;

            use $api as api;

            type Conn = $conn;
            const IS_ASYNC: bool = $is_async;

            #[test]
            fn each_statement_of_each_operation_meets_each_fault() {
                table::fill($only);
            }
        }
    )+};
}

// On connections of `diesel_async`, whose operations are the same steps, some of them.
tables! {
    mysql: diesel::MysqlConnection, diesel_sharded, false, "";
    postgres: diesel::PgConnection, diesel_sharded, false, "";
    async_mysql: api::Awaited<diesel_async::AsyncMysqlConnection>, diesel_sharded_tests::awaited, true, "by key|by filter, no|by filter, rows|by text|keyed";
    async_postgres: api::Awaited<diesel_async::AsyncPgConnection>, diesel_sharded_tests::awaited, true, "by key|by filter, no|by filter, rows|by text|keyed";
}

macro_rules! compounds {
    ($($name:ident: $conn:ty, $api:path;)+) => {$(
        #[path = "interrupted"]
        mod $name {
            mod compound;

            use $api as api;

            type Conn = $conn;
        }
    )+};
}

compounds! {
    mysql_compound: diesel::MysqlConnection, diesel_sharded;
    async_mysql_compound: api::Awaited<diesel_async::AsyncMysqlConnection>, diesel_sharded_tests::awaited;
}

const THREADS: i64 = 12;
const SHARDS: i64 = 4000;
const PLAN: &str = "INTERRUPTED";

/// How long each round runs: longer rounds find more. `INTERRUPTED_SECONDS` sets it.
fn seconds() -> u64 {
    std::env::var("INTERRUPTED_SECONDS").map_or(4, |seconds| seconds.parse().unwrap())
}

/// Three videos, the first of which has so many shards that a total of it takes milliseconds.
fn database() -> Option<Database> {
    let (database, mut conn) = schema::database_with_counters::<MysqlConnection>();
    if !conn.version().contains("MariaDB") {
        return None; // MySQL interrupts no update, and its SELECTs by another setting
    }
    let shards = format!("SELECT 1, seq FROM seq_0_to_{}", SHARDS - 1);
    conn.run(&format!("INSERT INTO videos_shards (id, shard) {shards}"));
    Some(database)
}

/// How often an operation counts.
fn operate(
    operation: i64,
    [thread, round]: [i64; 2],
    reads: &AtomicI64,
    conn: &mut MysqlConnection,
) -> QueryResult<i64> {
    let count = || {
        let count = update(videos.find(1)).set(views.eq(views + 1));
        count.retry(RetryPolicy::new())
    };
    let key = format!("{thread} {round}");
    let rows = match operation {
        0 => count().returning(views).get_result::<i64>(conn).map(|_| 1),
        1 => {
            let by_slug = update(videos.filter(slug.eq("a"))).set(views.eq(views + 1));
            let rows = by_slug.returning((id, views)).get_results(conn);
            rows.map(|rows: Vec<(i64, i64)>| rows.len())
        }
        2 => conn.transaction(|conn| count().execute(conn)),
        3 if round % 2 == 0 => count().idempotency_key(key).execute(conn),
        3 => {
            let answer = count().once_per(key, HUNDRED_YEARS).count(conn);
            answer.map(|answer| (answer == Unique::Counted).into())
        }
        4 => {
            let by_title = update(videos.filter(title.eq("A")));
            let counted = by_title.set(views.eq(views + 1)).execute(conn);
            assert_ne!(counted, Ok(0), "the video is there");
            counted
        }
        5 => {
            let total = videos.find(1).select(views.total());
            let total = total.first::<i64>(conn);
            reads.fetch_add(total.is_ok().into(), Ordering::Relaxed);
            total.map(|_| 0)
        }
        6 => {
            let total = RowCounter::of(views, 1).get(conn);
            total.and_then(|_| Counter::named("a").get(conn).map(|_| 0))
        }
        7 => {
            let stock = RowCounter::of(likes, 2).never_below(0);
            stock.add(1, conn).map(|_| 0)
        }
        8 => set_total(videos.find(2), likes, 5).execute(conn).map(|_| 0),
        _ => fold(videos.find(2)).run(conn).map(|_| 0),
    };
    rows.map(|rows| rows as i64)
}

/// The work of the threads of one process, for some seconds.
fn interrupted(url: &str, set: &str, kind: &str) {
    let end = Instant::now() + Duration::from_secs(seconds());
    let (acknowledged, failed) = (AtomicI64::new(0), AtomicI64::new(0));
    let (reads, over) = (AtomicI64::new(0), AtomicBool::new(false));
    let ids: Vec<AtomicI64> = (0..THREADS).map(|_| AtomicI64::new(0)).collect();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (acknowledged, failed, reads, ids) = (&acknowledged, &failed, &reads, &ids);
                scope.spawn(move || {
                    let connected = || {
                        let mut conn = MysqlConnection::establish(url).unwrap();
                        let number = number!("CONNECTION_ID()", &mut conn);
                        conn.batch_execute(set).unwrap();
                        ids[thread as usize].store(number, Ordering::Relaxed);
                        conn
                    };
                    let mut conn = connected();
                    let mut round = thread;
                    while Instant::now() < end {
                        round += 1;
                        let conn = &mut conn;
                        let operation = match kind {
                            "kills in guarded ones" => 7 + round % 3,
                            _ => round % 7,
                        };
                        let counted = operate(operation, [thread, round], reads, conn);
                        match counted {
                            Ok(n) => acknowledged.fetch_add(n, Ordering::Relaxed),
                            Err(_) => failed.fetch_add(1, Ordering::Relaxed),
                        };
                        type Manager = <MysqlConnection as Connection>::TransactionManager;
                        if Manager::is_broken_transaction_manager(conn) {
                            *conn = connected();
                        }
                    }
                })
            })
            .collect();
        if kind.starts_with("kills") {
            scope.spawn(|| {
                let mut conn = MysqlConnection::establish(url).unwrap();
                for round in 0.. {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    let victim = ids[round % ids.len()].load(Ordering::Relaxed);
                    let _ = conn.batch_execute(&format!("KILL QUERY {victim}"));
                    thread::sleep(Duration::from_micros(300));
                }
            });
        }
        for thread in threads {
            thread.join().unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    let [acknowledged, failed, reads] = [acknowledged, failed, reads].map(AtomicI64::into_inner);
    println!("done: {acknowledged} {failed} {reads}");
}

/// Kept totals on a connection of `diesel_async`'s, of which that of the first video takes longer than the server allows. In the
/// end it allows everything, and the same statements return what they should.
async fn kept_and_interrupted(url: &str, set: &str) {
    use diesel_async::RunQueryDsl as Awaited; // beside the blocking one
    use diesel_async::{AsyncConnection, AsyncMysqlConnection, SimpleAsyncConnection};

    keep_queries_on_mysql();
    let mut conn = AsyncMysqlConnection::establish(url).await.unwrap();
    conn.batch_execute(set).await.unwrap();
    let end = Instant::now() + Duration::from_secs(seconds());
    let (mut failed, mut reads) = (0, 0);
    loop {
        let is_over = Instant::now() > end;
        if is_over {
            let forever = "SET max_statement_time = 0";
            conn.batch_execute(forever).await.unwrap();
        }
        for video in [1, 2] {
            let read = videos.find(video).select(views.total());
            let total: QueryResult<i64> = Awaited::first(read, &mut conn).await;
            match total {
                Err(error) => {
                    assert!(!is_over, "{error}");
                    failed += 1;
                }
                Ok(total) => {
                    assert_eq!(total, 100 * video);
                    reads += 1;
                }
            }
        }
        if is_over {
            break;
        }
    }
    let prepared = diesel::dsl::sql::<diesel::sql_types::BigInt>(
        "(SELECT CAST(variable_value AS SIGNED) FROM information_schema.session_status \
         WHERE variable_name = 'COM_STMT_PREPARE')",
    );
    let prepared = Awaited::get_result::<i64>(diesel::select(prepared), &mut conn).await;
    let prepared = prepared.unwrap();
    assert!(prepared < 10, "{prepared} statements were prepared");
    assert!(failed > 0, "no total was interrupted");
    println!("done: 0 {failed} {reads}");
}

/// A process of its own for the tests below, which start it.
#[test]
#[ignore = "runs as a process of the other tests"]
fn client() {
    let plan = std::env::var(PLAN).expect("a plan");
    let [url, set, kind] = plan.split('|').collect::<Vec<_>>().try_into().unwrap();
    if kind == "kept" {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        return runtime.block_on(kept_and_interrupted(url, set));
    }
    interrupted(url, set, kind);
}

/// Runs a process until it ends by itself, or ends it after a minute more than it should take.
fn ends_in_time(mut client: Child) -> Result<String, String> {
    let patience = Instant::now() + Duration::from_secs(seconds() + 60);
    while client.try_wait().unwrap().is_none() {
        if Instant::now() > patience {
            client.kill().unwrap();
            client.wait().unwrap();
            return Err("a thread waits for ever".into());
        }
        thread::sleep(Duration::from_millis(50));
    }
    let output = client.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(text),
        false => Err(text),
    }
}

fn nobody_waits_for_ever(set: &str, kills: &str) {
    let Some(database) = database() else { return };
    let client = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "client", "--ignored", "--nocapture"])
        .env(PLAN, format!("{}|{set}|{kills}", database.url()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let text = ends_in_time(client).unwrap_or_else(|error| panic!("{set} {kills}: {error}"));
    let numbers = text.split_once("done: ").unwrap().1.lines().next().unwrap();
    let mut each = numbers.split(' ').map(|number| number.parse().unwrap());
    let [acknowledged, failed, reads]: [i64; 3] = [(); 3].map(|()| each.next().unwrap());
    println!("{set} {kills}: {acknowledged} counted, {reads} totals read, {failed} failed");
    assert!(acknowledged + failed > 0);
    let mut conn = MysqlConnection::connect(&database);
    let total = videos.find(1).select(views.total());
    let counted = total.first::<i64>(&mut conn).unwrap() - 100;
    if kills.is_empty() {
        assert_eq!(counted, acknowledged, "{failed} failed");
    } else {
        // An increment that is killed as its COMMIT is answered reports a failure, although it is committed.
        assert!(
            (acknowledged..=acknowledged + failed).contains(&counted),
            "{counted}: {numbers}"
        );
    }
    // No lock is left behind.
    conn.run("SET lock_wait_timeout = 5, innodb_lock_wait_timeout = 5");
    conn.run("UPDATE videos_shards SET likes = likes + 1");
    conn.run("ALTER TABLE videos_shards COMMENT = 'free'");
}

macro_rules! nobody_waits_for_ever {
    ($($name:ident: $set:literal, $kind:literal;)+) => {$(
        #[test]
        fn $name() {
            nobody_waits_for_ever(concat!("SET max_statement_time = ", $set), $kind);
        }
    )+};
}

// MariaDB's client waits forever if a query is killed between two statements of one text, as those of guarded ones are.
nobody_waits_for_ever! {
    nobody_waits_for_ever_at_700_microseconds: "0.0007", "";
    nobody_waits_for_ever_at_2_milliseconds: "0.002", "";
    nobody_waits_for_ever_at_4_milliseconds: "0.004", "";
    nobody_waits_for_ever_under_kill_query: "0", "kills";
    kill_query_leaves_nobody_waiting_in_guarded_ones: "0", "kills in guarded ones";
    nobody_waits_for_ever_for_kept_totals_of_diesel_async: "0.001", "kept";
}

/// MariaDB gives NULL for a subquery that it interrupts as it begins, and no error. The total is not the base then.
#[test]
fn an_interrupted_total_is_an_error() {
    let Some(database) = database() else { return };
    let conn = &mut MysqlConnection::connect(&database);
    count!(videos.find(2), views.eq(views + 5), conn);
    let total: i64 = videos.find(2).select(views.total()).first(conn).unwrap();
    conn.batch_execute("SET max_statement_time = 1").unwrap();
    let slow = diesel::dsl::sql::<diesel::sql_types::BigInt>("BENCHMARK(10000000000, 1 + 1)");
    let read: QueryResult<(i64, i64)> = videos.find(2).select((slow, views.total())).first(conn);
    assert!(read.is_err(), "{read:?} in place of {total}");
    assert_eq!(videos.find(2).select(views.total()).first(conn), Ok(total));
}

/// Of two caches of one field, one waits until the other is there. If its wait is interrupted, it is not created.
#[test]
fn no_counter_cache_is_created_without_its_lock() {
    let [conn, other] = &mut *Fixture::<MysqlConnection, _>::with_counters();
    let cache = CounterCache::of(likes).counts(schema::comments::video_id);
    let triggers = "COUNT(*) FROM information_schema.TRIGGERS \
                    WHERE TRIGGER_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE = 'comments'";
    let before = number!(triggers, other);
    other.run("DO GET_LOCK('diesel_sharded_caches', 0)");
    let victim = number!("CONNECTION_ID()", conn);
    let waits = format!(
        "COUNT(*) FROM information_schema.processlist WHERE id = {victim} AND state = 'User lock'"
    );
    let created = thread::scope(|scope| {
        scope.spawn(|| {
            until("it waits", || number!(&waits, other) > 0);
            other.run(&format!("KILL QUERY {victim}"));
        });
        cache.create(conn)
    });
    created.unwrap_err();
    assert_eq!(number!(triggers, other), before);
    other.run("DO RELEASE_LOCK('diesel_sharded_caches')");
    cache.create(conn).unwrap();
    assert!(number!(triggers, other) > before);
}

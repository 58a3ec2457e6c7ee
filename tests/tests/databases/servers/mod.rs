//! Conflicts that databases with many writers raise, each provoked for real.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::api::coalescer::Coalescer;
use super::api::retry::{self, Isolation, RetryPolicy, Transaction};
use super::api::shard_choice::ShardChoice;
use super::api::{Conflict, Counter, Error, MIGRATIONS, fold, set_total, update};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use diesel_sharded::prelude::*;
use diesel_sharded_tests::proxy::{Cut, Proxy};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{
    TestConnection, assert_matches, count, delete, drawing, insert, number, own_key, recording,
    schema,
};

use super::Conn;

/// Makes tests of this file's functions: those without arguments; then by the test's name and the function's, the arguments on
/// PostgreSQL, and on MySQL and MariaDB, or on MariaDB alone.
macro_rules! server_tests {
    ($server:ident) => {
        servers::tests_on! { everywhere
            a_parent_deleted_meanwhile,
            an_idle_transaction_holds_up_no_other_count,
            set_total_looks_again_under_the_lock,
            repeats_over_connections_that_are_cut,
            a_fold_that_loses_its_connection_beside_a_lock,
            a_repeat_in_an_older_snapshot,
            a_coalescer_that_loses_its_connections,
            a_lock_is_not_waited_for_again;
        }
        servers::tests_on! { $server
            deadlock, deadlock {
                postgres ("SET deadlock_timeout = '50ms'"),
                    ("SET deadlock_timeout = '50ms'; SET lc_messages = 'de_DE.UTF-8'");
                mysql ("SET SESSION innodb_lock_wait_timeout = 20");
            }
            lock_timeout, a_locked_shard {
                postgres ("SET lock_timeout = '50ms'", api::Conflict::LockTimeout),
                    ("SET lock_timeout = '50ms'; SET lc_messages = 'de_DE.UTF-8'", api::Conflict::LockTimeout);
                mysql ("SET SESSION innodb_lock_wait_timeout = 1", api::Conflict::LockTimeout);
            }
            a_lock_that_stays, a_lock_that_stays {
                postgres ("SET lock_timeout = '50ms'", api::Conflict::LockTimeout);
                mysql ("SET SESSION innodb_lock_wait_timeout = 1", api::Conflict::LockTimeout);
            }
            // MySQL's time limit applies to reads alone.
            statement_timeout, a_locked_shard {
                postgres ("SET statement_timeout = '50ms'", api::Conflict::StatementTimeout),
                    ("SET statement_timeout = '50ms'; SET lc_messages = 'de_DE.UTF-8'", api::Conflict::StatementTimeout);
                mariadb ("SET SESSION max_statement_time = 0.1", api::Conflict::StatementTimeout);
            }
            nowait, nowait {
                postgres ("SELECT 1"), ("SET lc_messages = 'de_DE.UTF-8'");
                mysql ("SELECT 1");
            }
            // MySQL has no serialization failures: its repeatable reads update what others have committed meanwhile.
            serialization_failure, serialization {
                postgres (api::retry::Isolation::RepeatableRead, "SELECT 1"),
                    (api::retry::Isolation::Serializable, "SELECT 1"),
                    (api::retry::Isolation::Serializable, "SET lc_messages = 'de_DE.UTF-8'");
                mariadb (api::retry::Isolation::RepeatableRead, "SET SESSION innodb_snapshot_isolation = ON");
            }
            // On MySQL the server rolls back at a deadlock, unnoticed by the driver. Later statements run outside any transaction.
            a_swallowed_error_is_not_acknowledged, a_swallowed_error_is_not_acknowledged {
                postgres ("SELECT 1/0", false);
                mysql ("ROLLBACK", true);
            }
            a_killed_connection, a_connection_cut {
                postgres ("pg_backend_pid()::bigint", |pid| format!("SELECT pg_terminate_backend({pid})"));
                mysql ("CONNECTION_ID()", |number| format!("KILL {number}"));
            }
            folds_killed_at_any_moment, folds_killed_at_any_moment {
                postgres ("pg_backend_pid()::bigint", |pid| format!("SELECT pg_terminate_backend({pid})"));
                mysql ("CONNECTION_ID()", |number| format!("KILL {number}"));
            }
            a_callers_snapshot_is_tried_again, a_callers_snapshot_is_tried_again {
                postgres (api::retry::Isolation::RepeatableRead, "SELECT 1"), (api::retry::Isolation::Serializable, "SELECT 1");
                mariadb (api::retry::Isolation::RepeatableRead, "SET SESSION innodb_snapshot_isolation = ON");
            }
            a_conflict_inside_a_savepoint_is_tried_again, a_conflict_inside_a_savepoint_is_tried_again {
                postgres (api::retry::Isolation::RepeatableRead, "SELECT 1");
                mariadb (api::retry::Isolation::RepeatableRead, "SET SESSION innodb_snapshot_isolation = ON");
            }
            // On MySQL by key alone: a filter locks the parents for the foreign key.
            a_locked_parent_stops_no_count, a_locked_parent_stops_no_count {
                postgres ("SELECT 1 FROM videos FOR UPDATE", "SET lock_timeout = '100ms'", true);
                mysql ("UPDATE videos SET title = 'x' WHERE id = 1", "SET SESSION innodb_lock_wait_timeout = 1", false);
            }
            transactions_at_once_take_shards_of_their_own, transactions_at_once_take_shards_of_their_own {
                postgres ("SET lock_timeout = '2s'");
                mysql ("SET SESSION innodb_lock_wait_timeout = 2");
            }
        }
    };
}
pub(crate) use server_tests;

macro_rules! tests_on {
    (everywhere $($test:ident),+;) => {$(
        #[test]
        fn $test() {
            servers::$test();
        }
    )+};
    (postgres $($test:ident, $function:ident {
        postgres $($on_postgres:tt),+;
        $mysql:ident $($on_mysql:tt),+;
    })+) => {
        servers::tests_on! { $($test, $function, postgres $($on_postgres),+;)+ }
    };
    (mysql $($test:ident, $function:ident {
        postgres $($on_postgres:tt),+;
        $mysql:ident $($on_mysql:tt),+;
    })+) => {
        servers::tests_on! { $($test, $function, $mysql $($on_mysql),+;)+ }
    };
    ($($test:ident, $function:ident, $server:ident $($arguments:tt),+;)+) => {$(
        #[test]
        fn $test() {
            if servers::is(stringify!($server)) {
                $(servers::$function $arguments;)+
            }
        }
    )+};
}
pub(crate) use tests_on;

/// Whether the server is MariaDB, for tests that need it.
pub fn is(kind: &str) -> bool {
    let version = || Conn::connect(&Conn::database()).version();
    kind != "mariadb" || version().contains("MariaDB")
}

pub fn database() -> (diesel_sharded_tests::Database, Conn) {
    let (database, mut conn) = schema::database::<Conn>();
    // All four shards of video 1 are there, at zero.
    for shard in [0, 1, 2, 3] {
        let policy = RetryPolicy::new().with_random(move || shard);
        assert_eq!(add(0, 1, policy, &mut conn), Ok(1));
    }
    (database, conn)
}

pub fn total(conn: &mut Conn) -> i64 {
    videos.find(1).select(views.total()).first(conn).unwrap()
}

/// Adds 1 to a video's views.
fn count(video: i64, conn: &mut Conn) -> QueryResult<usize> {
    update(videos.find(video))
        .set(views.eq(views + 1))
        .execute(conn)
}

/// Adds to a video's views, on the shard that the policy draws.
fn add(n: i64, video: i64, policy: RetryPolicy, conn: &mut Conn) -> QueryResult<usize> {
    let count = update(videos.find(video)).set(views.eq(views + n));
    let count = count.shard_choice(ShardChoice::Random);
    count.retry(policy).execute(conn)
}

/// Adds 1 to a video's views, on this shard.
fn count_on(shard: u64, video: i64, conn: &mut Conn) -> QueryResult<usize> {
    add(
        1,
        video,
        RetryPolicy::new().with_random(move || shard),
        conn,
    )
}

/// Counts video 1, found by its key or by another column.
fn count_video_1(conn: &mut Conn, by_key: bool, policy: RetryPolicy) -> QueryResult<usize> {
    if by_key {
        return add(1, 1, policy, conn);
    }
    let count = update(videos.filter(slug.eq("a"))).set(views.eq(views + 1));
    let count = count.shard_choice(ShardChoice::Random);
    count.retry(policy).execute(conn)
}

/// Counts on shard 0 and leaves the transaction open: the shard is locked until `conn` commits.
pub fn lock_shard_0(conn: &mut Conn) {
    conn.batch_execute("BEGIN").unwrap();
    let locked = diesel::update(schema::videos_shards::table.find((1, 0)))
        .set(schema::videos_shards::likes.eq(0))
        .execute(conn);
    assert_eq!(locked, Ok(1));
}

/// Two transactions lock two rows in opposite order; the one that the database ends is retried.
pub fn deadlock(prepare: &str) {
    let (database, mut conn) = database();
    let (policy, met) = recording();
    let both_hold_one = Barrier::new(2);
    let messages = Mutex::new(vec![]);
    thread::scope(|scope| {
        for (shard, rows) in [(0, [2, 3]), (1, [3, 2])] {
            let (database, policy, both_hold_one, messages) =
                (&database, policy.clone(), &both_hold_one, &messages);
            scope.spawn(move || {
                let mut conn = Conn::connect(database);
                conn.batch_execute(prepare).unwrap();
                let mut first = true;
                let done: QueryResult<usize> = retry::transaction(&mut conn, policy, |conn| {
                    count_on(shard, 1, conn)?;
                    let rename = |row: i64| diesel::update(videos.find(row)).set(title.eq("x"));
                    rename(rows[0]).execute(conn)?;
                    if std::mem::take(&mut first) {
                        both_hold_one.wait();
                    }
                    let second = rename(rows[1]).execute(conn);
                    second.inspect_err(|e| messages.lock().unwrap().push(e.to_string()))
                });
                assert_eq!(done, Ok(1));
            });
        }
    });
    let messages = messages.into_inner().unwrap();
    assert!(
        met.lock().unwrap().contains(&Conflict::Deadlock),
        "{met:?} {messages:?}"
    );
    assert_eq!(total(&mut conn), 102);
}

/// A locked shard ends the attempt by the database's own time limit; the next one takes another shard.
pub fn a_locked_shard(limit: &str, expected: Conflict) {
    let (database, mut conn) = database();
    let mut holder = Conn::connect(&database);
    lock_shard_0(&mut holder);
    conn.batch_execute(limit).unwrap();
    let (policy, met) = recording();
    let policy = policy.with_random(drawing(&[0, 0, 1]));
    assert_eq!(add(1, 1, policy, &mut conn), Ok(1));
    assert_eq!(*met.lock().unwrap(), [expected]);
    holder.batch_execute("COMMIT").unwrap();
    assert_eq!(total(&mut conn), 101);
}

/// When every attempt meets the lock, the error reports that, and nothing was counted.
pub fn a_lock_that_stays(limit: &str, expected: Conflict) {
    let (database, mut conn) = database();
    let mut holder = Conn::connect(&database);
    lock_shard_0(&mut holder);
    conn.batch_execute(limit).unwrap();
    for by_key in [true, false] {
        let policy = RetryPolicy::new().with_attempts(2).with_random(|| 0);
        let counted = count_video_1(&mut conn, by_key, policy);
        match Error::from(counted.unwrap_err()) {
            Error::ConflictPersisted {
                conflict,
                attempts: 2,
                ..
            } => assert_eq!(conflict, expected),
            other => panic!("{other:?}"),
        }
    }
    holder.batch_execute("ROLLBACK").unwrap();
    assert_eq!(total(&mut conn), 100);
    assert_eq!(count(1, &mut conn), Ok(1));
}

pub fn nowait(prepare: &str) {
    const SQL: &str = "SELECT 1 FROM videos_shards WHERE id = 1 AND shard = 0 FOR UPDATE NOWAIT";
    let (database, mut conn) = database();
    let mut holder = Conn::connect(&database);
    lock_shard_0(&mut holder);
    conn.batch_execute(prepare).unwrap();
    let (policy, met) = recording();
    let mut first = true;
    let done: QueryResult<()> = retry::transaction(&mut conn, policy, |conn| {
        if !std::mem::take(&mut first) {
            holder.batch_execute("ROLLBACK")?;
        }
        diesel::sql_query(SQL).execute(conn)?;
        Ok(())
    });
    assert_eq!(done, Ok(()));
    assert_eq!(*met.lock().unwrap(), [Conflict::LockTimeout]);
}

/// A transaction that reads before another one writes the row that it then counts on.
pub fn serialization(isolation: Isolation, prepare: &str) {
    let (database, mut conn) = database();
    let mut other = Conn::connect(&database);
    conn.batch_execute(prepare).unwrap();
    let (policy, met) = recording();
    let policy = policy.with_min_delay(Duration::ZERO);
    let mut first = true;
    // Inside a transaction the update's own policy draws the shard, but retries nothing.
    let done: QueryResult<usize> =
        Transaction::new()
            .isolation(isolation)
            .retry(policy)
            .run(&mut conn, |conn| {
                let seen = videos.find(1).select(views.total()).first::<i64>(conn)?;
                if std::mem::take(&mut first) {
                    assert_eq!(seen, 100);
                    count_on(0, 1, &mut other)?;
                }
                count_on(0, 1, conn)
            });
    assert_eq!(done, Ok(1));
    assert_eq!(*met.lock().unwrap(), [Conflict::Serialization]);
    assert_eq!(total(&mut conn), 102);
}

/// The closure drops the error of a statement at which the database rolled the transaction back.
pub fn a_swallowed_error_is_not_acknowledged(sql: &str, succeeds: bool) {
    let (_database, mut conn) = database();
    let done: QueryResult<()> = retry::transaction(&mut conn, RetryPolicy::new(), |conn| {
        count(1, conn)?;
        assert_eq!(conn.batch_execute(sql).is_ok(), succeeds);
        Ok(())
    });
    let error = Error::from(done.unwrap_err());
    assert_matches!(error, Error::TransactionAborted);
    assert_eq!(total(&mut conn), 100);
    assert_eq!(count(1, &mut conn), Ok(1));
}

/// A parent is deleted while its first shard is being created, and the foreign key waits for that.
pub fn a_parent_deleted_meanwhile() {
    let (database, mut conn) = database();
    for by_key in [true, false] {
        let key = if by_key { 2 } else { 3 };
        let mut deleter = Conn::connect(&database);
        deleter.batch_execute("BEGIN").unwrap();
        delete!(videos.find(key), &mut deleter);
        let counted = thread::scope(|scope| {
            let counting = scope.spawn(|| match by_key {
                true => count(key, &mut conn),
                false => update(videos.filter(id.eq_any([1, key])))
                    .set(views.eq(views + 1))
                    .execute(&mut conn),
            });
            thread::sleep(Duration::from_millis(300)); // it waits for the foreign key by now
            deleter.batch_execute("COMMIT").unwrap();
            counting.join().unwrap()
        });
        assert_eq!(counted, Ok(if by_key { 0 } else { 1 }));
    }
    assert_eq!(total(&mut conn), 101);
}

/// Another connection holds the lock on the parent's row, whose shards exist.
pub fn a_locked_parent_stops_no_count(lock: &str, limit: &str, nor_by_filter: bool) {
    let (database, mut conn) = database();
    let mut holder = Conn::connect(&database);
    holder.batch_execute("BEGIN").unwrap();
    diesel::sql_query(lock).execute(&mut holder).unwrap();
    conn.batch_execute(limit).unwrap();
    let never = RetryPolicy::never;
    let by_key = || update(videos.find(1)).set(views.eq(views + 1));
    assert_eq!(by_key().retry(never()).execute(&mut conn), Ok(1));
    let read_back = by_key().retry(never()).returning(views);
    assert_eq!(read_back.get_result(&mut conn), Ok(102_i64));
    let mut expected = 103;
    if nor_by_filter {
        let by_filter = update(videos.filter(slug.eq("a"))).set(views.eq(views + 1));
        assert_eq!(by_filter.retry(never()).execute(&mut conn), Ok(1));
        expected += 1;
    }
    let in_transaction = conn.transaction(|conn| count(1, conn));
    assert_eq!(in_transaction, Ok(1));
    holder.batch_execute("ROLLBACK").unwrap();
    assert_eq!(total(&mut conn), expected);
}

/// The connection is cut while a statement waits for a lock.
pub fn a_connection_cut(connection_id: &str, kill: impl Fn(i64) -> String + Sync) {
    for by_key in [true, false] {
        let (database, mut conn) = database();
        let mut holder = Conn::connect(&database);
        let number = number!(connection_id, &mut conn);
        lock_shard_0(&mut holder);
        let policy = RetryPolicy::new().with_random(|| 0);
        let error = thread::scope(|scope| {
            let counting = scope.spawn(|| count_video_1(&mut conn, by_key, policy));
            thread::sleep(Duration::from_millis(300)); // it waits for the lock by now
            Conn::connect(&database)
                .batch_execute(&kill(number))
                .unwrap();
            Error::from(counting.join().unwrap().unwrap_err())
        });
        // A single statement commits by itself: nobody can tell whether it did.
        assert_matches!(error, Error::OutcomeUnknown { .. });
        holder.batch_execute("ROLLBACK").unwrap();
        assert_eq!(total(&mut holder), 100);
    }
}

/// Folds whose connections are killed at any moment, under counts and readers: no drift, and no total that falls.
pub fn folds_killed_at_any_moment(connection_id: &str, kill: impl Fn(i64) -> String + Sync) {
    const FOLDS: usize = 500;
    const INTERRUPTED: usize = 30;
    let (database, mut conn) = database();
    let interrupted = AtomicUsize::new(0);
    let counting = || interrupted.load(Ordering::SeqCst) < INTERRUPTED;
    let counted = AtomicI64::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let conn = &mut Conn::connect(&database);
                while counting() {
                    assert_eq!(count!(videos, views.eq(views + 1), conn), 3);
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        scope.spawn(|| {
            let conn = &mut Conn::connect(&database);
            let mut last = 0;
            while counting() {
                let read = total(conn);
                assert!(read >= last, "{read} after {last}");
                last = read;
            }
        });
        scope.spawn(|| {
            let killer = &mut Conn::connect(&database);
            let mut wait = 0;
            while counting() {
                let mut victim = Conn::connect(&database);
                let number = number!(connection_id, &mut victim);
                let folding = scope.spawn(move || {
                    let mut folds = 0;
                    let mut fold = || fold(videos).batch(2).keep_shards(2).run(&mut victim);
                    while fold().is_ok() && folds < FOLDS {
                        folds += 1;
                    }
                    folds
                });
                wait = (wait + 379) % 4000; // microseconds: another moment each time
                thread::sleep(Duration::from_micros(wait));
                killer.batch_execute(&kill(number)).unwrap();
                let folds = folding.join().unwrap();
                interrupted.fetch_add(usize::from(folds < FOLDS), Ordering::SeqCst);
            }
        });
    });
    let expected = |base: i64| base + counted.load(Ordering::SeqCst);
    let totals = videos.select(views.total()).order(id).load(&mut conn);
    assert_eq!(totals, Ok([100, 200, 300].map(expected).to_vec()));
    let folded = fold(videos).run(&mut conn).unwrap();
    assert!(folded.finished);
    assert_eq!(
        videos.find(1).select(views).first(&mut conn),
        Ok(expected(100))
    );
}

/// A transaction that counted and stays open delays the fold of that shard, and nobody else's count.
pub fn an_idle_transaction_holds_up_no_other_count() {
    let (database, mut conn) = database();
    let mut idle = Conn::connect(&database);
    for shard in [0, 1] {
        // Both shards are there, of both videos.
        for key in [1, 2] {
            assert_eq!(count_on(shard, key, &mut conn), Ok(1));
        }
    }
    lock_shard_0(&mut idle);
    thread::scope(|scope| {
        let folding = scope.spawn(|| fold(videos).run(&mut Conn::connect(&database)));
        thread::sleep(Duration::from_millis(300)); // it tries that shard again and again by now
        let begun = Instant::now();
        for key in [1, 2] {
            assert_eq!(count_on(1, key, &mut conn), Ok(1));
        }
        assert!(begun.elapsed() < Duration::from_secs(3)); // the fold waits for longer
        assert!(!folding.is_finished());
        idle.batch_execute("ROLLBACK").unwrap();
        let folded = folding.join().unwrap().unwrap();
        assert_eq!((folded.parents, folded.finished), (2, true));
    });
    assert_eq!(total(&mut conn), 103);
    // A row that others lock for longer than the policy allows is reported as busy, and the rest is folded.
    lock_shard_0(&mut idle);
    for key in [1, 2] {
        assert_eq!(count_on(1, key, &mut conn), Ok(1));
    }
    count(2, &mut conn).unwrap();
    let impatient = RetryPolicy::new().with_attempts(2);
    let folded = fold(videos).retry(impatient).run(&mut conn).unwrap();
    assert_eq!((folded.finished, folded.busy), (true, vec![1]));
    let bases = videos.select(views).order(id);
    assert_eq!(bases.load(&mut conn), Ok(vec![104_i64, 205, 300]));
    idle.batch_execute("ROLLBACK").unwrap();
}

/// A row that no longer matches the filter by the time it is locked is not set.
pub fn set_total_looks_again_under_the_lock() {
    let (database, mut conn) = database();
    let mut holder = Conn::connect(&database);
    holder
        .batch_execute("BEGIN; UPDATE videos SET channel = 'sports' WHERE id = 2")
        .unwrap();
    thread::scope(|scope| {
        let setting = scope.spawn(|| {
            set_total(videos.filter(channel.eq("news")), views, 0)
                .execute(&mut Conn::connect(&database))
        });
        thread::sleep(Duration::from_millis(300)); // it has picked 2 and 3, and waits for 2
        holder.batch_execute("COMMIT").unwrap();
        assert_eq!(setting.join().unwrap(), Ok(1));
    });
    let totals = videos.select(views.total()).order(id);
    assert_eq!(totals.load(&mut conn), Ok(vec![100_i64, 200, 0]));
}

/// Above READ COMMITTED a transaction meets commits that others made since its snapshot; it is retried.
pub fn a_callers_snapshot_is_tried_again(isolation: Isolation, setup: &str) {
    let (database, mut conn) = database();
    let mut other = Conn::connect(&database);
    conn.batch_execute(setup).unwrap();
    conn.run_pending_migrations(diesel_sharded::MIGRATIONS)
        .unwrap();
    let new = Counter::named("new");
    new.resize(1, &mut other).unwrap(); // a new shard would be a count that comes after the set
    count_on(0, 1, &mut other).unwrap();
    for operation in 0..4 {
        let (policy, met) = recording();
        let mut first = true;
        let result: QueryResult<()> =
            Transaction::new()
                .isolation(isolation)
                .retry(policy)
                .run(&mut conn, |conn| {
                    total(conn);
                    if std::mem::take(&mut first) {
                        count_on(0, 1, &mut other)?;
                        new.increment(&mut other)?;
                    }
                    match operation {
                        0 => fold(videos.find(1)).run(conn).map(drop),
                        // In a savepoint of the application's, which such a conflict ends too.
                        1 => retry::transaction(conn, RetryPolicy::new(), |conn| {
                            set_total(videos.find(1), views, 7).execute(conn).map(drop)
                        }),
                        2 => new.set(7, conn),
                        _ => new.increment(conn),
                    }
                });
        assert_eq!(result, Ok(()), "{operation}");
        let met = met.lock().unwrap();
        assert!(
            met.iter().all(|met| *met == Conflict::Serialization),
            "{met:?}"
        );
        if operation < 2 {
            assert!(!met.is_empty(), "{operation}");
        }
    }
    assert_eq!(total(&mut conn), 9); // set to 7, and counted twice since
    assert_eq!(new.get(&mut conn), Ok(9));
}

/// A conflict that ends the whole transaction ends the savepoints too: it is detected all the same, and retried.
pub fn a_conflict_inside_a_savepoint_is_tried_again(isolation: Isolation, setup: &str) {
    let (database, mut conn) = database();
    let mut other = Conn::connect(&database);
    conn.batch_execute(setup).unwrap();
    let count = |conn: &mut Conn| count_on(0, 1, conn);
    count(&mut other).unwrap();
    let (policy, met) = recording();
    let mut first = true;
    let counted: QueryResult<usize> =
        Transaction::new()
            .isolation(isolation)
            .retry(policy)
            .run(&mut conn, |conn| {
                total(conn);
                if std::mem::take(&mut first) {
                    count(&mut other)?;
                }
                retry::transaction(conn, RetryPolicy::new(), count)
            });
    assert_eq!(counted, Ok(1));
    assert_eq!(*met.lock().unwrap(), [Conflict::Serialization]);
    assert_eq!(total(&mut conn), 103);
}

/// Where the connection is cut in this round.
fn cut_of(round: i64) -> Cut {
    match round % 2 {
        0 => Cut::BeforeTheRequest,
        _ => Cut::BeforeTheAnswer,
    }
}

/// Connections that are cut at any request, also while COMMIT is in flight: every addition is counted once.
pub fn a_coalescer_that_loses_its_connections() {
    use diesel_sharded::{Counter, RowCounter};

    let (database, mut conn) = database();
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    let (proxy, url) = Proxy::before(database.url());
    let pool = Pool::builder().max_size(1).min_idle(Some(0));
    let pool = pool.build(ConnectionManager::<Conn>::new(url)).unwrap();
    let coalescer = Coalescer::builder(pool).deadline(Duration::from_secs(60));
    let coalescer = coalescer.build().unwrap();
    const ROUNDS: i64 = 120;
    for round in 0..ROUNDS {
        let cut = cut_of(round);
        proxy.cut_after((round / 2 % 7) as u32, cut);
        coalescer.add_later(&RowCounter::of(views, 1), 1).unwrap();
        coalescer.add_later(&RowCounter::of(views, 2), 1).unwrap();
        coalescer.add_later(&Counter::named("page"), 1).unwrap();
        coalescer.flush().unwrap();
    }
    let stats = coalescer.stats();
    assert!(
        proxy.cuts() as i64 > ROUNDS * 3 / 4,
        "{} {stats:?}",
        proxy.cuts()
    );
    assert!(stats.last_error.is_some() && stats.losses == 0, "{stats:?}");
    for (video, base) in [(1, 100), (2, 200)] {
        let counter = RowCounter::of(views, video);
        assert_eq!(counter.get(&mut conn), Ok(Some(base + ROUNDS)));
    }
    assert_eq!(Counter::named("page").get(&mut conn), Ok(ROUNDS));
}

fn count_own_video(conn: &mut Conn, key: i64) -> QueryResult<usize> {
    update(videos.find(key))
        .set(views.eq(views + 1))
        .retry(RetryPolicy::never())
        .shard_choice(ShardChoice::Adaptive)
        .execute(conn)
}

fn database_with_own_video() -> (diesel_sharded_tests::Database, Conn, i64) {
    let (database, mut conn) = database();
    let key = own_key();
    insert!(
        videos,
        (id.eq(key), slug.eq("own"), title.eq("Own"), views.eq(0)),
        &mut conn
    );
    (database, conn, key)
}

fn shards_of_own_video(conn: &mut Conn, key: i64) -> Vec<i32> {
    use schema::videos_shards::dsl;
    dsl::videos_shards
        .filter(dsl::id.eq(key))
        .select(dsl::shard)
        .order(dsl::shard)
        .load(conn)
        .unwrap()
}

/// A writer that waited for another's lock on the first shard probes it the next time, and then takes another shard.
pub fn a_lock_is_not_waited_for_again() {
    const SHORTLY: Duration = Duration::from_millis(300); // long enough to be noticed as a wait
    const STARVED: Duration = Duration::from_secs(10); // by then a count that does not wait is done on any machine
    let (database, mut conn, key) = database_with_own_video();
    let conn = &mut conn;
    let mut holder = Conn::connect(&database);
    for _ in 0..20 {
        assert_eq!(count_own_video(conn, key), Ok(1)); // what it takes without a wait
    }
    assert_eq!(shards_of_own_video(conn, key), [0]);
    let lock = format!("BEGIN; UPDATE videos_shards SET likes = 0 WHERE id = {key} AND shard = 0");
    let mut ends_before_the_lock = |conn: &mut Conn, held: Duration| {
        holder.batch_execute(&lock).unwrap();
        thread::scope(|scope| {
            let (done, ended) = mpsc::channel();
            scope.spawn(move || {
                assert_eq!(count_own_video(conn, key), Ok(1));
                done.send(())
            });
            let before = ended.recv_timeout(held).is_ok();
            holder.batch_execute("COMMIT").unwrap();
            before
        })
    };
    let before = ShardChoice::stats();
    ends_before_the_lock(conn, SHORTLY); // it waits, unless one of the first counts was slow by itself: then it asks already
    // Another test may just have had the only probe of this moment.
    let mut tries = 0..10;
    let goes_elsewhere = tries.any(|_| ends_before_the_lock(conn, STARVED));
    assert!(goes_elsewhere, "{:?}", ShardChoice::stats());
    let stats = ShardChoice::stats();
    assert!(stats.probes > before.probes && stats.hot > before.hot);
    for _ in 0..3 {
        assert!(ends_before_the_lock(conn, STARVED));
    }
    let shards = shards_of_own_video(conn, key);
    assert!(shards.len() == 2 && shards[0] == 0, "{shards:?}");
    let counted = 20 + 1 + (10 - tries.len() as i64) + 3;
    let read = videos.find(key).select(views.total()).first(conn);
    assert_eq!(read, Ok(counted));
}

/// A transaction keeps the row locked after its count; others take shards of their own, and it continues with its own.
pub fn transactions_at_once_take_shards_of_their_own(limit: &str) {
    const LEASE: Duration = Duration::from_secs(1); // for as long is a rank kept for a transaction
    let (database, mut conn, key) = database_with_own_video();
    let conn = &mut conn;
    // Connected before: on a busy machine that takes longer than a rank is kept for.
    let mut others = [true, false].map(|transaction| {
        let mut other = Conn::connect(&database);
        other.batch_execute(limit).unwrap();
        (transaction, other)
    });
    // MariaDB from 11.6 on locks the gap where a transaction creates a shard, unless it reads what is committed.
    let version = conn.version();
    if version.contains("MariaDB") && !version.starts_with("10.") {
        let level = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
        conn.batch_execute(level).unwrap();
        for (_, other) in &mut others {
            other.batch_execute(level).unwrap();
        }
    }
    assert_eq!(count_own_video(conn, key), Ok(1));
    let mut expected = 1;
    let mut at_once = || {
        let begun = Instant::now();
        let is_slow = || begun.elapsed() > LEASE / 2;
        let counted: QueryResult<()> = conn.transaction(|conn| {
            assert_eq!(count_own_video(conn, key), Ok(1));
            for (transaction, conn) in &mut others {
                let other = || match transaction {
                    true => conn.transaction(|conn| count_own_video(conn, key)),
                    false => count_own_video(conn, key),
                };
                let counted = thread::scope(|scope| scope.spawn(other).join().unwrap());
                assert!(counted == Ok(1) || is_slow(), "{counted:?}");
                expected += counted.unwrap_or(0) as i64;
            }
            let shards = shards_of_own_video(conn, key);
            let again = count_own_video(conn, key);
            let as_before = shards_of_own_video(conn, key) == shards;
            // Slow counts make the row a hot one, and then the writer on its first shard leaves that shard, once.
            match is_slow() || (again, as_before) != (Ok(1), true) {
                true => Err(diesel::result::Error::RollbackTransaction),
                false => Ok(()),
            }
        });
        match counted {
            Ok(()) => {
                expected += 2;
                true
            }
            Err(_) => false,
        }
    };
    let goes_on = (0..10).any(|_| at_once());
    assert!(
        goes_on,
        "it takes another shard, or the machine is too slow"
    );
    let read = videos.find(key).select(views.total()).first(conn);
    assert_eq!(read, Ok(expected));
}

/// A cut that a round did not reach hits the next one's connection.
fn connect_anew(url: &str) -> Conn {
    let mut tries = (0..100).filter_map(|_| Conn::establish(url).ok());
    tries.next().expect("a connection")
}

/// Connections that are cut at any request, and a caller who retries with the same key until he is told: counted once.
pub fn repeats_over_connections_that_are_cut() {
    let (database, mut conn) = database();
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    let (proxy, url) = Proxy::before(database.url());
    let connect = || connect_anew(&url);
    const ROUNDS: i64 = 192;
    let mut unknown = 0;
    for round in 0..ROUNDS {
        let cut = cut_of(round);
        let mut ask = connect();
        // A count alone is few requests, a transaction is many.
        let requests = if round < ROUNDS / 2 { 4 } else { 24 };
        proxy.cut_after((round / 2 % requests) as u32, cut);
        let counted = loop {
            let count = update(videos.find(1)).set(views.eq(views + 1));
            match count.idempotency_key(format!("{round}")).execute(&mut ask) {
                Ok(counted) => break counted,
                Err(error) => match Error::from(error) {
                    Error::OutcomeUnknown { .. } => unknown += 1,
                    Error::ConnectionLost { .. } => {}
                    other => panic!("{other}"),
                },
            }
            ask = connect();
        };
        assert_eq!(counted, 1);
    }
    assert!(proxy.cuts() as i64 > ROUNDS / 3, "{}", proxy.cuts());
    assert!(unknown > 3, "{unknown}");
    assert_eq!(total(&mut conn), 100 + ROUNDS);
}

/// A fold that meets a lock, and goes on shard by shard, on connections that are cut at any request: it reports the cuts.
pub fn a_fold_that_loses_its_connection_beside_a_lock() {
    let (database, mut conn) = database();
    let counted = diesel::update(schema::videos_shards::table.find((1, 0)))
        .set(schema::videos_shards::views.eq(5))
        .execute(&mut conn);
    assert_eq!(counted, Ok(1));
    let expected = total(&mut conn);
    let mut holder = Conn::connect(&database);
    lock_shard_0(&mut holder);
    let (proxy, url) = Proxy::before(database.url());
    for cut in [Cut::BeforeTheRequest, Cut::BeforeTheAnswer] {
        for request in 0.. {
            let mut folds = connect_anew(&url);
            let cuts = proxy.cuts();
            proxy.cut_after(request, cut);
            let fold = fold(videos.find(1))
                .keep_shards(1)
                .retry(RetryPolicy::never());
            let folded = fold.run(&mut folds);
            proxy.cut_no_more();
            let was_cut = proxy.cuts() > cuts;
            match folded.map_err(Error::from) {
                Ok(folded) => assert_eq!(folded.busy, [1]),
                Err(Error::ConnectionLost { .. } | Error::OutcomeUnknown { .. }) if was_cut => {}
                other => panic!("{cut:?} {request}: {other:?}"),
            }
            if !was_cut {
                assert!(request > 5, "{request}");
                break;
            }
        }
    }
    holder.batch_execute("ROLLBACK").unwrap();
    assert_eq!(total(&mut conn), expected);
}

/// A repeated request, in a transaction whose snapshot is older than the commit of the first one.
pub fn a_repeat_in_an_older_snapshot() {
    let (database, mut conn) = database();
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    let mut other = Conn::connect(&database);
    let count = |conn: &mut Conn| {
        let count = update(videos.find(1)).set(views.eq(views + 1));
        count.idempotency_key("a").execute(conn)
    };
    let mut first = true;
    let counted: QueryResult<usize> =
        Transaction::new()
            .isolation(Isolation::RepeatableRead)
            .run(&mut conn, |conn| {
                total(conn);
                if std::mem::take(&mut first) {
                    assert_eq!(count(&mut other), Ok(1));
                }
                count(conn)
            });
    assert_eq!(counted, Ok(1));
    assert_eq!(total(&mut conn), 101);
}

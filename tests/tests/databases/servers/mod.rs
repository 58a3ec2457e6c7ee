//! Conflicts that databases with many writers raise, each provoked for real.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, LazyLock, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::api::coalescer::Coalescer;
use super::api::combine::Combiner;
use super::api::retry::{self, Isolation, RetryPolicy, Transaction};
use super::api::shard_choice::ShardChoice;
use super::api::{
    Conflict, Counter, Error, MIGRATIONS, RowCounter, count_many, fold, set_total, unique::Unique,
    update, verify,
};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::result::DatabaseErrorKind::ForeignKeyViolation;
use diesel::result::Error as DieselError;
use diesel::sql_types::BigInt;
use diesel_migrations::MigrationHarness;
use diesel_sharded::prelude::*;
use diesel_sharded_tests::awaited::Done;
use diesel_sharded_tests::fixture::{Fixture, Run};
use diesel_sharded_tests::proxy::{Cut, Proxy};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::videos_shards as shards;
use diesel_sharded_tests::{
    HUNDRED_YEARS, TestConnection, assert_matches, delete, drawing, gives, insert, number, own_key,
    recording,
};

use super::Conn;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Server {
    Postgres,
    Mysql,
    Mariadb,
}

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let version = Conn::connect(&Conn::database()).version();
    match version.contains("PostgreSQL") {
        true => Server::Postgres,
        false if version.contains("MariaDB") => Server::Mariadb,
        false => Server::Mysql,
    }
});

fn by_server<T>(postgres: T, mysql: T) -> T {
    match *SERVER {
        Server::Postgres => postgres,
        Server::Mysql | Server::Mariadb => mysql,
    }
}

const GERMAN: &str = "SET lc_messages = 'de_DE.UTF-8'";

/// What sessions set: on PostgreSQL, once more with its messages in German; on MySQL and MariaDB.
fn sessions(postgres: &str, mysql: &str) -> Vec<String> {
    let in_german = format!("{postgres}; {GERMAN}");
    by_server(vec![postgres.to_owned(), in_german], vec![mysql.to_owned()])
}

/// What a connection's statements wait for a lock, in seconds.
fn wait_at_most(seconds: u32, conn: &mut Conn) {
    let (setting, unit) = by_server(("lock_timeout", 1_000), ("innodb_lock_wait_timeout", 1));
    conn.run(&format!("SET {setting} = {}", unit * seconds));
}

/// All four shards of video 1 are there, at zero.
pub fn database<const N: usize>() -> Fixture<Conn, N> {
    let mut own = Fixture::<Conn, N>::with_tables();
    own[0].run("INSERT INTO videos_shards (id, shard) VALUES (1, 0), (1, 1), (1, 2), (1, 3)");
    own
}

pub fn total(conn: &mut Conn) -> i64 {
    videos.find(1).select(views.total()).first(conn).unwrap()
}

/// Adds 1 to a video's views.
fn count(video: i64, conn: &mut Conn) -> QueryResult<usize> {
    let count = update(videos.find(video)).set(views.eq(views + 1));
    count.execute(conn).done()
}

/// Adds to a video's views, on the shard that the policy draws.
fn add(n: i64, video: i64, policy: RetryPolicy, conn: &mut Conn) -> QueryResult<usize> {
    let count = update(videos.find(video)).set(views.eq(views + n));
    let count = count.shard_choice(ShardChoice::Random);
    count.retry(policy).execute(conn).done()
}

/// Adds 1 to a video's views, on this shard.
fn count_on(shard: u64, video: i64, conn: &mut Conn) -> QueryResult<usize> {
    let draws = RetryPolicy::new().with_random(move || shard);
    add(1, video, draws, conn)
}

/// Counts video 1, found by its key or by another column.
fn count_video_1(conn: &mut Conn, by_key: bool, policy: RetryPolicy) -> QueryResult<usize> {
    if by_key {
        return add(1, 1, policy, conn);
    }
    let count = update(videos.filter(slug.eq("a"))).set(views.eq(views + 1));
    let count = count.shard_choice(ShardChoice::Random);
    count.retry(policy).execute(conn).done()
}

/// Counts on shard 0 and leaves the transaction open: the shard is locked until `conn` commits.
pub fn lock_shard_0(conn: &mut Conn) {
    conn.run("BEGIN");
    let locks = diesel::update(shards::table.find((1, 0))).set(shards::likes.eq(0));
    assert_eq!(locks.execute(conn), Ok(1));
}

/// Two transactions lock two rows in opposite order; the one that the database ends is retried.
#[test]
fn deadlock() {
    let waits = "SET SESSION innodb_lock_wait_timeout = 20";
    for session in &sessions("SET deadlock_timeout = '50ms'", waits) {
        let [conn, one, other] = &mut *database();
        let (policy, met) = recording();
        let both_hold_one = Barrier::new(2);
        let messages = Mutex::new(vec![]);
        thread::scope(|scope| {
            for (shard, rows, conn) in [(0, [2, 3], one), (1, [3, 2], other)] {
                let (policy, both_hold_one, messages) = (policy.clone(), &both_hold_one, &messages);
                scope.spawn(move || {
                    conn.run(session);
                    let mut first = true;
                    let done: QueryResult<usize> = retry::transaction(conn, policy, |conn| {
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
        assert_eq!(total(conn), 102);
    }
}

/// A locked shard ends the attempt by the database's own time limit; the next one takes another shard. When every attempt meets the
/// lock, the error reports that, and nothing was counted.
fn a_locked_shard(session: &str, expected: Conflict) {
    let [conn, holder] = &mut *database();
    lock_shard_0(holder);
    conn.run(session);
    let (policy, met) = recording();
    let policy = policy.with_random(drawing(&[0, 0, 1]));
    assert_eq!(add(1, 1, policy, conn), Ok(1));
    assert_eq!(*met.lock().unwrap(), [expected]);
    for by_key in [true, false] {
        let policy = RetryPolicy::new().with_attempts(2).with_random(|| 0);
        let error = Error::from(count_video_1(conn, by_key, policy).unwrap_err());
        assert_matches!(error, Error::ConflictPersisted { conflict, attempts: 2, .. } if *conflict == expected);
    }
    holder.run("ROLLBACK");
    assert_eq!(count(1, conn), Ok(1));
    assert_eq!(total(conn), 102);
}

#[test]
fn lock_timeout() {
    let waits = "SET SESSION innodb_lock_wait_timeout = 1";
    for session in &sessions("SET lock_timeout = '50ms'", waits) {
        a_locked_shard(session, Conflict::LockTimeout);
    }
}

/// MySQL's time limit applies to reads alone.
#[test]
fn statement_timeout() {
    // No other statement takes so long, however slow the machine is.
    let limit = "SET SESSION max_statement_time = 1";
    for session in &sessions("SET statement_timeout = '1s'", limit) {
        if *SERVER != Server::Mysql {
            a_locked_shard(session, Conflict::StatementTimeout);
        }
    }
}

#[test]
fn nowait() {
    const SQL: &str = "SELECT 1 FROM videos_shards WHERE id = 1 AND shard = 0 FOR UPDATE NOWAIT";
    for session in &sessions("SELECT 1", "SELECT 1") {
        let [conn, holder] = &mut *database();
        lock_shard_0(holder);
        conn.run(session);
        let (policy, met) = recording();
        let mut first = true;
        let done: QueryResult<()> = retry::transaction(conn, policy, |conn| {
            if !std::mem::take(&mut first) {
                holder.batch_execute("ROLLBACK")?;
            }
            diesel::sql_query(SQL).execute(conn).map(drop)
        });
        assert_eq!(done, Ok(()));
        assert_eq!(*met.lock().unwrap(), [Conflict::LockTimeout]);
    }
}

/// Runs a transaction that reads a total, lets others do something once, and does its own work: what it came to, and the conflicts that
/// it met.
fn after_a_snapshot<T: Send>(
    isolation: Isolation,
    conn: &mut Conn,
    meanwhile: impl FnOnce() -> QueryResult<()> + Send,
    mut work: impl FnMut(&mut Conn) -> QueryResult<T> + Send,
) -> (QueryResult<T>, Vec<Conflict>) {
    let (policy, met) = recording();
    let policy = policy.with_min_delay(Duration::ZERO);
    let transaction = Transaction::new().isolation(isolation).retry(policy);
    let mut meanwhile = Some(meanwhile);
    let done = transaction.run(conn, |conn| {
        total(conn);
        meanwhile.take().map_or(Ok(()), |meanwhile| meanwhile())?;
        work(conn)
    });
    let met = met.lock().unwrap().clone();
    (done, met)
}

/// Above READ COMMITTED a transaction meets commits that others made since its snapshot: it is retried as a whole, also where the conflict
/// ends a savepoint of the application's.
fn a_snapshot_that_is_too_old(isolation: Isolation, session: &str) {
    let [conn, other] = &mut *database();
    conn.run(session);
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    let new = Counter::named("new");
    new.resize(1, other).unwrap(); // a new shard would be an increment that comes after the set
    count_on(0, 1, other).unwrap();
    let in_savepoint = |conn: &mut Conn, work: fn(&mut Conn) -> QueryResult<usize>| {
        retry::transaction(conn, RetryPolicy::new(), work).map(drop)
    };
    for (operation, meets_the_count) in [
        ("fold", true),
        ("set in a savepoint", true),
        ("set by name", false),
        ("count by name", false),
        ("count", true),
        ("count in a savepoint", true),
    ] {
        let meanwhile = || {
            count_on(0, 1, other)?;
            new.increment(other).done()
        };
        let (done, met) = after_a_snapshot(isolation, conn, meanwhile, |conn| match operation {
            "fold" => fold(videos.find(1)).run(conn).done().map(drop),
            "set in a savepoint" => in_savepoint(conn, |conn| {
                set_total(videos.find(1), views, 7).execute(conn).done()
            }),
            "set by name" => new.set(7, conn).done(),
            "count by name" => new.increment(conn).done(),
            "count" => count_on(0, 1, conn).map(drop),
            _ => in_savepoint(conn, |conn| count_on(0, 1, conn)),
        });
        assert_eq!(done, Ok(()), "{operation}");
        let retried = met.iter().all(|met| *met == Conflict::Serialization);
        assert!(
            retried && !(meets_the_count && met.is_empty()),
            "{operation}: {met:?}"
        );
    }
    assert_eq!(total(conn), 13); // set to 7, and counted six times since
    gives!(new.get(conn), 11);
}

/// MySQL has no serialization failures: its repeatable reads update what others have committed meanwhile.
#[test]
fn serialization_failure() {
    let sessions = match *SERVER {
        Server::Postgres => vec![
            (Isolation::RepeatableRead, "SELECT 1"),
            (Isolation::Serializable, "SELECT 1"),
            (Isolation::Serializable, GERMAN),
        ],
        Server::Mariadb => vec![(
            Isolation::RepeatableRead,
            "SET SESSION innodb_snapshot_isolation = ON",
        )],
        Server::Mysql => vec![],
    };
    for (isolation, session) in sessions {
        a_snapshot_that_is_too_old(isolation, session);
    }
}

/// All statements of a transaction see what the first one saw, or each what was committed before it; whatever others fold.
#[test]
fn a_transaction_has_the_isolation_that_was_asked_for() {
    let [conn, other] = &mut *database();
    for (isolation, counts, seen) in [
        (Isolation::RepeatableRead, false, 0),
        (Isolation::ReadCommitted, true, 2),
    ] {
        let transaction = Transaction::new().isolation(isolation);
        let more: QueryResult<i64> = transaction.run(conn, |conn| {
            let before = total(conn);
            count(1, other)?;
            assert_eq!(fold(videos).run(other).done()?.parents, 1);
            if counts {
                count(1, conn)?;
            }
            Ok(total(conn) - before)
        });
        assert_eq!(more, Ok(seen), "{isolation:?}");
    }
}

/// The closure drops the error of a statement at which the database rolled the transaction back.
#[test]
fn a_swallowed_error_is_not_acknowledged() {
    let [conn] = &mut *database();
    // On MySQL the server rolls back at a deadlock, unnoticed by the driver. Later statements run outside any transaction.
    let (sql, succeeds) = by_server(("SELECT 1/0", false), ("ROLLBACK", true));
    let done: QueryResult<()> = retry::transaction(conn, RetryPolicy::new(), |conn| {
        count(1, conn)?;
        assert_eq!(conn.batch_execute(sql).is_ok(), succeeds);
        Ok(())
    });
    let error = Error::from(done.unwrap_err());
    assert_matches!(error, Error::TransactionAborted);
    assert_eq!(total(conn), 100);
    assert_eq!(count(1, conn), Ok(1));
}

/// A parent is deleted while its first shard is being created, and the foreign key waits for that.
#[test]
fn a_parent_deleted_meanwhile() {
    let [conn, deleter] = &mut *database();
    for by_key in [true, false] {
        let key = if by_key { 2 } else { 3 };
        deleter.run("BEGIN");
        delete!(videos.find(key), deleter);
        let counted = thread::scope(|scope| {
            let counting = scope.spawn(|| match by_key {
                true => count(key, conn),
                false => {
                    let both = update(videos.filter(id.eq_any([1, key])));
                    both.set(views.eq(views + 1)).execute(conn).done()
                }
            });
            thread::sleep(Duration::from_millis(300)); // it waits for the foreign key by now
            deleter.run("COMMIT");
            counting.join().unwrap()
        });
        assert_eq!(counted, Ok(if by_key { 0 } else { 1 }));
    }
    assert_eq!(total(conn), 101);
}

/// Another connection holds the lock on the parent's row, whose shards exist.
#[test]
fn a_locked_parent_stops_no_count() {
    let [conn, holder] = &mut *database();
    holder.run("BEGIN; UPDATE videos SET title = 'x'");
    wait_at_most(1, conn);
    let by_key = || update(videos.find(1)).set(views.eq(views + 1));
    gives!(by_key().retry(RetryPolicy::never()).execute(conn), 1);
    let read_back = by_key().retry(RetryPolicy::never()).returning(views);
    gives!(read_back.get_result(conn), 102_i64);
    let mut expected = 103;
    // On MySQL by key alone: a filter locks the parents for the foreign key.
    if *SERVER == Server::Postgres {
        let by_filter = update(videos.filter(slug.eq("a"))).set(views.eq(views + 1));
        gives!(by_filter.retry(RetryPolicy::never()).execute(conn), 1);
        expected += 1;
    }
    let in_transaction = conn.transaction(|conn| count(1, conn));
    assert_eq!(in_transaction, Ok(1));
    holder.run("ROLLBACK");
    assert_eq!(total(conn), expected);
}

/// Where a parent stays locked, one of its shards is tried as often as the policy says, and each other one once.
#[test]
fn a_fold_does_not_wait_for_a_locked_parent_by_each_shard() {
    let [conn, holder] = &mut *database();
    for shard in 0..4 {
        assert_eq!(count_on(shard, 1, conn), Ok(1));
    }
    holder.run("BEGIN; UPDATE videos SET title = 'x' WHERE id = 1");
    let met = Arc::new(AtomicUsize::new(0));
    let noted = Arc::clone(&met);
    let policy = RetryPolicy::new()
        .with_attempts(5)
        .with_max_delay(Duration::from_millis(1))
        .with_notify(move |_| {
            noted.fetch_add(1, Ordering::SeqCst);
        });
    let folded = fold(videos.find(1)).retry(policy).run(conn).unwrap();
    assert_eq!((folded.busy, folded.parents), (vec![1], 0));
    let met = met.load(Ordering::SeqCst);
    assert!(met < 2 * 5, "{met} conflicts");
    holder.run("ROLLBACK");
    assert_eq!(fold(videos.find(1)).run(conn).unwrap().parents, 1);
}

/// A transaction that counted and stays open delays the fold of that shard, and nobody else's increment.
#[test]
fn an_idle_transaction_holds_up_no_other_count() {
    let [conn, idle, folds] = &mut *database();
    for shard in [0, 1] {
        // Both shards are there, of both videos.
        for key in [1, 2] {
            assert_eq!(count_on(shard, key, conn), Ok(1));
        }
    }
    lock_shard_0(idle);
    thread::scope(|scope| {
        let folding = scope.spawn(|| fold(videos).run(folds).done());
        thread::sleep(Duration::from_millis(300)); // it tries that shard again and again by now
        let begun = Instant::now();
        for key in [1, 2] {
            assert_eq!(count_on(1, key, conn), Ok(1));
        }
        assert!(begun.elapsed() < Duration::from_secs(3)); // the fold waits for longer
        assert!(!folding.is_finished());
        idle.run("ROLLBACK");
        let folded = folding.join().unwrap().unwrap();
        assert_eq!((folded.parents, folded.finished), (2, true));
    });
    assert_eq!(total(conn), 103);
    // A row that others lock for longer than the policy allows is reported as busy, and the rest is folded.
    lock_shard_0(idle);
    for key in [1, 2] {
        assert_eq!(count_on(1, key, conn), Ok(1));
    }
    count(2, conn).unwrap();
    let impatient = RetryPolicy::new().with_attempts(2);
    let reported = Arc::new(Mutex::new(vec![]));
    let reports = Arc::clone(&reported);
    let folding = fold(videos)
        .retry(impatient)
        .on_folded(views, move |rows: &[(i64, i64)]| {
            reports.lock().unwrap().push(rows.to_vec());
        });
    let folded = folding.run(conn).unwrap();
    assert_eq!((folded.finished, folded.busy), (true, vec![1]));
    assert_eq!(*reported.lock().unwrap(), [[(1, 104), (2, 205)]]);
    let bases = videos.select(views).order(id);
    assert_eq!(bases.load(conn), Ok(vec![104_i64, 205, 300]));
    idle.run("ROLLBACK");
}

/// A row that no longer matches the filter by the time it is locked is not set.
#[test]
fn set_total_looks_again_under_the_lock() {
    let [conn, holder, sets] = &mut *database();
    holder.run("BEGIN; UPDATE videos SET channel = 'sports' WHERE id = 2");
    thread::scope(|scope| {
        let news = set_total(videos.filter(channel.eq("news")), views, 0);
        let setting = scope.spawn(|| news.execute(sets).done());
        thread::sleep(Duration::from_millis(300)); // it has picked 2 and 3, and waits for 2
        holder.run("COMMIT");
        assert_eq!(setting.join().unwrap(), Ok(1));
    });
    let totals = videos.select(views.total()).order(id);
    assert_eq!(totals.load(conn), Ok(vec![100_i64, 200, 0]));
}

/// Connections that are cut at any request, also while COMMIT is in flight: every caller is counted once and told so. A request that reaches
/// the server late, when another connection has asked what became of it, is waited for if it is a COMMIT, and counts nothing otherwise.
#[test]
fn a_coalescer_that_loses_its_connections() {
    use diesel_sharded::{Counter, RowCounter};

    let own = &mut database();
    let (database, [conn]) = own.parts();
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    let (proxy, url) = Proxy::before(database.url());
    let pool = Pool::builder().max_size(1).min_idle(Some(0));
    let pool = pool.build(ConnectionManager::<Conn>::new(url)).unwrap();
    let coalescer = Coalescer::builder(pool).deadline(Duration::from_secs(60));
    let coalescer = coalescer.build().unwrap();
    let mut added = 0;
    for (cut, rounds) in [
        (Cut::BeforeTheRequest, 60),
        (Cut::BeforeTheAnswer, 60),
        (Cut::BeforeTheLateRequest, 14),
    ] {
        let cuts = proxy.cuts();
        for round in 0..rounds {
            proxy.cut_after(round % 7, cut);
            coalescer.add_later(&RowCounter::of(views, 1), 1).unwrap();
            coalescer.add_later(&RowCounter::of(likes, 1), 1).unwrap();
            coalescer.add_later(&RowCounter::of(views, 2), 1).unwrap();
            coalescer.add_later(&Counter::named("page"), 1).unwrap();
            coalescer.flush().unwrap();
            added += 1;
        }
        let cuts = proxy.cuts() - cuts;
        assert!(cuts as u32 > rounds * 3 / 4, "{cut:?}: {cuts}");
    }
    let stats = coalescer.stats();
    assert!(stats.last_error.is_some() && stats.losses == 0, "{stats:?}");
    thread::sleep(Duration::from_secs(1)); // the last late request is there by now
    for (video, base) in [(1, 100), (2, 200)] {
        let counter = RowCounter::of(views, video);
        assert_eq!(counter.get(conn), Ok(Some(base + added)));
    }
    let liked = RowCounter::of(likes, 1).get(conn);
    assert_eq!(liked, Ok(Some(1 + added)));
    assert_eq!(Counter::named("page").get(conn), Ok(added));
}

fn count_own_video(conn: &mut Conn, key: i64) -> QueryResult<usize> {
    let count = update(videos.find(key)).set(views.eq(views + 1));
    let count = count.shard_choice(ShardChoice::Adaptive);
    count.retry(RetryPolicy::never()).execute(conn).done()
}

/// The key is that of a video which no other test counts on.
fn database_with_own_video<const N: usize>() -> (Fixture<Conn, N>, i64) {
    let (mut own, key) = (database(), own_key());
    let video = (id.eq(key), slug.eq("own"), title.eq("Own"), views.eq(0));
    insert!(videos, video, &mut own[0]);
    (own, key)
}

fn shards_of_own_video(conn: &mut Conn, key: i64) -> Vec<i32> {
    let shards = shards::table.filter(shards::id.eq(key));
    let numbers = shards.select(shards::shard).order(shards::shard);
    numbers.load(conn).unwrap()
}

/// A writer that waited for another's lock on the first shard probes it the next time, and then takes another shard.
#[test]
fn a_lock_is_not_waited_for_again() {
    const SHORTLY: Duration = Duration::from_millis(300); // long enough to be noticed as a wait
    const STARVED: Duration = Duration::from_secs(10); // by then an increment that does not wait is done on any machine
    let (mut own, key) = database_with_own_video();
    let [conn, holder] = &mut *own;
    for _ in 0..20 {
        assert_eq!(count_own_video(conn, key), Ok(1)); // what it takes without a wait
    }
    assert_eq!(shards_of_own_video(conn, key), [0]);
    let lock = format!("BEGIN; UPDATE videos_shards SET likes = 0 WHERE id = {key} AND shard = 0");
    let mut ends_before_the_lock = |conn: &mut Conn, held: Duration| {
        holder.run(&lock);
        thread::scope(|scope| {
            let (done, ended) = mpsc::channel();
            scope.spawn(move || {
                assert_eq!(count_own_video(conn, key), Ok(1));
                done.send(())
            });
            let before = ended.recv_timeout(held).is_ok();
            holder.run("COMMIT");
            before
        })
    };
    let before = ShardChoice::stats();
    ends_before_the_lock(conn, SHORTLY); // it waits, unless one of the first increments was slow by itself: then it asks already
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

/// A transaction keeps the row locked after its increment; others take shards of their own, and it continues with its own.
#[test]
fn transactions_at_once_take_shards_of_their_own() {
    const KEPT: Duration = Duration::from_secs(1); // for as long is a shard kept for a transaction
    let (mut own, key) = database_with_own_video::<3>();
    for conn in own.iter_mut() {
        wait_at_most(2, conn);
        // MariaDB from 11.6 on locks the gap where a transaction creates a shard, unless it reads what is committed.
        let version = conn.version();
        if version.contains("MariaDB") && !version.starts_with("10.") {
            conn.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
        }
    }
    let [conn, one, other] = &mut *own;
    let mut others = [(true, one), (false, other)];
    assert_eq!(count_own_video(conn, key), Ok(1));
    let mut expected = 1;
    let mut at_once = || {
        let begun = Instant::now();
        let is_slow = || begun.elapsed() > KEPT / 2;
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
            // Slow increments make the row a hot one, and then the writer on its first shard leaves that shard, once.
            match is_slow() || (again, as_before) != (Ok(1), true) {
                true => Err(diesel::result::Error::RollbackTransaction),
                false => Ok(()),
            }
        });
        expected += if counted.is_ok() { 2 } else { 0 };
        counted.is_ok()
    };
    let goes_on = (0..10).any(|_| at_once());
    assert!(goes_on, "it took other shards, or the machine is slow");
    let read = videos.find(key).select(views.total()).first(conn);
    assert_eq!(read, Ok(expected));
}

/// A cut that a round did not reach hits the next one's connection.
fn connect_anew(url: &str) -> Conn {
    let mut tries = (0..100).filter_map(|_| Conn::establish(url).ok());
    tries.next().expect("a connection")
}

/// A fold that meets a lock, and goes on shard by shard, on connections that are cut at any request: it reports the cuts.
#[test]
fn a_fold_that_loses_its_connection_beside_a_lock() {
    let own = &mut database();
    let (database, [conn, holder]) = own.parts();
    let counted = diesel::update(shards::table.find((1, 0))).set(shards::views.eq(5));
    assert_eq!(counted.execute(conn), Ok(1));
    let expected = total(conn);
    lock_shard_0(holder);
    let (proxy, url) = Proxy::before(database.url());
    for cut in [Cut::BeforeTheRequest, Cut::BeforeTheAnswer] {
        for request in 0.. {
            let mut folds = connect_anew(&url);
            let cuts = proxy.cuts();
            proxy.cut_after(request, cut);
            let fold = fold(videos.find(1))
                .keep_shards(1)
                .retry(RetryPolicy::never());
            let folded = fold.run(&mut folds).done();
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
    holder.run("ROLLBACK");
    assert_eq!(total(conn), expected);
}

/// A bounded count takes what it can reach beside a shard that another transaction holds, and waits only for what it cannot. MySQL's
/// first statement already waits for that shard.
#[test]
fn a_bounded_count_beside_a_held_shard() {
    if *SERVER != Server::Postgres {
        return;
    }
    let [conn, holder] = &mut *database();
    let stock = RowCounter::of(views, 1).never_below(0);
    let take = |n: i64, conn: &mut Conn| -> QueryResult<bool> {
        retry::transaction(conn, RetryPolicy::never(), |conn| {
            stock.add(-n, conn).done()
        })
    };
    let kept = |conn: &mut Conn| {
        let kept = shards::table.filter(shards::id.eq(1)).order(shards::shard);
        let kept = kept.select(shards::views).load::<i64>(conn).unwrap();
        (
            videos.find(1).select(views).first::<i64>(conn).unwrap(),
            kept,
        )
    };
    lock_shard_0(holder);
    // The base gives a quarter of what it keeps to a shard that is free.
    assert_eq!(take(20, conn), Ok(true));
    assert_eq!(kept(conn), (60, vec![0, 0, 20, 0]));
    // Base and free shard together.
    assert_eq!(take(70, conn), Ok(true));
    assert_eq!(kept(conn), (0, vec![0, 0, 10, 0]));
    assert_eq!(take(11, conn), Ok(false));
    holder.run("UPDATE videos_shards SET views = 5 WHERE id = 1 AND shard = 0; COMMIT");
    lock_shard_0(holder);
    assert_eq!(take(16, conn), Ok(false));
    wait_at_most(1, conn);
    assert!(take(12, conn).is_err());
    assert_eq!(total(conn), 15);
    holder.run("ROLLBACK");
    assert_eq!(take(12, conn), Ok(true));
    assert_eq!(total(conn), 3);
}

/// Leaders wait for locks, with batches of others, when the server ends their connections: nobody else's connection is lost.
#[test]
fn a_leader_whose_connection_is_killed_in_mid_batch() {
    const KILLS: usize = 4;
    let own = &mut database();
    let (database, [conn, holder]) = own.parts();
    let session = by_server(
        "pg_backend_pid()::bigint",
        "CAST(CONNECTION_ID() AS SIGNED)",
    );
    let waits = by_server(
        "(SELECT COALESCE(MIN(pid), 0)::bigint FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
            AND datname = current_database() AND query_start < clock_timestamp() - interval '1 s')",
        "(SELECT CAST(COALESCE(MIN(ID), 0) AS SIGNED) FROM information_schema.PROCESSLIST \
            WHERE DB = DATABASE() AND ID <> CONNECTION_ID() AND INFO LIKE '%videos_shards%' AND TIME > 1)",
    );
    // Without the row no further shard is created.
    holder.run("BEGIN; UPDATE videos_shards SET likes = 0 WHERE id = 1; UPDATE videos SET slug = 'held' WHERE id = 1");
    let (combiner, killed) = (Combiner::new(), Mutex::new(vec![]));
    let [counting, counted, unknown] = [12, 0, 0].map(AtomicUsize::new);
    thread::scope(|scope| {
        for _ in 0..counting.load(Ordering::SeqCst) {
            scope.spawn(|| {
                let conn = &mut Conn::connect(database);
                let session = number!(session, conn);
                let is_killed = || killed.lock().unwrap().contains(&session);
                for _ in 0..KILLS {
                    let count = update(videos.find(1)).set(views.eq(views + 1));
                    let count = count.retry(diesel_sharded_tests::patient());
                    let told = count.combine(&combiner).execute(conn).done();
                    match told.map_err(Error::from) {
                        Ok(rows) => drop(counted.fetch_add(rows, Ordering::SeqCst)),
                        Err(Error::OutcomeUnknown { .. }) => {
                            unknown.fetch_add(1, Ordering::SeqCst);
                        }
                        Err(Error::ConnectionLost { .. }) if is_killed() => {}
                        Err(error) => panic!("{error}"),
                    }
                    if is_killed() {
                        break;
                    }
                }
                counting.fetch_sub(1, Ordering::SeqCst);
                if !is_killed() {
                    assert_eq!(count(2, conn), Ok(1));
                }
            });
        }
        while counting.load(Ordering::SeqCst) > 0 && killed.lock().unwrap().len() < KILLS {
            let session = number!(waits, conn);
            if session == 0 || killed.lock().unwrap().contains(&session) {
                thread::sleep(Duration::from_millis(20));
                continue;
            }
            killed.lock().unwrap().push(session);
            let kill = by_server("SELECT pg_terminate_backend(", "KILL CONNECTION (");
            conn.run(&format!("{kill}{session})"));
        }
        holder.run("ROLLBACK");
    });
    let [counted, unknown] = [counted, unknown].map(|number| number.into_inner() as i64);
    let killed = killed.into_inner().unwrap().len() as i64;
    assert!(
        unknown > killed,
        "no members: {killed} killed, {unknown} unknown"
    );
    let of_1 = total(conn) - 100;
    assert!((counted..=counted + unknown).contains(&of_1), "{of_1}");
    let of_2 = videos.find(2).select(views.total()).first(conn);
    assert_eq!(of_2, Ok(200 + 12 - killed));
}

/// A repeated request, in a transaction whose snapshot is older than the commit of the first one.
#[test]
fn a_repeat_in_an_older_snapshot() {
    let [conn, other] = &mut *database();
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    let count = |conn: &mut Conn| {
        let count = update(videos.find(1)).set(views.eq(views + 1));
        count.idempotency_key("a").execute(conn).done()
    };
    let meanwhile = || count(other).map(drop);
    let (counted, met) = after_a_snapshot(Isolation::RepeatableRead, conn, meanwhile, count);
    assert_eq!(counted, Ok(1), "{met:?}");
    assert_eq!(total(conn), 101);
}

/// Neither a repeat nor a first visit, in a transaction that is still open, makes another visitor wait.
#[test]
fn a_visitor_waits_for_no_other() {
    let [conn, other] = &mut *Fixture::<Conn, 2>::with_counters();
    let visit = |video: i64, visitor: &str, conn: &mut Conn| {
        let count = update(videos.find(video)).set(views.eq(views + 1));
        let visit = count
            .retry(RetryPolicy::never())
            .once_per(visitor, HUNDRED_YEARS);
        visit.count(conn).done()
    };
    wait_at_most(2, other);
    assert_eq!(visit(1, "ann", conn), Ok(Unique::Counted));
    for (video, visitor, answer) in [(1, "ann", Unique::Repeat), (2, "bob", Unique::Counted)] {
        let open: QueryResult<()> = conn.transaction(|conn| {
            assert_eq!(visit(video, visitor, conn), Ok(answer));
            for number in 0..100 {
                let next = format!("{visitor} {number}");
                assert_eq!(visit(1, &next, other), Ok(Unique::Counted));
                assert_eq!(visit(1, &next, other), Ok(Unique::Repeat));
            }
            Ok(())
        });
        open.unwrap();
    }
    assert_eq!(total(conn), 301);
}

/// Not even for a lock on the row of the visitor itself.
#[test]
fn a_repeat_waits_for_no_lock() {
    let [conn, other] = &mut *Fixture::<Conn, 2>::with_counters();
    let visit = || {
        let count = update(videos.find(1)).set(views.eq(views + 1));
        count.once_per("ann", HUNDRED_YEARS)
    };
    gives!(visit().count(conn), Unique::Counted);
    other.run("BEGIN; UPDATE diesel_sharded_idempotency_keys SET counted = 2");
    other.run("UPDATE videos_shards SET views = views + 1; UPDATE videos SET views = views + 1");
    wait_at_most(1, conn);
    gives!(visit().count(conn), Unique::Repeat);
    other.run("ROLLBACK");
    assert_eq!(total(conn), 101);
}

/// Parents are locked before their shards: who holds the parent takes its shards without waiting.
#[test]
fn a_set_that_waits_for_a_parent_holds_no_shard() {
    let [conn, sets] = &mut *database();
    conn.run("BEGIN; UPDATE videos SET title = 'held' WHERE id = 1");
    thread::scope(|scope| {
        let setting = scope.spawn(|| set_total(videos.find(1), views, 7).execute(sets).done());
        thread::sleep(Duration::from_millis(300)); // it waits for the parent by now
        conn.run("SELECT 1 FROM videos_shards WHERE id = 1 FOR UPDATE NOWAIT");
        conn.run("COMMIT");
        assert_eq!(setting.join().unwrap(), Ok(1));
    });
    assert_eq!(total(conn), 7);
}

/// An increment that is not committed yet holds its shard, and the base takes the difference.
#[test]
fn a_repair_waits_for_no_count() {
    let [conn, other] = &mut *database();
    assert_eq!(count_on(0, 1, conn), Ok(1));
    other.run("BEGIN; UPDATE videos_shards SET views = views + 1 WHERE id = 1 AND shard = 0");
    let recount = videos.find(1).select((id, 7_i64.into_sql::<BigInt>()));
    let repaired = verify(videos.find(1), views, recount).repair(conn).done();
    assert_eq!(repaired.unwrap().len(), 1);
    other.run("COMMIT");
    assert_eq!(total(conn), 8);
}

/// So does a bounded increment in a transaction, whose shard has less when it has waited for that. On MySQL a savepoint of the caller's lets go
/// of no lock.
#[test]
fn a_bounded_count_that_waits_for_a_parent_holds_no_shard() {
    for way in ["by its key", "with its total", "in a caller's transaction"] {
        let [conn, other, counts] = &mut *Fixture::<Conn, 3>::with_counters();
        if way == "in a caller's transaction" && *SERVER != Server::Postgres {
            continue;
        }
        let stock = || RowCounter::of(likes, 1).never_below(0);
        gives!(stock().add(9_999, conn), true); // hands room out
        other.run("UPDATE videos SET likes = 5 WHERE id = 1");
        other.run("BEGIN; UPDATE videos_shards SET likes = 0 WHERE id = 1");
        conn.run("BEGIN; SELECT title FROM videos WHERE id = 1 FOR UPDATE");
        thread::scope(|scope| {
            let counting = scope.spawn(|| match way {
                "by its key" => stock().idempotency_key("order 7").add(-1, counts).done(),
                "with its total" => {
                    let total = stock().add_and_get(-1, counts).done();
                    total.map(|total| total.is_some())
                }
                _ => counts.transaction(|conn| stock().add(-1, conn).done()),
            });
            thread::sleep(Duration::from_millis(300)); // it waits for a shard by now
            other.run("COMMIT");
            thread::sleep(Duration::from_millis(300)); // and for the parent
            conn.run("SELECT 1 FROM videos_shards WHERE id = 1 FOR UPDATE NOWAIT");
            conn.run("COMMIT");
            assert_eq!(counting.join().unwrap(), Ok(true));
        });
    }
}

/// The room that a caller's older snapshot shows may be gone.
#[test]
fn bounds_hold_beyond_the_callers_snapshot() {
    let [conn, other] = &mut *database();
    let stock = RowCounter::of(likes, 1).never_below(0); // of one
    let meanwhile = || stock.add(-1, other).done().map(|sold| assert!(sold));
    let work = |conn: &mut Conn| stock.add(-1, conn).done();
    let (sold, met) = after_a_snapshot(Isolation::RepeatableRead, conn, meanwhile, work);
    assert_eq!(sold, Ok(false), "{met:?}");
    gives!(stock.get(other), Some(0));
}

/// A deadlock ends the whole transaction on MySQL: a retry of the increment would then be committed by itself.
#[test]
fn the_victim_of_a_deadlock_in_a_transaction_by_text_counts_nothing() {
    let [conn, one, other] = &mut *database();
    for video in [1, 2] {
        assert_eq!(count_on(0, video, conn), Ok(1));
    }
    let both_have_one = &Barrier::new(2);
    let counted = thread::scope(|scope| {
        let threads = [([1, 2], one), ([2, 1], other)].map(|([first, second], conn)| {
            scope.spawn(move || -> QueryResult<()> {
                conn.batch_execute("BEGIN")?;
                conn.batch_execute("UPDATE videos SET title = 'x' WHERE id = 0")?; // locks nothing
                count_on(0, first, conn)?;
                both_have_one.wait();
                let counted = count_on(0, second, conn);
                // A caller who ignores the error commits the rest: nothing, since the deadlock ended it.
                conn.batch_execute("COMMIT")?;
                counted.map(drop)
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    let victims: Vec<_> = counted.into_iter().filter_map(Result::err).collect();
    assert_matches!(&victims[..], [diesel::result::Error::DatabaseError(..)]);
    let totals = videos.select(views.total()).order(id).limit(2);
    assert_eq!(totals.load(conn), Ok(vec![102_i64, 202]));
}

/// No further attempt cures it, and the shards' own foreign key has nothing to do with it.
#[test]
fn a_foreign_key_of_an_inserted_row_is_no_conflict() {
    use diesel_sharded_tests::schema::{Day, downloads};
    let [conn] = &mut *Fixture::<Conn, 1>::with_counters();
    conn.run("CREATE TABLE releases (version INTEGER PRIMARY KEY)");
    conn.run("ALTER TABLE downloads ADD FOREIGN KEY (version) REFERENCES releases (version)");
    let refused = |counted: QueryResult<usize>| {
        assert_matches!(
            counted,
            Err(DieselError::DatabaseError(ForeignKeyViolation, _))
        );
    };
    let key = (1, Day(1));
    let row = |key: &(i32, Day)| (downloads::version.eq(key.0), downloads::day.eq(key.1));
    let count = || {
        let count =
            update(downloads::table.find(key)).set(downloads::number.eq(downloads::number + 1));
        count.or_insert(row(&key))
    };
    refused(count().execute(conn).done());
    refused(count().idempotency_key("a").execute(conn).done());
    let many = || count_many(downloads::number, [(key, 1)]).or_insert(row);
    refused(many().run(conn).done().map(|counted| counted.rows));
    refused(many().idempotency_key("b").run(conn).done());
    conn.run("INSERT INTO releases VALUES (1)");
    gives!(count().idempotency_key("a").execute(conn), 1);
    gives!(many().idempotency_key("b").run(conn), 1);
}

//! A PostgreSQL primary and its standby: what a standby answers, what an acknowledged increment is worth, and where it is found after a
//! failover. The program `chaos` kills primaries under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_async::AsyncPgConnection;
use diesel_migrations::MigrationHarness;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{Isolation, Transaction};
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::{self as api, Counter, Error, MIGRATIONS, RowCounter, fold, update};
use diesel_sharded_tests::awaited::{self, Awaited, Done};
use diesel_sharded_tests::replication::{Pair, Replication};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{assert_matches, schema, until};

use self::operations::{ALL, arrange, is_callers, is_of_schema, totals};

type Conn = PgConnection;

#[path = "../operations/mod.rs"]
#[expect(dead_code, reason = "what other programs use")]
mod operations;

const DATABASE: &str = "postgres";

fn pair() -> (Pair, PgConnection) {
    let pair = Pair::start().expect("PostgreSQL is installed");
    let mut conn = connect(&pair.primary_url(DATABASE));
    schema::create(&mut conn);
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    // Every row of the library's own is there, so that only the refusal is left to be reported, and only an increment waits for the standby.
    Counter::named("named").increment(&mut conn).unwrap();
    conn.batch_execute(
        "INSERT INTO videos_shards (id, shard) SELECT id, generate_series(0, 31) FROM videos",
    )
    .unwrap();
    pair.wait_until_applied();
    (pair, conn)
}

fn connect(url: &str) -> PgConnection {
    PgConnection::establish(url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn total(conn: &mut PgConnection, row: i64) -> i64 {
    let of_row = videos.find(row).select(views.total());
    of_row.get_result(conn).unwrap()
}

/// Without a probe, which waits for the standby too, and changes nothing.
fn count(conn: &mut PgConnection) -> Result<usize, Error> {
    let counted = update(videos.find(1)).set(views.eq(views + 1));
    let counted = counted.shard_choice(ShardChoice::Random);
    counted.execute(conn).map_err(Error::from)
}

fn count_once(conn: &mut PgConnection) -> Result<usize, Error> {
    let counted = update(videos.find(1)).set(views.eq(views + 1));
    counted
        .shard_choice(ShardChoice::Random)
        .idempotency_key("a request")
        .execute(conn)
        .map_err(Error::from)
}

/// Each operation that writes, on videos that the primary has.
fn is_refused(primary: &mut PgConnection, pair: &Pair, conn: &mut PgConnection, place: &str) {
    static VIDEOS: AtomicI64 = AtomicI64::new(1000);
    // They write nothing here, or return their closure's own error.
    let others = [
        "total",
        "top",
        "refresh",
        "remove keys",
        "remove visitors",
        "retry::transaction",
    ];
    for (name, before, work) in ALL.iter().copied() {
        if is_callers(name) || is_of_schema(name) || others.contains(&name) {
            continue;
        }
        let video = VIDEOS.fetch_add(1, Ordering::Relaxed);
        arrange(name, before, video, primary);
        operations::counter(video).add(5, primary).unwrap();
        pair.wait_until_applied();
        let before = totals(video, conn);
        let told = work(conn, video).map_err(Error::from);
        assert!(
            matches!(told, Err(Error::NodeNotReady { .. })),
            "{name} {place}: {told:?}"
        );
        assert_eq!(totals(video, conn), before, "{name} {place}");
    }
    // Inside a caller's transaction errors stay Diesel's.
    let told = conn.transaction(|conn| Ok::<_, DieselError>(count(conn)?));
    let kind = DatabaseErrorKind::ReadOnlyTransaction;
    assert!(
        matches!(&told, Err(DieselError::DatabaseError(is, _)) if *is as u8 == kind as u8),
        "in a transaction {place}: {told:?}"
    );
}

#[test]
fn a_standby_refuses_every_count_and_shows_the_totals() {
    let (pair, mut primary) = pair();
    count(&mut primary).unwrap();
    let mut standby = connect(&pair.standby_url(DATABASE));
    pair.wait_until_applied();
    assert_eq!(total(&mut standby, 1), 101);
    is_refused(&mut primary, &pair, &mut standby, "on a standby");
    let awaiting = &mut Awaited::<AsyncPgConnection>::establish(&pair.standby_url(DATABASE));
    let awaiting = awaiting.as_mut().expect("the standby answers");
    let counted = awaited::update(videos.find(1)).set(views.eq(views + 1));
    let told = counted.execute(awaiting).done().map_err(Error::from);
    assert_matches!(told, Err(Error::NodeNotReady { .. }));
    let serializable = Transaction::new().isolation(Isolation::Serializable);
    let told: QueryResult<usize> = serializable.run(&mut standby, |conn| Ok(count(conn)?));
    let told = told.map_err(Error::from);
    assert_matches!(told, Err(Error::NodeNotReady { .. }));
    let mut reader = connect(&pair.primary_url(DATABASE));
    reader
        .batch_execute("SET default_transaction_read_only = on")
        .unwrap();
    let place = "in a session that only reads";
    is_refused(&mut primary, &pair, &mut reader, place);
    // Its answer gives both reasons.
    let refused = count(&mut reader).unwrap_err().to_string();
    assert!(refused.contains("standby") && refused.contains("default_transaction_read_only"));
}

#[derive(Debug)]
struct Connections(Arc<AtomicUsize>);

impl CustomizeConnection<PgConnection, diesel::r2d2::Error> for Connections {
    fn on_acquire(&self, _: &mut PgConnection) -> Result<(), diesel::r2d2::Error> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// The coalescer does not stay on a connection to a server that refuses it.
#[test]
fn a_coalescer_leaves_a_standby() {
    let (mut pair, _) = pair();
    let connections = Arc::new(AtomicUsize::new(0));
    let manager = ConnectionManager::<PgConnection>::new(pair.primary_url(DATABASE));
    let pool = Pool::builder()
        .max_size(1)
        .connection_customizer(Box::new(Connections(Arc::clone(&connections))))
        .build(manager)
        .unwrap();
    let coalescer = Coalescer::builder(pool).deadline(Duration::from_secs(2));
    let coalescer = coalescer.build().unwrap();
    let add = |video| coalescer.add_later(&RowCounter::of(views, video), 1);
    add(1).unwrap();
    until("it counts", || coalescer.flush().is_ok());
    pair.wait_until_applied();
    pair.kill_the_primary();
    pair.promote();
    pair.rejoin();
    connections.store(0, Ordering::SeqCst);
    // The address now leads to a standby.
    add(2).unwrap();
    until("a standby refuses", || {
        match coalescer.flush().unwrap_err() {
            Error::FlushPending { reason, .. } => reason.contains("read-only"),
            other => panic!("{other:?}"),
        }
    });
    assert!(connections.load(Ordering::SeqCst) > 1);
    let mut primary = connect(&pair.primary_url(DATABASE));
    assert_eq!(total(&mut primary, 1), 101);
    pair.wait_until_applied();
    pair.kill_the_primary();
    pair.promote();
    until("it counts on the new primary", || coalescer.flush().is_ok());
    let mut primary = connect(&pair.primary_url(DATABASE));
    assert_eq!(total(&mut primary, 2), 201);
    coalescer.close().unwrap();
}

/// The process of the only transaction that waits for the standby.
fn wait_for_one(conn: &mut PgConnection) -> i64 {
    let waiting = "(SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep')";
    let mut process = 0;
    until("one waits for the standby", || {
        let only = operations::ask(waiting, conn);
        process = only.unwrap_or_default(); // an error if there are several
        process > 0
    });
    process
}

type Count = fn(&mut PgConnection) -> Result<usize, Error>;

/// Runs an operation on a connection of its own. A test that fails meanwhile does not wait for it.
fn elsewhere(url: String, operation: Count) -> JoinHandle<Result<usize, Error>> {
    thread::spawn(move || operation(&mut connect(&url)))
}

/// A wait for the standby that is cancelled ends with a warning, which Diesel does not show: the increment is acknowledged, and stands on the
/// primary alone. Timeouts do not cancel it.
#[test]
fn a_cancelled_wait_acknowledges_what_the_primary_alone_has() {
    let (mut pair, mut observer) = pair();
    pair.replicate(Replication::On);
    count(&mut observer).unwrap();
    pair.cut_the_link();
    let operations: [Count; 2] = [
        |conn| {
            conn.batch_execute("SET statement_timeout = '100ms'; SET lock_timeout = '100ms'")?;
            count(conn)
        },
        |conn| {
            let counted: QueryResult<usize> = conn.transaction(|conn| {
                let counted = count(conn)?;
                conn.batch_execute("SET LOCAL statement_timeout = '100ms'")?; // of the COMMIT
                Ok(counted)
            });
            Ok(counted?)
        },
    ];
    for (n, operation) in (1..).zip(operations) {
        let counting = elsewhere(pair.primary_url(DATABASE), operation);
        let process = wait_for_one(&mut observer);
        thread::sleep(Duration::from_millis(300)); // a timeout would be over by now
        assert!(!counting.is_finished());
        // It is not shown before it is acknowledged.
        assert_eq!(total(&mut observer, 1), 100 + n);
        let cancel = format!("SELECT pg_cancel_backend({process})");
        observer.batch_execute(&cancel).unwrap();
        assert_eq!(counting.join().unwrap().unwrap(), 1); // it is no conflict, and nothing is retried
        assert_eq!(total(&mut observer, 1), 101 + n);
    }
    pair.kill_the_primary();
    pair.promote();
    let mut conn = connect(&pair.url(DATABASE));
    assert_eq!(total(&mut conn, 1), 101);
}

/// A connection that is terminated while it waits leaves an increment that others see and the standby lacks. A repeat by its key is answered
/// only when the standby has it, so a failover before that loses nothing acknowledged.
#[test]
fn a_repeat_is_answered_when_the_standby_has_the_first_count() {
    let (mut pair, mut observer) = pair();
    pair.replicate(Replication::On);
    count(&mut observer).unwrap(); // the shard is there
    pair.pause_the_standby();
    let counting = elsewhere(pair.primary_url(DATABASE), count_once);
    let process = wait_for_one(&mut observer);
    let terminate = format!("SELECT pg_terminate_backend({process})");
    observer.batch_execute(&terminate).unwrap();
    let lost = counting.join().unwrap();
    assert_matches!(lost, Err(Error::OutcomeUnknown { .. }));
    assert_eq!(total(&mut observer, 1), 102);
    let repeating = elsewhere(pair.primary_url(DATABASE), count_once);
    wait_for_one(&mut observer);
    thread::sleep(Duration::from_millis(300)); // an answer would be here by now
    assert!(!repeating.is_finished());
    pair.resume_the_standby();
    assert_eq!(repeating.join().unwrap().unwrap(), 1);
    pair.kill_the_primary();
    pair.promote();
    let mut conn = connect(&pair.url(DATABASE));
    assert_eq!(total(&mut conn, 1), 102);
    assert_eq!(count_once(&mut conn).unwrap(), 1); // its key is here too
    assert_eq!(total(&mut conn, 1), 102);
}

/// Reads on a synchronous standby show an acknowledged increment at once if commits wait until it is applied.
#[test]
fn a_total_on_a_standby_that_applies_is_exact() {
    let (pair, mut primary) = pair();
    pair.replicate(Replication::RemoteApply);
    let mut standby = connect(&pair.standby_url(DATABASE));
    for counted in 1..=200 {
        count(&mut primary).unwrap();
        assert_eq!(total(&mut standby, 1), 100 + counted);
        if counted % 50 == 0 {
            fold(videos).keep_shards(0).run(&mut primary).unwrap();
        }
    }
}

/// The address of both leads to the new primary, for both kinds of drivers, and the old one comes back as a standby without what it alone had.
#[test]
fn the_address_of_both_finds_the_new_primary() {
    let (mut pair, mut conn) = pair();
    pair.replicate(Replication::On);
    count(&mut conn).unwrap();
    pair.cut_the_link();
    let counting = elsewhere(pair.primary_url(DATABASE), count);
    wait_for_one(&mut conn);
    pair.kill_the_primary();
    let told = counting.join().unwrap();
    assert_matches!(told, Err(Error::OutcomeUnknown { .. }));
    pair.promote();
    pair.join_the_links(); // too late for what it holds
    let url = pair.url(DATABASE);
    let mut conn = connect(&url);
    assert_eq!(count(&mut conn).unwrap(), 1);
    let mut conn = Awaited::<AsyncPgConnection>::establish(&url).unwrap();
    let counted = awaited::update(videos.find(1)).set(views.eq(views + 1));
    assert_eq!(counted.execute(&mut conn).done(), Ok(1));
    pair.rejoin();
    pair.replicate(Replication::On);
    pair.wait_until_applied();
    for url in [pair.standby_url(DATABASE), pair.primary_url(DATABASE)] {
        assert_eq!(total(&mut connect(&url), 1), 103, "{url}");
    }
}

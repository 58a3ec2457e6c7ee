//! The cases of `cases/`, and those of SQLite alone.

#[path = "blocking/mod.rs"]
mod blocking;
#[path = "cases/mod.rs"]
mod cases;
#[path = "hostile/mod.rs"]
mod hostile;

use std::thread;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy, Transaction};
use diesel_sharded::{Conflict, Error, ShardsTable, update};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{Database, TestConnection, assert_matches, insert, recording, schema};

/// The crate that the cases test.
use diesel_sharded as api;

use self::cases::{count, total_of};

type Conn = SqliteConnection;

/// Two connections that do not wait for each other inside SQLite.
fn impatient() -> (Database, Conn, Conn) {
    let database = Conn::database();
    let mut conns = [Conn::connect(&database), Conn::connect(&database)];
    schema::create(&mut conns[0]);
    for conn in &mut conns {
        conn.batch_execute("PRAGMA busy_timeout = 0").unwrap();
    }
    let [one, other] = conns;
    (database, one, other)
}

fn total(conn: &mut Conn) -> i64 {
    total_of(1, conn)
}

#[test]
fn busy() {
    let (_database, mut conn, mut writer) = impatient();
    writer.batch_execute("BEGIN IMMEDIATE").unwrap();
    for by_key in [true, false] {
        let policy = RetryPolicy::new().with_attempts(3);
        let counted = match by_key {
            true => update(videos.find(1))
                .set(views.eq(views + 1))
                .retry(policy)
                .execute(&mut conn),
            false => update(videos)
                .set(views.eq(views + 1))
                .retry(policy)
                .execute(&mut conn),
        };
        let error = Error::from(counted.unwrap_err());
        assert_matches!(
            error,
            Error::ConflictPersisted {
                conflict: Conflict::Busy,
                attempts: 3,
                ..
            }
        );
    }
    writer.batch_execute("COMMIT").unwrap();
    assert_eq!(count(1, 1, &mut conn), Ok(1));
    assert_eq!(total(&mut conn), 101);
}

/// Attempts are the only way to wait there: as many are made as the deadline allows.
#[test]
fn a_busy_database_is_awaited() {
    let (_database, mut conn, mut writer) = impatient();
    writer.batch_execute("BEGIN IMMEDIATE").unwrap();
    let count = || update(videos.find(1)).set(views.eq(views + 1));
    let deadline = Duration::from_millis(300);
    let at_once = RetryPolicy::new()
        .with_deadline(deadline)
        .with_max_delay(Duration::ZERO);
    let refused = count().retry(at_once).execute(&mut conn).unwrap_err();
    let told = refused.to_string();
    assert!(
        told.contains("PRAGMA busy_timeout") && !told.contains("shards"),
        "{told}"
    );
    match Error::from(refused) {
        Error::ConflictPersisted {
            attempts, elapsed, ..
        } => {
            assert!(attempts > 32 && elapsed >= deadline, "{told}");
        }
        error => panic!("{error:?}"),
    }
    thread::scope(|scope| {
        let counting = scope.spawn(|| count().execute(&mut conn));
        thread::sleep(Duration::from_secs(2)); // 32 attempts end before that
        writer.batch_execute("COMMIT").unwrap();
        assert_eq!(counting.join().unwrap(), Ok(1));
    });
}

/// A transaction that read before another one wrote cannot write any more; no `busy_timeout` cures that.
#[test]
fn busy_snapshot() {
    let (_database, mut conn, mut other) = impatient();
    conn.batch_execute("PRAGMA busy_timeout = 5000").unwrap();
    let (policy, met) = recording();
    let mut first = true;
    let counted: QueryResult<usize> =
        Transaction::new()
            .deferred()
            .retry(policy)
            .run(&mut conn, |conn| {
                let seen = total(conn);
                if std::mem::take(&mut first) {
                    assert_eq!(seen, 100);
                    count(1, 1, &mut other)?;
                }
                count(1, 1, conn)
            });
    assert_eq!(counted, Ok(1));
    assert_eq!(*met.lock().unwrap(), [Conflict::Busy]);
    assert_eq!(total(&mut conn), 102);
}

/// With the write lock taken at once there is no such conflict.
#[test]
fn immediate_is_the_default() {
    let (_database, mut conn, mut other) = impatient();
    let counted: QueryResult<usize> = retry::transaction(&mut conn, RetryPolicy::never(), |conn| {
        assert_eq!(total(conn), 100);
        let busy = update(videos.find(1))
            .set(views.eq(views + 1))
            .retry(RetryPolicy::never())
            .execute(&mut other);
        assert!(busy.is_err(), "{busy:?}");
        count(1, 1, conn)
    });
    assert_eq!(counted, Ok(1));
    assert_eq!(total(&mut other), 101);
}

#[test]
fn table_locked_in_a_shared_cache() {
    let url = "file:shared?mode=memory&cache=shared";
    let mut conn = Conn::establish(url).unwrap();
    schema::create(&mut conn);
    let mut writer = Conn::establish(url).unwrap();
    writer
        .batch_execute("BEGIN IMMEDIATE; UPDATE videos_shards SET views = 0")
        .unwrap();
    let policy = RetryPolicy::new().with_attempts(2);
    let error = update(videos.find(1))
        .set(views.eq(views + 1))
        .retry(policy)
        .execute(&mut conn);
    let error = Error::from(error.unwrap_err());
    assert_matches!(
        error,
        Error::ConflictPersisted {
            conflict: Conflict::Busy,
            ..
        }
    );
}

/// The parent's key ignores case and the shards table's does not: the lookup compares as the parent does.
#[test]
fn a_key_of_another_collation() {
    use crate::shards_tables::pages::dsl::{hits, name, pages};
    let conn = &mut Conn::establish(":memory:").unwrap();
    conn.batch_execute(
        "CREATE TABLE pages (name TEXT COLLATE NOCASE PRIMARY KEY, hits BIGINT NOT NULL)",
    )
    .unwrap();
    ShardsTable::of(pages).create(conn).unwrap();
    insert!(pages, (name.eq("Home"), hits.eq(0)), conn);
    for key in ["HOME", "Home", "home", "HOME"] {
        assert_eq!(count!(pages.find(key), hits.eq(hits + 1), conn), 1, "{key}");
    }
    let count = update(pages.find("hOME")).set(hits.eq(hits + 1));
    let back = count.returning((name, hits)).get_result(conn);
    assert_eq!(back, Ok(("Home".to_owned(), 5_i64)));
}

#[test]
fn a_row_that_a_trigger_keeps_out_is_not_inserted_for_ever() {
    let (_database, mut conn) = schema::database::<Conn>();
    conn.batch_execute(
        "CREATE TRIGGER keep_out BEFORE INSERT ON videos BEGIN SELECT RAISE(IGNORE); END",
    )
    .unwrap();
    for _ in 0..2 {
        let counted = update(videos.find(9))
            .set(views.eq(views + 1))
            .or_insert((id.eq(9), slug.eq("i"), title.eq("I")))
            .execute(&mut conn);
        assert_eq!(counted, Ok(0));
    }
    assert_eq!(total(&mut conn), 100);
}

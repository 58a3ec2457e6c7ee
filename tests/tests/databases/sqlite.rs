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
use diesel_sharded::{Conflict, Error, ShardedField, ShardedSelectable, ShardsTable, top, update};
use diesel_sharded_tests::fixture::{Fixture, Run};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{assert_matches, insert, recording, schema};

/// The crate that the cases test.
use diesel_sharded as api;

use self::cases::{count, total_of};

type Conn = SqliteConnection;

/// Connections that do not wait for each other inside SQLite.
fn impatient<const N: usize>() -> Fixture<Conn, N> {
    let mut own = Fixture::<Conn, N>::with_tables();
    for conn in own.iter_mut() {
        conn.run("PRAGMA busy_timeout = 0");
    }
    own
}

/// Counts on video 1 once.
fn count_by(policy: RetryPolicy, conn: &mut Conn) -> QueryResult<usize> {
    let count = update(videos.find(1)).set(views.eq(views + 1));
    count.retry(policy).execute(conn)
}

#[test]
fn a_locked_database_is_busy() {
    let [conn, writer] = &mut *impatient();
    writer.run("BEGIN IMMEDIATE");
    let url = "file:shared?mode=memory&cache=shared";
    let shared = &mut Conn::establish(url).unwrap();
    schema::create(shared);
    let mut shared_writer = Conn::establish(url).unwrap();
    shared_writer.run("BEGIN IMMEDIATE; UPDATE videos_shards SET views = 0");
    let policy = RetryPolicy::new().with_attempts(3);
    let by_filter = update(videos)
        .set(views.eq(views + 1))
        .retry(policy.clone());
    for counted in [
        count_by(policy.clone(), conn),
        by_filter.execute(conn),
        count_by(policy, shared), // whose table is locked
    ] {
        let error = Error::from(counted.unwrap_err());
        assert_matches!(error, Error::ConflictPersisted { conflict, attempts: 3, .. } if *conflict == Conflict::Busy);
    }
    writer.run("COMMIT");
    assert_eq!(count(1, 1, conn), Ok(1));
    assert_eq!(total_of(1, conn), 101);
}

/// Attempts are the only way to wait there: as many are made as the deadline allows.
#[test]
fn a_busy_database_is_awaited() {
    let [conn, writer] = &mut *impatient();
    writer.run("BEGIN IMMEDIATE");
    let deadline = Duration::from_millis(300);
    let at_once = RetryPolicy::new().with_deadline(deadline);
    let refused = count_by(at_once.with_max_delay(Duration::ZERO), conn).unwrap_err();
    let told = refused.to_string();
    assert!(
        told.contains("PRAGMA busy_timeout") && !told.contains("shards"),
        "{told}"
    );
    let error = Error::from(refused);
    assert_matches!(error, Error::ConflictPersisted { attempts, elapsed, .. } if *attempts > 32 && *elapsed >= deadline);
    thread::scope(|scope| {
        let counting = scope.spawn(|| count(1, 1, conn));
        thread::sleep(Duration::from_secs(2)); // 32 attempts end before that
        writer.run("COMMIT");
        assert_eq!(counting.join().unwrap(), Ok(1));
    });
}

/// A transaction that read before another one wrote cannot write any more; no `busy_timeout` cures that.
#[test]
fn busy_snapshot() {
    let [conn, other] = &mut *impatient();
    conn.run("PRAGMA busy_timeout = 5000");
    let (policy, met) = recording();
    let mut first = true;
    let transaction = Transaction::new().deferred().retry(policy);
    let counted: QueryResult<usize> = transaction.run(conn, |conn| {
        let seen = total_of(1, conn);
        if std::mem::take(&mut first) {
            assert_eq!(seen, 100);
            count(1, 1, other)?;
        }
        count(1, 1, conn)
    });
    assert_eq!(counted, Ok(1));
    assert_eq!(*met.lock().unwrap(), [Conflict::Busy]);
    assert_eq!(total_of(1, conn), 102);
}

/// The parent's key ignores case and the shards table's does not: the lookup compares as the parent does.
#[test]
fn a_key_of_another_collation() {
    use crate::shards_tables::pages::dsl::{hits, name, pages};
    let conn = &mut Conn::establish(":memory:").unwrap();
    conn.run("CREATE TABLE pages (name TEXT COLLATE NOCASE PRIMARY KEY, hits BIGINT NOT NULL)");
    ShardsTable::of(pages).create(conn).unwrap();
    insert!(pages, (name.eq("Home"), hits.eq(0)), conn);
    for key in ["HOME", "Home", "home", "HOME"] {
        assert_eq!(count!(pages.find(key), hits.eq(hits + 1), conn), 1, "{key}");
    }
    let count = update(pages.find("hOME")).set(hits.eq(hits + 1));
    let back = count.returning((name, hits)).get_result(conn);
    assert_eq!(back, Ok(("Home".to_owned(), 5_i64)));
}

/// What the closure has sent since was committed by itself.
#[test]
fn a_transaction_that_an_ignored_error_ended_is_reported() {
    let [conn] = &mut *impatient();
    let clash = "INSERT OR ROLLBACK INTO videos (id, slug, title) VALUES (1, 'a', 'a')";
    for in_a_batch in [false, true] {
        let done: Result<(), Error> = retry::transaction(conn, RetryPolicy::default(), |conn| {
            let _ignored = match in_a_batch {
                true => conn.batch_execute(clash),
                false => diesel::sql_query(clash).execute(conn).map(drop),
            };
            Ok(())
        });
        assert_matches!(done, Err(Error::TransactionAborted));
    }
    assert_eq!(count_by(RetryPolicy::default(), conn), Ok(1));
}

/// A table of 34 columns.
macro_rules! wide {
    ($($column:ident)+) => {
        diesel::table! {
            wide (id) {
                id -> BigInt,
                hits -> BigInt,
                $($column -> Integer,)+
            }
        }

        #[derive(Debug, PartialEq, ShardedSelectable, ShardedField)]
        #[diesel(table_name = wide)]
        struct Wide {
            id: i64,
            #[sharded]
            hits: i64,
            $($column: i32,)+
        }

        const WIDE: &str = concat!(
            "CREATE TABLE wide (id BIGINT PRIMARY KEY, hits BIGINT NOT NULL DEFAULT 0"
            $(, ", ", stringify!($column), " INTEGER NOT NULL DEFAULT 1")+, ")"
        );
    };
}
wide! {
    c01 c02 c03 c04 c05 c06 c07 c08 c09 c10 c11 c12 c13 c14 c15 c16 c17 c18 c19 c20 c21 c22 c23 c24 c25 c26 c27 c28 c29 c30 c31 c32
}

#[test]
fn tables_of_many_columns() {
    let conn = &mut Conn::establish(":memory:").unwrap();
    conn.run(WIDE);
    ShardsTable::of(wide::table).create(conn).unwrap();
    insert!(wide::table, wide::id.eq(1), conn);
    let count = update(wide::table.find(1)).set(wide::hits.eq(wide::hits + 5));
    let counted: Wide = count
        .returning(Wide::as_returning())
        .get_result(conn)
        .unwrap();
    assert_eq!((counted.hits, counted.c32), (5, 1));
    let some = top(wide::table, wide::hits, 9).select((wide::hits, wide::id));
    assert_eq!(some.load(conn), Ok(vec![(5_i64, 1_i64)]));
    let models = top(wide::table, wide::hits, 9).select(Wide::as_select());
    assert_eq!(models.load(conn), Ok(vec![counted]));
}

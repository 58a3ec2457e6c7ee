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
use diesel_sharded::combine::Combiner;
use diesel_sharded::retry::{self, RetryPolicy, Transaction};
use diesel_sharded::unique::Unique;
use diesel_sharded::{
    Conflict, Error, ShardedField, ShardedSelectable, ShardsTable, count_many, fold, top, update,
};
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

/// A read before it would begin the transaction's snapshot, and a transaction that has one waits for no writer.
#[test]
fn a_visit_in_a_deferred_transaction_waits_for_the_writer() {
    let [conn, writer] = &mut *Fixture::<Conn, 2>::with_counters();
    conn.run("PRAGMA busy_timeout = 60000");
    for answer in [Unique::Counted, Unique::Repeat] {
        writer.run("BEGIN IMMEDIATE; UPDATE videos SET title = 'held' WHERE id = 2");
        thread::scope(|scope| {
            let visiting = scope.spawn(|| {
                conn.transaction(|conn| {
                    let count = update(videos.find(1)).set(views.eq(views + 1));
                    let day = Duration::from_secs(86_400);
                    count.once_per("ann", day * 36_500).count(conn)
                })
            });
            thread::sleep(Duration::from_millis(300));
            writer.run("COMMIT");
            assert_eq!(visiting.join().unwrap(), Ok(answer));
        });
    }
    assert_eq!(total_of(1, conn), 101);
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

/// A trigger that refuses to add more than one at once, as the batch of several callers does.
fn refuse_sums(action: &str, conn: &mut Conn) {
    conn.run(&format!(
        "CREATE TRIGGER one_at_a_time AFTER UPDATE ON videos_shards WHEN NEW.views - OLD.views > 1 \
         BEGIN SELECT RAISE({action}, 'one at a time'); END"
    ));
}

/// `FAIL` keeps what its statement has changed, and `ROLLBACK` ends the transaction around it. Either way each caller counts once, and the
/// connections stay usable.
#[test]
fn a_batch_that_a_trigger_refuses_is_counted_by_its_callers() {
    for action in ["FAIL", "ABORT", "ROLLBACK"] {
        let mut own = Fixture::<Conn, 8>::with_tables();
        let [conn, writer, callers @ ..] = &mut *own;
        assert_eq!(count(1, 1, conn), Ok(1));
        refuse_sums(action, conn);
        let combiner = Combiner::new();
        for round in 1..=3 {
            writer.run("BEGIN IMMEDIATE");
            thread::scope(|scope| {
                for conn in callers.iter_mut() {
                    let combiner = &combiner;
                    scope.spawn(move || {
                        let count = update(videos.find(1)).set(views.eq(views + 1));
                        let counted = count.combine(combiner).execute(conn);
                        assert_eq!(counted, Ok(1), "{action}");
                    });
                }
                thread::sleep(Duration::from_millis(300)); // the others wait for the first one
                writer.run("COMMIT");
            });
            assert_eq!(total_of(1, conn), 101 + 6 * round, "{action}");
        }
        for conn in callers {
            let in_one = conn.transaction(|conn| count(1, 1, conn));
            assert_eq!(in_one, Ok(1), "{action}");
        }
        assert_eq!(total_of(1, conn), 101 + 18 + 6, "{action}");
    }
}

/// An error of `FAIL` has counted, those of other actions have not.
#[test]
fn an_error_that_has_counted_says_so() {
    let [conn] = &mut *impatient();
    let by_two = |conn: &mut Conn| {
        let count = update(videos.find(1)).set(views.eq(views + 2));
        count.execute(conn).map_err(Error::from)
    };
    assert_matches!(by_two(conn), Ok(1));
    let mut counted = 102;
    for action in ["ABORT", "ROLLBACK", "FAIL"] {
        refuse_sums(action, conn);
        let refused = by_two(conn);
        match action {
            "FAIL" => {
                counted += 2;
                assert_matches!(refused, Err(Error::OutcomeUnknown { .. }));
            }
            _ => assert_matches!(refused, Err(Error::Diesel(_))),
        }
        assert_eq!(total_of(1, conn), counted, "{action}");
        conn.run("DROP TRIGGER one_at_a_time");
        assert_eq!(count(1, 1, conn), Ok(1));
        counted += 1;
    }
    // Also where the statement in a trigger chose it.
    conn.run(
        "CREATE TABLE log (n INTEGER PRIMARY KEY); INSERT INTO log VALUES (1); CREATE TRIGGER logs AFTER UPDATE ON videos_shards \
         BEGIN INSERT OR FAIL INTO log VALUES (1); END",
    );
    assert_matches!(by_two(conn), Err(Error::OutcomeUnknown { .. }));
    assert_eq!(total_of(1, conn), counted + 2);
    // What was never run is refused for certain.
    conn.run("DROP TABLE log");
    assert_matches!(by_two(conn), Err(Error::Diesel(_)));
    conn.run("DROP TRIGGER logs");
    assert_eq!(count(1, 1, conn), Ok(1));
    conn.run("DROP TABLE videos_shards");
    assert_matches!(by_two(conn), Err(Error::MissingShardsTable { .. }));
}

mod showings {
    use chrono::{DateTime, Utc};

    diesel_sharded_tests::counted_table! {
        Showing of showings (begin) {
            begin -> TimestamptzSqlite = DateTime<Utc>,
            #[sharded] seats -> BigInt = i64,
        }
    }
}

/// A microsecond apart.
#[test]
fn keys_of_a_time_with_its_zone() {
    use self::showings::showings::dsl::*;
    let [conn] = &mut *Fixture::<Conn, _>::empty();
    conn.run(
        "CREATE TABLE showings (begin TIMESTAMPTZ PRIMARY KEY, seats BIGINT NOT NULL DEFAULT 0)",
    );
    ShardsTable::of(showings).create(conn).unwrap();
    let day = chrono::NaiveDate::from_ymd_opt(2026, 10, 25).unwrap();
    let keys = [0, 1].map(|micro| day.and_hms_micro_opt(12, 0, 0, micro).unwrap().and_utc());
    for key in keys {
        insert!(showings, begin.eq(key), conn);
    }
    for (key, n) in keys.into_iter().zip([1, 10]) {
        let counted = update(showings.find(key)).set(seats.eq(seats + n));
        assert_eq!(counted.execute(conn), Ok(1));
    }
    let counted = count_many(seats, keys.map(|key| (key, 100)));
    assert_eq!(counted.run(conn).unwrap().rows, 2);
    fold(showings).keep_shards(0).run(conn).unwrap();
    let bases = showings.select(seats).order(begin).load::<i64>(conn);
    assert_eq!(bases, Ok(vec![101, 110]));
}

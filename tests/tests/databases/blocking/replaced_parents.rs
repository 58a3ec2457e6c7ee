//! Parents that are deleted, inserted again and renamed beside folds: each incarnation of a key keeps what was counted on it. Three
//! threads fold the whole table all the time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use diesel::connection::{InstrumentationEvent, SimpleConnection};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_sharded::backend::Dialect;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{Isolation, RetryPolicy, Transaction};
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::{Counter, RowCounter, counters, fold, set_total, update, verify};
use diesel_sharded_tests::fixture::{Fixture, Run};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{Database, TestConnection, edit, insert, until};

use super::{Conn, count, dialect, duration, on_threads, total_of};

fn patient() -> RetryPolicy {
    diesel_sharded_tests::patient().with_attempts(1000)
}

fn fold_videos(conn: &mut Conn) -> QueryResult<()> {
    fold(videos).retry(patient()).run(conn).map(drop)
}

/// Two threads work until the time is up, each with its number, the round and a connection, beside three that fold.
fn beside_folds(
    database: &Database,
    fold_all: impl Fn(&mut Conn) -> QueryResult<()> + Sync,
    work: impl Fn(i64, i64, &mut Conn) + Sync,
) {
    on_threads(5, database, |number, conn| {
        let until = Instant::now() + duration(4);
        for round in (0..).take_while(|_| Instant::now() < until) {
            match number {
                0 | 1 => work(number, round, conn),
                _ => fold_all(conn).unwrap(),
            }
        }
    });
}

fn insert(key: i64, base: i64, conn: &mut Conn) {
    let row = (id.eq(key), slug.eq(key.to_string()), title.eq(""));
    insert!(videos, (row, views.eq(base)), conn);
}

#[test]
fn a_named_counter_that_is_deleted_begins_anew() {
    let own = &mut Fixture::<Conn, 0>::with_counters();
    let fold_counters =
        |conn: &mut Conn| fold(counters::table).retry(patient()).run(conn).map(drop);
    beside_folds(own.parts().0, fold_counters, |number, round, conn| {
        let counter = Counter::named(format!("counter {number}"));
        for _ in 0..4 {
            counter.increment(conn).unwrap();
        }
        assert_eq!(counter.get(conn), Ok(4), "round {round}");
        assert_eq!(counter.delete(conn), Ok(true));
    });
}

/// The row has one of the two keys at any time, and every acknowledged increment is on it.
#[test]
fn others_count_on_a_row_that_is_renamed() {
    let own = &mut Fixture::with_tables();
    let (database, [conn]) = own.parts();
    insert(100, 0, conn);
    let counted = AtomicI64::new(0);
    beside_folds(database, fold_videos, |number, _, conn| {
        for (from, to) in [(100, 200), (200, 100)] {
            let count = update(videos.find(from)).set(views.eq(views + 1));
            let rows = count.retry(patient()).execute(conn).unwrap();
            counted.fetch_add(rows as i64, Ordering::Relaxed);
            if number == 0 {
                assert_eq!(rows, 1);
                let rename = || diesel::update(videos.find(from)).set(id.eq(to));
                until("it is renamed", || rename().execute(conn) == Ok(1));
            }
        }
    });
    assert_eq!(total_of(100, conn), counted.into_inner());
}

/// What another one sets or repairs is on the row that has the key by then, and changes no other field.
#[test]
fn sets_and_repairs_beside_replacement() {
    let own = &mut Fixture::<Conn, 0>::with_tables();
    beside_folds(own.parts().0, fold_videos, |number, round, conn| {
        let row = videos.find(100);
        if number == 1 {
            let set = set_total(row, likes, 7).retry(patient());
            let set = set.execute(conn).unwrap();
            let recount = row.select((id, 9_i64.into_sql::<BigInt>()));
            let repair = verify(row, likes, recount).retry(patient());
            let repaired = repair.repair(conn).unwrap();
            assert!(set <= 1 && repaired.len() <= 1);
            return;
        }
        insert(100, 10, conn);
        assert_eq!((count(100, 1, conn), count(100, 2, conn)), (Ok(1), Ok(1)));
        let totals = row.select((views.total(), likes.total()));
        let (seen, liked) = totals.first::<(i64, i32)>(conn).unwrap();
        assert!(
            seen == 13 && [0, 7, 9].contains(&liked),
            "round {round}: {seen}, {liked}"
        );
        let set = set_total(row, views, 50).retry(patient());
        assert_eq!(set.execute(conn), Ok(1));
        assert_eq!(count(100, 1, conn), Ok(1));
        assert_eq!(total_of(100, conn), 51, "round {round}");
        until("it is deleted", || {
            diesel::delete(row).execute(conn) == Ok(1)
        });
    });
}

/// Another session takes it out between the comparison and the lock, and the recount names it no more.
#[test]
fn a_row_that_left_the_filter_is_not_repaired() {
    let own = &mut Fixture::<Conn, 1>::with_tables();
    let (database, [conn]) = own.parts();
    let mut other = Some(Conn::connect(database));
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        let InstrumentationEvent::StartQuery { query, .. } = event else {
            return;
        };
        let query = query.to_string();
        let locks = ["BEGIN IMMEDIATE", " FOR NO KEY UPDATE", " FOR UPDATE"];
        let is_lock = locks.iter().any(|lock| query.contains(lock));
        if let Some(mut other) = other.take_if(|_| is_lock) {
            edit!(videos.find(3), title.eq("gone"), &mut other);
        }
    });
    let rows = videos.filter(title.ne("gone"));
    let recount = rows.select((id, 9_i64.into_sql::<BigInt>()));
    let repaired = verify(rows, likes, recount).repair(conn).unwrap();
    let mut keys: Vec<_> = repaired.iter().map(|drift| drift.key).collect();
    keys.sort_unstable();
    assert_eq!(keys, [1, 2]);
    let totals = videos.order(id).select(likes.total()).load(conn);
    assert_eq!(totals, Ok(vec![9, 9, 3]));
}

/// Deletes a row on which nobody counts meanwhile: its total.
fn take(key: i64, conn: &mut Conn) -> i64 {
    let transaction = Transaction::new().isolation(Isolation::ReadCommitted);
    let taken: QueryResult<i64> = transaction.retry(patient()).run(conn, |conn| {
        if dialect(conn) != Dialect::Sqlite {
            let of_row = |table: &str| format!("SELECT 1 FROM {table} WHERE id = {key}");
            let lock = [
                of_row("videos"),
                of_row("videos_shards") + " ORDER BY shard",
            ];
            conn.batch_execute(&format!("{} FOR UPDATE", lock.join(" FOR UPDATE; ")))?;
        }
        let total = videos.find(key).select(views.total()).first(conn)?;
        diesel::delete(videos.find(key)).execute(conn)?;
        Ok(total)
    });
    taken.unwrap()
}

/// One inserts, renames and deletes a row, and another one counts on whichever is there. `add` returns how much it has added: each
/// amount is on one row, and no row inherits another's.
fn others_count_on_rows_that_are_replaced(add: impl Fn(i64, i64, &mut Conn) -> i64 + Sync) {
    let own = &mut Fixture::<Conn, 0>::with_tables();
    let (added, taken) = (AtomicI64::new(0), AtomicI64::new(0));
    beside_folds(own.parts().0, fold_videos, |number, round, conn| {
        let count = |key: i64, conn: &mut Conn| {
            let n = [7, -5, 3, -2][(round % 4) as usize];
            added.fetch_add(add(key, n, conn), Ordering::Relaxed);
        };
        if number == 1 {
            count(100, conn);
            return count(101, conn);
        }
        insert(100, round % 20, conn);
        added.fetch_add(round % 20, Ordering::Relaxed);
        count(100, conn);
        let rename = || diesel::update(videos.find(100)).set(id.eq(101));
        until("it is renamed", || rename().execute(conn) == Ok(1));
        count(101, conn);
        taken.fetch_add(take(101, conn), Ordering::Relaxed);
    });
    assert_eq!(added.into_inner(), taken.into_inner());
}

#[test]
fn others_count_on_a_row_that_is_replaced() {
    others_count_on_rows_that_are_replaced(|key, n, conn| {
        let count = update(videos.find(key)).set(views.eq(views + n));
        n * count.retry(patient()).execute(conn).unwrap() as i64
    });
}

#[test]
fn bounds_hold_on_a_row_that_is_replaced() {
    others_count_on_rows_that_are_replaced(|key, n, conn| {
        let bounded = RowCounter::of(views, key).never_below(0).never_above(20);
        let added = bounded.retry(patient()).add(n, conn);
        let total = videos.find(key).select(views.total()).first::<i64>(conn);
        if let Some(total) = total.optional().unwrap() {
            assert!((0..=20).contains(&total), "{total}");
        }
        match added {
            Ok(true) => n,
            Ok(false) | Err(diesel::result::Error::NotFound) => 0,
            Err(error) => panic!("{error}"),
        }
    });
}

/// Without the foreign key, a writer may create a shard while a fold holds its row.
#[test]
fn no_count_is_lost_where_counts_check_no_foreign_keys() {
    let own = &mut Fixture::with_tables();
    let (database, [conn]) = own.parts();
    let counted = AtomicI64::new(0);
    let fold_all = |conn: &mut Conn| {
        let fold = fold(videos).keep_shards(0).retry(patient());
        fold.run(conn).map(drop)
    };
    beside_folds(database, fold_all, |_, round, conn| {
        if round == 0 {
            conn.run(match dialect(conn) {
                Dialect::Postgres => "SET session_replication_role = replica",
                Dialect::Mysql => "SET foreign_key_checks = 0",
                _ => "PRAGMA foreign_keys = OFF",
            });
        }
        let count = update(videos.find(1)).set(views.eq(views + 1));
        let count = count.shard_choice(ShardChoice::Random).retry(patient());
        assert_eq!(count.execute(conn), Ok(1));
        counted.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(total_of(1, conn), 100 + counted.into_inner());
}

//! Parents that are deleted, inserted again and renamed beside folds: each incarnation of a key keeps what was counted on it.
//!
//! Each round works on keys of its own, and three threads fold the whole table all the time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::{Counter, counters, fold, update};
use diesel_sharded_tests::fixture::{Fixture, Run};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{Database, insert};

use super::{Conn, count, dialect, on_threads, total_of};

/// How long each test runs: `SECONDS=60` for a long run.
fn duration() -> Duration {
    let seconds = std::env::var("SECONDS").map_or(Ok(4), |seconds| seconds.parse());
    Duration::from_secs(seconds.expect("SECONDS is a number"))
}

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
        let until = Instant::now() + duration();
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

#[test]
fn a_row_that_is_inserted_again_begins_anew() {
    let own = &mut Fixture::<Conn, 0>::with_tables();
    beside_folds(own.parts().0, fold_videos, |number, round, conn| {
        let key = 100 + number;
        insert(key, 10, conn);
        for _ in 0..3 {
            assert_eq!(count(key, 1, conn), Ok(1));
        }
        assert_eq!(total_of(key, conn), 13, "round {round}");
        // A plain statement, which may lose a deadlock with a fold.
        while diesel::delete(videos.find(key)).execute(conn) != Ok(1) {}
    });
}

#[test]
fn a_row_that_is_renamed_takes_its_total_along() {
    let own = &mut Fixture::with_tables();
    let (database, [conn]) = own.parts();
    for key in [100, 101] {
        insert(key, 0, conn);
    }
    beside_folds(database, fold_videos, |number, round, conn| {
        let (here, there) = (100 + number, 200 + number);
        for (from, to) in [(here, there), (there, here)] {
            assert_eq!(count(from, 1, conn), Ok(1));
            let rename = || diesel::update(videos.find(from)).set(id.eq(to));
            while rename().execute(conn) != Ok(1) {}
        }
        assert_eq!(total_of(here, conn), 2 * (round + 1), "round {round}");
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

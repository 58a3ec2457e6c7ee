//! Parents that are deleted, inserted again and renamed beside folds: each incarnation of a key keeps what was counted on it.
//!
//! Each round works on keys of its own, and three threads fold the whole table all the time.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::{Counter, fold, update};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{Database, TestConnection, count, insert, schema};

/// How long each test runs: `SECONDS=60` for a long run.
fn duration() -> Duration {
    let seconds = std::env::var("SECONDS").map_or(Ok(4), |seconds| seconds.parse());
    Duration::from_secs(seconds.expect("SECONDS is a number"))
}

const FOLDERS: usize = 3;

macro_rules! on_every_database {
    ($($name:ident: $conn:ty, $no_foreign_keys:literal;)+) => {$(
        mod $name {
            use super::*;

            type Conn = $conn;

            /// Runs `work` on some threads, each with a number and a connection, until the time is up, beside folds.
            fn beside_folds(
                database: &Database,
                fold_all: impl Fn(&mut Conn) -> QueryResult<()> + Sync,
                work: impl Fn(i64, u64, &mut Conn) + Sync,
            ) {
                let ended = AtomicBool::new(false);
                let until = Instant::now() + duration();
                thread::scope(|scope| {
                    for _ in 0..FOLDERS {
                        scope.spawn(|| {
                            let conn = &mut Conn::connect(database);
                            while !ended.load(Ordering::Relaxed) {
                                fold_all(conn).unwrap();
                            }
                        });
                    }
                    let workers: Vec<_> = (0..2)
                        .map(|number| {
                            let work = &work;
                            scope.spawn(move || {
                                let conn = &mut Conn::connect(database);
                                let mut round = 0;
                                while Instant::now() < until {
                                    work(number, round, conn);
                                    round += 1;
                                }
                                round
                            })
                        })
                        .collect();
                    let rounds: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
                    ended.store(true, Ordering::Relaxed);
                    for rounds in rounds {
                        assert!(rounds.unwrap() > 0);
                    }
                });
            }

            fn patient() -> RetryPolicy {
                diesel_sharded_tests::patient().with_attempts(1000)
            }

            #[test]
            fn a_named_counter_that_is_deleted_begins_anew() {
                let database = Conn::database();
                let mut conn = Conn::connect(&database);
                conn.run_pending_migrations(diesel_sharded::MIGRATIONS).unwrap();
                beside_folds(
                    &database,
                    |conn| fold(diesel_sharded::counters::table).retry(patient()).run(conn).map(drop),
                    |number, round, conn| {
                        let counter = Counter::named(format!("counter {number}"));
                        for _ in 0..4 {
                            counter.increment(conn).unwrap();
                        }
                        assert_eq!(counter.get(conn), Ok(4), "round {round}");
                        assert_eq!(counter.delete(conn), Ok(true));
                    },
                );
            }

            #[test]
            fn a_row_that_is_inserted_again_begins_anew() {
                let database = Conn::database();
                schema::create(&mut Conn::connect(&database));
                beside_folds(
                    &database,
                    |conn| fold(videos).retry(patient()).run(conn).map(drop),
                    |number, round, conn| {
                        let key = 100 + number;
                        insert!(videos, (id.eq(key), slug.eq(key.to_string()), title.eq(""), views.eq(10)), conn);
                        for _ in 0..3 {
                            assert_eq!(count!(videos.find(key), views.eq(views + 1), conn), 1);
                        }
                        let total = videos.find(key).select(views.total());
                        assert_eq!(total.first::<i64>(conn), Ok(13), "round {round}");
                        delete(key, conn);
                    },
                );
            }

            #[test]
            fn a_row_that_is_renamed_takes_its_total_along() {
                let database = Conn::database();
                schema::create(&mut Conn::connect(&database));
                let mut conn = Conn::connect(&database);
                for key in [100, 101] {
                    insert!(videos, (id.eq(key), slug.eq(key.to_string()), title.eq(""), views.eq(0)), &mut conn);
                }
                beside_folds(
                    &database,
                    |conn| fold(videos).retry(patient()).run(conn).map(drop),
                    |number, round, conn| {
                        let (here, there) = (100 + number, 200 + number);
                        for (from, to) in [(here, there), (there, here)] {
                            assert_eq!(count!(videos.find(from), views.eq(views + 1), conn), 1);
                            rename(from, to, conn);
                        }
                        let total = videos.find(here).select(views.total());
                        let counted = 2 * (round as i64 + 1);
                        assert_eq!(total.first::<i64>(conn), Ok(counted), "round {round}");
                    },
                );
            }

            /// Without the foreign key, a writer may create a shard while a fold holds its row.
            #[test]
            fn no_count_is_lost_where_counts_check_no_foreign_keys() {
                let database = Conn::database();
                schema::create(&mut Conn::connect(&database));
                let counted = AtomicI64::new(0);
                beside_folds(
                    &database,
                    |conn| fold(videos).keep_shards(0).retry(patient()).run(conn).map(drop),
                    |_, round, conn| {
                        if round == 0 {
                            conn.batch_execute($no_foreign_keys).unwrap();
                        }
                        let count = update(videos.find(1)).set(views.eq(views + 1));
                        let count = count.shard_choice(ShardChoice::Random).retry(patient());
                        assert_eq!(count.execute(conn), Ok(1));
                        counted.fetch_add(1, Ordering::Relaxed);
                    },
                );
                let conn = &mut Conn::connect(&database);
                let total = videos.find(1).select(views.total());
                assert_eq!(total.first(conn), Ok(100 + counted.into_inner()));
            }

            /// A plain statement, which may lose a deadlock with a fold.
            fn delete(key: i64, conn: &mut Conn) {
                while diesel::delete(videos.find(key)).execute(conn) != Ok(1) {}
            }

            fn rename(from: i64, to: i64, conn: &mut Conn) {
                while diesel::update(videos.find(from)).set(id.eq(to)).execute(conn) != Ok(1) {}
            }
        }
    )+};
}

on_every_database! {
    postgres: PgConnection, "SET session_replication_role = replica";
    mysql: MysqlConnection, "SET foreign_key_checks = 0";
    sqlite: SqliteConnection, "PRAGMA foreign_keys = OFF";
}

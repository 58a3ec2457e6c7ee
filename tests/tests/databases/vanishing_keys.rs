//! Keys that are deleted and inserted again, or renamed, beside increments on them: a shard whose parent is gone at its creation is no
//! error: the increment looks for the parent again.

use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::{Conflict, Counter, Error, RowCounter, update};
use diesel_sharded_tests::fixture::{Fixture, Run};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{TestConnection, assert_matches, patient, pool, until};

/// How long the keys keep changing.
const WHILE: Duration = Duration::from_secs(5);

/// The changes to a video that are repeated beside increments on it.
const RENAMED: [&str; 2] = [
    "UPDATE videos SET id = 20 WHERE id = 2",
    "UPDATE videos SET id = 2 WHERE id = 20",
];
const DELETED: [&str; 2] = [
    "DELETE FROM videos WHERE id = 1",
    "INSERT INTO videos VALUES (1, 'a', 'A', 100, 1, NULL)",
];
/// Another transaction may be in the way.
const COUNTER_DELETED: [&str; 1] = ["DELETE FROM diesel_sharded_counters"];

macro_rules! on {
    ($module:ident, $conn:ty) => {
        mod $module {
            use super::*;

            type Conn = $conn;

            #[test]
            fn no_error_escapes_from_counts() {
                let own = &mut Fixture::<Conn, 0>::with_counters();
                let (database, _) = own.parts();
                patient().set_global();
                let coalescer = Coalescer::builder(pool::<Conn>(database.url()));
                let coalescer = &coalescer.deadline(Duration::from_secs(600)).build().unwrap();
                thread::scope(|scope| {
                    for texts in [&RENAMED[..], &DELETED, &COUNTER_DELETED] {
                        scope.spawn(move || {
                            let conn = &mut Conn::connect(database);
                            let end = Instant::now() + WHILE;
                            for text in texts.iter().cycle().take_while(|_| Instant::now() < end) {
                                // Some of these are in the way of other transactions too, and are retried.
                                until("it is done", || conn.batch_execute(text).is_ok());
                            }
                        });
                    }
                    for (name, operation) in OPERATIONS {
                        scope.spawn(move || {
                            let conn = &mut Conn::connect(database);
                            let end = Instant::now() + WHILE;
                            for counts in (0..).take_while(|_| Instant::now() < end) {
                                let done = operation(conn, coalescer, counts);
                                done.unwrap_or_else(|error| panic!("{name}: {error:?}"));
                            }
                        });
                    }
                });
                assert_eq!(coalescer.stats().losses, 0, "{:?}", coalescer.stats());
            }

            type Operation = fn(&mut Conn, &Coalescer<Conn>, u64) -> Result<(), Error>;

            /// An increment with a shard of its own, so that most create one.
            macro_rules! count {
                ($rows:expr) => {
                    update($rows).set(views.eq(views + 1)).shard_choice(ShardChoice::Random)
                };
            }

            const OPERATIONS: [(&str, Operation); 9] = [
                ("by key", |conn, _, _| Ok(count!(videos.find(1)).execute(conn).map(drop)?)),
                ("by a key that is renamed", |conn, _, _| {
                    Ok(count!(videos.find(20)).execute(conn).map(drop)?)
                }),
                ("by a filter", |conn, _, _| {
                    Ok(count!(videos.filter(id.le(20))).execute(conn).map(drop)?)
                }),
                ("rows back", |conn, _, _| {
                    let count = count!(videos.filter(slug.ne("z"))).returning(views);
                    let rows: QueryResult<Vec<i64>> = count.get_results(conn);
                    Ok(rows.map(drop)?)
                }),
                ("one row", |conn, _, _| {
                    Ok(RowCounter::of(views, 1).add(1, conn).map(drop)?)
                }),
                ("named", |conn, _, _| Ok(Counter::named("a").increment(conn)?)),
                ("bounded", |conn, _, _| {
                    let bounded = RowCounter::of(likes, 1).never_below(0).never_above(1_000_000);
                    match bounded.add(1, conn) {
                        Err(DieselError::NotFound) => Ok(()), // it is not there just now
                        added => Ok(added.map(drop)?),
                    }
                }),
                ("with an idempotency key", |conn, _, number| {
                    let count = count!(videos.find(1)).idempotency_key(number.to_string());
                    Ok(count.execute(conn).map(drop)?)
                }),
                ("coalesced", |_, coalescer, number| {
                    let of = if number % 2 == 0 { 1 } else { 20 };
                    coalescer.add_later(&RowCounter::of(views, of), 1)?;
                    coalescer.flush()
                }),
            ];

            /// If a foreign key is violated for another reason, the policy ends the retries; the error has the database's text.
            #[test]
            fn a_foreign_key_of_another_reason_is_told() {
                let [conn] = &mut *Fixture::<Conn, _>::with_counters();
                conn.run(
                    "CREATE TABLE nobody (id INTEGER PRIMARY KEY);
                     ALTER TABLE videos_shards ADD CONSTRAINT another FOREIGN KEY (shard) REFERENCES nobody (id)",
                );
                let policy = || RetryPolicy::new().with_attempts(3).with_min_delay(Duration::from_millis(1));
                let by_key = count!(videos.find(1)).retry(policy());
                let by_filter = count!(videos.filter(slug.eq("a"))).retry(policy());
                let once = count!(videos.find(1)).retry(policy()).idempotency_key("a");
                for failed in [by_key.execute(conn), by_filter.execute(conn), once.execute(conn)] {
                    let error = Error::from(failed.unwrap_err());
                    assert!(error.to_string().contains("another"), "{error}");
                    assert_matches!(error, Error::ConflictPersisted { conflict: Conflict::ParentGone, attempts: 3, .. });
                }
                // Inside the caller's transaction Diesel's own error is returned.
                let inside: QueryResult<usize> = conn.transaction(|conn| {
                    update(videos.find(1)).set(views.eq(views + 1)).execute(conn)
                });
                assert_matches!(inside, Err(DieselError::DatabaseError(DatabaseErrorKind::ForeignKeyViolation, _)));
            }
        }
    };
}

on!(postgres, PgConnection);
on!(mysql, MysqlConnection);

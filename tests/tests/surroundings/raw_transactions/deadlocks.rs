//! Deadlocks on MySQL and MariaDB, which end the whole transaction: in one that the caller began by text, and of an increment by itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use diesel::connection::LoadConnection;
use diesel::mysql::Mysql;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_async::AsyncMysqlConnection;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded_tests::awaited::{self, Awaited, Done};
use diesel_sharded_tests::fixture::Run;
use diesel_sharded_tests::interrupter::{Fault, Interrupter, Plan};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{Database, Stop, TestConnection, number, schema, until};

/// An increment that a trigger makes wait for the third video, and a transaction that holds it and has written more, so that the increment is the
/// victim of their deadlock.
struct Circle {
    database: Database,
    other: MysqlConnection,
    probe: MysqlConnection,
}

impl Circle {
    fn new() -> Self {
        let (database, mut other) = schema::database_with_counters::<MysqlConnection>();
        other.run("CREATE TABLE heavy (n INTEGER)");
        other.run(
            "CREATE TRIGGER waits BEFORE UPDATE ON videos_shards FOR EACH ROW \
             UPDATE videos SET title = title WHERE id = 3",
        );
        other.run("INSERT INTO videos_shards (id, shard) VALUES (1, 0), (1, 1), (1, 2), (1, 3)");
        let probe = MysqlConnection::connect(&database);
        Circle {
            database,
            other,
            probe,
        }
    }

    /// The outcome of an increment on the first video that is the victim of a deadlock.
    fn meets<Conn: LoadConnection<Backend = Mysql>>(
        &mut self,
        conn: &mut Conn,
        count: impl FnOnce(&mut Conn) -> QueryResult<usize>,
    ) -> QueryResult<usize> {
        self.other
            .run("BEGIN; UPDATE videos SET title = title WHERE id = 3");
        for _ in 0..9 {
            self.other
                .run("INSERT INTO heavy VALUES (1), (2), (3), (4), (5), (6), (7)");
        }
        let free = "COUNT(*) FROM (SELECT 1 FROM videos_shards WHERE id = 1 FOR UPDATE SKIP LOCKED) AS free";
        let (other, probe, done) = (&mut self.other, &mut self.probe, AtomicBool::new(false));
        thread::scope(|scope| {
            let _stop = Stop(&done);
            let closes = scope.spawn(|| {
                until("the count holds its shard", || {
                    number!(free, probe) < 4 || done.load(Ordering::Relaxed)
                });
                other.run("UPDATE videos_shards SET likes = likes WHERE id = 1");
                other.run("COMMIT");
            });
            let counted = count(conn);
            done.store(true, Ordering::Relaxed);
            closes.join().unwrap();
            counted
        })
    }
}

fn is_deadlock(counted: &QueryResult<usize>) -> bool {
    matches!(counted, Err(DieselError::DatabaseError(_, says)) if says.message().starts_with("Deadlock"))
}

macro_rules! cases {
    ($($name:ident: $conn:ty, $api:path;)+) => {$(
        mod $name {
            use super::*;
            use $api as api;

            type Conn = $conn;

            fn count(conn: &mut Conn) -> QueryResult<usize> {
                api::update(videos.find(1)).set(views.eq(views + 1)).execute(conn).done()
            }

            /// The role of an application has no privilege on the server's own tables.
            #[test]
            fn of_a_count_by_itself_it_is_retried() {
                let mut circle = Circle::new();
                let (before, name) = circle.database.url().rsplit_once('/').unwrap();
                let role = format!("app_{name}");
                circle.other.run(&format!("CREATE USER {role}; GRANT ALL ON {name}.* TO {role}"));
                let (_, address) = before.split_once('@').unwrap();
                let conn = &mut Conn::establish(&format!("mysql://{role}@{address}/{name}")).unwrap();
                // Its own transactions have ended.
                conn.run("BEGIN");
                conn.run("ROLLBACK");
                for _ in 0..2 {
                    assert_eq!(circle.meets(conn, count), Ok(1));
                }
                circle.other.run(&format!("DROP USER {role}"));
            }

            /// What was done before it in the caller's transaction is gone.
            #[test]
            fn in_a_transaction_by_text_it_is_reported() {
                let mut circle = Circle::new();
                let conn = &mut Conn::establish(circle.database.url()).unwrap();
                inside(&mut circle, conn);
            }

            fn inside(circle: &mut Circle, conn: &mut Conn) {
                conn.run("BEGIN");
                conn.run("UPDATE videos SET likes = 77 WHERE id = 2");
                let counted = circle.meets(conn, count);
                assert!(is_deadlock(&counted), "{counted:?}");
                conn.run("ROLLBACK");
                assert_eq!(circle.meets(conn, count), Ok(1));
            }

            /// A guarded transaction that fails is rolled back twice.
            #[test]
            fn a_failed_set_hides_no_transaction() {
                let mut circle = Circle::new();
                let conn = &mut Conn::establish(circle.database.url()).unwrap();
                conn.run("SET innodb_lock_wait_timeout = 1");
                circle.other.run("BEGIN; UPDATE videos SET title = title WHERE id = 2");
                let set = api::set_total(videos.find(2), likes, 5).retry(RetryPolicy::never());
                set.execute(conn).unwrap_err();
                circle.other.run("ROLLBACK");
                conn.run("SET innodb_lock_wait_timeout = DEFAULT");
                inside(&mut circle, conn);
            }

            /// Diesel rolls back where its `COMMIT` fails, and so does this crate.
            #[test]
            fn a_failed_commit_hides_no_transaction() {
                let mut circle = Circle::new();
                let (interrupter, url) = Interrupter::before(circle.database.url(), &[]);
                for statement in 1.. {
                    let conn = &mut Conn::establish(&url).unwrap();
                    let victim = number!("CONNECTION_ID()", conn);
                    interrupter.arm(Plan { fault: Fault::AfterItsWork, statement, then: 0, victim });
                    let work = |conn: &mut Conn| {
                        let read = videos.find(2).select(likes);
                        diesel::RunQueryDsl::first::<i32>(read, conn)
                    };
                    let done: QueryResult<i32> = api::retry::transaction(conn, RetryPolicy::never(), work);
                    let hit = interrupter.disarm();
                    if hit.is_empty() {
                        assert!(statement > 3, "{statement}");
                        return;
                    }
                    if hit == ["COMMIT"] {
                        done.unwrap_err();
                        inside(&mut circle, conn);
                    }
                }
            }
        }
    )+};
}

cases! {
    mysql: MysqlConnection, diesel_sharded;
    async_mysql: Awaited<AsyncMysqlConnection>, awaited;
}

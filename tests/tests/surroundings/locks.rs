//! What one session locks while another one waits, and what it sees.

use std::thread;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::bounded::Bounded;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{Isolation, Transaction};
use diesel_sharded::{RowCounter, set_total, update};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{TestConnection, count, schema};

macro_rules! on {
    ($($name:ident: $conn:ty;)+) => {$(
        mod $name {
            use super::*;

            /// Parents are locked before their shards: who holds the parent takes its shards without waiting.
            #[test]
            fn a_set_that_waits_for_a_parent_holds_no_shard() {
                let (database, conn) = &mut schema::database::<$conn>();
                assert_eq!(count!(videos.find(1), views.eq(views + 5), conn), 1);
                conn.batch_execute("BEGIN; UPDATE videos SET title = 'held' WHERE id = 1")
                    .unwrap();
                thread::scope(|scope| {
                    let setting = scope.spawn(|| {
                        let mut conn = <$conn>::connect(database);
                        set_total(videos.find(1), views, 7).execute(&mut conn)
                    });
                    thread::sleep(Duration::from_millis(300)); // it waits for the parent by now
                    let shards = "SELECT 1 FROM videos_shards WHERE id = 1 FOR UPDATE NOWAIT";
                    diesel::sql_query(shards).execute(conn).unwrap();
                    conn.batch_execute("COMMIT").unwrap();
                    assert_eq!(setting.join().unwrap(), Ok(1));
                });
                let total = videos.find(1).select(views.total());
                assert_eq!(total.first(conn), Ok(7_i64));
            }

            /// So does a bounded count in a transaction of its own, whose shard has less when it has waited for that.
            #[test]
            fn a_bounded_count_that_waits_for_a_parent_holds_no_shard() {
                let stock = || RowCounter::of(likes, 1).never_below(0);
                let ways: [fn(_, &mut $conn) -> QueryResult<bool>; 2] = [
                    |stock: Bounded<_>, conn| stock.idempotency_key("order 7").add(-1, conn),
                    |stock: Bounded<_>, conn| Ok(stock.add_and_get(-1, conn)?.is_some()),
                ];
                for count in ways {
                    let (database, conn) = &mut schema::database_with_counters::<$conn>();
                    let other = &mut <$conn>::connect(database);
                    assert_eq!(stock().add(9_999, conn), Ok(true)); // hands room out
                    conn.batch_execute("UPDATE videos SET likes = 5 WHERE id = 1")
                        .unwrap();
                    other
                        .batch_execute("BEGIN; UPDATE videos_shards SET likes = 0 WHERE id = 1")
                        .unwrap();
                    conn.batch_execute("BEGIN; SELECT title FROM videos WHERE id = 1 FOR UPDATE")
                        .unwrap();
                    thread::scope(|scope| {
                        let counting = scope.spawn(|| count(stock(), &mut <$conn>::connect(database)));
                        thread::sleep(Duration::from_millis(300)); // it waits for a shard by now
                        other.batch_execute("COMMIT").unwrap();
                        thread::sleep(Duration::from_millis(300)); // and for the parent
                        let shards = "SELECT 1 FROM videos_shards WHERE id = 1 FOR UPDATE NOWAIT";
                        diesel::sql_query(shards).execute(conn).unwrap();
                        conn.batch_execute("COMMIT").unwrap();
                        assert_eq!(counting.join().unwrap(), Ok(true));
                    });
                }
            }

            /// The room that a caller's older snapshot shows may be gone.
            #[test]
            fn bounds_hold_beyond_the_callers_snapshot() {
                let (database, conn) = &mut schema::database::<$conn>();
                let other = &mut <$conn>::connect(database);
                let stock = RowCounter::of(likes, 1).never_below(0); // of one
                let mut first = true;
                let repeatable = Transaction::new().isolation(Isolation::RepeatableRead);
                let sold: QueryResult<bool> = repeatable.run(conn, |conn| {
                    let seen = videos.find(1).select(likes.total());
                    seen.first::<i32>(conn)?; // fixes the snapshot
                    if std::mem::take(&mut first) {
                        assert_eq!(stock.add(-1, other), Ok(true));
                    }
                    stock.add(-1, conn)
                });
                assert_eq!((sold, stock.get(other)), (Ok(false), Ok(Some(0))));
            }
        }
    )+};
}

on! {
    postgres: PgConnection;
    mysql: MysqlConnection;
}

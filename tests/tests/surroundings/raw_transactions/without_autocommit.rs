//! Connections to MySQL or MariaDB whose statements do not commit by themselves.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::{set_total, update};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{TestConnection, number};

use super::mysql::cases::{Bench, database, edit, operations, state};

#[test]
fn autocommit_stays_what_it_is() {
    let (database, _) = database();
    let mut bench = Bench::new(&database);
    for autocommits in [0, 1] {
        // The connection closes first: it leaves a transaction open, for which the drop of the database would wait.
        let conn = &mut MysqlConnection::connect(&database);
        conn.batch_execute(&format!("SET autocommit = {autocommits}"))
            .unwrap();
        for operation in operations() {
            let (name, _, work) = operation;
            work(conn, bench.arrange(operation))
                .unwrap_or_else(|error| panic!("{name}: {error:?}"));
            assert_eq!(number!("@@autocommit", conn), autocommits, "{name}");
            conn.batch_execute("COMMIT").unwrap();
        }
    }
}

#[test]
fn pending_work_is_neither_committed_nor_rolled_back() {
    let (database, mut alone) = database();
    let mut bench = Bench::new(&database);
    let mut conn = MysqlConnection::connect(&database);
    conn.batch_execute("SET autocommit = 0").unwrap();
    for operation in operations() {
        let (name, _, work) = operation;
        let effect = bench.effect(operation, &mut alone);
        let video = bench.arrange(operation);
        for end in ["ROLLBACK", "COMMIT"] {
            let before = state(&mut bench.side);
            edit(end, &mut conn);
            work(&mut conn, video).unwrap_or_else(|error| panic!("{name}: {error:?}"));
            assert_eq!(state(&mut bench.side), before, "{name}");
            conn.batch_execute(end).unwrap();
            let after = state(&mut bench.side);
            match end {
                "COMMIT" => assert_eq!(after.since(&before), effect, "{name}"),
                _ => assert_eq!(after, before, "{name}"),
            }
        }
    }
    assert_eq!(state(&mut bench.side).title, "COMMIT");
}

/// An operation that opens its own transaction where none is in progress commits it.
#[test]
fn without_pending_work_a_transaction_of_its_own_is_committed() {
    let (database, mut conn) = database();
    let mut other = MysqlConnection::connect(&database);
    conn.batch_execute("SET autocommit = 0").unwrap();
    let total = |conn: &mut MysqlConnection| {
        let read = videos.find(1).select(views.total());
        read.first::<i64>(conn).unwrap()
    };
    set_total(videos.find(1), views, 7)
        .execute(&mut conn)
        .unwrap();
    assert_eq!(total(&mut other), 7);
    let counted: QueryResult<usize> = retry::transaction(&mut conn, RetryPolicy::new(), |conn| {
        update(videos.find(1))
            .set(views.eq(views + 1))
            .execute(conn)
    });
    assert_eq!((counted, total(&mut other)), (Ok(1), 8));
}

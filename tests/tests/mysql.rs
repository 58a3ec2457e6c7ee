//! The cases of `cases/`, and what is MySQL's and MariaDB's own.

mod cases;
mod servers;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::Isolation;
use diesel_sharded::{Conflict, ShardsTable, update};
use diesel_sharded_tests::TestConnection;

type Conn = MysqlConnection;

fn is_mariadb(conn: &mut Conn) -> bool {
    conn.version().contains("MariaDB")
}

#[test]
fn deadlock() {
    servers::deadlock("SET SESSION innodb_lock_wait_timeout = 20");
}

#[test]
fn lock_timeout() {
    servers::a_locked_shard(
        "SET SESSION innodb_lock_wait_timeout = 1",
        Conflict::LockTimeout,
    );
    servers::a_lock_that_stays(
        "SET SESSION innodb_lock_wait_timeout = 1",
        Conflict::LockTimeout,
    );
}

#[test]
fn nowait() {
    servers::nowait(
        "SELECT 1",
        "SELECT 1 FROM videos_shards WHERE id = 1 AND shard = 0 FOR UPDATE NOWAIT",
    );
}

/// MariaDB alone can end a write by a time limit of its own; MySQL's holds for reads.
#[test]
fn statement_timeout_on_mariadb() {
    let (_database, mut conn) = servers::database();
    if is_mariadb(&mut conn) {
        servers::a_locked_shard(
            "SET SESSION max_statement_time = 0.1",
            Conflict::StatementTimeout,
        );
    } else {
        let error = diesel::sql_query("SELECT /*+ MAX_EXECUTION_TIME(50) */ SLEEP(1) FROM videos")
            .execute(&mut conn);
        println!("MySQL: {error:?}");
    }
}

/// MySQL has no serialization failures: its repeatable reads update what others have committed meanwhile. MariaDB has, with
/// `innodb_snapshot_isolation`.
#[test]
fn serialization_failure_on_mariadb() {
    let (_database, mut conn) = servers::database();
    if is_mariadb(&mut conn) {
        servers::serialization(
            Isolation::RepeatableRead,
            "SET SESSION innodb_snapshot_isolation = ON",
        );
    }
}

/// MySQL rolls back at a deadlock and runs what follows outside any transaction.
#[test]
fn a_swallowed_deadlock_is_not_acknowledged() {
    servers::a_swallowed_error_is_not_acknowledged(|conn| {
        // What the server does at a deadlock, and what the driver would not notice.
        conn.batch_execute("ROLLBACK").unwrap();
    });
}

#[test]
fn a_killed_connection() {
    servers::a_connection_cut("CONNECTION_ID()", |number| format!("KILL {number}"));
}

/// By key, and also by a filter that reads the parent: neither waits for its row lock.
#[test]
fn a_locked_parent_stops_no_count() {
    servers::a_locked_parent_stops_no_count(
        "UPDATE videos SET title = 'x' WHERE id = 1",
        "SET SESSION innodb_lock_wait_timeout = 1",
    );
}

mod unsigned_parent {
    use super::*;

    diesel::table! {
        pages (id) {
            id -> Unsigned<BigInt>,
            hits -> Unsigned<BigInt>,
            likes -> Unsigned<Integer>,
        }
    }

    #[derive(ShardedField)]
    #[sharded(shards = 2)]
    #[expect(dead_code, reason = "the derive reads the fields' types")]
    struct Page {
        id: u64,
        #[sharded]
        hits: u64,
        #[sharded]
        likes: u32,
    }

    /// One shard alone goes below zero, where `signed - unsigned` would fail.
    #[test]
    fn counts_up_and_down() {
        use self::pages::dsl::*;
        let database = Conn::database();
        let conn = &mut Conn::connect(&database);
        conn.batch_execute(
            "CREATE TABLE pages (id BIGINT UNSIGNED PRIMARY KEY, hits BIGINT UNSIGNED NOT NULL, likes INTEGER UNSIGNED NOT NULL)",
        )
        .unwrap();
        ShardsTable::of(pages).create(conn).unwrap();
        let row = (id.eq(1), hits.eq(u64::MAX - 10), likes.eq(5));
        diesel::insert_into(pages)
            .values(row)
            .execute(conn)
            .unwrap();
        for _ in 0..10 {
            update(pages.find(1))
                .set((hits.eq(hits + 3), likes.eq(likes + 1)))
                .execute(conn)
                .unwrap();
            update(pages.find(1))
                .set((hits.eq(hits - 2), likes.eq(likes - 1)))
                .execute(conn)
                .unwrap();
        }
        let totals = pages.select((hits.total(), likes.total()));
        assert_eq!(totals.first(conn), Ok((u64::MAX, 5_u32)));
        update(pages.find(1))
            .set(likes.eq(likes - 6))
            .execute(conn)
            .unwrap();
        let below_zero = pages.select(likes.total()).first::<u32>(conn);
        assert!(below_zero.is_err(), "{below_zero:?}");
        update(pages.find(1))
            .set(likes.eq(likes + 7))
            .execute(conn)
            .unwrap();
        ShardsTable::of(pages).drop(conn).unwrap();
        assert_eq!(
            pages.select((hits, likes)).first(conn),
            Ok((u64::MAX, 6_u32))
        );
    }
}

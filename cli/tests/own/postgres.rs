//! The tool on PostgreSQL.

use super::Conn;
use super::cases::{self, Script, assert_says, number, run_at};
use super::servers;
use diesel::prelude::*;
use diesel_sharded_tests::TestConnection;
use diesel_sharded_tests::pgbouncer::{PgBouncer, PoolMode};

#[test]
fn sessions() {
    cases::sessions(include_str!("../sessions/postgres.txt"));
}

/// A table that others may not write meanwhile, as `CREATE INDEX` has it: a fold that is in the middle of a batch gives way, so that counts go on.
#[test]
fn counts_go_on_while_a_fold_waits_for_its_table() {
    let (database, mut conn) = cases::videos(3, 2);
    let mut holder = Conn::connect(&database);
    holder.script("BEGIN; LOCK TABLE videos IN SHARE MODE");
    let mut fold = cases::spawn(&database, "fold videos");
    let waits =
        "(SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND relation = 'videos'::regclass)";
    while number(&mut conn, waits) == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // Without an end of that wait every count would meet its timeout.
    conn.script("SET statement_timeout = '10s'");
    for shard in [0, 1] {
        let count = format!("UPDATE videos_shards SET views = views + 1 WHERE shard = {shard}");
        conn.script(&count);
    }
    assert_eq!(fold.try_wait().unwrap(), None);
    holder.script("COMMIT");
    let ended = cases::end(fold);
    assert!(matches!(ended.0, Some(0 | 3)), "{ended:?}");
    let totals = cases::totals(&mut conn);
    assert!(totals.iter().all(|(_, total, _)| *total == 4), "{totals:?}");
}

#[test]
fn doctor_sees_a_pooler_by_its_session() {
    let (database, _conn) = cases::videos(1, 1);
    assert_eq!(cases::doctor::levels(&database, "pooler", 0), ["ok"]);
    let pooler = PgBouncer::start(PoolMode::Transaction, 1);
    let url = pooler.url(&database);
    let doctor = || run_at(&url, "doctor --json", 0).0;
    doctor(); // opens the session of the server
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_says(&doctor(), "a pooler keeps it");
    let mut other = PgConnection::establish(&url).unwrap();
    other.script("PREPARE mine AS SELECT 1");
    assert_says(&doctor(), "came with 1 prepared statement");
}

#[test]
fn advise_names_the_hot_column() {
    servers::advise::names_the_hot_column();
}

#[test]
fn advise_names_tables_and_columns_as_statements_do() {
    servers::advise::names_are_those_of_the_statements('"');
}

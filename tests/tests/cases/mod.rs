use std::thread;

use super::Conn;
use crate::api::MIGRATIONS;
use diesel_migrations::MigrationHarness;
use diesel_sharded_tests::{Database, TestConnection, schema};

mod bounded;
mod cached;
mod coalescer;
mod concurrency;
mod count_many;
mod counter_cache;
mod fold;
mod folder;
mod idempotency;
mod keys_and_fields;
mod life;
mod migrating;
mod models;
mod named;
mod or_insert;
mod properties;
mod returning;
mod set_total;
mod shapes;
mod shard_choice;
mod tables;
mod top;
mod totals;
mod transactions;
mod verify;

/// Runs `work` on as many threads, each with a connection of its own; a panic in one is a panic here.
fn on_threads(threads: i64, database: &Database, work: impl Fn(i64, &mut Conn) + Sync) {
    thread::scope(|scope| {
        for number in 0..threads {
            let work = &work;
            scope.spawn(move || work(number, &mut Conn::connect(database)));
        }
    });
}

/// A database with the library's own tables too.
fn database_with_counters() -> (Database, Conn) {
    let (database, mut conn) = database();
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    (database, conn)
}

/// A database with the tables of `schema`.
fn database() -> (Database, Conn) {
    let database = Conn::database();
    let mut conn = Conn::connect(&database);
    schema::create(&mut conn);
    (database, conn)
}

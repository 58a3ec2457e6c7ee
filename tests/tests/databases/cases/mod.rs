//! The cases that every operation has to pass, on a connection and by an `api`: the blocking operations or the asynchronous ones.

use std::sync::{Arc, Mutex};
use std::thread;

use super::Conn;
use super::api::{self, MIGRATIONS};
use diesel::connection::{Connection, InstrumentationEvent};
use diesel_migrations::MigrationHarness;
use diesel_sharded_tests::{Database, TestConnection, patient, schema};

mod bounded;
mod concurrency;
mod count_many;
mod counter_cache;
mod fold;
mod idempotency;
mod in_schema;
mod keys_and_fields;
mod life;
mod models;
mod named;
mod named_values;
mod one_cache;
mod or_insert;
mod peaks;
mod properties;
mod returning;
mod row_counter;
mod set_once;
mod set_total;
mod shapes;
mod shard_choice;
mod time;
mod top;
mod totals;
mod transactions;
mod verify;
mod view;
mod without_foreign_key;

/// Runs `work` on as many threads, each with a connection of its own; a panic in one is a panic here.
pub fn on_threads(threads: i64, database: &Database, work: impl Fn(i64, &mut Conn) + Sync) {
    patient().set_global();
    thread::scope(|scope| {
        for number in 0..threads {
            let work = &work;
            scope.spawn(move || work(number, &mut Conn::connect(database)));
        }
    });
}

/// The value that `work` returns, and the statements that it sends.
pub fn sent<T>(conn: &mut Conn, work: impl FnOnce(&mut Conn) -> T) -> (T, Vec<String>) {
    let sent = Arc::new(Mutex::new(vec![]));
    let sending = Arc::clone(&sent);
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { query, .. } = event {
            sending.lock().unwrap().push(query.to_string());
        }
    });
    let done = work(conn);
    conn.set_instrumentation(|_: InstrumentationEvent<'_>| {});
    let sent = std::mem::take(&mut *sent.lock().unwrap());
    (done, sent)
}

/// A database with the library's own tables too.
pub fn database_with_counters() -> (Database, Conn) {
    let (database, mut conn) = database();
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    (database, conn)
}

/// A database with the tables of `schema`.
pub fn database() -> (Database, Conn) {
    let database = Conn::database();
    let mut conn = Conn::connect(&database);
    schema::create(&mut conn);
    (database, conn)
}

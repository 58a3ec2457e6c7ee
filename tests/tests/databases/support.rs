//! What the cases begin with, on a connection and by an `api`.

use std::sync::{Arc, Mutex};
use std::thread;

use super::Conn;
use super::api::update;
use diesel::connection::InstrumentationEvent;
use diesel::prelude::*;
use diesel_sharded::backend::{BackendOf, Dialect, ShardedBackend};
use diesel_sharded::prelude::*;
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded_tests::schema::{self, videos};
use diesel_sharded_tests::{Database, TestConnection, patient};

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
    schema::database_with_counters()
}

/// A database with the tables of `schema`.
pub fn database() -> (Database, Conn) {
    schema::database()
}

pub fn dialect(conn: &Conn) -> Dialect {
    <Conn as Connection>::Backend::backend_of(conn).dialect()
}

/// Counts on video 1 as often, each time on any of its shards.
pub fn count_on_any_shard(times: u32, conn: &mut Conn) {
    for _ in 0..times {
        update(videos::table.find(1))
            .set(videos::views.eq(videos::views + 1))
            .shard_choice(ShardChoice::Random)
            .execute(conn)
            .unwrap();
    }
}

/// Adds to the views of a video, found by its key.
pub fn count(video: i64, n: i64, conn: &mut Conn) -> QueryResult<usize> {
    update(videos::table.find(video))
        .set(videos::views.eq(videos::views + n))
        .execute(conn)
}

/// The views of a video.
pub fn total_of(video: i64, conn: &mut Conn) -> i64 {
    let total = videos::table.find(video).select(videos::views.total());
    total.first(conn).unwrap()
}

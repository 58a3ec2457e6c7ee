//! The asynchronous operations as tasks use them: pools, cancellation, coalescers, the clock.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Where a future is dropped.
#[derive(Debug, Clone, Copy)]
enum Dropped {
    /// As soon as it waits.
    Waiting,
    /// When the thing that it waited for has arrived.
    Woken,
}

/// Polls a future at most this many times, and then drops it.
async fn polled<T>(times: u32, dropped: Dropped, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut polls = 0;
    poll_fn(|context| {
        if polls < times {
            polls += 1;
            if let Poll::Ready(done) = future.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            if polls < times || matches!(dropped, Dropped::Woken) {
                return Poll::Pending;
            }
        }
        Poll::Ready(None)
    })
    .await
}

/// Waits until it is so, however slow the machine is.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(300);
    while !is_so() {
        assert!(Instant::now() < patience, "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[path = "on"]
mod postgres {
    mod servers;
    mod tasks;

    use diesel::prelude::*;
    use diesel_async::AsyncPgConnection;
    use diesel_sharded_tests::{Database, number};

    type Conn = AsyncPgConnection;
    type Blocking = PgConnection;
    type Backend = diesel::pg::Pg;

    const SETUP: &str = "SET deadlock_timeout = '50ms'";
    // The parent too, without which no other shard is created.
    const LOCK: &str = "BEGIN; SELECT 1 FROM videos WHERE id = 1 FOR UPDATE; \
                        SELECT 1 FROM videos_shards WHERE id = 1 FOR UPDATE";

    /// How many connections to the database there are beside this one.
    fn others(_: &Database, conn: &mut Blocking) -> i64 {
        let others = "COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        number!(others, conn)
    }
}

#[path = "on"]
mod mysql {
    mod servers;
    mod tasks;

    use diesel::prelude::*;
    use diesel_async::AsyncMysqlConnection;
    use diesel_sharded_tests::{Database, number};

    type Conn = AsyncMysqlConnection;
    type Blocking = MysqlConnection;
    type Backend = diesel::mysql::Mysql;

    const SETUP: &str = "SET SESSION innodb_lock_wait_timeout = 20";
    const LOCK: &str = "BEGIN; UPDATE videos_shards SET likes = likes WHERE id = 1";

    /// How many connections to the database there are beside this one.
    fn others(_: &Database, conn: &mut Blocking) -> i64 {
        let others = "COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()";
        number!(others, conn)
    }
}

#[path = "on"]
mod sqlite {
    mod tasks;

    use diesel::prelude::*;
    use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
    use diesel_sharded_tests::Database;

    type Conn = SyncConnectionWrapper<SqliteConnection>;
    type Blocking = SqliteConnection;
    type Backend = diesel::sqlite::Sqlite;

    const SETUP: &str = "PRAGMA busy_timeout = 5000; PRAGMA synchronous = NORMAL";
    const LOCK: &str = "BEGIN IMMEDIATE";

    /// How many connections to the database there are beside this one.
    fn others(database: &Database, _: &mut Blocking) -> i64 {
        let files = std::fs::read_dir("/proc/self/fd").expect("Linux");
        let is_the_database = |file: std::io::Result<std::fs::DirEntry>| {
            let target = std::fs::read_link(file.ok()?.path()).ok()?;
            (target.to_str() == Some(database.url())).then_some(())
        };
        files.filter_map(is_the_database).count() as i64 - 1
    }
}

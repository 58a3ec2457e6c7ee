//! Awaited operations on a tokio runtime that was built without `enable_time`.

use std::time::Duration;

use diesel::prelude::*;
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_async::{AsyncConnection, SimpleAsyncConnection};
use diesel_sharded::asynchronous::update;
use diesel_sharded::prelude::*;
use diesel_sharded_tests::fixture::{Fixture, Run};
use diesel_sharded_tests::recording;
use diesel_sharded_tests::schema::videos::dsl::*;

/// An increment that meets the lock of another writer.
#[test]
fn a_busy_database_is_waited_for_on_sqlite() {
    let own = &mut Fixture::<SqliteConnection, _>::with_tables();
    let (database, [conn]) = own.parts();
    conn.run("BEGIN IMMEDIATE");
    let (policy, met) = recording();
    let pause = Duration::from_millis(20);
    let policy = policy.with_min_delay(pause).with_max_delay(pause);
    // It can wait for sockets, and for nothing else.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_io().build().unwrap();
    std::thread::scope(|scope| {
        let counting = scope.spawn(|| {
            runtime.block_on(async {
                type Conn = SyncConnectionWrapper<SqliteConnection>;
                let mut awaited = Conn::establish(database.url()).await.unwrap();
                let at_once = awaited.batch_execute("PRAGMA busy_timeout = 0");
                at_once.await.unwrap();
                let count = update(videos.find(1)).set(views.eq(views + 1));
                count.retry(policy).execute(&mut awaited).await
            })
        });
        while met.lock().unwrap().len() < 2 && !counting.is_finished() {
            std::thread::yield_now();
        }
        conn.run("COMMIT");
        assert_eq!(counting.join().unwrap(), Ok(1));
    });
    let total = videos.find(1).select(views.total()).first::<i64>(conn);
    assert_eq!(total, Ok(101));
}

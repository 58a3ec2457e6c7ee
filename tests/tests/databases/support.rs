//! What the cases import, and what they begin with, on a connection and by an `api`.

use std::fmt::Debug;
pub use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

pub(super) use super::Conn;
pub use super::api::retry::{self, RetryPolicy};
pub use super::api::shard_choice::ShardChoice;
pub use super::api::shard_counts::ShardCount;
pub use super::api::{
    Counter, CounterCache, Error, RowCounter, ShardsTable, count_many, fold, reset, set_total,
    update, verify,
};
pub use diesel::connection::SimpleConnection;
pub use diesel::prelude::*;
pub use diesel::result::Error as DieselError;
use diesel_sharded::backend::{BackendOf, Dialect, ShardedBackend};
pub use diesel_sharded::prelude::*;
pub use diesel_sharded_tests::awaited::Done;
pub use diesel_sharded_tests::fixture::Connected;
use diesel_sharded_tests::patient;
use diesel_sharded_tests::schema::{self, videos};
pub use diesel_sharded_tests::schema::{
    Day, Video, WholeVideo, comments, downloads, videos_shards,
};
pub use diesel_sharded_tests::{
    Database, TestConnection, assert_matches, count, delete, edit, gives, insert, number,
    rolled_back,
};
use proptest::prelude::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

/// An operation is refused by an error of the library's.
macro_rules! refused {
    ($result:expr, $pattern:pat $(if $guard:expr)?) => {
        assert_matches!($result.done().map_err(Error::from), Err($pattern) $(if $guard)?)
    };
}
pub(crate) use refused;

/// The update that counts one view of videos.
macro_rules! viewed {
    ($videos:expr) => {{
        use diesel_sharded_tests::schema::videos::views;
        update($videos).set(views.eq(views + 1))
    }};
}
pub(crate) use viewed;

diesel::table! {
    #[sql_name = "diesel_sharded_idempotency_keys"]
    keys (key) {
        key -> Binary,
        fingerprint -> BigInt,
        claim -> BigInt,
        counted -> BigInt,
        created -> BigInt,
        expires -> BigInt,
    }
}

pub fn number_of_keys(conn: &mut Conn) -> i64 {
    keys::table.count().get_result(conn).unwrap()
}

/// Rows of this many keys, made long ago.
pub fn old_keys(number: i64, expires: i64, conn: &mut Conn) {
    let filled: QueryResult<()> = conn.transaction(|conn| {
        for key in 0..number {
            let key = keys::key.eq(key.to_string().into_bytes());
            let request = (keys::fingerprint.eq(0), keys::claim.eq(0));
            let times = (keys::created.eq(0), keys::expires.eq(expires));
            insert!(
                keys::table,
                (key, request, keys::counted.eq(1), times),
                conn
            );
        }
        Ok(())
    });
    filled.unwrap();
}

/// Whether a request was refused since its key stands for another one.
pub fn is_reused<T>(counted: QueryResult<T>) -> bool {
    let error = counted.err().map(Error::from);
    matches!(error, Some(Error::IdempotencyKeyReused))
}

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

/// Runs `work` on as many threads, and `beside` on this many others, whose rounds end with the work.
pub fn on_threads_beside(
    threads: i64,
    database: &Database,
    work: impl Fn(i64, &mut Conn) + Sync,
    others: i64,
    beside: impl Fn(i64, &mut dyn Iterator<Item = i64>, &mut Conn) + Sync,
) {
    struct End<'a>(&'a AtomicI64);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let working = AtomicI64::new(threads);
    on_threads(threads + others, database, |number, conn| {
        if number < threads {
            let _end = End(&working);
            return work(number, conn);
        }
        let mut rounds = (0..).take_while(|_| working.load(Ordering::SeqCst) > 0);
        beside(number - threads, &mut rounds, conn);
    });
}

/// Runs `work` in a transaction that is retried.
pub fn in_transaction<T: Send>(
    conn: &mut Conn,
    work: impl FnMut(&mut Conn) -> QueryResult<T> + Send,
) -> QueryResult<T> {
    retry::transaction(conn, RetryPolicy::default(), work)
}

/// Eight writers count 20 times each on what was `first`, and read a total at each increment: their own and those read before are in it.
pub fn totals_rise(
    first: i64,
    database: &Database,
    count_and_read: impl Fn(i64, &mut Conn) -> i64 + Sync,
) {
    on_threads(8, database, |writer, conn| {
        let mut last = first;
        for _ in 0..20 {
            let total = count_and_read(writer, conn);
            assert!(total > last, "{total} after {last}");
            last = total;
        }
    });
}

/// A number of random cases, or of seconds: a third of it without the feature `all`, which `scripts/test.sh --all` switches on.
const fn thorough(number: u32) -> u32 {
    match cfg!(feature = "all") {
        true => number,
        false => number.div_ceil(3),
    }
}

/// How long a test goes on: this many seconds in a thorough run, or what `SECONDS` says.
pub fn duration(seconds: u32) -> Duration {
    let seconds = match std::env::var("SECONDS") {
        Ok(seconds) => seconds.parse().expect("SECONDS is a number"),
        Err(_) => thorough(seconds),
    };
    Duration::from_secs(seconds.into())
}

/// Runs `test` with this many cases in a thorough run, or as many times more as `HOSTILE` says.
pub fn for_all<S: Strategy<Value: Debug>>(
    cases: u32,
    strategy: S,
    test: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let times = std::env::var("HOSTILE").map_or(1, |times| times.parse().unwrap());
    let config = Config {
        cases: thorough(cases) * times,
        failure_persistence: None,
        max_shrink_iters: 500,
        ..Config::default()
    };
    if let Err(error) = TestRunner::new(config).run(&strategy, test) {
        panic!("{error}");
    }
}

/// A database with the tables of `schema`, and a connection.
pub fn set_up() -> Connected<Conn> {
    database().into()
}

/// The same with the library's own tables too.
pub fn set_up_with_counters() -> Connected<Conn> {
    database_with_counters().into()
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
        .done()
}

/// The views of all videos.
pub fn totals(conn: &mut Conn) -> Vec<i64> {
    videos::table
        .order(videos::id)
        .select(videos::views.total())
        .load(conn)
        .unwrap()
}

/// The views of a video.
pub fn total_of(video: i64, conn: &mut Conn) -> i64 {
    let total = videos::table.find(video).select(videos::views.total());
    total.first(conn).unwrap()
}

//! Totals that are read from a cache.
//!
//! A total costs a sum over shards each time that it is read. Where it may be some seconds old, a cache in front of the
//! database saves that: the memcache of App Engine's [article on sharded counters][article]. A reader that finds no total adds
//! the one that it read, *unless there is one by then*; a count adds to the total in the cache, *if there is one*, once it is
//! committed:
//!
//! | | cache | database |
//! |---|---|---|
//! | [`get`](Cached::get), hit | `get` | |
//! | [`get`](Cached::get), miss | `get`, `add_if_absent(total, ttl)` | reads the total |
//! | [`add`](Cached::add) | `increment_if_present(n)` after the commit, if a row was counted | counts |
//!
//! [article]: https://web.archive.org/web/2010/http://code.google.com/appengine/articles/sharding_counters.html
//!
//! ```
//! # #[cfg(feature = "cache")]
//! # mod example {
//! # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
//! # use schema::videos::{self, dsl::{id, videos as all, views}};
//! use diesel::prelude::*;
//! use diesel_sharded::cached::{Cached, CachedCounter, MokaCache};
//! use diesel_sharded::prelude::*;
//! use diesel_sharded::retry::RetryPolicy;
//! use diesel_sharded::update;
//! # #[derive(diesel_sharded::ShardedField)]
//! # #[diesel(table_name = videos)]
//! # struct Video { id: i64, #[sharded] views: i64 }
//!
//! struct Views(i64);
//!
//! impl CachedCounter<SqliteConnection> for Views {
//!     fn cache_key(&self) -> String {
//!         format!("videos:{}:views", self.0)
//!     }
//!     fn read(&self, conn: &mut SqliteConnection) -> QueryResult<i64> {
//!         all.find(self.0).select(views.total()).first(conn)
//!     }
//!     fn add(&self, n: i64, conn: &mut SqliteConnection) -> QueryResult<usize> {
//!         update(all.find(self.0)).set(views.eq(views + n)).execute(conn)
//!     }
//! }
//!
//! # pub fn main() -> QueryResult<()> {
//! # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
//! # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, views BIGINT NOT NULL)").execute(conn)?;
//! # diesel::insert_into(all).values([(id.eq(7), views.eq(100)), (id.eq(8), views.eq(0))]).execute(conn)?;
//! # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
//! let cached = Cached::new(MokaCache::new(10_000)); // one for the whole application
//!
//! assert_eq!(cached.get(&Views(7), conn)?, 100); // reads the database
//! cached.add(&Views(7), 1, conn)?;
//! assert_eq!(cached.get(&Views(7), conn)?, 101); // does not
//!
//! cached.transaction(conn, RetryPolicy::default(), |conn, uncommitted| {
//!     uncommitted.add(&Views(7), -1, conn)?;
//!     uncommitted.add(&Views(8), 1, conn)
//! })?;
//! assert_eq!(cached.get(&Views(7), conn)?, 100);
//! # Ok(())
//! # }
//! # }
//! # #[cfg(feature = "cache")]
//! # fn main() -> diesel::QueryResult<()> { example::main() }
//! # #[cfg(not(feature = "cache"))]
//! # fn main() {}
//! ```
//!
//! Unlike memcache's `incr`, which the article used and which stopped at zero, these caches count down too, also below zero.
//!
//! # How wrong a cached total may be
//!
//! The database is never wrong. A cached total may be until it expires: no error in it is older than the TTL and the read that
//! filled the cache. It is off by
//!
//! - counts that went past the cache: other code, other processes where the cache is in the process, counts inside a
//!   transaction that [`Cached`] did not begin;
//! - counts while the cache failed or was left out after a failure, and counts whose process ended between commit and
//!   increment;
//! - counts that met the reader who filled the cache. One that was committed after the total was read, and found nothing in
//!   the cache before the total was added, is missing from it; one that was committed before the total was read, and came to
//!   the cache after the total was added, is in it twice.
//!
//! A Redis that was stopped carries out what it was sent before when it goes on: what it keeps then is older by the time for which it was
//! stopped.
//!
//! Whoever needs the exact total reads it from the database: that is what [`CachedCounter::read`] does, and
//! [`Cached::get`] inside a transaction.
//!
//! # A cache that fails
//!
//! fails neither a count nor a read. After a failure it is left out for a second; then one operation tries it, and it is in
//! use again if that goes well. What it fails with goes to [`with_notify`](Cached::with_notify), and is counted by
//! [`failures`](Cached::failures). A total that was in it before is as old as its TTL allows when it comes back.
//!
//! # Many readers at once
//!
//! Readers in one process that miss the same total share one read of the database, whether the cache works or not; the one
//! who reads asks the cache once more before. The others wait for it, [`with_wait`](Cached::with_wait) at most, and then read
//! for themselves, as they do at once when it fails. Readers of other totals do not wait.

#[cfg(feature = "async")]
pub mod asynchronous;
mod flights;
#[cfg(feature = "cache")]
mod moka;
mod pause;
#[cfg(feature = "redis")]
mod redis;
mod steps;
mod total_cache;
mod uncommitted;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use diesel::Connection;
use diesel::connection::TransactionManager;
use diesel::result::{DatabaseErrorKind, Error as DieselError, QueryResult};

use self::flights::Flights;
#[cfg(not(feature = "async"))]
use self::flights::Role;
#[cfg(feature = "async")]
pub(crate) use self::flights::{Boarded, Role};
#[cfg(feature = "cache")]
pub use self::moka::MokaCache;
use self::pause::{Pause, Turn};
#[cfg(feature = "redis")]
pub use self::redis::RedisCache;
pub(crate) use self::steps::{Question, Steps};
pub use self::total_cache::{CacheError, TotalCache};
pub use self::uncommitted::Uncommitted;
use crate::connection::{Blocking, depth_of, now};
use crate::error::Error;
use crate::observe::{self, CacheRead};

/// A counter that a cache can stand before.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a counter that can be cached on a `{Conn}`",
    note = "implement `CachedCounter<{Conn}>` for it: a key, how it is read and how it is added to"
)]
pub trait CachedCounter<Conn> {
    /// The name of this counter in the cache: another one for every other counter, the same one in every process.
    fn cache_key(&self) -> String;

    /// Reads the total from the database.
    ///
    /// # Errors
    /// The database's; an error is never cached.
    fn read(&self, conn: &mut Conn) -> QueryResult<i64>;

    /// Adds `n` to the total in the database, and gives the number of rows that it counted, as `execute` does: 0 if there is
    /// no such counter.
    ///
    /// # Errors
    /// The database's.
    fn add(&self, n: i64, conn: &mut Conn) -> QueryResult<usize>;
}

/// A cache in front of counters. Clones share the cache and what is known of it; the settings are a clone's own.
///
/// Diesel's `begin_test_transaction` begins a transaction too: a test inside one never meets the cache.
///
/// | setting | default | meaning |
/// |---|---|---|
/// | [`with_ttl`](Self::with_ttl) | 60 s | how long a total is kept, and so how old an error in it may become |
/// | [`with_prefix`](Self::with_prefix) | `diesel_sharded:` | what every key begins with; each database needs one of its own |
/// | [`with_pause`](Self::with_pause) | 1 s | how long the cache is left out after a failure |
/// | [`with_wait`](Self::with_wait) | 1 s | how long a reader waits for another one's read of the same total |
/// | [`with_notify`](Self::with_notify) | none | is told of every failure of the cache |
#[must_use = "a cache does nothing until totals are read and counted through it"]
pub struct Cached<C> {
    ttl: Duration,
    pause: Duration,
    wait: Duration,
    prefix: Arc<str>,
    notify: Option<Notify>,
    shared: Arc<Shared<C>>,
}

type Notify = Arc<dyn Fn(&CacheError) + Send + Sync>;

/// What is one for all clones.
struct Shared<C> {
    cache: C,
    flights: Flights,
    pause: Pause,
    failures: AtomicU64,
}

impl<C: TotalCache> Cached<C> {
    /// Puts `cache` in front of counters, with the defaults above.
    pub fn new(cache: C) -> Self {
        Cached {
            ttl: Duration::from_secs(60),
            pause: Duration::from_secs(1),
            wait: Duration::from_secs(1),
            prefix: "diesel_sharded:".into(),
            notify: None,
            shared: Arc::new(Shared {
                cache,
                flights: Flights::default(),
                pause: Pause::new(Instant::now()),
                failures: AtomicU64::new(0),
            }),
        }
    }

    /// Sets how long a total is kept.
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets what every key begins with.
    pub fn with_prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long the cache is left out after a failure.
    pub fn with_pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Sets how long a reader waits for another one's read of the same total before it reads for itself.
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Calls `notify` at every failure of the cache, to log it. The count or the read goes on when it returns.
    pub fn with_notify(mut self, notify: impl Fn(&CacheError) + Send + Sync + 'static) -> Self {
        self.notify = Some(Arc::new(notify));
        self
    }

    /// How often the cache has failed. What was not tried while it was left out is not counted.
    pub fn failures(&self) -> u64 {
        self.shared.failures.load(Ordering::Relaxed)
    }

    /// The total of `counter`: from the cache, or else from the database and then kept in the cache.
    ///
    /// Inside a transaction it is read from the database, which alone knows what the transaction may see, and not kept: it
    /// may hold counts that are never committed.
    ///
    /// # Errors
    /// Those of [`CachedCounter::read`].
    pub fn get<Conn, K>(&self, counter: &K, conn: &mut Conn) -> QueryResult<i64>
    where
        Conn: Connection,
        K: CachedCounter<Conn> + ?Sized,
    {
        now(self.total::<Blocking, _, _>(counter, conn))
    }

    pub(crate) async fn total<M, Conn, K>(&self, counter: &K, conn: &mut Conn) -> QueryResult<i64>
    where
        M: Steps<C, Conn, K>,
        K: ?Sized,
    {
        // Nor may whoever holds locks wait for another connection's read.
        if M::depth(conn)? > 0 {
            observe::cache_read(CacheRead::Bypassed);
            return M::read(counter, conn).await;
        }
        let key = self.key(&M::cache_key(counter));
        let answer = M::ask(self, &key, Question::Get).await;
        if let Some(Some(total)) = answer {
            observe::cache_read(CacheRead::Hit);
            return Ok(total);
        }
        let lead = match M::join(self, &key).await {
            Role::Share(total) => {
                observe::cache_read(CacheRead::Shared);
                return Ok(total);
            }
            Role::Alone => None,
            Role::Lead(lead) => Some(lead),
        };
        if let (Some(lead), Some(_)) = (&lead, answer) {
            // Another read may have come to its end since the cache was asked.
            if let Some(Some(total)) = M::ask(self, &key, Question::Get).await {
                observe::cache_read(CacheRead::Hit);
                lead.share(total);
                return Ok(total);
            }
        }
        observe::cache_read(CacheRead::Miss);
        let total = M::read(counter, conn).await?;
        // Before it is kept: nobody has to wait for that.
        if let Some(lead) = &lead {
            lead.share(total);
        }
        M::ask(self, &key, Question::AddIfAbsent(total, self.ttl)).await;
        Ok(total)
    }

    /// Counts `n` on `counter`, which may be negative, and adds it to the cached total, if there is one.
    ///
    /// Inside a transaction it counts and leaves the cache alone, since nobody tells when the transaction is committed: the
    /// cached total is then behind until it expires. [`transaction`](Self::transaction) knows.
    ///
    /// # Errors
    /// Those of [`CachedCounter::add`]. The cache is left alone then, unless the connection was lost when the count may
    /// have been committed: the cached total is removed.
    pub fn add<Conn, K>(&self, counter: &K, n: i64, conn: &mut Conn) -> QueryResult<usize>
    where
        Conn: Connection,
        K: CachedCounter<Conn> + ?Sized,
    {
        now(self.count::<Blocking, _, _>(counter, n, conn))
    }

    pub(crate) async fn count<M, Conn, K>(
        &self,
        counter: &K,
        n: i64,
        conn: &mut Conn,
    ) -> QueryResult<usize>
    where
        M: Steps<C, Conn, K>,
        K: ?Sized,
    {
        if M::depth(conn)? > 0 {
            return M::add(counter, n, conn).await;
        }
        let counted = M::add(counter, n, conn).await;
        let key = self.key(&M::cache_key(counter));
        match &counted {
            Ok(0) => {}
            Ok(_) => {
                M::ask(self, &key, Question::IncrementIfPresent(n)).await;
            }
            Err(error) if may_be_committed(error) => {
                M::ask(self, &key, Question::Remove).await;
            }
            Err(_) => {}
        }
        counted
    }

    /// Removes the cached total, after a change that went past the cache and was committed: a total that was set, a repair.
    /// A reader who read before the change may still add the old total after this.
    pub fn forget<Conn, K>(&self, counter: &K, _conn: &mut Conn)
    where
        K: CachedCounter<Conn> + ?Sized,
    {
        self.remove(&counter.cache_key());
    }

    fn increment(&self, key: &str, n: i64) {
        self.ask(&self.key(key), Question::IncrementIfPresent(n));
    }

    pub(crate) fn remove(&self, key: &str) {
        self.ask(&self.key(key), Question::Remove);
    }

    /// Asks the cache something, unless it is left out; `None` if it failed.
    pub(crate) fn ask(&self, key: &str, question: Question) -> Option<Option<i64>> {
        self.attempt(|cache| match question {
            Question::Get => cache.get(key),
            Question::AddIfAbsent(total, ttl) => {
                cache.add_if_absent(key, total, ttl).map(|()| None)
            }
            Question::IncrementIfPresent(n) => cache.increment_if_present(key, n).map(|()| None),
            Question::Remove => cache.remove(key).map(|()| None),
        })
    }

    /// The cache itself.
    #[cfg(feature = "async")]
    pub(crate) fn cache(&self) -> &C {
        &self.shared.cache
    }

    /// The reads that are under way, and how long one waits for them.
    #[cfg(feature = "async")]
    pub(crate) fn flights(&self) -> (&Flights, Duration) {
        (&self.shared.flights, self.wait)
    }

    pub(crate) fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// What the cache answers, if it is in use and does not fail.
    fn attempt<T>(&self, operation: impl FnOnce(&C) -> Result<T, CacheError>) -> Option<T> {
        let Shared {
            cache,
            pause,
            failures,
            ..
        } = &*self.shared;
        let turn = pause.turn(Instant::now(), self.pause);
        if turn == Turn::LeaveOut {
            return None;
        }
        let result = operation(cache);
        match &result {
            Err(CacheError::Unavailable { .. }) => pause.begin(Instant::now(), self.pause),
            // A value that is no total was answered all the same.
            Ok(_) | Err(CacheError::NotATotal { .. }) if turn == Turn::Try => pause.ended(),
            _ => {}
        }
        if let Err(error) = &result {
            failures.fetch_add(1, Ordering::Relaxed);
            match error {
                CacheError::Unavailable { .. } => observe::cache_unavailable(error),
                CacheError::NotATotal { .. } => observe::not_a_total(error),
            }
            if let Some(notify) = &self.notify {
                notify(error);
            }
        }
        result.ok()
    }
}

impl<C> Clone for Cached<C> {
    fn clone(&self) -> Self {
        Cached {
            ttl: self.ttl,
            pause: self.pause,
            wait: self.wait,
            prefix: Arc::clone(&self.prefix),
            notify: self.notify.clone(),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<C> fmt::Debug for Cached<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached")
            .field("ttl", &self.ttl)
            .field("prefix", &self.prefix)
            .field("pause", &self.pause)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

/// How deep the transactions on `conn` are nested, as far as Diesel knows.
fn depth<Conn: Connection>(conn: &mut Conn) -> QueryResult<u32> {
    depth_of(Conn::TransactionManager::transaction_manager_status_mut(
        conn,
    ))
}

/// Whether a count that ended in `error` may have been committed. A counter of an application's own may report a lost
/// connection as Diesel does.
fn may_be_committed(error: &DieselError) -> bool {
    match error {
        DieselError::DatabaseError(DatabaseErrorKind::ClosedConnection, _) => true,
        DieselError::QueryBuilderError(error) => matches!(
            error.downcast_ref(),
            Some(Error::OutcomeUnknown { .. } | Error::TransactionAborted)
        ),
        _ => false,
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;
    use crate::policy::RetryPolicy;
    use crate::prelude::*;
    use crate::test_schema::videos::dsl::*;
    use crate::{ShardsTable, update};
    use diesel::prelude::*;
    use std::collections::HashMap;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicBool;
    use std::sync::{Barrier, Mutex};
    use std::thread;

    type Conn = SqliteConnection;

    /// A cache that can be out of order, and writes down what it is asked for.
    #[derive(Debug, Default)]
    struct Map {
        totals: Mutex<HashMap<String, i64>>,
        asked: Mutex<Vec<&'static str>>,
        broken: AtomicBool,
    }

    impl Map {
        fn change<T>(
            &self,
            operation: &'static str,
            key: &str,
            f: impl FnOnce(&mut HashMap<String, i64>) -> T,
        ) -> Result<T, CacheError> {
            self.asked.lock().unwrap().push(operation);
            match key {
                _ if self.broken.load(Ordering::Relaxed) => Err(CacheError::Unavailable {
                    source: "out of order".into(),
                }),
                "diesel_sharded:video 3" => Err(CacheError::NotATotal {
                    key: key.to_owned(),
                    source: "somebody else's".into(),
                }),
                _ => Ok(f(&mut self.totals.lock().unwrap())),
            }
        }

        fn kept(&self, video: i64) -> Option<i64> {
            let key = format!("diesel_sharded:video {video}");
            self.totals.lock().unwrap().get(&key).copied()
        }

        fn asked(&self) -> Vec<&'static str> {
            std::mem::take(&mut self.asked.lock().unwrap())
        }
    }

    impl TotalCache for Map {
        fn get(&self, key: &str) -> Result<Option<i64>, CacheError> {
            self.change("get", key, |totals| totals.get(key).copied())
        }

        fn add_if_absent(&self, key: &str, total: i64, _: Duration) -> Result<(), CacheError> {
            self.change("add", key, |totals| {
                totals.entry(key.to_owned()).or_insert(total);
            })
        }

        fn increment_if_present(&self, key: &str, by: i64) -> Result<(), CacheError> {
            self.change("increment", key, |totals| {
                totals
                    .entry(key.to_owned())
                    .and_modify(|total| *total += by);
            })
        }

        fn remove(&self, key: &str) -> Result<(), CacheError> {
            self.change("remove", key, |totals| {
                totals.remove(key);
            })
        }
    }

    /// The views of a video, as an application would count them.
    struct Video(i64);

    impl CachedCounter<Conn> for Video {
        fn cache_key(&self) -> String {
            format!("video {}", self.0)
        }

        fn read(&self, conn: &mut Conn) -> QueryResult<i64> {
            videos.find(self.0).select(views.total()).first(conn)
        }

        fn add(&self, n: i64, conn: &mut Conn) -> QueryResult<usize> {
            update(videos.find(self.0))
                .set(views.eq(views + n))
                .execute(conn)
        }
    }

    /// A counter whose reads and counts are functions.
    struct Made<R, A>(R, A);

    impl<R: Fn() -> QueryResult<i64>, A: Fn() -> QueryResult<usize>> CachedCounter<Conn>
        for Made<R, A>
    {
        fn cache_key(&self) -> String {
            "video 1".into()
        }

        fn read(&self, _: &mut Conn) -> QueryResult<i64> {
            (self.0)()
        }

        fn add(&self, _: i64, _: &mut Conn) -> QueryResult<usize> {
            (self.1)()
        }
    }

    fn memory() -> Conn {
        Conn::establish(":memory:").unwrap()
    }

    /// Videos 1 to 3 with 10, 20 and 30 views.
    fn set_up() -> (Cached<Arc<Map>>, Arc<Map>, Conn) {
        let map = Arc::new(Map::default());
        let mut conn = memory();
        diesel::sql_query(
            "CREATE TABLE videos (id INTEGER PRIMARY KEY, slug TEXT NOT NULL DEFAULT '', \
                views BIGINT NOT NULL, likes INTEGER NOT NULL DEFAULT 0)",
        )
        .execute(&mut conn)
        .unwrap();
        ShardsTable::of(videos).create(&mut conn).unwrap();
        for n in 1..=3 {
            diesel::insert_into(videos)
                .values((id.eq(n), views.eq(10 * n)))
                .execute(&mut conn)
                .unwrap();
        }
        (Cached::new(Arc::clone(&map)), map, conn)
    }

    fn total(video: i64, conn: &mut Conn) -> i64 {
        Video(video).read(conn).unwrap()
    }

    #[test]
    fn a_miss_keeps_the_total_and_a_count_adds_to_it() {
        let (cached, map, conn) = &mut set_up();
        assert_eq!(cached.add(&Video(1), 1, conn), Ok(1));
        assert_eq!(map.kept(1), None);
        assert_eq!(cached.get(&Video(1), conn), Ok(11));
        assert_eq!(map.kept(1), Some(11));
        // A count that goes past the cache shows that the next read does not reach the database.
        Video(1).add(100, conn).unwrap();
        assert_eq!(cached.get(&Video(1), conn), Ok(11));
        assert_eq!(cached.add(&Video(1), -15, conn), Ok(1));
        assert_eq!(cached.get(&Video(1), conn), Ok(-4));
        assert_eq!(total(1, conn), 96);
    }

    #[test]
    fn what_is_not_there_is_neither_kept_nor_counted() {
        let (cached, map, conn) = &mut set_up();
        assert_eq!(cached.get(&Video(9), conn), Err(DieselError::NotFound));
        assert_eq!(cached.add(&Video(9), 1, conn), Ok(0));
        assert_eq!(map.asked(), ["get", "get"]);
    }

    #[test]
    fn an_open_transaction_leaves_the_cache_alone() {
        let (cached, map, conn) = &mut set_up();
        let seen = conn.transaction(|conn| {
            cached.add(&Video(1), 1, conn)?;
            let seen = cached.get(&Video(1), conn)?;
            cached.transaction(conn, RetryPolicy::never(), |conn, uncommitted| {
                uncommitted.add(&Video(1), 1, conn)
            })?;
            QueryResult::Ok(seen)
        });
        assert_eq!(seen, Ok(11));
        assert_eq!(map.asked(), [""; 0]);
        assert_eq!(total(1, conn), 12);
    }

    #[test]
    fn a_transaction_reaches_the_cache_when_it_is_committed() {
        let (cached, map, conn) = &mut set_up();
        for video in [1, 2] {
            cached.get(&Video(video), conn).unwrap();
        }
        let counted = cached.transaction(conn, RetryPolicy::never(), |conn, uncommitted| {
            uncommitted.add(&Video(1), 1, conn)?;
            uncommitted.add(&Video(2), -25, conn)?;
            uncommitted.add(&Video(9), 1, conn)?;
            uncommitted.add(&Video(1), 1, conn)?;
            assert_eq!((map.kept(1), map.kept(2)), (Some(10), Some(20)));
            cached.get(&Video(1), conn)
        });
        assert_eq!(counted, Ok(12));
        assert_eq!((map.kept(1), map.kept(2)), (Some(12), Some(-5)));
        assert_eq!(map.asked()[6..], ["increment", "increment"]);
    }

    #[test]
    fn a_transaction_that_fails_does_not() {
        let (cached, map, conn) = &mut set_up();
        cached.get(&Video(1), conn).unwrap();
        map.asked();
        // An unknown outcome that the closure returns is that of another transaction.
        let unknown = Error::OutcomeUnknown {
            source: DieselError::NotFound,
        };
        for error in [DieselError::RollbackTransaction, unknown.into()] {
            let mut error = Some(error);
            let failed = cached.transaction(conn, RetryPolicy::never(), |conn, uncommitted| {
                uncommitted.add(&Video(1), 1, conn)?;
                error.take().map_or(Ok(()), Err)
            });
            assert!(failed.is_err());
        }
        assert_eq!(map.asked(), [""; 0]);
        assert_eq!(total(1, conn), 10);
    }

    #[test]
    fn only_the_attempt_that_is_committed_reaches_the_cache() {
        let (cached, map, conn) = &mut set_up();
        cached.get(&Video(1), conn).unwrap();
        let mut attempts = 0;
        let counted = cached.transaction(conn, RetryPolicy::new(), |conn, uncommitted| {
            attempts += 1;
            uncommitted.add(&Video(1), 1, conn)?;
            match attempts {
                3 => Ok(()),
                _ => Err(locked()),
            }
        });
        assert_eq!(counted, Ok(()));
        assert_eq!((map.kept(1), total(1, conn)), (Some(11), 11));
    }

    fn locked() -> DieselError {
        let text = Box::new("database is locked".to_owned());
        DieselError::DatabaseError(DatabaseErrorKind::Unknown, text)
    }

    #[test]
    fn a_count_in_a_savepoint_removes_the_total() {
        let (cached, map, conn) = &mut set_up();
        for rolled_back in [true, false] {
            cached.get(&Video(1), conn).unwrap();
            let counted = cached.transaction(conn, RetryPolicy::never(), |conn, uncommitted| {
                uncommitted.add(&Video(1), 1, conn)?;
                let savepoint = conn.transaction(|conn| {
                    uncommitted.add(&Video(1), 1, conn)?;
                    match rolled_back {
                        true => Err(DieselError::RollbackTransaction),
                        false => Ok(()),
                    }
                });
                QueryResult::Ok(savepoint.is_err())
            });
            assert_eq!(counted, Ok(rolled_back));
            assert_eq!(map.kept(1), None);
        }
        assert_eq!(cached.get(&Video(1), conn), Ok(13));
    }

    #[test]
    fn a_count_that_may_have_been_committed_removes_the_total() {
        let (cached, map, conn) = &mut set_up();
        let cases: [(fn() -> DieselError, _); 3] = [
            (
                || {
                    Error::OutcomeUnknown {
                        source: DieselError::NotFound,
                    }
                    .into()
                },
                None,
            ),
            (
                || {
                    Error::ConnectionLost {
                        source: DieselError::NotFound,
                    }
                    .into()
                },
                Some(10),
            ),
            (locked, Some(10)),
        ];
        for (error, kept) in cases {
            cached.get(&Video(1), conn).unwrap();
            let counter = Made(|| Err(DieselError::NotFound), || Err(error()));
            assert!(cached.add(&counter, 1, conn).is_err());
            assert_eq!(map.kept(1), kept);
        }
    }

    #[test]
    fn a_cache_that_fails_is_left_out_for_a_while() {
        let (cached, map, mut conn) = set_up();
        let told = Arc::new(Mutex::new(vec![]));
        let tell = Arc::clone(&told);
        let cached = cached
            .with_pause(Duration::from_millis(400))
            .with_notify(move |error| tell.lock().unwrap().push(error.to_string()));
        map.broken.store(true, Ordering::Relaxed);
        for _ in 0..2 {
            for n in 0..10 {
                assert_eq!(cached.add(&Video(1), 1, &mut conn), Ok(1), "{n}");
                assert!(cached.get(&Video(1), &mut conn).is_ok());
            }
            thread::sleep(Duration::from_millis(500));
        }
        assert_eq!(map.asked(), ["increment", "increment"]);
        assert_eq!(cached.clone().failures(), 2);
        assert_eq!(
            *told.lock().unwrap(),
            ["the cache could not be used (out of order)"; 2]
        );
        map.broken.store(false, Ordering::Relaxed);
        assert_eq!(cached.get(&Video(1), &mut conn), Ok(30));
        assert_eq!(map.kept(1), Some(30));
    }

    #[test]
    fn what_is_no_total_fails_its_own_key_only() {
        let (cached, map, conn) = &mut set_up();
        assert_eq!(cached.get(&Video(3), conn), Ok(30));
        assert_eq!(cached.add(&Video(3), 1, conn), Ok(1));
        assert_eq!(cached.failures(), 3);
        assert_eq!(cached.get(&Video(1), conn), Ok(10));
        assert_eq!(map.kept(1), Some(10));
    }

    /// What many threads get that miss one total at once, when the first read comes to `outcome`; and how often was read.
    fn stampede(
        cached: &Cached<Arc<Map>>,
        outcome: impl Fn() -> QueryResult<i64> + Sync,
    ) -> (Vec<Option<QueryResult<i64>>>, u64) {
        const THREADS: usize = 8;
        let (barrier, reads) = (Barrier::new(THREADS), AtomicU64::new(0));
        let read = || {
            if reads.fetch_add(1, Ordering::Relaxed) > 0 {
                return Ok(7);
            }
            thread::sleep(Duration::from_millis(300)); // the others wait for it by now
            outcome()
        };
        let get = || {
            let (counter, mut conn) = (Made(read, || Ok(1)), memory());
            barrier.wait();
            catch_unwind(AssertUnwindSafe(|| cached.get(&counter, &mut conn))).ok()
        };
        let totals = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(get)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        (totals, reads.into_inner())
    }

    #[test]
    fn many_misses_make_one_read_whether_the_cache_works_or_not() {
        for broken in [false, true] {
            let (cached, map, _) = set_up();
            map.broken.store(broken, Ordering::Relaxed);
            let (totals, reads) = stampede(&cached, || Ok(5));
            assert!(
                totals.iter().all(|total| *total == Some(Ok(5))),
                "{totals:?}"
            );
            assert_eq!(reads, 1, "broken: {broken}");
        }
    }

    #[test]
    fn readers_whose_leader_fails_or_panics_read_for_themselves() {
        let panics = || std::panic::resume_unwind(Box::new("the reader's own"));
        let (cached, _, _) = set_up();
        let (totals, _) = stampede(&cached, panics);
        assert_eq!(totals.iter().filter(|total| total.is_none()).count(), 1);
        assert_eq!(
            totals.iter().filter(|total| **total == Some(Ok(7))).count(),
            7
        );
        let (cached, _, _) = set_up();
        let (totals, _) = stampede(&cached, || Err(DieselError::NotFound));
        assert_eq!(
            totals.iter().filter(|total| **total == Some(Ok(7))).count(),
            7
        );
    }

    #[test]
    fn a_reader_that_takes_too_long_is_not_waited_for() {
        let (cached, _, _) = set_up();
        let cached = cached.with_wait(Duration::from_millis(10));
        let started = Instant::now();
        let (totals, _) = stampede(&cached, || {
            thread::sleep(Duration::from_millis(500));
            Ok(5)
        });
        assert_eq!(
            totals.iter().filter(|total| **total == Some(Ok(7))).count(),
            7
        );
        assert!(started.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn a_read_inside_a_read_of_the_same_total_does_not_hang() {
        let (cached, _, _) = set_up();
        let cached = cached.with_wait(Duration::from_millis(10));
        let inner = Made(|| Ok(7), || Ok(1));
        let outer = Made(|| cached.get(&inner, &mut memory()), || Ok(1));
        assert_eq!(cached.get(&outer, &mut memory()), Ok(7));
    }

    #[test]
    fn settings_are_a_clones_own() {
        let (cached, map, mut conn) = set_up();
        let other = cached.clone().with_prefix("other:");
        other.get(&Video(1), &mut conn).unwrap();
        assert_eq!(map.kept(1), None);
        assert_eq!(map.totals.lock().unwrap().get("other:video 1"), Some(&10));
    }
}

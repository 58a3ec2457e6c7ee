//! Totals read from a cache.
//!
//! Each read of a total costs a sum over shards. If the total may be a few seconds old, a cache in front of the database saves
//! this sum, like the memcache in App Engine's [article on sharded counters][article]. A reader that finds no total in the cache reads it
//! from the database and adds it to the cache, *unless there is one by then*. An increment adds to the total in the cache after its commit, *if
//! there is one*:
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
//! use diesel_sharded::retry::{self, RetryPolicy};
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
//! retry::transaction(conn, RetryPolicy::default(), |conn| {
//!     Views(7).add(-1, conn)?;
//!     Views(8).add(1, conn)
//! })?;
//! cached.forget(&Views(7), conn); // after the commit
//! cached.forget(&Views(8), conn);
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
//! The article used memcache's `incr`, which stops at zero. These caches also count down, even below zero.
//!
//! # How wrong a cached total may be
//!
//! The database is never wrong. A cached total may be wrong until it expires: no error in it is older than the TTL plus the read
//! that filled the cache. It may be off by
//!
//! - increments that bypassed the cache: by other code, by other processes if the cache is in the process, inside a transaction
//!   ([`forget`](Cached::forget) the total after its commit);
//! - increments while the cache failed or was skipped after a failure, and those whose process ended between commit and
//!   cache update;
//! - increments that raced with the reader that filled the cache. If one is committed after the total was read, and its cache update finds
//!   nothing in the cache because the total is added later, the cached total lacks it. If one is committed before the total was read,
//!   and its cache update comes after the total was added, the cached total has it twice.
//!
//! When a paused Redis server resumes, it executes the commands that it received before the pause. The totals that it then keeps are
//! older by the length of the pause.
//!
//! [`CachedCounter::read`] reads the exact total from the database, as does [`Cached::get`] inside a transaction.
//!
//! # When the cache is down
//!
//! Increments and reads still work. After a failure no operation uses the cache for a second. Then one operation tries it, and if it
//! succeeds, all use it again. Each failure is an [event and a metric](crate::observability); your own [`TotalCache`] sees its
//! errors before it returns them. A total that the cache kept meanwhile is at most as old as its TTL.
//!
//! # Many readers at once
//!
//! Every reader that finds no total reads the database. To share one read among them, put another cache in front of
//! [`get`](Cached::get), such as moka's `try_get_with`.

mod breaker;
#[cfg(feature = "cache")]
mod moka;
#[cfg(all(test, feature = "sqlite"))]
mod tests;

use std::error::Error as StdError;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::Connection;
use diesel::connection::{LoadConnection, TransactionManager};
use diesel::result::{DatabaseErrorKind, Error as DieselError, QueryResult};

use crate::backend::BackendOf;
use crate::connection::{Blocking, Link, depth_of, now};
use crate::counting::counter::{Counter, CounterBackend};
use crate::counting::row_counter::{CachedAs, IntegerField, Key, OneCounter, RowCounter};
use crate::error::Error;
use crate::model::shows;
use crate::observe::{self, CacheRead};

use self::breaker::{CircuitBreaker, State};

#[cfg(feature = "cache")]
pub use self::moka::MokaCache;

/// A counter whose total can be cached.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a counter that can be cached on a `{Conn}`",
    note = "implement `CachedCounter<{Conn}>` for it: a key, how it is read and how it is added to"
)]
pub trait CachedCounter<Conn> {
    /// The name of this counter in the cache. It differs from that of every other counter, and is the same in every process. For a
    /// [`RowCounter`] it contains the row's key by `Debug`, so `Debug` has to distinguish keys.
    fn cache_key(&self) -> String;

    /// Reads the total from the database.
    ///
    /// # Errors
    /// The database's; an error is never cached.
    fn read(&self, conn: &mut Conn) -> QueryResult<i64>;

    /// Adds `n` to the total in the database. Returns the number of counted rows, as `execute` does: 0 if there is no such counter.
    ///
    /// # Errors
    /// The database's.
    fn add(&self, n: i64, conn: &mut Conn) -> QueryResult<usize>;
}

/// Implements both traits `CachedCounter`, for blocking and asynchronous connections, for counters of this crate.
macro_rules! cached_counter {
    ($(
        $counter:ident $(<$field:ident>)? where $($bounded:ty: $bound:path),+;
    )+) => {
        $(impl<$($field,)? Conn, DB> CachedCounter<Conn> for $counter<$($field,)? Blocking>
        where
            Conn: LoadConnection<Backend = DB>,
            $($bounded: $bound,)+
        {
            fn cache_key(&self) -> String {
                self.cached_as()
            }

            /// # Errors
            /// [`NotFound`](DieselError::NotFound) if there is no such row.
            fn read(&self, conn: &mut Conn) -> QueryResult<i64> {
                now(self.total(&mut Link::blocking(conn)))?.ok_or(DieselError::NotFound)
            }

            fn add(&self, n: i64, conn: &mut Conn) -> QueryResult<usize> {
                now(self.count(n, &mut Link::blocking(conn)))
            }
        })+

        #[cfg(feature = "async")]
        mod awaited {
            use diesel_async::AsyncConnection;

            use super::asynchronous::CachedCounter;
            use super::*;
            use crate::connection::{Async, BoxFuture};

            $(impl<$($field,)? Conn, DB> CachedCounter<Conn> for $counter<$($field,)? Async>
            where
                Conn: AsyncConnection<Backend = DB>,
                $($bounded: $bound,)+
            {
                fn cache_key(&self) -> String {
                    self.cached_as()
                }

                fn read<'c>(&'c self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<i64>> {
                    Box::pin(async move {
                        let total = self.total(&mut Link::awaited(conn)).await?;
                        total.ok_or(DieselError::NotFound)
                    })
                }

                fn add<'c>(
                    &'c self,
                    n: i64,
                    conn: &'c mut Conn,
                ) -> BoxFuture<'c, QueryResult<usize>> {
                    Box::pin(async move { self.count(n, &mut Link::awaited(conn)).await })
                }
            })+
        }
    };
}

// A cache key is made of the names of the shards table and the field with the row's key, or of the counter's name.
cached_counter! {
    RowCounter<C> where C: IntegerField<DB>, Key<C>: std::fmt::Debug, DB: BackendOf<Conn>;
    Counter where DB: CounterBackend<Conn>;
}

/// A cache that keeps totals for a while: `MokaCache` in the process, or an application's own. The repository's
/// `examples/redis_cache` keeps them in a Redis server.
///
/// Each operation is one atomic step for all users of the cache; [`Cached`] relies on nothing else. No operation may wait long: if it
/// cannot finish soon, it must return an error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a cache of totals",
    note = "`MokaCache` (feature `cache`) is; implement `TotalCache` for one of your own"
)]
pub trait TotalCache: Send + Sync {
    /// Returns the total under `key`.
    ///
    /// # Errors
    /// [`CacheError`]
    fn get(&self, key: &str) -> Result<Option<i64>, CacheError>;

    /// Keeps `total` under `key` for `ttl`, unless there is a total already.
    ///
    /// # Errors
    /// [`CacheError`]
    fn add_if_absent(&self, key: &str, total: i64, ttl: Duration) -> Result<(), CacheError>;

    /// Adds `by` to the total under `key`. Both may be negative. Does nothing if there is no total. The expiry does not change. A
    /// total that would leave the range of `i64` is removed.
    ///
    /// # Errors
    /// [`CacheError`]
    fn increment_if_present(&self, key: &str, by: i64) -> Result<(), CacheError>;

    /// Removes the total under `key`.
    ///
    /// # Errors
    /// [`CacheError`]
    fn remove(&self, key: &str) -> Result<(), CacheError>;

    /// Whether the cache may make its caller wait, like a cache in another process. Tasks then call it on a thread that may block. True by
    /// default.
    fn waits(&self) -> bool {
        true
    }
}

/// The reason why an operation of a cache failed. An increment or a read never returns it; see [when the cache is
/// down](self#when-the-cache-is-down).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The cache could not be used. It is skipped for a while.
    #[error("the cache could not be used ({source})")]
    Unavailable {
        /// The cache's own error.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The value under the key is not a total; perhaps another application uses the same key. Other keys are not affected.
    #[error("what the cache keeps under `{key}` is no total ({source})")]
    NotATotal {
        /// The key, with its prefix.
        key: String,
        /// The cache's own error.
        source: Box<dyn StdError + Send + Sync>,
    },
}

/// A cache in front of counters. Clones share the cache and its state; each clone has its own settings.
///
/// Diesel's `begin_test_transaction` begins a transaction too, so a test inside one never uses the cache.
///
/// | setting | default | meaning |
/// |---|---|---|
/// | [`with_ttl`](Self::with_ttl) | 60 s | how long a total is kept, and so the greatest age of an error in it |
/// | [`with_pause`](Self::with_pause) | 1 s | how long the cache is skipped after a failure |
///
/// Every key begins with `diesel_sharded:`. If several databases share one cache, give each of them a [`TotalCache`] with another prefix.
#[must_use = "a cache does nothing until totals are read and counted through it"]
pub struct Cached<C> {
    ttl: Duration,
    pause: Duration,
    shared: Arc<Shared<C>>,
}

/// The state that all clones share.
struct Shared<C> {
    cache: C,
    breaker: CircuitBreaker,
}

impl<C: TotalCache> Cached<C> {
    /// Puts `cache` in front of counters, with the defaults above.
    pub fn new(cache: C) -> Self {
        Cached {
            ttl: Duration::from_secs(60),
            pause: Duration::from_secs(1),
            shared: Arc::new(Shared {
                cache,
                breaker: CircuitBreaker::new(Instant::now()),
            }),
        }
    }

    /// Sets how long a total is kept.
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets how long the cache is skipped after a failure.
    pub fn with_pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Puts a question to the cache. `None` if the cache is skipped or failed.
    fn ask(&self, key: &str, question: Question) -> Option<Option<i64>> {
        let Shared { cache, breaker } = &*self.shared;
        let state = breaker.state(Instant::now(), self.pause);
        if state == State::Open {
            return None;
        }
        let result = match question {
            Question::Get => cache.get(key),
            Question::AddIfAbsent(total, ttl) => {
                cache.add_if_absent(key, total, ttl).map(|()| None)
            }
            Question::IncrementIfPresent(n) => cache.increment_if_present(key, n).map(|()| None),
            Question::Remove => cache.remove(key).map(|()| None),
        };
        match &result {
            Err(error @ CacheError::Unavailable { .. }) => {
                breaker.trip(Instant::now(), self.pause);
                observe::cache_unavailable(error);
            }
            // The cache has answered, even if the value is not a total.
            _ if state == State::HalfOpen => breaker.reset(),
            _ => {}
        }
        if let Err(error @ CacheError::NotATotal { .. }) = &result {
            observe::not_a_total(error);
        }
        result.ok()
    }
}

impl<C> Clone for Cached<C> {
    fn clone(&self) -> Self {
        Cached {
            ttl: self.ttl,
            pause: self.pause,
            shared: Arc::clone(&self.shared),
        }
    }
}

shows!([C] Cached<C>: |self| Cached { ttl: self.ttl, pause: self.pause } finish_non_exhaustive);

/// A question to a cache about a key.
#[derive(Debug, Clone, Copy)]
enum Question {
    Get,
    AddIfAbsent(i64, Duration),
    IncrementIfPresent(i64),
    Remove,
}

impl<C: TotalCache> Cached<C> {
    /// Returns the total of `counter`, from the cache or else from the database. The cache then keeps it.
    ///
    /// Inside a transaction it reads the total from the database, because only the database knows what the transaction sees. It does not
    /// cache that total, which may include increments that are never committed.
    ///
    /// # Errors
    /// Those of [`CachedCounter::read`].
    pub fn get<Conn, K>(&self, counter: &K, conn: &mut Conn) -> QueryResult<i64>
    where
        Conn: Connection,
        K: CachedCounter<Conn> + ?Sized,
    {
        let inside = is_inside(conn)?;
        let read = async { counter.read(conn) };
        now(self.total::<Blocking>(&counter.cache_key(), inside, read))
    }

    /// Reads the total, `inside` a transaction only from the database.
    async fn total<M: Asks<C>>(
        &self,
        key: &str,
        inside: bool,
        read: impl Future<Output = QueryResult<i64>>,
    ) -> QueryResult<i64> {
        if inside {
            observe::cache_read(CacheRead::Bypassed);
            return read.await;
        }
        let key = in_cache(key);
        if let Some(Some(total)) = M::ask(self, &key, Question::Get).await {
            observe::cache_read(CacheRead::Hit);
            return Ok(total);
        }
        observe::cache_read(CacheRead::Miss);
        let total = read.await?;
        M::ask(self, &key, Question::AddIfAbsent(total, self.ttl)).await;
        Ok(total)
    }

    /// Adds `n`, which may be negative, to `counter`, and then to the cached total if there is one.
    ///
    /// Inside a transaction it counts but does not touch the cache, because it cannot know when the transaction commits. The
    /// cached total then lacks the increment until it expires. [`forget`](Self::forget) the total after the commit.
    ///
    /// # Errors
    /// Those of [`CachedCounter::add`]. The cache then stays as it is, unless the increment may have been committed: then the cached total is
    /// removed.
    pub fn add<Conn, K>(&self, counter: &K, n: i64, conn: &mut Conn) -> QueryResult<usize>
    where
        Conn: Connection,
        K: CachedCounter<Conn> + ?Sized,
    {
        let inside = is_inside(conn)?;
        let add = async { counter.add(n, conn) };
        now(self.count::<Blocking>(&counter.cache_key(), n, inside, add))
    }

    /// Counts, and adds to the cached total unless `inside` a transaction.
    async fn count<M: Asks<C>>(
        &self,
        key: &str,
        n: i64,
        inside: bool,
        add: impl Future<Output = QueryResult<usize>>,
    ) -> QueryResult<usize> {
        let counted = add.await;
        if inside {
            return counted;
        }
        let key = in_cache(key);
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

    /// Removes the cached total. Call it after the commit of a change that bypassed the cache: a transaction that counted, a total that was
    /// set, a repair. A reader that read before the change may still add the old total afterwards.
    pub fn forget<Conn, K>(&self, counter: &K, _conn: &mut Conn)
    where
        K: CachedCounter<Conn> + ?Sized,
    {
        self.ask(&in_cache(&counter.cache_key()), Question::Remove);
    }
}

/// The counter's key with the prefix that it has in the cache.
fn in_cache(key: &str) -> String {
    format!("diesel_sharded:{key}")
}

/// Whether an increment that ended in `error` may have been committed. An application's own counter may report a lost connection as Diesel
/// does.
fn may_be_committed(error: &DieselError) -> bool {
    match error {
        DieselError::DatabaseError(DatabaseErrorKind::ClosedConnection, _)
        | DieselError::RollbackErrorOnCommit { .. } => true,
        DieselError::QueryBuilderError(error) => matches!(
            error.downcast_ref(),
            Some(
                Error::OutcomeUnknown { .. }
                    | Error::TransactionAborted
                    | Error::CountedNotRead { .. }
                    | Error::CommittedNotCounted
            )
        ),
        _ => false,
    }
}

/// How a blocking or an asynchronous caller puts a question to the cache.
trait Asks<C> {
    /// See [`Cached::ask`].
    async fn ask(cached: &Cached<C>, key: &str, question: Question) -> Option<Option<i64>>;
}

impl<C: TotalCache> Asks<C> for Blocking {
    async fn ask(cached: &Cached<C>, key: &str, question: Question) -> Option<Option<i64>> {
        cached.ask(key, question)
    }
}

/// Whether a transaction is open, as far as Diesel knows.
fn is_inside<Conn: Connection>(conn: &mut Conn) -> QueryResult<bool> {
    let status = Conn::TransactionManager::transaction_manager_status_mut(conn);
    Ok(depth_of(status)? > 0)
}

/// Totals from a cache, on connections of `diesel_async`.
#[cfg(feature = "async")]
#[doc(hidden)]
pub mod asynchronous {
    use diesel_async::{AsyncConnection, TransactionManager};
    use tokio::runtime::Handle;

    use super::*;
    use crate::connection::{Async, BoxFuture};

    /// A counter whose total can be cached; see [`CachedCounter`](crate::cached::CachedCounter).
    #[diagnostic::on_unimplemented(
        message = "`{Self}` is not a counter that can be cached on a `{Conn}` of `diesel_async`",
        note = "`asynchronous::Counter` and `asynchronous::RowCounter` are; implement `asynchronous::cached::CachedCounter<{Conn}>` for others"
    )]
    pub trait CachedCounter<Conn> {
        /// The name of this counter in the cache.
        fn cache_key(&self) -> String;

        /// Reads the exact total from the database.
        ///
        /// # Errors
        /// The database's, and those of reading.
        fn read<'c>(&'c self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<i64>>;

        /// Counts, and returns the number of counted rows.
        ///
        /// # Errors
        /// The database's, and those of counting.
        fn add<'c>(&'c self, n: i64, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<usize>>;
    }

    impl<C: TotalCache + 'static> Cached<C> {
        /// [`get`](Self::get) on a connection of `diesel_async`. If the cache [waits](TotalCache::waits), it is called on a thread of the
        /// runtime that may block.
        ///
        /// # Errors
        /// Those of [`CachedCounter::read`].
        pub fn get_async<'c, Conn, K>(
            &'c self,
            counter: &'c K,
            conn: &'c mut Conn,
        ) -> BoxFuture<'c, QueryResult<i64>>
        where
            Conn: AsyncConnection,
            K: CachedCounter<Conn> + Sync + ?Sized,
        {
            Box::pin(async move {
                let (key, inside) = (counter.cache_key(), is_inside(conn)?);
                let read = counter.read(conn);
                self.total::<Async>(&key, inside, read).await
            })
        }

        /// [`add`](Self::add) on a connection of `diesel_async`. If the future is dropped after the increment, the cached total may lack the
        /// increment until it expires.
        ///
        /// # Errors
        /// Those of [`CachedCounter::add`].
        pub fn add_async<'c, Conn, K>(
            &'c self,
            counter: &'c K,
            n: i64,
            conn: &'c mut Conn,
        ) -> BoxFuture<'c, QueryResult<usize>>
        where
            Conn: AsyncConnection,
            K: CachedCounter<Conn> + Sync + ?Sized,
        {
            Box::pin(async move {
                let (key, inside) = (counter.cache_key(), is_inside(conn)?);
                let add = counter.add(n, conn);
                self.count::<Async>(&key, n, inside, add).await
            })
        }

        /// [`forget`](Self::forget) for a counter on connections of `diesel_async`: after a transaction that counted on it, or a
        /// change that bypassed the cache.
        pub fn forget_async<'c, Conn, K>(&'c self, counter: &K, _conn: &Conn) -> BoxFuture<'c, ()>
        where
            K: CachedCounter<Conn> + ?Sized,
        {
            let key = in_cache(&counter.cache_key());
            Box::pin(async move {
                Async::ask(self, &key, Question::Remove).await;
            })
        }
    }

    /// Whether a transaction is open, as far as Diesel knows.
    fn is_inside<Conn: AsyncConnection>(conn: &mut Conn) -> QueryResult<bool> {
        let status = Conn::TransactionManager::transaction_manager_status_mut(conn);
        Ok(depth_of(status)? > 0)
    }

    impl<C: TotalCache + 'static> Asks<C> for Async {
        async fn ask(cached: &Cached<C>, key: &str, question: Question) -> Option<Option<i64>> {
            if !cached.shared.cache.waits() {
                return cached.ask(key, question);
            }
            let Ok(runtime) = Handle::try_current() else {
                return cached.ask(key, question); // outside of tokio there is no thread that may block
            };
            let (cached, key) = (cached.clone(), key.to_owned());
            let asked = runtime.spawn_blocking(move || cached.ask(&key, question));
            match asked.await {
                Ok(answer) => answer,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => None, // the runtime is shutting down
                },
            }
        }
    }
}

//! Totals that are read from a cache.
//!
//! Each read of a total costs a sum over shards. If the total may be some seconds old, a cache in front of the database saves
//! this sum, like the memcache in App Engine's [article on sharded counters][article]. A reader that finds no total adds the one
//! that it read, *unless there is one by then*. A count adds to the total in the cache, *if there is one*, once it is committed:
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
//! Unlike memcache's `incr`, which the article used and which stopped at zero, these caches also count down, even below zero.
//!
//! # How wrong a cached total may be
//!
//! The database is never wrong. A cached total may be wrong until it expires: no error in it is older than the TTL plus the read
//! that filled the cache. It is off by
//!
//! - counts that bypassed the cache: other code, other processes where the cache is in the process, counts inside a transaction
//!   that [`Cached`] did not begin;
//! - counts while the cache failed or was left out after a failure, and counts whose process ended between commit and
//!   increment;
//! - counts that met the reader who filled the cache. A count that was committed after the total was read, and found nothing in
//!   the cache before the total was added, is missing from it. A count that was committed before the total was read, and reached
//!   the cache after the total was added, is in it twice.
//!
//! When a Redis server that was stopped resumes, it executes the commands that it received before. The totals that it keeps then are
//! older by the length of the pause.
//!
//! [`CachedCounter::read`] reads the exact total from the database, as does [`Cached::get`] inside a transaction.
//!
//! # When the cache is down
//!
//! Counts and reads still work. After a failure no operation uses the cache for a second. Then one operation tries it, and if
//! that succeeds all use it again. [`with_notify`](Cached::with_notify) receives each error, and [`failures`](Cached::failures)
//! counts them. A total that the cache kept meanwhile is at most as old as its TTL.
//!
//! # Many readers at once
//!
//! Readers in one process that miss the same total share one read of the database, whether the cache works or not. The reader
//! that loads the total first asks the cache once more. The others wait for it, at most for [`with_wait`](Cached::with_wait), and
//! then load the total themselves. If the first reader fails, they do so at once. Readers of other totals do not wait.

#[cfg(feature = "async")]
#[doc(hidden)]
pub mod asynchronous;
mod counter;
mod flights;
mod front;
#[cfg(feature = "cache")]
mod moka;
mod pause;
mod read_and_count;
mod steps;
#[cfg(all(test, feature = "sqlite"))]
mod tests;
mod total_cache;
mod uncommitted;

#[doc(hidden)]
pub use self::counter::AddOnce;
pub use self::counter::CachedCounter;
pub use self::front::Cached;
#[cfg(feature = "cache")]
pub use self::moka::MokaCache;
pub use self::total_cache::{CacheError, TotalCache};
pub use self::uncommitted::Uncommitted;

//! The same operations on connections of [`diesel_async`], under the same names. Change the import, and await.
//!
//! ```diff
//! - use diesel_sharded::update;
//! + use diesel_sharded::asynchronous::update;
//!
//! - update(videos.find(7)).set(views.eq(views + 1)).execute(conn)?;
//! + update(videos.find(7)).set(views.eq(views + 1)).execute(conn).await?;
//! ```
//!
//! The operations work on `AsyncPgConnection`, `AsyncMysqlConnection` and `SyncConnectionWrapper<SqliteConnection>`, and on
//! the connections of the pools deadpool, bb8 and mobc; on a `&AsyncPgConnection` that tasks share, by [`Shared`]. Reading needs nothing:
//! `views.total()` is an expression like any other.
//!
//! ```
//! # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
//! # use schema::videos::{self, dsl::{videos as all, views}};
//! # use diesel::prelude::*;
//! # #[derive(diesel_sharded::ShardedField)]
//! # #[diesel(table_name = videos)]
//! # struct Video { id: i64, #[sharded] views: i64 }
//! use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
//! use diesel_async::{AsyncConnection, RunQueryDsl, SimpleAsyncConnection};
//! use diesel_sharded::asynchronous::{retry, update};
//! use diesel_sharded::prelude::*;
//! use diesel_sharded::retry::RetryPolicy;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let conn = &mut SyncConnectionWrapper::<SqliteConnection>::establish(":memory:").await?;
//! # conn.batch_execute("CREATE TABLE videos (id INTEGER PRIMARY KEY, views BIGINT NOT NULL); INSERT INTO videos VALUES (7, 100)").await?;
//! # diesel_sharded::asynchronous::ShardsTable::of(videos::table).create(conn).await?;
//!
//! update(all.find(7)).set(views.eq(views + 1)).execute(conn).await?;
//! let counted = update(all.find(7)).set(views.eq(views + 1)).returning(views);
//! let total: i64 = counted.get_result(conn).await?;
//! assert_eq!(total, 102);
//!
//! // The closure may run again, so it borrows its inputs and changes nothing but the database.
//! let total = retry::transaction(conn, RetryPolicy::default(), async |conn| {
//!     update(all.find(7)).set(views.eq(views + 1)).execute(conn).await?;
//!     all.find(7).select(views.total()).first::<i64>(conn).await
//! })
//! .await?;
//! assert_eq!(total, 103);
//! # Ok(())
//! # }
//! ```
//!
//! # Names
//!
//! An operation that begins with a function or a constructor has the same name and place here as in the crate: [`update`],
//! [`Counter`], [`retry::transaction`], [`shard_counts::refresh`](shard_counts::refresh()). A value that threads and tasks share,
//! as [`Cached`](crate::cached::Cached), has a method that ends in `_async` beside each blocking one.
//!
//! # Differences
//!
//! - [`update`]'s statement has methods `execute`, `get_result`, `get_results` and `load` of its own, because the futures of
//!   `diesel_async`'s `ExecuteDsl` outlive what an update borrows. They win over those of `diesel_async::RunQueryDsl`, whether
//!   that is imported or not.
//! - The values that are sent and the rows that come back have to be `Send`.
//! - Pauses between attempts need no timer of tokio's, so a runtime without `enable_time` is enough: a thread of this crate
//!   wakes the tasks. Pauses pass also while `tokio::time::pause` has stopped the clock.
//!   [`RetryPolicy::with_sleep`](crate::retry::RetryPolicy::with_sleep) has no effect.
//! - [`shard_counts::follow`](crate::shard_counts::follow) has no awaited form.
//! - A coalescer serves both kinds of callers. It takes the crate's own [`RowCounter`](crate::RowCounter) and
//!   [`Counter`](crate::Counter), and its `flush` and `close` block.
//! - Migrations run on an ordinary connection, or by `diesel_async`'s `AsyncMigrationHarness`.
//!
//! # Cancellation
//!
//! A future that is dropped stops where it is. (On a multi-threaded runtime `execute_with` counts in a task of its own, which goes on.) A
//! count of one statement was then counted once, or not at all. An operation of several statements leaves its transaction open, and nothing
//! of it is committed: the connection refuses this crate's operations and Diesel's transactions
//! ([`ConnectionLost`](crate::Error::ConnectionLost)), and a pool drops it. Diesel still sends single statements, into the transaction that
//! nobody commits: send none. The same holds for a future that is dropped inside a transaction of the caller, because nobody knows what
//! that one would commit. Nothing is counted twice. An application that has to know what became of a count gives it an [idempotency
//! key](crate::idempotency) and asks again.
//!
//! On MySQL a connection is refused so after any operation of this crate that was dropped: mysql_async would read the answer
//! to the last statement as that of the next one. `diesel_async`'s own queries do not guard against that.
//!
//! Two limits of `diesel_async` 0.9.2: its mobc pool keeps the connections that deadpool and bb8 drop, so do not drop
//! futures there. A future that is dropped on a `SyncConnectionWrapper` is waited for, which panics on a runtime of one thread.

pub use crate::connection::{Async, BoxFuture, Shared};
use crate::counter_cache::{EveryRow, NotCounting};
pub use crate::counting::count_many::asynchronous::count_many;
#[doc(inline)]
pub use crate::counting::idempotency::asynchronous as idempotency;
#[doc(inline)]
pub use crate::counting::retry::asynchronous as retry;
pub use crate::counting::update::asynchronous::update;
#[doc(inline)]
pub use crate::reading::cached::asynchronous as cached;
pub use crate::upkeep::fold::asynchronous::fold;
pub use crate::upkeep::set_total::asynchronous::{reset, set_total};
#[doc(inline)]
pub use crate::upkeep::shard_counts::asynchronous as shard_counts;
pub use crate::upkeep::verify::asynchronous::verify;

/// A named counter; see [`operation::Counter`](crate::operation::Counter).
pub type Counter = crate::operation::Counter<Async>;

/// One sharded field of one row; see [`operation::RowCounter`](crate::operation::RowCounter).
pub type RowCounter<C> = crate::operation::RowCounter<C, Async>;

/// The shards table of a table with sharded fields; see [`operation::ShardsTable`](crate::operation::ShardsTable).
pub type ShardsTable<T> = crate::operation::ShardsTable<T, Async>;

/// A sharded field that holds the number of rows of another table; see [`CounterCache`](crate::counter_cache::CounterCache).
pub type CounterCache<C, Child = NotCounting, Condition = EveryRow, Amount = EveryRow> =
    crate::counter_cache::CounterCache<C, Child, Condition, Amount, Async>;

/// Counters with bounds; see [`bounded`](crate::bounded).
pub mod bounded {
    /// See [`Bounded`](crate::bounded::Bounded).
    pub type Bounded<C> = crate::bounded::Bounded<C, super::Async>;
}

/// The statements and results of the awaited operations, where they are not those of [`operation`](crate::operation).
pub mod operation {
    use super::Async;
    use crate::idempotency::Idempotent;

    pub use crate::counting::update::asynchronous::LoadCounted;

    /// See [`operation::BoundedCounter`](crate::operation::BoundedCounter).
    pub type BoundedCounter = crate::operation::BoundedCounter<Async>;

    /// See [`operation::CounterList`](crate::operation::CounterList).
    pub type CounterList = crate::operation::CounterList<Async>;

    /// See [`operation::TopCounters`](crate::operation::TopCounters).
    pub type TopCounters = crate::operation::TopCounters<Async>;

    /// See [`operation::TotalsView`](crate::operation::TotalsView).
    pub type TotalsView<T> = crate::operation::TotalsView<T, Async>;

    /// A named counter with an idempotency key.
    pub type IdempotentCounter = Idempotent<super::Counter>;

    /// One sharded field of one row with an idempotency key.
    pub type IdempotentRowCounter<C> = Idempotent<super::RowCounter<C>>;
}

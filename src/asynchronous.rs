//! The same operations, under the same names, on connections of [`diesel_async`]. Change the import, and await.
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
//! the connections of the pools deadpool, bb8 and mobc. [`Shared`] wraps a `&AsyncPgConnection` that tasks share. Reading needs nothing
//! special: `views.total()` is an expression like any other.
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
//! such as [`Cached`](crate::cached::Cached), has a second method, ending in `_async`, for each blocking one.
//!
//! # Differences
//!
//! - [`update`]'s statement has its own methods `execute`, `get_result`, `get_results` and `load`, because the futures of
//!   `diesel_async`'s `ExecuteDsl` outlive the values that an update borrows. These methods take precedence over those of
//!   `diesel_async::RunQueryDsl`, even if that is imported.
//! - The values that are sent and the rows that come back have to be `Send`.
//! - Pauses between attempts do not use tokio's timer: a thread of this crate wakes the tasks. So a runtime without `enable_time` is
//!   enough, and pauses end even while `tokio::time::pause` has stopped the clock.
//!   [`RetryPolicy::with_sleep`](crate::retry::RetryPolicy::with_sleep) has no effect.
//! - [`shard_counts::follow`](crate::shard_counts::follow) has no asynchronous form.
//! - A coalescer serves both kinds of callers. It accepts the blocking [`RowCounter`](crate::RowCounter) and
//!   [`Counter`](crate::Counter), and its `flush` and `close` block.
//! - Migrations run on an ordinary connection, or by `diesel_async`'s `AsyncMigrationHarness`.
//!
//! # Cancellation
//!
//! A future that is dropped stops where it is. (On a multi-threaded runtime `execute_with` counts in a separate task, which continues.) An
//! increment of one statement was then made once or not at all. An operation of several statements leaves its transaction open, and nothing
//! of it is committed: the connection refuses this crate's operations and Diesel's transactions
//! ([`ConnectionLost`](crate::Error::ConnectionLost)), and a pool drops it. Diesel would still send single statements, into a transaction
//! that never commits: send none. The same happens if a future is dropped inside a caller's transaction, because nobody knows what that
//! transaction would commit. Nothing is counted twice. An application that has to know the outcome of an increment gives it an [idempotency
//! key](crate::idempotency) and repeats it.
//!
//! On MySQL the connection refuses these after any dropped operation of this crate: mysql_async would read the answer to the last
//! statement as the answer to the next one. `diesel_async`'s own queries do not guard against that.
//!
//! `diesel_async` 0.9.2 has two limits. Its mobc pool keeps connections that deadpool and bb8 would drop, so do not drop futures there.
//! And `SyncConnectionWrapper` waits for a dropped future, which panics on a single-threaded runtime.

pub use crate::connection::{Async, BoxFuture, Shared};
use crate::counter_cache::{EveryRow, NotCounting};
pub use crate::counting::count_many::asynchronous::count_many;
#[doc(inline)]
pub use crate::counting::retry::asynchronous as retry;
pub use crate::counting::update::asynchronous::update;
#[doc(inline)]
pub use crate::reading::cached::asynchronous as cached;
pub use crate::upkeep::fold::asynchronous::fold;
pub use crate::upkeep::set_total::asynchronous::{reset, set_total};
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

/// Idempotency keys; see [`idempotency`](crate::idempotency).
pub mod idempotency {
    pub use crate::counting::idempotency::asynchronous::remove_older_than;
}

/// Unique counts; see [`unique`](crate::unique).
pub mod unique {
    pub use crate::counting::unique::asynchronous::remove_expired;
}

/// How many shards writers choose from; see [`shard_counts`](crate::shard_counts).
pub mod shard_counts {
    pub use crate::upkeep::shard_counts::asynchronous::refresh;

    /// The number of shards of one field; see [`operation::ShardCount`](crate::operation::ShardCount).
    pub type ShardCount = crate::operation::ShardCount<super::Async>;
}

/// The statements and results of the asynchronous operations, where they differ from those in [`operation`](crate::operation).
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

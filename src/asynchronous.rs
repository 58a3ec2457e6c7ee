//! The same operations on connections of [`diesel_async`]: the names are those of the crate's front page, and what they give is
//! awaited.
//!
//! ```diff
//! - use diesel_sharded::update;
//! + use diesel_sharded::asynchronous::update;
//!
//! - update(videos.find(7)).set(views.eq(views + 1)).execute(conn)?;
//! + update(videos.find(7)).set(views.eq(views + 1)).execute(conn).await?;
//! ```
//!
//! They work on `AsyncPgConnection`, `AsyncMysqlConnection` and `SyncConnectionWrapper<SqliteConnection>`, and on what
//! the pools deadpool, bb8 and mobc lend of them. Reading needs nothing: `views.total()` is an expression like any other.
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
//! # conn.batch_execute(&diesel_sharded::ShardsTable::of(videos::table).create_sql(&diesel::sqlite::Sqlite)?).await?;
//!
//! update(all.find(7)).set(views.eq(views + 1)).execute(conn).await?;
//! let total: i64 = update(all.find(7)).set(views.eq(views + 1)).returning(views).get_result(conn).await?;
//! assert_eq!(total, 102);
//!
//! // What may be tried again borrows what it reads, and changes nothing but the database.
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
//! # What differs
//!
//! - `update` has its own methods `execute`, `get_result`, `get_results` and `load`, since `diesel_async`'s `ExecuteDsl` gives futures
//!   that outlive what an update borrows. They win over those of `diesel_async::RunQueryDsl`, whether that is imported or not.
//! - What is sent is `Send`: the values, and the rows that come back.
//! - Pauses between attempts need no timer of tokio's, so that a runtime without `enable_time` does: a thread of this crate's own wakes
//!   the tasks. Where `tokio::time::pause` has stopped the clock, they pass by it. [`RetryPolicy::with_sleep`](crate::retry::RetryPolicy::with_sleep) is without effect.
//! - Without an awaited form are [`RowCounter::idempotency_key`](crate::RowCounter::idempotency_key) (an [`update`] has one),
//!   [`Cached::transaction`](crate::cached::Cached::transaction) and [`shard_counts::follow`](crate::shard_counts::follow).
//! - A coalescer and a cache, which serve both kinds of callers, take the crate's own [`RowCounter`](crate::RowCounter) and
//!   [`Counter`](crate::Counter).
//! - Tables are created by `ShardsTable`'s text or by migrations, on an ordinary connection or `diesel_async`'s
//!   `AsyncMigrationHarness`.
//!
//! # Cancellation
//!
//! A future that is dropped stops where it is. A count that is one statement was then counted once, or not. What
//! is several statements leaves its transaction open, and nothing of it is committed: the connection takes no more then
//! ([`ConnectionLost`](crate::Error::ConnectionLost)), and a pool drops it. The same holds where it was dropped inside a transaction of the
//! caller's: nobody knows what that one would commit. Nothing is doubled by it. Whoever has to know what became of a count gives
//! it an [idempotency key](crate::idempotency) and asks again.
//!
//! On MySQL a connection takes no more after any operation of this crate's that was dropped: mysql_async would read the answer to its
//! last statement in the place of the next one's. `diesel_async`'s own queries do not see to that.
//!
//! Two things to know of `diesel_async` 0.9.2: its mobc pool keeps just those connections that deadpool and bb8 drop, so that
//! futures had better not be dropped there. And what is dropped on a `SyncConnectionWrapper` is waited for, which
//! panics on a runtime of one thread.
//!
//! What is coalesced ([`Coalescer::add_async`](crate::coalescer::Coalescer::add_async), with feature `r2d2`) is counted also
//! if nobody waits for it any more.

use crate::operation::{
    bounded, cached, fold, named_asynchronous, row_counter, set_total, update, verify,
};

pub use self::bounded::asynchronous::Bounded;
pub use self::cached::asynchronous::CachedCounter;
pub use self::fold::asynchronous::fold;
pub use self::named_asynchronous::{Counter, CounterList, IdempotentCounter};
pub use self::row_counter::asynchronous::RowCounter;
pub use self::set_total::asynchronous::{reset, set_total};
pub use self::update::asynchronous::{LoadCounted, update};
pub use self::verify::asynchronous::verify;
pub use crate::connection::{Async, BoxFuture};
pub use crate::operation::idempotency::asynchronous as idempotency;
pub use crate::operation::retry::asynchronous as retry;
pub use crate::operation::shard_counts::asynchronous as shard_counts;

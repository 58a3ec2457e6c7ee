//! The number of shards that writers choose from, which can change while they run.
//!
//! Any number is right, because readers add up all shards that exist. The number only decides how many writers meet. So it may
//! lag: a small table of the library's own (see [`MIGRATIONS`](crate::MIGRATIONS)) holds the numbers, and each process follows it
//! at its own pace. A process knows numbers by the names of tables. If it counts in several databases with tables of the same
//! names, the number that was read last holds for all.
//!
//! ```
//! # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
//! # use schema::videos;
//! # use diesel::prelude::*;
//! # #[derive(diesel_sharded::ShardedField)]
//! # struct Video { id: i64, #[sharded] views: i64 }
//! # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! # let file = std::env::temp_dir().join(format!("sharded_numbers_{}.db", std::process::id()));
//! # let url = file.display().to_string();
//! # let conn = &mut SqliteConnection::establish(&url)?;
//! # use diesel_migrations::MigrationHarness;
//! # conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
//! use std::time::{Duration, Instant};
//! use diesel_sharded::shard_counts::{ShardCount, follow};
//!
//! // Once, when the process starts: 10 s is how long a change takes to arrive here, at most.
//! let following = follow(Duration::from_secs(10), move || SqliteConnection::establish(&url))?;
//!
//! // Anywhere, at any time: from now on more writers find a shard of their own.
//! assert_eq!(ShardCount::of(videos::views).increase(512, conn)?, 512);
//! # drop(following);
//! # std::fs::remove_file(file)?;
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "async")]
#[doc(hidden)]
pub mod asynchronous;
mod follow;
mod known;
pub(in crate::operation) mod number;
mod sql;

pub use self::follow::{Following, follow};
pub use self::known::refresh;
pub(crate) use self::known::{keep_fresh, known, wished};
pub(in crate::operation) use self::known::{largest, read_table};
pub(crate) use self::number::Number;
pub(in crate::operation) use self::sql::TABLE;

/// The number of shards of one field, or of one named counter; see [`operation::ShardCount`](crate::operation::ShardCount).
pub type ShardCount = number::ShardCount;

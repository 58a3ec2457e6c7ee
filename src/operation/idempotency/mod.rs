//! Counting updates that are requested more than once, and counted once.
//!
//! A request may be repeated: by a queue that delivers at least once, by a client that got no answer, by a caller that received
//! [`OutcomeUnknown`](crate::Error::OutcomeUnknown). If all repeats share a key, only the first is counted, in any process,
//! before or after a restart. The others get the same answer as the first:
//!
//! ```
//! # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
//! # use schema::videos::{self, dsl::{id, videos as all, views}};
//! # use diesel_migrations::MigrationHarness;
//! # #[derive(diesel_sharded::ShardedField)]
//! # #[diesel(table_name = videos)]
//! # struct Video { id: i64, #[sharded] views: i64 }
//! # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! # let conn = &mut SqliteConnection::establish(":memory:")?;
//! # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, views BIGINT NOT NULL)").execute(conn)?;
//! # diesel::insert_into(all).values((id.eq(7), views.eq(100))).execute(conn)?;
//! # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
//! use diesel::prelude::*;
//! use diesel_sharded::{Counter, update};
//!
//! conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?; // once
//! let request = "0b9d6d0e-6a3f"; // a header of the request, a message's id
//!
//! for _ in 0..3 {
//!     let counted = update(all.find(7))
//!         .set(views.eq(views + 1))
//!         .idempotency_key(format!("{request}/views"))
//!         .execute(conn)?;
//!     assert_eq!(counted, 1);
//!     Counter::named("views").idempotency_key(format!("{request}/site")).add(1, conn)?;
//! }
//! # use diesel_sharded::prelude::*;
//! # assert_eq!(all.find(7).select(views.total()).first::<i64>(conn)?, 101);
//! # assert_eq!(Counter::named("views").get(conn)?, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # SQL
//!
//! The key and the count are committed together, or not at all:
//!
//! ```sql
//! BEGIN;                                                                    -- MySQL: READ COMMITTED; SQLite: IMMEDIATE
//! INSERT INTO "diesel_sharded_idempotency_keys" ("key", "fingerprint", "claim", "counted", "created")
//! VALUES ($1, $2, $3, 1, now) ON CONFLICT ("key") DO NOTHING;               -- MySQL: ON DUPLICATE KEY UPDATE, which changes nothing
//! SELECT "key", "fingerprint", "claim", "counted" FROM … WHERE "key" IN ($1)   -- only if it was there; on MySQL always
//!     FOR KEY SHARE;                                                        -- MySQL: FOR UPDATE; SQLite: none
//! UPDATE "videos_shards" AS "videos" SET …;                                 -- only if it was not
//! COMMIT
//! ```
//!
//! An update by key that is executed outside a transaction, and an addition to a counter there, do all of this in one statement: on
//! PostgreSQL by `WITH` clauses, on MariaDB by a compound statement, `BEGIN NOT ATOMIC … END`. If that finds the key, or no shard, the
//! transaction above follows.
//!
//! ```sql
//! WITH "sharded_claimed" AS (INSERT INTO "diesel_sharded_idempotency_keys" … ON CONFLICT ("key") DO NOTHING RETURNING 1),
//! "sharded_counted" AS (UPDATE "videos_shards" AS "videos" SET … AND EXISTS (SELECT 1 FROM "sharded_claimed") RETURNING 1)
//! SELECT 1 FROM "sharded_claimed" WHERE …                                   -- fails if one of the two was done alone
//! ```
//!
//! A repeat that comes while the first is still running waits for it, on the key's row. Inside a transaction all statements are
//! part of the caller's, in a savepoint. (Where Diesel does not know of the transaction, PostgreSQL may be sent the one statement. If that
//! fails, as by an overflow, the caller's transaction is aborted, as by any count.) The cost is that of a larger statement, or of a
//! transaction with three statements in its place (see the benchmark `cost`), and a row of a few dozen bytes for each key until it is
//! [removed](remove_older_than). Through a [`Coalescer`](crate::coalescer::Coalescer), a batch inserts all its keys by one statement.
//!
//! # Answers to repeats
//!
//! On PostgreSQL with a synchronous standby, a repeat is answered when the standby has the first count too. Its lock makes its commit wait.
//!
//! The number of rows that were counted the first time ([`Cached::add`](crate::cached::Cached::add) returns 0: nothing was added
//! to the cached total). Returned rows (`get_result`) are read in their current state. An update that counted nothing, because it
//! failed or no row matched, leaves no key: a repeat runs as if it were the first.
//!
//! A key that comes again with another update (another amount, row or field) would lose a count. So it is an error:
//! [`IdempotencyKeyReused`](crate::Error::IdempotencyKeyReused). Updates are distinguished by a 64-bit hash of their content, as
//! Diesel writes it. If another version of Diesel writes it differently, a repeat of a request from before the upgrade gets this
//! error too, and counts nothing.
//!
//! # Sets and deletes
//!
//! [`set_total`](crate::operation::SetTotal::idempotency_key), `reset`, and a named counter's `set`, `reset` and `delete` take a key too. The key is
//! written in the transaction that sets. A repeat changes nothing, also if counts came in since: a job that sets a total and runs
//! again does not take them back.
//!
//! # When keys go
//!
//! Keys never expire by themselves, because the library cannot know for how long a request may come again. [`remove_older_than`]
//! removes them, for instance from a daily job. A safe age is longer than the sum of all times for which a request may be
//! repeated: the queue's retention, the client's retries, the time that a job waits while the service is down. Only the
//! database's clock measures ages, so the clocks of processes do not matter. Leave a margin in case that clock is set, or another
//! server takes over. A repeat that comes later counts again.

#[cfg(feature = "async")]
#[doc(hidden)]
pub mod asynchronous;
mod at_once;
mod compound;
mod idempotent;
mod keys;
mod once;
mod remove;
mod request;
mod update;
#[cfg(feature = "async")]
mod update_asynchronous;

pub use self::idempotent::Idempotent;
pub(crate) use self::once::{AndWhether, Requested, once};
#[cfg(feature = "r2d2")]
pub(crate) use self::once::{Claimed, claim, release};
pub use self::remove::remove_older_than;
pub use self::request::Request;
pub(crate) use self::update::count_once;

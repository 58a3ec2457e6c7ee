//! Increments that a process gathers in memory and writes later: **a crash loses what was added since the last flush**, at most the additions
//! of [`max_delay`](CoalescerBuilder::max_delay) (100 ms) and of one flush.
//!
//! A [`Coalescer`] is for increments that are frequent and cheap, such as views and impressions: [`add_later`](Coalescer::add_later) adds to a
//! number in memory and returns, and a thread commits the sums, by key, many keys in one transaction, as
//! [`count_many`](crate::count_many()) does. Do not coalesce an increment that must be right when it is acknowledged: [combine](crate::combine)
//! it, which is as fast.
//!
//! # Exactly once
//!
//! Each batch claims a new [idempotency key](crate::idempotency) in its transaction (in one of the library's tables: run
//! [`MIGRATIONS`](crate::MIGRATIONS)). If the connection is lost while COMMIT is in flight, the batch is sent again with the same key, and
//! the database knows whether it was committed. No increment is doubled, and only those that the database refuses are lost. The next batch
//! deletes the key. [`remove_older_than`](crate::idempotency::remove_older_than) deletes the key of a process that crashed.
//!
//! # Failures
//!
//! - A batch that meets a conflict is retried like any operation. While the database is away, it waits, and additions gather.
//! - A row that cannot accept its sum (an overflow, a check) is [lost](CoalescerBuilder::on_loss) alone: the batch is halved until the row
//!   is alone, and the other rows are committed. An addition to a row that does not exist counts nothing.
//! - Some errors may or may not be a row's fault: a privilege is missing, somebody cancels a statement, a trigger raises its own error.
//!   Such an error is the row's fault if it comes again after other rows of its field are committed. Otherwise these sums wait while others
//!   are committed, and so do sums whose table is missing. They are lost after the policy's deadline or half the coalescer's (5 s),
//!   whichever is shorter.
//! - When the coalescer is full, [`add_later`](Coalescer::add_later) waits for room, at most until its
//!   [`deadline`](CoalescerBuilder::deadline). Memory is bounded.

mod buffer;
mod counts;
mod settings;
mod sums;
mod writer;

use std::sync::Arc;

use diesel::connection::LoadConnection;

use crate::background::Background;
use crate::counting::row_counter::IntoKey;
use crate::error::Error;
use crate::model::{MaxColumn, MinColumn, ShardedTable, shows};

use self::buffer::Buffer;
use self::writer::LONGEST_LEAVE;

pub use self::buffer::{Loss, Stats};
pub use self::counts::Counts;
pub use self::settings::CoalescerBuilder;
pub use self::sums::{Coalesced, Peak};

/// Adds up the increments of many threads in memory, and commits the sums later; see [`coalescer`](crate::coalescer).
///
/// A coalescer has a thread, which holds one connection of the pool while it writes. Clones share both. Dropping the last clone
/// closes the coalescer.
///
/// ```
/// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
/// # use schema::videos::{self, dsl::{id, videos as all, views}};
/// # use diesel_migrations::MigrationHarness;
/// # #[derive(diesel_sharded::ShardedField)]
/// # #[diesel(table_name = videos)]
/// # struct Video { id: i64, #[sharded] views: i64 }
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// # let file = std::env::temp_dir().join(format!("sharded_coalescer_{}.db", std::process::id()));
/// # let url = file.display().to_string();
/// # let conn = &mut SqliteConnection::establish(&url)?;
/// # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, views BIGINT NOT NULL)").execute(conn)?;
/// # diesel::insert_into(all).values((id.eq(7), views.eq(100))).execute(conn)?;
/// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
/// use diesel::prelude::*;
/// use diesel::r2d2::{ConnectionManager, Pool};
/// use diesel_sharded::coalescer::Coalescer;
/// use diesel_sharded::{Counter, RowCounter};
///
/// conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?; // once
/// let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(&url))?;
/// let coalescer = Coalescer::new(pool)?; // once, for the whole process
///
/// // From any thread or task. Both are committed within 100 ms.
/// coalescer.add_later(&RowCounter::of(views, 7), 1)?;
/// coalescer.add_later(&Counter::named("page:/"), 1)?;
///
/// coalescer.close()?; // commits the rest
/// # assert_eq!(RowCounter::of(views, 7).get(conn)?, Some(101));
/// # assert_eq!(Counter::named("page:/").get(conn)?, 1);
/// # std::fs::remove_file(file)?;
/// # Ok(())
/// # }
/// ```
///
/// The sums of each field are a separate batch, and so are its greatest values:
///
/// ```sql
/// BEGIN;                                                     -- READ COMMITTED; SQLite: BEGIN IMMEDIATE
/// INSERT INTO "diesel_sharded_idempotency_keys" … ON CONFLICT ("key") DO NOTHING;
/// DELETE FROM "diesel_sharded_idempotency_keys" WHERE "key" IN ($1);       -- the last batch's
/// …                                                          -- as count_many
/// COMMIT
/// ```
pub struct Coalescer<Conn: LoadConnection + 'static> {
    owner: Arc<Owner<Conn>>,
}

/// Closes the buffer with the last clone.
struct Owner<Conn: LoadConnection + 'static> {
    buffer: Arc<Buffer<Conn>>,
    writer: Background,
}

impl<Conn: LoadConnection + 'static> Owner<Conn> {
    /// The buffer, in the process that made it: its writer is there.
    fn checked(&self) -> Result<&Buffer<Conn>, Error> {
        self.writer.check("coalescer")?;
        Ok(&self.buffer)
    }

    fn close(&self) -> Result<(), Error> {
        let buffer = self.checked()?; // a child neither closes its parent's nor waits for it
        let (losses, patience) = buffer.close();
        if !self.writer.ends_within(patience + LONGEST_LEAVE) {
            return Err(buffer.flush_pending(patience + LONGEST_LEAVE));
        }
        let stats = buffer.stats();
        let reason = stats.last_error.unwrap_or_default();
        // A writer that has ended leaves nothing, unless it panicked.
        match stats.losses - losses + stats.queued_counters as u64 {
            0 => Ok(()),
            lost => Err(Error::NotFlushed { lost, reason }),
        }
    }
}

impl<Conn: LoadConnection + 'static> Drop for Owner<Conn> {
    fn drop(&mut self) {
        if self.checked().is_ok_and(|buffer| !buffer.is_closed()) {
            let _ = self.close(); // the losses went to `on_loss`
        }
    }
}

impl<Conn: LoadConnection + 'static> Coalescer<Conn> {
    /// Adds `n`, which may be negative, and returns at once, unless the coalescer is full: then it blocks until there is room, or until the
    /// [`deadline`](CoalescerBuilder::deadline). The addition is committed within [`max_delay`](CoalescerBuilder::max_delay) and a flush,
    /// unless the process crashes before. If there is no such row, it counts nothing. A named counter is created if it is missing. Adding 0
    /// does nothing.
    ///
    /// # Errors
    /// [`DeadlinePassed`](Error::DeadlinePassed) if there is no room until the deadline.
    /// [`CoalescerClosed`](Error::CoalescerClosed). [`MadeBeforeFork`](Error::MadeBeforeFork) in a child of the process that made it.
    /// [`InvalidCounterName`](Error::InvalidCounterName) for an invalid name. Nothing was added then.
    pub fn add_later<K: Coalesced<Conn, Sum = i128>>(
        &self,
        counter: &K,
        n: i64,
    ) -> Result<(), Error> {
        match n {
            0 => self.keep(counter, None),
            n => self.keep(counter, Some(n.into())),
        }
    }

    /// Keeps `value` for the `#[sharded(max)]` field of a row, as [`raise_to`](crate::PeakExpressionMethods::raise_to) does. Of the values
    /// that wait for one row only the greatest is sent, in a separate statement. The values have to be [`Ord`]. Everything else is as with
    /// [`add_later`](Self::add_later).
    ///
    /// ```
    /// # mod schema { diesel::table! { videos (id) { id -> BigInt, best_score -> Nullable<Integer>, } } }
    /// # use schema::videos::{self, dsl::{id, best_score, videos as all}};
    /// # use diesel::prelude::*;
    /// # use diesel_migrations::MigrationHarness;
    /// # #[derive(diesel_sharded::ShardedField)]
    /// # #[diesel(table_name = videos)]
    /// # struct Video { id: i64, #[sharded(max)] best_score: Option<i32> }
    /// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// # let file = std::env::temp_dir().join(format!("sharded_raise_later_{}.db", std::process::id()));
    /// # let url = file.display().to_string();
    /// # let conn = &mut SqliteConnection::establish(&url)?;
    /// # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, best_score INTEGER)").execute(conn)?;
    /// # diesel::insert_into(all).values(id.eq(7)).execute(conn)?;
    /// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
    /// # conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// # let coalescer = diesel_sharded::coalescer::Coalescer::new(Pool::new(ConnectionManager::<SqliteConnection>::new(&url))?)?;
    /// use diesel_sharded::prelude::*;
    ///
    /// coalescer.raise_later(best_score, 7, 90)?;
    /// coalescer.close()?; // commits it
    /// let best = all.find(7).select(best_score.total()).first(conn);
    /// assert_eq!(best, Ok(Some(90)));
    /// # std::fs::remove_file(file)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn raise_later<C: MaxColumn, V>(
        &self,
        _column: C,
        key: impl IntoKey<<C::Table as ShardedTable>::Key>,
        value: V,
    ) -> Result<(), Error>
    where
        Peak<C, V>: Coalesced<Conn, Sum = V>,
    {
        self.keep(&Peak::<C, V>::of(key), Some(value))
    }

    /// Keeps `value` for the `#[sharded(min)]` field of a row; see [`raise_later`](Self::raise_later).
    ///
    /// # Errors
    /// As there.
    pub fn lower_later<C: MinColumn, V>(
        &self,
        _column: C,
        key: impl IntoKey<<C::Table as ShardedTable>::Key>,
        value: V,
    ) -> Result<(), Error>
    where
        Peak<C, V>: Coalesced<Conn, Sum = V>,
    {
        self.keep(&Peak::<C, V>::of(key), Some(value))
    }

    fn keep<K: Coalesced<Conn>>(&self, counter: &K, n: Option<K::Sum>) -> Result<(), Error> {
        let (buffer, key) = (self.owner.checked()?, counter.key()?);
        n.map_or(Ok(()), |n| buffer.add::<K>(key, n))
    }

    /// Waits until everything that was added before is committed, or was [lost](CoalescerBuilder::on_loss) and reported.
    ///
    /// It blocks: in a task, call it by `tokio::task::spawn_blocking`.
    ///
    /// # Errors
    /// [`FlushPending`](Error::FlushPending) if that takes longer than the deadline. The writer continues with the rest.
    /// [`MadeBeforeFork`](Error::MadeBeforeFork).
    pub fn flush(&self) -> Result<(), Error> {
        self.owner.checked()?.flush()
    }

    /// Refuses further additions, commits the rest, and ends the writer. Dropping the last clone does the same, but reports
    /// what could not be committed only to [`on_loss`](CoalescerBuilder::on_loss). It blocks, as [`flush`](Self::flush) does.
    ///
    /// # Errors
    /// [`NotFlushed`](Error::NotFlushed) if additions could not be committed until the deadline.
    /// [`FlushPending`](Error::FlushPending) if a statement still waits inside the database 3 s later. The writer continues once
    /// the database answers, and then tries to commit the rest. [`MadeBeforeFork`](Error::MadeBeforeFork), and the parent's stays open.
    pub fn close(self) -> Result<(), Error> {
        self.owner.close()
    }

    /// The number of counters in memory, and the work so far. In a child of the process that made it, all is empty but the last error,
    /// which is [`MadeBeforeFork`](Error::MadeBeforeFork).
    pub fn stats(&self) -> Stats {
        match self.owner.checked() {
            Ok(buffer) => buffer.stats(),
            Err(error) => Stats {
                last_error: Some(error.to_string()),
                ..Stats::default()
            },
        }
    }
}

impl<Conn: LoadConnection + 'static> Clone for Coalescer<Conn> {
    fn clone(&self) -> Self {
        Coalescer {
            owner: Arc::clone(&self.owner),
        }
    }
}

shows!([Conn: LoadConnection + 'static] Coalescer<Conn>: |self| Coalescer { stats: self.stats() } finish_non_exhaustive);

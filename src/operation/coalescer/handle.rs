//! The coalescer as applications hold it.

use std::fmt;
#[cfg(feature = "async")]
use std::future::poll_fn;
use std::sync::Arc;
#[cfg(feature = "async")]
use std::sync::atomic::{AtomicU32, Ordering};
#[cfg(feature = "async")]
use std::time::Duration;
use std::time::Instant;

use diesel::connection::LoadConnection;

use crate::backend::BackendOf;
use crate::background::Background;
#[cfg(feature = "async")]
use crate::connection::BoxFuture;
#[cfg(feature = "async")]
use crate::connection::pause::{pause, within};
use crate::error::Error;
use crate::observe;

use super::added::{Added, Caller, Landed};
use super::coalesced::Coalesced;
use super::handoff::{Ticket, TimedOut, Urgency};
use super::owner::Owner;
use super::shared::CoalescerState;
use super::stats::Stats;

/// The number of the next task that flushes, in the upper half of all numbers. Callers are numbered from 0 on.
#[cfg(feature = "async")]
static FLUSHES: AtomicU32 = AtomicU32::new(0);

/// The pause between two looks for room in the queue.
#[cfg(feature = "async")]
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Adds up the counts of many threads, and commits the sums; see [`coalescer`](crate::coalescer).
///
/// A coalescer has a thread, and holds one connection of the pool while it is busy. Clones share both. Dropping the last clone
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
/// // From any thread. This one is committed when it returns. A thousand threads share a few
/// // transactions.
/// assert_eq!(coalescer.add(&RowCounter::of(views, 7), 1)?, 1);
/// // This one returns at once, and is committed within 100 ms.
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
/// A batch is, for each field of each table, one statement for up to 100 rows:
///
/// ```sql
/// BEGIN;                                                     -- MySQL: READ COMMITTED; SQLite: BEGIN IMMEDIATE
/// UPDATE "diesel_sharded_batches" SET "batch" = $1, "written" = now WHERE "coalescer" = $2;
/// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" +
///     CASE WHEN ("videos"."id" = $1) THEN $2 WHEN ("videos"."id" = $3) THEN $4 END)
/// WHERE "videos"."id" IN ($5, $6) AND "videos"."shard" = $7;
/// COMMIT
/// ```
///
/// A batch of one such statement takes one round trip together with its mark: on PostgreSQL by `WITH` clauses, on MySQL and
/// MariaDB, for one row, by an `UPDATE` of both tables. If a shard is missing, the batch is rolled back, and sent again after the
/// statement that creates the shard; see [`update`](crate::update()). On PostgreSQL that is again one statement, an
/// `INSERT … ON CONFLICT DO UPDATE`.
///
/// A cold key is counted on the first shard, as by other counts, so it has one row. A key that 16 batches within a second added to is hot
/// for a minute: it is counted on a shard that differs between coalescers.
pub struct Coalescer<Conn: LoadConnection + 'static> {
    owner: Arc<Owner<Conn>>,
}

/// A caller who waits for a batch.
struct WaitingCaller {
    number: u32,
    ticket: Arc<Ticket<Landed>>,
}

impl<Conn: LoadConnection + 'static> Coalescer<Conn> {
    pub(super) fn of(shared: Arc<CoalescerState<Conn>>, worker: Background) -> Self {
        Coalescer {
            owner: Arc::new(Owner { shared, worker }),
        }
    }

    fn shared(&self) -> &CoalescerState<Conn> {
        &self.owner.shared
    }

    /// Its state, in the process that made it.
    pub(super) fn checked(&self) -> Result<&CoalescerState<Conn>, Error> {
        self.owner.checked()
    }
}

impl<Conn> Coalescer<Conn>
where
    Conn: LoadConnection + 'static,
    Conn::Backend: BackendOf<Conn>,
{
    /// Adds `n`, which may be negative, and waits for the commit. Returns the number of rows counted, 0 if there is no such row.
    /// A named counter is created if it is missing. Adding 0 to a named counter sends nothing, and creates none; adding 0 to a row
    /// waits for a batch, which tells whether there is such a row.
    ///
    /// # Errors
    /// [`DeadlinePassed`](Error::DeadlinePassed): nothing was counted. [`OutcomeUnknown`](Error::OutcomeUnknown): the deadline
    /// passed while the batch was in flight. [`CoalescerClosed`](Error::CoalescerClosed).
    /// [`MadeBeforeFork`](Error::MadeBeforeFork) in a child of the process that made it. Those of
    /// [`update`](crate::update()) for this count, and in [`InBatch`](Error::InBatch) those of the whole batch.
    pub fn add<K: Coalesced<Conn>>(&self, counter: &K, n: i64) -> Result<usize, Error> {
        self.checked()?;
        if let Some(counted) = counter.counted_unsent(n)? {
            return Ok(counted);
        }
        let began = Instant::now();
        let deadline = began + self.shared().limits.deadline;
        let WaitingCaller { number, ticket } = self.board(counter, n, deadline)?;
        let waited = ticket.wait(number, deadline, |landed| landed.of(number));
        observe::waited(began);
        match waited {
            Ok(result) => result,
            Err(timed_out) => Err(self.timed_out(timed_out, began)),
        }
    }

    /// [`add`](Self::add) for a task: adds `n`, waits for the commit and returns the number of rows counted. No thread waits.
    ///
    /// An addition in the queue is counted once, even if the task is cancelled and its future dropped. It is then treated like
    /// one of [`add_later`](Self::add_later). A future that was never polled, or still waits for room in the queue, has added
    /// nothing.
    ///
    /// The coalescer's own connection is an ordinary one, on its own thread. An application without the C libraries uses
    /// `diesel_async::async_connection_wrapper::AsyncConnectionWrapper<AsyncPgConnection>`. That connection blocks its thread, so
    /// build and close the coalescer inside `tokio::task::spawn_blocking`.
    ///
    /// # Errors
    /// As [`add`](Self::add)'s.
    #[cfg(feature = "async")]
    pub fn add_async<'a, K>(&'a self, counter: &'a K, n: i64) -> BoxFuture<'a, Result<usize, Error>>
    where
        K: Coalesced<Conn> + Sync,
    {
        Box::pin(async move {
            self.checked()?;
            if let Some(counted) = counter.counted_unsent(n)? {
                return Ok(counted);
            }
            let began = Instant::now();
            let deadline = began + self.shared().limits.deadline;
            let WaitingCaller { number, ticket } = loop {
                match self.board(counter, n, began) {
                    Err(Error::DeadlinePassed { .. }) if Instant::now() < deadline => {
                        pause(LOOK_AGAIN).await;
                    }
                    boarded => break boarded?,
                }
            };
            let landed =
                poll_fn(|context| ticket.poll(number, context.waker(), |landed| landed.of(number)));
            let waited = within(deadline.saturating_duration_since(Instant::now()), landed).await;
            observe::waited(began);
            match waited {
                Some(result) => result,
                None => match ticket.wait(number, began, |landed| landed.of(number)) {
                    Ok(result) => result, // it has landed at this very moment
                    Err(timed_out) => Err(self.timed_out(timed_out, began)),
                },
            }
        })
    }

    /// Adds `n` to the next batch, as soon as there is room, for a caller who waits for the result.
    fn board<K: Coalesced<Conn>>(
        &self,
        counter: &K,
        n: i64,
        deadline: Instant,
    ) -> Result<WaitingCaller, Error> {
        let shared = self.shared();
        let (field, key) = (counter.field(), counter.key()?);
        let request = counter.request(n)?.map(Box::new);
        let (number, ticket) = shared.add(deadline, |added, ticket| {
            let to = added.lanes.add(field, key, 0);
            added.callers.push(Caller {
                to,
                n,
                request,
                waits: true,
            });
            (added.callers.len() - 1, Arc::clone(ticket))
        })?;
        shared.bell.ring(Urgency::Now);
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        Ok(WaitingCaller { number, ticket })
    }

    fn timed_out(&self, timed_out: TimedOut, began: Instant) -> Error {
        match timed_out {
            TimedOut::InFlight => Error::outcome_unknown("its batch was in flight at the deadline"),
            TimedOut::Withdrawn => self.shared().deadline_passed(began),
        }
    }

    /// The tickets of everything that was added before.
    fn in_hand(&self) -> Vec<Arc<Ticket<Landed>>> {
        let shared = self.shared();
        let tickets = shared.queues.iter().flat_map(|queue| queue.tickets());
        let tickets = tickets.collect();
        shared.bell.ring(Urgency::Now);
        tickets
    }

    /// Adds `n`, which may be negative, and returns at once. It is committed within [`max_delay`](super::CoalescerBuilder::max_delay) and a
    /// flush, unless the process crashes before. If there is no such row, it counts nothing. A named counter is created if it is
    /// missing. Adding 0 sends nothing, except with an idempotency key, which is kept all the same.
    ///
    /// # Errors
    /// [`DeadlinePassed`](Error::DeadlinePassed) if there is no room until the deadline.
    /// [`CoalescerClosed`](Error::CoalescerClosed). [`MadeBeforeFork`](Error::MadeBeforeFork). [`InvalidCounterName`](Error::InvalidCounterName) and
    /// [`InvalidIdempotencyKey`](Error::InvalidIdempotencyKey) for an invalid name or key.
    pub fn add_later<K: Coalesced<Conn>>(&self, counter: &K, n: i64) -> Result<(), Error> {
        let shared = self.checked()?;
        let (field, key) = (counter.field(), counter.key()?);
        let request = counter.request(n)?;
        if n == 0 && request.is_none() {
            return Ok(());
        }
        let deadline = Instant::now() + shared.limits.deadline;
        shared.add(deadline, |added, _| {
            added.add_unheard(field, key, n, request);
        })?;
        shared.bell.ring(Urgency::Later);
        Ok(())
    }

    /// Takes the counts of a transaction that has committed, also into a full queue.
    pub(super) fn take(&self, counts: Added<Conn>) -> Result<(), Error> {
        if counts.size() == 0 {
            return Ok(());
        }
        let shared = self.shared();
        let taken = shared.add_anyway(|added| added.absorb(counts));
        shared.bell.ring(Urgency::Later);
        taken.map_err(|_| Error::CommittedNotCounted)
    }

    /// Waits until everything that was added before is committed, or has failed and was reported to
    /// [`on_loss`](super::CoalescerBuilder::on_loss).
    ///
    /// # Errors
    /// [`FlushPending`](Error::FlushPending) if that takes longer than the deadline. The worker continues with the rest.
    /// [`MadeBeforeFork`](Error::MadeBeforeFork).
    pub fn flush(&self) -> Result<(), Error> {
        let shared = self.checked()?;
        let began = Instant::now();
        let deadline = began + shared.limits.deadline;
        for ticket in self.in_hand() {
            let landed = ticket.wait(u32::MAX, deadline, |_| ());
            landed.map_err(|_| shared.flush_pending(began))?;
        }
        if let Some(reported) = shared.report_ticket() {
            let reported = reported.wait(u32::MAX, deadline, |()| ());
            reported.map_err(|_| shared.flush_pending(began))?;
        }
        Ok(())
    }

    /// [`flush`](Self::flush) for a task.
    ///
    /// # Errors
    /// As [`flush`](Self::flush)'s.
    #[cfg(feature = "async")]
    pub fn flush_async(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let began = Instant::now();
            let deadline = began + self.checked()?.limits.deadline;
            let number = FLUSHES.fetch_add(1, Ordering::Relaxed) | 1 << 31;
            for ticket in self.in_hand() {
                let landed = poll_fn(|context| ticket.poll(number, context.waker(), |_| ()));
                let landed =
                    within(deadline.saturating_duration_since(Instant::now()), landed).await;
                landed.ok_or_else(|| self.shared().flush_pending(began))?;
            }
            if let Some(reported) = self.shared().report_ticket() {
                let reported = poll_fn(|context| reported.poll(number, context.waker(), |()| ()));
                let reported =
                    within(deadline.saturating_duration_since(Instant::now()), reported).await;
                reported.ok_or_else(|| self.shared().flush_pending(began))?;
            }
            Ok(())
        })
    }

    /// Refuses further additions, commits the rest, and ends the worker. Dropping the last clone does the same, but reports
    /// additions that could not be committed only to [`on_loss`](super::CoalescerBuilder::on_loss).
    ///
    /// # Errors
    /// [`NotFlushed`](Error::NotFlushed) if additions that nobody waits for could not be committed until the deadline.
    /// [`FlushPending`](Error::FlushPending) if a statement still waits inside the database 3 s later. The worker continues once
    /// the database answers, and then tries to commit the rest. [`MadeBeforeFork`](Error::MadeBeforeFork), and the parent's stays open.
    pub fn close(self) -> Result<(), Error> {
        self.owner.close()
    }

    /// The contents of the queue, and the work so far. In a child of the process that made it, nothing but
    /// [`MadeBeforeFork`](Error::MadeBeforeFork) as the last error.
    pub fn stats(&self) -> Stats {
        let mut stats = self.owner.noted();
        for queue in self.checked().iter().flat_map(|shared| &shared.queues) {
            queue.look(|added| {
                stats.queued_counters += added.lanes.entries();
                stats.queued_callers += added.callers.len();
            });
        }
        stats
    }
}

impl<Conn: LoadConnection + 'static> Clone for Coalescer<Conn> {
    fn clone(&self) -> Self {
        Coalescer {
            owner: Arc::clone(&self.owner),
        }
    }
}

impl<Conn: LoadConnection + 'static> fmt::Debug for Coalescer<Conn> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coalescer")
            .field("limits", &self.shared().limits)
            .field("stats", &self.owner.noted())
            .finish_non_exhaustive()
    }
}

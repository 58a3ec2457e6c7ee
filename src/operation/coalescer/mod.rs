//! Many counts of one process in one commit.
//!
//! A hot row is slow for the commits, not for the additions: each count waits for a transaction of its own. A [`Coalescer`]
//! lets counts from many threads gather while the last batch is being committed, adds them up by key, and commits the
//! sums in one transaction. While the database answers and a batch holds all that was added, nobody waits longer than two flushes take;
//! the busier it gets, the larger the batches.
//!
//! # What a crash can lose
//!
//! | | returns | a crash of this process loses |
//! |---|---|---|
//! | [`add`](Coalescer::add) | after the commit that carries the count, with the count's own result | nothing that was acknowledged |
//! | [`add_later`](Coalescer::add_later) | at once | what was added since the last flush: no more than was added in [`max_delay`](CoalescerBuilder::max_delay) and one flush, on no more than [`max_queued`](CoalescerBuilder::max_queued) counters |
//!
//! # Exactly once
//!
//! Each batch writes its number, in its own transaction, to a row that belongs to this coalescer (in a table of the library's
//! own: run [`MIGRATIONS`](crate::MIGRATIONS)). When the connection is lost while COMMIT is in flight, that row is locked and
//! read on a new connection: the batch was committed or it was not, and in that case it is sent again. Nobody has to guess, and
//! no count is doubled. What is repeated by whoever asks for it is counted once with an idempotency key:
//! `coalescer.add(&counter.idempotency_key(key), 1)`; see [`idempotency`](crate::idempotency).
//!
//! # What goes wrong
//!
//! - A conflict is tried again, as everywhere.
//! - A row that cannot take its count (an overflow, a check) fails its own callers; the others of the batch are committed.
//! - While the database is away, callers wait, at most until their [`deadline`](CoalescerBuilder::deadline):
//!   [`DeadlinePassed`](Error::DeadlinePassed) says for certain that nothing was counted,
//!   [`OutcomeUnknown`](Error::OutcomeUnknown) that the batch was in flight at that moment.
//! - When the queue is full, whoever adds waits for room, at most until the deadline too. Memory is bounded.
//!
//! The idea is that of group commit, one level up. Reads see a count as soon as it is committed.

mod at_once;
#[cfg(feature = "async")]
mod awaited;
mod batch;
mod coalesced;
mod count_each;
#[cfg_attr(not(feature = "async"), expect(dead_code, reason = "no task waits"))]
mod handoff;
mod lane;
mod stats;
mod sync;
mod token;
mod worker;

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use diesel::connection::LoadConnection;
use diesel::r2d2::{ManageConnection, Pool};

use crate::backend::BackendOf;
use crate::background::Background;
use crate::error::Error;
use crate::observe;
use crate::policy::RetryPolicy;

use self::batch::{Added, Caller, Landed, lost};
pub use self::coalesced::Coalesced;
use self::handoff::{Bell, Refused, Stripe, Ticket, TimedOut, Urgency};
pub use self::stats::Stats;
use self::token::Token;
use self::worker::{Borrow, Borrowed, LONGEST_LEAVE, Worker};

/// Threads are dealt out to so many parts of the queue, so that they seldom meet.
const STRIPES: usize = 8;
/// As long as for ever, and still a time that the clock can tell.
const CENTURY: Duration = Duration::from_secs(3_153_600_000);

/// Adds up the counts of many threads, and commits the sums; see the [module](self).
///
/// It holds one connection of the pool while it is busy, and a thread. Clones share both; the last one that is dropped closes it.
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
/// // From any thread. This one is committed when it returns; with a thousand threads at it, all by a few transactions.
/// assert_eq!(coalescer.add(&RowCounter::of(views, 7), 1)?, 1);
/// // This one returns at once, and is committed within 100 ms.
/// coalescer.add_later(&Counter::named("page:/"), 1)?;
///
/// coalescer.close()?; // commits what is left
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
/// A batch of one such statement goes in one round trip, its mark along with it: on PostgreSQL by `WITH` clauses, on MySQL and MariaDB,
/// for one row, by an `UPDATE` of both tables. Where a shard is missing, the batch is taken back and sent again behind the statement that creates it; see
/// [`update`](crate::update()). A coalescer adds to one shard of each row, drawn at random when it is built.
pub struct Coalescer<Conn: LoadConnection + 'static> {
    handle: Arc<Handle<Conn>>,
}

/// Closes the queue with the last clone.
struct Handle<Conn: LoadConnection + 'static> {
    shared: Arc<Shared<Conn>>,
    worker: Background,
}

/// What adders and the worker share.
struct Shared<Conn> {
    stripes: [Stripe<Added<Conn>, Landed>; STRIPES],
    bell: Bell,
    limits: Limits,
    retry: RetryPolicy,
    on_loss: Option<OnLoss>,
    /// When the worker stops trying: set when the coalescer is closed.
    gives_up_at: OnceLock<Instant>,
    stats: Mutex<Stats>,
}

type OnLoss = Box<dyn Fn(&Loss) + Send + Sync>;

#[derive(Debug, Clone)]
struct Limits {
    max_delay: Duration,
    max_batch: usize,
    max_queued: usize,
    deadline: Duration,
}

/// Something that was added without waiting, and will not be counted; see [`CoalescerBuilder::on_loss`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Loss {
    /// The field and the key of the row, or the counter's name.
    pub counter: String,
    /// The amount that is lost, or for an unknown outcome may be: the sum of what was added.
    pub amount: i128,
    /// Why.
    pub error: Arc<Error>,
}

/// Sets the limits of a [`Coalescer`].
///
/// | setting | default | meaning |
/// |---|---|---|
/// | [`max_delay`](Self::max_delay) | 100 ms | how long what is added without waiting lies in memory before its flush begins |
/// | [`max_batch`](Self::max_batch) | 1,000 | counters in one transaction |
/// | [`max_queued`](Self::max_queued) | 100,000 | counters and waiting callers in the queue, besides those in flight |
/// | [`deadline`](Self::deadline) | 10 s | how long a caller waits, for its commit or for room; and a close for the last flush |
/// | [`retry`](Self::retry) | the process-wide policy | how a batch that met a conflict is tried again |
/// | [`on_loss`](Self::on_loss) | none | told of what was added without waiting and cannot be counted |
#[must_use = "nothing runs until it is built"]
pub struct CoalescerBuilder<Conn: LoadConnection + 'static> {
    borrow: Borrow<Conn>,
    limits: Limits,
    retry: RetryPolicy,
    on_loss: Option<OnLoss>,
}

impl<Conn: LoadConnection + 'static> CoalescerBuilder<Conn> {
    /// Sets how long what is added without waiting lies in memory before its flush begins. Whoever waits is not delayed.
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.limits.max_delay = delay;
        self
    }

    /// Sets how many counters one transaction may add to, at least 1. More make fewer commits and hold more locks for longer.
    pub fn max_batch(mut self, counters: usize) -> Self {
        self.limits.max_batch = counters.max(1);
        self
    }

    /// Sets how many counters and waiting callers may be queued, besides those in flight: beyond it, adding waits for room. Each
    /// of 8 groups of threads has its part of it, at least 1.
    pub fn max_queued(mut self, counters_and_callers: usize) -> Self {
        self.limits.max_queued = counters_and_callers;
        self
    }

    /// Sets how long a caller waits for its commit, or for room in the queue; and how long closing waits for the last flush. At
    /// most a century.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.limits.deadline = deadline.min(CENTURY);
        self
    }

    /// Tries a batch again by `policy` when it meets a conflict.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Calls `on_loss` with whatever was added without waiting and will not be counted: for an error of its row, or for a
    /// coalescer that was closed while the database was away.
    pub fn on_loss(mut self, on_loss: impl Fn(&Loss) + Send + Sync + 'static) -> Self {
        self.on_loss = Some(Box::new(on_loss));
        self
    }
}

impl<Conn> CoalescerBuilder<Conn>
where
    Conn: LoadConnection + 'static,
    Conn::Backend: BackendOf<Conn>,
{
    /// Starts it.
    ///
    /// # Errors
    /// If there is no connection, or no thread, to be had, or the library's own tables are missing
    /// ([`MissingShardsTable`](Error::MissingShardsTable)).
    pub fn build(self) -> Result<Coalescer<Conn>, Box<dyn std::error::Error + Send + Sync>> {
        let mut conn = (self.borrow)(self.limits.deadline)?;
        let token = Token::new();
        token.register(&mut **conn).map_err(Error::from)?;
        let shared = Arc::new(Shared {
            stripes: std::array::from_fn(|_| Stripe::new()),
            bell: Bell::new(),
            limits: self.limits,
            retry: self.retry,
            on_loss: self.on_loss,
            gives_up_at: OnceLock::new(),
            stats: Mutex::default(),
        });
        let worker = Worker {
            shared: Arc::clone(&shared),
            borrow: self.borrow,
            conn: Some(conn),
            token,
            place: rand::random(),
            last_callers: 0,
        };
        let worker = Background::spawn("diesel_sharded coalescer", move || worker.run())?;
        Ok(Coalescer {
            handle: Arc::new(Handle { shared, worker }),
        })
    }
}

impl<Conn> Coalescer<Conn>
where
    Conn: LoadConnection + 'static,
    Conn::Backend: BackendOf<Conn>,
{
    /// Starts a coalescer with the defaults.
    ///
    /// # Errors
    /// As [`CoalescerBuilder::build`].
    pub fn new<M>(pool: Pool<M>) -> Result<Self, Box<dyn std::error::Error + Send + Sync>>
    where
        M: ManageConnection<Connection = Conn>,
    {
        Self::builder(pool).build()
    }

    /// A coalescer over the connections of `pool`, with limits of its own.
    pub fn builder<M>(pool: Pool<M>) -> CoalescerBuilder<Conn>
    where
        M: ManageConnection<Connection = Conn>,
    {
        CoalescerBuilder {
            borrow: Box::new(move |patience| match pool.get_timeout(patience) {
                Ok(conn) => Ok(Box::new(conn) as Borrowed<Conn>),
                Err(error) => Err(error.to_string()),
            }),
            limits: Limits {
                max_delay: Duration::from_millis(100),
                max_batch: 1_000,
                max_queued: 100_000,
                deadline: Duration::from_secs(10),
            },
            retry: RetryPolicy::default(),
            on_loss: None,
        }
    }

    /// Adds `n`, which may be negative, and waits for the commit: gives the number of rows counted, 0 if there is no such row.
    /// A named counter is created if it is missing.
    ///
    /// # Errors
    /// [`DeadlinePassed`](Error::DeadlinePassed): nothing was counted. [`OutcomeUnknown`](Error::OutcomeUnknown): the deadline
    /// passed while the batch was in flight. [`CoalescerClosed`](Error::CoalescerClosed). Those of
    /// [`update`](crate::update()) for this count, and in [`InBatch`](Error::InBatch) those of the whole batch.
    pub fn add<K: Coalesced<Conn>>(&self, counter: &K, n: i64) -> Result<usize, Error> {
        let began = Instant::now();
        let deadline = began + self.handle.shared.limits.deadline;
        let Waiting { number, ticket } = self.board(counter, n, deadline)?;
        let waited = ticket.wait(number, deadline, |landed| landed.of(number));
        observe::waited(began);
        match waited {
            Ok(result) => result,
            Err(timed_out) => Err(self.timed_out(timed_out, began)),
        }
    }

    /// Adds `n` to what is to be committed next, as soon as there is room, for a caller who waits for it.
    fn board<K: Coalesced<Conn>>(
        &self,
        counter: &K,
        n: i64,
        deadline: Instant,
    ) -> Result<Waiting, Error> {
        let shared = &self.handle.shared;
        let (field, key) = (counter.field(), counter.key()?);
        let request = counter.request(n)?.map(Box::new);
        let (number, ticket) = shared.queue(deadline, |added, ticket| {
            let place = added.lanes.add(field, key, 0);
            added.callers.push(Caller {
                place,
                n,
                request,
                waits: true,
            });
            (added.callers.len() - 1, Arc::clone(ticket))
        })?;
        shared.bell.ring(Urgency::Now);
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        Ok(Waiting { number, ticket })
    }

    fn timed_out(&self, timed_out: TimedOut, began: Instant) -> Error {
        match timed_out {
            TimedOut::InTheAir => lost("its batch was in flight at the deadline"),
            TimedOut::Withdrawn => self.handle.shared.deadline_passed(began),
        }
    }

    /// The tickets of what was added before.
    fn in_hand(&self) -> Vec<Arc<Ticket<Landed>>> {
        let shared = &self.handle.shared;
        let tickets = shared.stripes.iter().flat_map(|stripe| stripe.tickets());
        let tickets = tickets.collect();
        shared.bell.ring(Urgency::Now);
        tickets
    }

    /// Adds `n`, which may be negative, and returns: it is committed within [`max_delay`](CoalescerBuilder::max_delay) and a
    /// flush, unless the process crashes before. If there is no such row, it counts nothing. A named counter is created if it is
    /// missing.
    ///
    /// # Errors
    /// [`DeadlinePassed`](Error::DeadlinePassed) if there is no room until the deadline.
    /// [`CoalescerClosed`](Error::CoalescerClosed). [`InvalidCounterName`](Error::InvalidCounterName) and
    /// [`InvalidIdempotencyKey`](Error::InvalidIdempotencyKey) for a name or a key that cannot be.
    pub fn add_later<K: Coalesced<Conn>>(&self, counter: &K, n: i64) -> Result<(), Error> {
        let shared = &self.handle.shared;
        let (field, key) = (counter.field(), counter.key()?);
        let request = counter.request(n)?.map(Box::new);
        let deadline = Instant::now() + shared.limits.deadline;
        shared.queue(deadline, |added, _| match request {
            None => {
                added.lanes.add(field, key, n);
            }
            Some(_) => {
                let place = added.lanes.add(field, key, 0);
                added.callers.push(Caller {
                    place,
                    n,
                    request,
                    waits: false,
                });
            }
        })?;
        shared.bell.ring(Urgency::Later);
        Ok(())
    }

    /// Waits until everything that was added before is committed, or has failed.
    ///
    /// # Errors
    /// [`FlushPending`](Error::FlushPending) if that takes longer than the deadline; what is left is still tried.
    pub fn flush(&self) -> Result<(), Error> {
        let shared = &self.handle.shared;
        let began = Instant::now();
        let deadline = began + shared.limits.deadline;
        for ticket in self.in_hand() {
            let landed = ticket.wait(u32::MAX, deadline, |_| ());
            landed.map_err(|_| shared.flush_pending(began))?;
        }
        Ok(())
    }

    /// Refuses whatever comes from now on, commits what is left, and ends the worker. Dropping the last clone does the same, and
    /// tells nobody but [`on_loss`](CoalescerBuilder::on_loss) what could not be committed.
    ///
    /// # Errors
    /// [`NotFlushed`](Error::NotFlushed) if the database did not take what was added without waiting until the deadline.
    /// [`FlushPending`](Error::FlushPending) if a statement still waits inside the database 3 s later: the worker goes on when it is
    /// answered, and commits what is left if the database takes it then.
    pub fn close(self) -> Result<(), Error> {
        self.handle.close()
    }

    /// What it holds, and has done so far.
    pub fn stats(&self) -> Stats {
        let shared = &self.handle.shared;
        let mut stats = shared.stats().clone();
        for stripe in &shared.stripes {
            stripe.look(|added| {
                stats.queued_counters += added.lanes.entries();
                stats.queued_callers += added.callers.len();
            });
        }
        stats
    }
}

impl<Conn: LoadConnection + 'static> Handle<Conn> {
    fn close(&self) -> Result<(), Error> {
        let began = Instant::now();
        // First nobody can add any more: a worker who knows that it is closed ends when it finds nothing.
        for stripe in &self.shared.stripes {
            stripe.close();
        }
        let at = began + self.shared.limits.deadline;
        let at = *self.shared.gives_up_at.get_or_init(|| at);
        let before = self.shared.stats().losses;
        self.shared.bell.ring(Urgency::Now);
        let patience = at.saturating_duration_since(began) + LONGEST_LEAVE;
        if !self.worker.ends_within(patience) {
            return Err(self.shared.flush_pending(began));
        }
        let stats = self.shared.stats();
        match stats.losses - before {
            0 => Ok(()),
            lost => Err(Error::NotFlushed {
                lost,
                reason: stats.last_error.clone().unwrap_or_default(),
            }),
        }
    }
}

impl<Conn: LoadConnection + 'static> Drop for Handle<Conn> {
    fn drop(&mut self) {
        if self.shared.gives_up_at().is_none() {
            let _ = self.close(); // `on_loss` was told
        }
    }
}

impl<Conn: LoadConnection + 'static> Shared<Conn> {
    /// Adds to the stripe of this thread, as soon as there is room.
    fn queue<T>(
        &self,
        deadline: Instant,
        add: impl FnOnce(&mut Added<Conn>, &Arc<Ticket<Landed>>) -> T,
    ) -> Result<T, Error> {
        let began = Instant::now();
        let room = (self.limits.max_queued / STRIPES).max(1);
        let has_room = |added: &Added<Conn>| {
            let has_room = added.size() < room;
            if !has_room {
                self.bell.ring(Urgency::Now);
            }
            has_room
        };
        let queued = self.stripes[stripe_of_thread()].add(deadline, has_room, add);
        queued.map_err(|refused| match refused {
            Refused::Closed => Error::CoalescerClosed,
            Refused::Full => self.deadline_passed(began),
        })
    }

    fn deadline_passed(&self, began: Instant) -> Error {
        Error::DeadlinePassed {
            waited: began.elapsed(),
            reason: self.obstacle(),
        }
    }

    fn flush_pending(&self, began: Instant) -> Error {
        Error::FlushPending {
            waited: began.elapsed(),
            reason: self.obstacle(),
        }
    }

    /// What stands in the way, as far as it is known.
    fn obstacle(&self) -> String {
        let reason = self.stats().last_error.clone();
        reason.unwrap_or_else(|| "the database is slower than what is added".into())
    }

    fn waiting_callers(&self) -> usize {
        let stripes = self.stripes.iter();
        stripes
            .map(|stripe| stripe.look(|added| added.callers.len()))
            .sum()
    }

    fn gives_up_at(&self) -> Option<Instant> {
        self.gives_up_at.get().copied()
    }

    fn stats(&self) -> MutexGuard<'_, Stats> {
        lock(&self.stats)
    }

    fn note(&self, note: impl FnOnce(&mut Stats)) {
        note(&mut self.stats());
    }

    fn blocked_by(&self, reason: &str) {
        self.note(|stats| stats.last_error = Some(reason.to_owned()));
    }

    fn lost(&self, loss: Loss) {
        observe::lost();
        self.note(|stats| {
            stats.losses += 1;
            stats.last_error = Some(loss.error.to_string());
        });
        if let Some(on_loss) = &self.on_loss {
            // Others wait to be told that they were counted.
            let told = panic::catch_unwind(AssertUnwindSafe(|| on_loss(&loss)));
            self.note(|stats| stats.panics += u64::from(told.is_err()));
        }
    }
}

/// A caller who waits for a batch.
struct Waiting {
    number: u32,
    ticket: Arc<Ticket<Landed>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stripe_of_thread() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static STRIPE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
    }
    STRIPE.try_with(|stripe| *stripe).unwrap_or(0)
}

impl<Conn: LoadConnection + 'static> Clone for Coalescer<Conn> {
    fn clone(&self) -> Self {
        Coalescer {
            handle: Arc::clone(&self.handle),
        }
    }
}

impl<Conn: LoadConnection + 'static> fmt::Debug for Coalescer<Conn> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.handle.shared;
        f.debug_struct("Coalescer")
            .field("limits", &shared.limits)
            .field("stats", &*shared.stats())
            .finish_non_exhaustive()
    }
}

impl<Conn: LoadConnection + 'static> fmt::Debug for CoalescerBuilder<Conn> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoalescerBuilder")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

//! The thread that commits batches.

use std::collections::HashMap;
use std::ops::DerefMut;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::LoadConnection;
use diesel::result::{Error as DieselError, QueryResult};

use crate::backend::{BackendOf, Dialect, ShardedBackend};
use crate::conflict::{Conflict, Failure, is_foreign_key_violation};
use crate::connection::{Link, TransactionOptions, begin, now};
use crate::engine::{KEYS_IN_A_STATEMENT, own_transaction};
use crate::error::Error;
use crate::observe;
use crate::operation::idempotency::{claim, release};
use crate::placement::Stripe;
use crate::policy::{Attempts, RetryPolicy};

use super::batch::{Amount, Batch, Chunk, Mode, Told, lost};
use super::lane::{AnyLane, Place};
use super::token::{Mark, TABLE, Token, stamp};
use super::{Loss, Shared};

/// A connection that is borrowed from a pool.
pub(super) type Borrowed<Conn> = Box<dyn DerefMut<Target = Conn> + Send>;
/// Borrows a connection, or says why there is none within that time.
pub(super) type Borrow<Conn> = Box<dyn Fn(Duration) -> Result<Borrowed<Conn>, String> + Send>;

/// How long a connection is waited for at a time, and kept when there is nothing to do.
const CONNECTION_WAIT: Duration = Duration::from_secs(1);
/// The pauses between attempts while the database is away.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long the coalescer's row may resist being removed.
const ROW_REMOVAL: Duration = Duration::from_secs(1);
/// How long a worker may take to end when it is time to give up, beside what it waits for inside the database: until it notices, and
/// until it has tidied up; with some to spare.
pub(super) const LONGEST_LEAVE: Duration = Duration::from_secs(3);

pub(super) struct Worker<Conn: LoadConnection> {
    pub(super) shared: Arc<Shared<Conn>>,
    pub(super) borrow: Borrow<Conn>,
    pub(super) conn: Option<Borrowed<Conn>>,
    pub(super) token: Token,
    /// It adds to one shard of each row, another than other coalescers do.
    pub(super) place: u16,
    /// How many callers the last batch had.
    pub(super) last_callers: usize,
}

/// What became of one attempt to commit.
enum Attempted {
    Committed,
    /// A chunk has to be counted in another way; nothing else is wrong.
    Again,
    Conflict(Conflict, DieselError),
    /// The database cannot be reached.
    Away(String),
    /// Something is wrong that is no single row's fault.
    Broken(Error),
    /// Nobody can tell: the coalescer was closed before, or its row is gone.
    Unknown(String),
}

/// Why a transaction was not committed.
enum Failed {
    Before(DieselError),
    AtCommit(DieselError),
    /// The coalescer's row is gone.
    Unregistered,
    Again,
}

/// What is not as usual, where the usual is that an entry counts on one row.
#[derive(Default)]
struct Exceptions {
    rows: HashMap<Place, usize>,
    callers: Vec<(usize, Told)>,
    losses: Vec<Loss>,
}

impl Exceptions {
    fn rows_of(&self, place: Place) -> usize {
        self.rows.get(&place).copied().unwrap_or(1)
    }
}

impl<Conn> Worker<Conn>
where
    Conn: LoadConnection + 'static,
    Conn::Backend: BackendOf<Conn>,
{
    /// Commits batches until the coalescer is closed and nothing is left.
    pub(super) fn run(mut self) {
        loop {
            let max_delay = self.shared.limits.max_delay;
            let closing = self.shared.gives_up_at().is_some();
            if !closing && !self.shared.bell.wait(max_delay, Some(CONNECTION_WAIT)) {
                self.conn = None; // others may need it
                continue;
            }
            self.let_callers_return();
            let stripes = self.shared.stripes.iter();
            let taken: Vec<_> = stripes.filter_map(|stripe| stripe.take()).collect();
            if taken.is_empty() {
                match closing {
                    true => break,
                    false => continue, // a flush of nothing was asked for
                }
            }
            // The flights of a batch that is dropped tell their callers, and the worker goes on.
            let flush = AssertUnwindSafe(|| self.flush(Batch::of(taken)));
            if panic::catch_unwind(flush).is_err() {
                self.conn = None;
                self.shared.note(|stats| stats.panics += 1);
            }
        }
        if let Ok(mut conn) = self.take_connection() {
            let retry = RetryPolicy::default().with_deadline(ROW_REMOVAL);
            let _ = self.token.remove(&mut **conn, retry); // a row that stays is removed by another coalescer, later
        }
    }

    /// Those who were told of the last batch are on their way with their next count: one large batch costs less than two.
    fn let_callers_return(&self) {
        let mut before = self.shared.waiting_callers();
        while before < self.last_callers {
            thread::yield_now();
            let now = self.shared.waiting_callers();
            if now == before {
                break;
            }
            before = now;
        }
    }

    fn flush(&mut self, mut batch: Batch<Conn>) {
        let began = Instant::now();
        let (entries, callers) = (batch.lanes.entries(), batch.callers());
        self.last_callers = callers;
        observe::flush(entries, callers).block(|| {
            for mut part in batch.parts(KEYS_IN_A_STATEMENT, self.shared.limits.max_batch) {
                self.commit(&mut batch, &mut part);
            }
        });
        let time = began.elapsed();
        self.shared
            .note(|stats| stats.flushed(time, entries, callers));
        observe::flushed(time);
        batch.land();
    }

    /// Commits one part of a batch, in as many attempts as that takes. Whoever waits gives up at a deadline of his own; what
    /// was added without waiting is tried until the coalescer is closed.
    fn commit(&mut self, batch: &mut Batch<Conn>, part: &mut [Chunk]) {
        let retry = self.shared.retry.clone();
        let mut attempts = Attempts::start(retry.clone());
        let mut pause = FIRST_PAUSE;
        loop {
            let attempted = self.attempt(batch, part);
            let reason = match attempted {
                Attempted::Committed => return,
                Attempted::Unknown(reason) => {
                    let error = Arc::new(lost(&reason));
                    return self.give_up(batch, part, &error);
                }
                Attempted::Again => {
                    batch.turn_back();
                    continue;
                }
                Attempted::Conflict(conflict, error) => {
                    self.shared.note(|stats| stats.conflicts += 1);
                    if let Some(delay) = attempts.after(conflict).filter(|_| !self.gives_up()) {
                        batch.turn_back();
                        retry.sleep(delay);
                        continue;
                    }
                    let error = attempts.used_up(conflict, error);
                    attempts = Attempts::start(retry.clone());
                    fail_callers(batch, part, error)
                }
                Attempted::Broken(error) => fail_callers(batch, part, error),
                Attempted::Away(reason) => reason,
            };
            batch.turn_back();
            self.shared.blocked_by(&reason);
            if self.gives_up() {
                let waited = self.shared.limits.deadline;
                let error = Arc::new(Error::DeadlinePassed { waited, reason });
                return self.give_up(batch, part, &error);
            }
            self.rest(&mut pause);
        }
    }

    fn attempt(&mut self, batch: &mut Batch<Conn>, part: &mut [Chunk]) -> Attempted {
        let conn = self.take_connection();
        batch.take_off();
        let amounts = batch.amounts(part);
        if amounts.iter().all(Vec::is_empty) {
            return Attempted::Committed; // everyone has gone
        }
        let mut conn = match conn {
            Ok(conn) => conn,
            Err(reason) => return Attempted::Away(reason),
        };
        let dialect = Conn::Backend::backend_of(&conn).dialect();
        let mut exceptions = Exceptions::default();
        let sent = self.send(&mut conn, dialect, batch, part, amounts, &mut exceptions);
        let error = match sent {
            Ok(()) => {
                self.conn = Some(conn);
                return self.committed(batch, part, exceptions);
            }
            Err(Failed::Again | Failed::Unregistered) => {
                self.conn = Some(conn);
                return Attempted::Again;
            }
            Err(Failed::Before(error)) => error,
            Err(Failed::AtCommit(error)) => {
                if classify(dialect, &error) == Failure::ConnectionLost {
                    drop(conn);
                    self.shared.note(|stats| stats.commits_resolved += 1);
                    return match self.was_committed() {
                        Ok(Some(true)) => self.committed(batch, part, exceptions),
                        Ok(Some(false)) => Attempted::Away(error.to_string()),
                        Ok(None) => Attempted::Unknown(format!(
                            "its row in `{TABLE}` was removed meanwhile ({error})"
                        )),
                        Err(reason) => Attempted::Unknown(reason),
                    };
                }
                error
            }
        };
        match classify(dialect, &error) {
            Failure::ConnectionLost => {
                self.shared.note(|stats| stats.connections_lost += 1);
                Attempted::Away(error.to_string()) // and the connection is dropped
            }
            Failure::NodeNotReady => Attempted::Away(error.to_string()), // the next connection may be to another node
            Failure::Conflict(conflict) => {
                observe::flush_conflict(dialect, conflict);
                self.conn = Some(conn);
                Attempted::Conflict(conflict, error)
            }
            Failure::DiskFull => {
                self.conn = Some(conn);
                Attempted::Broken(Error::DiskFull { source: error })
            }
            Failure::Overflow | Failure::Other => {
                self.conn = Some(conn);
                Attempted::Broken(error.into())
            }
        }
    }

    /// One transaction: the token, and every chunk.
    fn send(
        &mut self,
        conn: &mut Conn,
        dialect: Dialect,
        batch: &mut Batch<Conn>,
        part: &mut [Chunk],
        amounts: Vec<Vec<Amount>>,
        exceptions: &mut Exceptions,
    ) -> Result<(), Failed> {
        let options = TransactionOptions {
            isolation: dialect.own_isolation(),
            outermost: true, // or nobody knew whether it is committed
            ..Default::default()
        };
        let mark = self.token.next();
        let requests = batch.requests(part);
        if requests.is_empty() {
            if let Some(done) = self.commit_at_once(conn, dialect, batch, part, &amounts, mark) {
                return done;
            }
        }
        let begun =
            now(begin(&mut Link::blocking(conn), dialect, options)).map_err(Failed::Before)?;
        let stamped = stamp(conn, mark).map_err(Failed::Before);
        let sent = stamped.and_then(|stamped| {
            if !stamped {
                return Err(Failed::Unregistered);
            }
            let amounts = match requests.is_empty() {
                true => amounts,
                false => claim_requests(conn, batch, part, &requests).map_err(Failed::Before)?,
            };
            let chunks = part.iter_mut().zip(&amounts);
            for (chunk, amounts) in chunks.filter(|(_, amounts)| !amounts.is_empty()) {
                self.send_chunk(conn, dialect, batch, chunk, amounts, exceptions)?;
            }
            release_requests(conn, batch, &requests, exceptions).map_err(Failed::Before)?;
            now(begun.check(&mut Link::blocking(conn), dialect)).map_err(Failed::Before)
        });
        if let Err(failed) = sent {
            now(begun.roll_back(&mut Link::blocking(conn)));
            if let Failed::Unregistered = failed {
                self.token.register(conn).map_err(Failed::Before)?;
                return Err(Failed::Again);
            }
            return Err(failed);
        }
        let committed = now(begun.commit(&mut Link::blocking(conn)));
        committed.map_err(|error| {
            now(begun.roll_back(&mut Link::blocking(conn)));
            Failed::AtCommit(error)
        })
    }

    /// A batch of one statement together with its mark, where the database can do that; nothing was sent where it cannot.
    fn commit_at_once(
        &self,
        conn: &mut Conn,
        dialect: Dialect,
        batch: &Batch<Conn>,
        part: &mut [Chunk],
        amounts: &[Vec<Amount>],
        mark: Mark,
    ) -> Option<Result<(), Failed>> {
        let ([chunk], [amounts]) = (part, amounts) else {
            return None;
        };
        if chunk.mode != Mode::Together {
            return None;
        }
        let at_once = (dialect.commits_at_once(amounts.len())?, mark);
        let lane = batch.lanes.get(chunk.lane)?;
        let amounts = fitting(amounts)?;
        let shard = self.shard(lane);
        let committed = lane.commit_at_once(conn, &amounts, shard, at_once);
        let error = match committed {
            Ok(true) => return Some(Ok(())),
            // The shards are not all there, or some row cannot take its amount: a transaction tells more.
            Ok(false) => None,
            Err(error) if is_a_rows_fault(dialect, &error) => None,
            Err(error) => Some(error),
        };
        Some(Err(match error {
            None => {
                chunk.mode = Mode::Creating;
                Failed::Again
            }
            Some(error) if classify(dialect, &error) == Failure::ConnectionLost => {
                Failed::AtCommit(error)
            }
            Some(error) => Failed::Before(error),
        }))
    }

    /// One chunk in its mode; in the next one if that does not do.
    fn send_chunk(
        &self,
        conn: &mut Conn,
        dialect: Dialect,
        batch: &Batch<Conn>,
        chunk: &mut Chunk,
        amounts: &[Amount],
        exceptions: &mut Exceptions,
    ) -> Result<(), Failed> {
        let Some(lane) = batch.lanes.get(chunk.lane) else {
            return Ok(()); // chunks are made of lanes
        };
        let is_alone = |amount: &Amount| chunk.alone.contains(&amount.entry);
        let (alone, together): (Vec<Amount>, Vec<Amount>) =
            amounts.iter().copied().partition(is_alone);
        if chunk.mode != Mode::EachAlone {
            if let Some(together) = fitting(&together) {
                if !self.count_together(conn, dialect, lane, chunk, &together)? {
                    return Err(Failed::Again);
                }
                return self.send_each(conn, dialect, batch, chunk.lane, &alone, exceptions);
            }
        }
        self.send_each(conn, dialect, batch, chunk.lane, amounts, exceptions)
    }

    /// Whether all of these were counted; if not, the chunk is to be sent in another way.
    fn count_together(
        &self,
        conn: &mut Conn,
        dialect: Dialect,
        lane: &dyn AnyLane<Conn>,
        chunk: &mut Chunk,
        amounts: &[(usize, i64)],
    ) -> Result<bool, Failed> {
        if amounts.is_empty() {
            return Ok(true);
        }
        let shard = self.shard(lane);
        let created = match chunk.mode {
            Mode::Creating => lane.create(conn, amounts, shard),
            Mode::Together | Mode::EachAlone => Ok(()),
        };
        let counted = created.and_then(|()| lane.count(conn, amounts, shard));
        chunk.mode = match (counted, chunk.mode) {
            (Ok(rows), _) if rows == amounts.len() => return Ok(true),
            (Ok(_), Mode::Together) => Mode::Creating,
            (Ok(_), _) => {
                let there = lane.there(conn, amounts).map_err(Failed::Before)?;
                let entries = amounts.iter().map(|(entry, _)| *entry);
                let known = chunk.alone.len();
                chunk
                    .alone
                    .extend(entries.filter(|entry| !there.contains(entry)));
                // If nobody is missing, keys that differ here are one to the database.
                match chunk.alone.len() > known {
                    true => Mode::Creating,
                    false => Mode::EachAlone,
                }
            }
            (Err(error), _) if is_a_rows_fault(dialect, &error) => Mode::EachAlone,
            (Err(error), _) => return Err(Failed::Before(error)),
        };
        Ok(false)
    }

    fn send_each(
        &self,
        conn: &mut Conn,
        dialect: Dialect,
        batch: &Batch<Conn>,
        lane: usize,
        amounts: &[Amount],
        exceptions: &mut Exceptions,
    ) -> Result<(), Failed> {
        for amount in amounts {
            self.send_alone(conn, dialect, batch, lane, *amount, exceptions)?;
        }
        Ok(())
    }

    /// The shard of each row that this coalescer adds to.
    fn shard(&self, lane: &dyn AnyLane<Conn>) -> i32 {
        let stripe = Stripe::global();
        stripe.shard(self.place % stripe.shards(lane.shards()))
    }

    /// One entry, in a savepoint: for all who add to it, or if it cannot take that, for each of them by himself.
    fn send_alone(
        &self,
        conn: &mut Conn,
        dialect: Dialect,
        batch: &Batch<Conn>,
        lane: usize,
        Amount { entry, sum }: Amount,
        exceptions: &mut Exceptions,
    ) -> Result<(), Failed> {
        let Some(to) = batch.lanes.get(lane) else {
            return Ok(());
        };
        let mut count = |n: i64| -> Result<Told, Failed> {
            let options = TransactionOptions::default();
            let mut count = || {
                own_transaction(conn, RetryPolicy::never(), options, |conn| {
                    to.count_one(conn, entry, n)
                })
            };
            let mut counted = count();
            // A row that was deleted or renamed while its shard was created is looked for again.
            for _ in 0..ROW_GONE {
                match &counted {
                    Err(error) if is_foreign_key_violation(error) => counted = count(),
                    _ => break,
                }
            }
            match counted {
                Ok(rows) => Ok(Ok(rows)),
                Err(error) if is_a_rows_fault(dialect, &error) => {
                    Ok(Err(Arc::new(error.into()))) // an overflow is told as one by now
                }
                Err(error) => Err(Failed::Before(error)),
            }
        };
        if let Ok(n) = i64::try_from(sum) {
            if let Ok(rows) = count(n)? {
                exceptions.rows.insert(Place { lane, entry }, rows);
                return Ok(());
            }
        }
        for (caller, n, waits) in batch.adding_to(Place { lane, entry }) {
            let told = count(n)?;
            if let (Err(error), false) = (&told, waits) {
                exceptions.losses.push(Loss {
                    counter: to.describe(entry),
                    amount: n.into(),
                    error: Arc::clone(error),
                });
            }
            exceptions.callers.push((caller, told));
        }
        let mut rest = to.buffered(entry);
        while rest != 0 {
            let n = rest.clamp(i64::MIN.into(), i64::MAX.into());
            if let Err(error) = count(n as i64)? {
                exceptions.losses.push(Loss {
                    counter: to.describe(entry),
                    amount: rest,
                    error,
                });
                break;
            }
            rest -= n;
        }
        Ok(())
    }

    fn committed(
        &self,
        batch: &mut Batch<Conn>,
        part: &[Chunk],
        mut exceptions: Exceptions,
    ) -> Attempted {
        batch.committed_a_part();
        for (caller, told) in exceptions.callers.drain(..) {
            batch.settle(caller, told);
        }
        let unheard = batch.settle_counted(part, |place| exceptions.rows_of(place));
        for loss in exceptions.losses {
            self.shared.lost(loss);
        }
        for (place, n, error) in unheard {
            self.shared.lost(Loss {
                counter: batch.describe(place),
                amount: n.into(),
                error,
            });
        }
        Attempted::Committed
    }

    /// Tells everyone who still waits, and reports what was added without waiting.
    fn give_up(&self, batch: &mut Batch<Conn>, part: &[Chunk], error: &Arc<Error>) {
        batch.settle_failed(part, error);
        for (chunk, amounts) in part.iter().zip(batch.amounts(part)) {
            let Some(lane) = batch.lanes.get(chunk.lane) else {
                continue;
            };
            for Amount { entry, sum } in amounts {
                self.shared.lost(Loss {
                    counter: lane.describe(entry),
                    amount: sum,
                    error: Arc::clone(error),
                });
            }
        }
    }

    /// Whether the coalescer is closed, and its time is over.
    fn gives_up(&self) -> bool {
        let at = self.shared.gives_up_at();
        at.is_some_and(|at| at <= Instant::now())
    }

    fn take_connection(&mut self) -> Result<Borrowed<Conn>, String> {
        match self.conn.take() {
            Some(conn) => Ok(conn),
            None if self.gives_up() => (self.borrow)(Duration::ZERO),
            None => (self.borrow)(CONNECTION_WAIT),
        }
    }

    /// Whether the last batch was committed, asked until the database answers; `None` if it cannot know.
    fn was_committed(&mut self) -> Result<Option<bool>, String> {
        let mut pause = FIRST_PAUSE;
        loop {
            let asked = self.take_connection().and_then(|mut conn| {
                let committed = self.token.was_committed(&mut **conn);
                let committed = committed.map_err(|error| error.to_string())?;
                self.conn = Some(conn);
                Ok(committed)
            });
            let reason = match asked {
                Ok(committed) => return Ok(committed),
                Err(reason) => reason,
            };
            self.shared.blocked_by(&reason);
            if self.gives_up() {
                return Err(reason);
            }
            self.rest(&mut pause);
        }
    }

    /// Sleeps, and the next time twice as long.
    fn rest(&self, pause: &mut Duration) {
        self.shared.retry.sleep(*pause);
        *pause = (*pause * 2).min(LONGEST_PAUSE);
    }
}

/// Tells everyone who waits for this part; what nobody waits for is tried again.
fn fail_callers<Conn>(batch: &mut Batch<Conn>, part: &[Chunk], error: Error) -> String
where
    Conn: LoadConnection + 'static,
{
    let error = Arc::new(error);
    batch.settle_failed(part, &error);
    error.to_string()
}

/// Claims the keys of these requests; gives what is to be added without those that are not new.
fn claim_requests<Conn>(
    conn: &mut Conn,
    batch: &mut Batch<Conn>,
    part: &[Chunk],
    requests: &[usize],
) -> QueryResult<Vec<Vec<Amount>>>
where
    Conn: LoadConnection + 'static,
    Conn::Backend: BackendOf<Conn>,
{
    for requests in requests.chunks(KEYS_IN_A_STATEMENT) {
        let asked = requests.iter().filter_map(|caller| batch.request(*caller));
        let claimed = now(claim(&mut Link::blocking(conn), &asked.collect::<Vec<_>>()))?;
        for (caller, claimed) in requests.iter().zip(claimed) {
            batch.claimed(*caller, claimed);
        }
    }
    Ok(batch.amounts(part))
}

/// Lets go of the keys of those requests that counted nothing.
fn release_requests<Conn>(
    conn: &mut Conn,
    batch: &Batch<Conn>,
    requests: &[usize],
    exceptions: &Exceptions,
) -> QueryResult<()>
where
    Conn: LoadConnection + 'static,
    Conn::Backend: BackendOf<Conn>,
{
    let by_themselves: HashMap<_, _> = exceptions
        .callers
        .iter()
        .map(|(c, told)| (c, told))
        .collect();
    let counted_nothing =
        |caller: &&usize| match (batch.counts_on(**caller), by_themselves.get(caller)) {
            (None, _) => false, // a repeat
            (Some(_), Some(told)) => !matches!(told, Ok(1..)),
            (Some(place), None) => exceptions.rows_of(place) == 0,
        };
    let released = requests.iter().filter(counted_nothing);
    let keys: Vec<&[u8]> = released
        .filter_map(|caller| Some(batch.request(*caller)?.key.as_slice()))
        .collect();
    for keys in keys.chunks(KEYS_IN_A_STATEMENT) {
        now(release(&mut Link::blocking(conn), keys.to_vec()))?;
    }
    Ok(())
}

/// Amounts that a statement can bind; none if one is too large.
fn fitting(amounts: &[Amount]) -> Option<Vec<(usize, i64)>> {
    let fitting = |amount: &Amount| Some((amount.entry, i64::try_from(amount.sum).ok()?));
    amounts.iter().map(fitting).collect()
}

/// How often a row is looked for again that was gone when its shard was created.
const ROW_GONE: u32 = 16;

/// Whether an error is about the row, and not about the moment or the connection.
fn is_a_rows_fault(dialect: Dialect, error: &DieselError) -> bool {
    matches!(classify(dialect, error), Failure::Overflow | Failure::Other)
}

/// What an error means that came before the batch's own COMMIT, also where it is told by the crate's own operations: a connection
/// that Diesel gave up, or that was lost while the coalescer's row was made. Neither has counted anything.
fn classify(dialect: Dialect, error: &DieselError) -> Failure {
    let told = match error {
        DieselError::QueryBuilderError(told) => told.downcast_ref::<Error>(),
        _ => None,
    };
    match told {
        Some(Error::ConnectionLost { .. } | Error::OutcomeUnknown { .. }) => {
            Failure::ConnectionLost
        }
        _ => dialect.classify(error),
    }
}

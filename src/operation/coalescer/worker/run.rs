//! The worker's loop, and the attempts of each batch.

use std::ops::DerefMut;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::{LoadConnection, TransactionManager};
use diesel::result::Error as DieselError;

use crate::backend::{BackendOf, ShardedBackend};
use crate::conflict::{Conflict, Failure};
use crate::engine::KEYS_IN_A_STATEMENT;
use crate::error::Error;
use crate::observe;
use crate::operation::coalescer::batch::Batch;
use crate::operation::coalescer::chunk::{Chunk, EntrySum};
use crate::operation::coalescer::hot_keys::HotKeys;
use crate::operation::coalescer::loss::Loss;
use crate::operation::coalescer::shared::CoalescerState;
use crate::operation::coalescer::token::{TABLE, Token};
use crate::operation::count_many::Rung;
use crate::policy::{Attempts, RetryPolicy};

use super::exceptions::Exceptions;
use super::failure::{BatchFailure, classify};
use super::send_batch::BatchSender;

/// A connection that is borrowed from a pool.
pub(in crate::operation::coalescer) type Borrowed<Conn> = Box<dyn DerefMut<Target = Conn> + Send>;
/// Borrows a connection, or says why there is none within that time.
pub(in crate::operation::coalescer) type Borrow<Conn> =
    Box<dyn Fn(Duration) -> Result<Borrowed<Conn>, String> + Send>;

/// How long the worker waits for a connection at a time, and keeps one when there is nothing to do.
const CONNECTION_WAIT: Duration = Duration::from_secs(1);
/// How many batches expect missing shards after one that met some. Then one finds out whether all are there again.
const UPSERTS: u8 = 15;
/// The pauses between attempts while the database is away.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long the worker tries to remove the coalescer's row.
const ROW_REMOVAL: Duration = Duration::from_secs(1);
/// How long a worker may take to end after it has to give up, beside its wait for the database. The time covers noticing and
/// tidying up, with some to spare.
pub(in crate::operation::coalescer) const LONGEST_LEAVE: Duration = Duration::from_secs(3);

pub(in crate::operation::coalescer) struct Worker<Conn: LoadConnection> {
    shared: Arc<CoalescerState<Conn>>,
    borrow: Borrow<Conn>,
    conn: Option<Borrowed<Conn>>,
    token: Token,
    /// The place of hot keys' shards, which differs between coalescers: they do not wait for each other there.
    place: u16,
    hot_keys: HotKeys,
    /// So many further batches begin by a statement that creates missing shards: the last one that did not met some.
    upserts: u8,
    /// How many callers waited for the last batch.
    last_callers: usize,
}

/// The outcome of one attempt to commit.
enum BatchOutcome {
    Committed(Vec<Loss>),
    /// A chunk has to be counted on another rung; nothing else is wrong.
    Again,
    Conflict(Conflict, DieselError),
    /// The database cannot be reached.
    Away(String),
    /// An error that is no single row's fault.
    Broken(Error),
    /// Nobody can find out: the coalescer was closed before, or its row is gone.
    Unknown(String),
}

impl<Conn> Worker<Conn>
where
    Conn: LoadConnection + 'static,
    Conn::Backend: BackendOf<Conn>,
{
    pub(in crate::operation::coalescer) fn new(
        shared: Arc<CoalescerState<Conn>>,
        borrow: Borrow<Conn>,
        conn: Borrowed<Conn>,
        token: Token,
    ) -> Self {
        Worker {
            shared,
            borrow,
            conn: Some(conn),
            place: token.number(),
            token,
            hot_keys: HotKeys::new(),
            upserts: 0,
            last_callers: 0,
        }
    }

    /// Commits batches until the coalescer is closed and nothing is left.
    pub(in crate::operation::coalescer) fn run(mut self) {
        loop {
            let max_delay = self.shared.limits.max_delay;
            let closing = self.shared.gives_up_at().is_some();
            if !closing && !self.shared.bell.wait(max_delay, Some(CONNECTION_WAIT)) {
                self.conn = None; // others may need it
                continue;
            }
            self.let_callers_return();
            let queues = self.shared.queues.iter();
            let taken: Vec<_> = queues.filter_map(|queue| queue.take()).collect();
            if taken.is_empty() {
                match closing {
                    true => break,
                    false => continue, // somebody flushed an empty queue
                }
            }
            // If a batch panics, its flights tell their callers as they are dropped, and the worker goes on.
            let mut losses = vec![];
            let flush = AssertUnwindSafe(|| self.flush(Batch::of(taken), &mut losses));
            if panic::catch_unwind(flush).is_err() {
                self.conn = None;
                self.shared.note(|stats| stats.panics += 1);
            }
            self.shared.report(&losses);
        }
        if let Ok(mut conn) = self.take_connection() {
            let retry = RetryPolicy::default().with_deadline(ROW_REMOVAL);
            let _ = self.token.remove(&mut **conn, retry); // another coalescer removes a row that stays, later
        }
    }

    /// Waits for the callers of the last batch, who are on their way with their next count: one large batch costs less than two.
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

    fn flush(&mut self, mut batch: Batch<Conn>, losses: &mut Vec<Loss>) {
        let began = Instant::now();
        batch.lanes.note_contention(&mut self.hot_keys, began);
        let (entries, callers) = (batch.lanes.entries(), batch.waiting_callers());
        self.last_callers = callers;
        observe::flush(entries, callers).block(|| {
            for mut part in batch.parts(KEYS_IN_A_STATEMENT, self.shared.limits.max_batch) {
                let begins_by_upsert = self.upserts > 0;
                if begins_by_upsert {
                    self.upserts -= 1;
                    part.iter_mut()
                        .for_each(|chunk| chunk.rung = Rung::Upserting);
                }
                let lost = self.commit(&mut batch, &mut part);
                self.shared.note_losses(&lost);
                losses.extend(lost);
                if !begins_by_upsert && part.iter().any(|chunk| chunk.rung != Rung::Together) {
                    self.upserts = UPSERTS;
                }
            }
        });
        let time = began.elapsed();
        self.shared
            .note(|stats| stats.flushed(time, entries, callers));
        observe::flushed(time);
        batch.land();
    }

    /// Commits one part of a batch, in as many attempts as that takes. Callers who wait give up at their own deadlines. Additions
    /// that nobody waits for are tried until the coalescer is closed. Returns those that are lost.
    fn commit(&mut self, batch: &mut Batch<Conn>, part: &mut [Chunk]) -> Vec<Loss> {
        let retry = self.shared.retry.clone();
        let mut attempts = Attempts::start(retry.clone());
        let mut pause = FIRST_PAUSE;
        loop {
            let outcome = self.attempt(batch, part);
            let reason = match outcome {
                BatchOutcome::Committed(losses) => return losses,
                BatchOutcome::Unknown(reason) => {
                    let error = Arc::new(Error::outcome_unknown(&reason));
                    return self.give_up(batch, part, &error);
                }
                BatchOutcome::Again => {
                    batch.turn_back();
                    continue;
                }
                BatchOutcome::Conflict(conflict, error) => {
                    self.shared.note(|stats| stats.conflicts += 1);
                    if let Some(delay) = attempts.after(conflict).filter(|_| !self.gives_up()) {
                        batch.turn_back();
                        retry.sleep(delay);
                        continue;
                    }
                    let error = attempts.persisted(conflict, error);
                    attempts = Attempts::start(retry.clone());
                    fail_callers(batch, part, error)
                }
                BatchOutcome::Broken(error) => fail_callers(batch, part, error),
                BatchOutcome::Away(reason) => reason,
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

    fn attempt(&mut self, batch: &mut Batch<Conn>, part: &mut [Chunk]) -> BatchOutcome {
        let conn = self.take_connection();
        batch.take_off();
        let sums = batch.sums(part);
        if sums.iter().all(Vec::is_empty) {
            return BatchOutcome::Committed(vec![]); // all callers have withdrawn
        }
        let mut conn = match conn {
            Ok(conn) => conn,
            Err(reason) => return BatchOutcome::Away(reason),
        };
        let dialect = Conn::Backend::backend_of(&conn).dialect();
        let mut exceptions = Exceptions::default();
        let mut sender = BatchSender {
            conn: &mut **conn,
            dialect,
            token: &mut self.token,
            // With one writer at a time another shard spares no wait.
            place: if dialect.has_row_locks() {
                self.place
            } else {
                0
            },
        };
        let sent = sender.send(batch, part, sums, &mut exceptions);
        let error = match sent {
            Ok(()) => {
                self.conn = Some(conn);
                return self.committed(batch, part, exceptions);
            }
            Err(BatchFailure::Again | BatchFailure::Unregistered) => {
                self.conn = Some(conn);
                return BatchOutcome::Again;
            }
            Err(BatchFailure::Before(error)) => error,
            Err(BatchFailure::AtCommit(error)) => {
                if classify(dialect, &error) == Failure::ConnectionLost {
                    drop(conn);
                    self.shared.note(|stats| stats.commits_resolved += 1);
                    return match self.was_committed() {
                        Ok(Some(true)) => self.committed(batch, part, exceptions),
                        Ok(Some(false)) => BatchOutcome::Away(error.to_string()),
                        Ok(None) => BatchOutcome::Unknown(format!(
                            "its row in `{TABLE}` was removed meanwhile ({error})"
                        )),
                        Err(reason) => BatchOutcome::Unknown(reason),
                    };
                }
                error
            }
        };
        match classify(dialect, &error) {
            Failure::ConnectionLost => {
                self.shared.note(|stats| stats.connections_lost += 1);
                BatchOutcome::Away(error.to_string()) // and the connection is dropped
            }
            Failure::NodeNotReady => {
                leave(&mut **conn);
                BatchOutcome::Away(error.to_string())
            }
            Failure::Conflict(conflict) => {
                observe::flush_conflict(dialect, conflict);
                self.conn = Some(conn);
                BatchOutcome::Conflict(conflict, error)
            }
            Failure::DiskFull => {
                self.conn = Some(conn);
                BatchOutcome::Broken(Error::DiskFull { source: error })
            }
            Failure::Overflow | Failure::Other => {
                self.conn = Some(conn);
                BatchOutcome::Broken(error.into())
            }
        }
    }

    fn committed(
        &self,
        batch: &mut Batch<Conn>,
        part: &[Chunk],
        mut exceptions: Exceptions,
    ) -> BatchOutcome {
        batch.committed_a_part();
        for (caller, result) in exceptions.callers.drain(..) {
            batch.settle(caller, result);
        }
        let unheard = batch.settle_counted(part, |entry| exceptions.rows_of(entry));
        let mut losses = exceptions.losses;
        losses.extend(unheard.into_iter().map(|(entry, n, error)| Loss {
            counter: batch.describe(entry),
            amount: n.into(),
            error,
        }));
        BatchOutcome::Committed(losses)
    }

    /// Gives this error to all callers who still wait, and returns the other additions as lost.
    fn give_up(&self, batch: &mut Batch<Conn>, part: &[Chunk], error: &Arc<Error>) -> Vec<Loss> {
        batch.settle_failed(part, error);
        let mut losses = vec![];
        for (chunk, sums) in part.iter().zip(batch.sums(part)) {
            let Some(lane) = batch.lanes.get(chunk.lane) else {
                continue;
            };
            for EntrySum { entry, sum } in sums {
                losses.push(Loss {
                    counter: lane.describe(entry),
                    amount: sum,
                    error: Arc::clone(error),
                });
            }
        }
        losses
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

    /// Whether the last batch was committed; `None` if the database does not know. Asks until the database answers.
    fn was_committed(&mut self) -> Result<Option<bool>, String> {
        let mut pause = FIRST_PAUSE;
        loop {
            let asked = self.take_connection().and_then(|mut conn| {
                let committed = self.token.was_committed(&mut **conn);
                let committed = committed.map_err(|error| {
                    let dialect = Conn::Backend::backend_of(&conn).dialect();
                    if classify(dialect, &error) == Failure::NodeNotReady {
                        leave(&mut **conn);
                    }
                    error.to_string()
                })?;
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

    /// Sleeps, and doubles the pause for the next time.
    fn rest(&self, pause: &mut Duration) {
        self.shared.retry.sleep(*pause);
        *pause = (*pause * 2).min(LONGEST_PAUSE);
    }
}

/// Makes the pool drop a connection that works, to a server that takes no writes. The next one may lead to another server.
fn leave<Conn: LoadConnection>(conn: &mut Conn) {
    Conn::TransactionManager::transaction_manager_status_mut(conn).set_in_error();
}

/// Gives this error to all callers who wait for this part. The other additions are retried.
fn fail_callers<Conn>(batch: &mut Batch<Conn>, part: &[Chunk], error: Error) -> String
where
    Conn: LoadConnection + 'static,
{
    let error = Arc::new(error);
    batch.settle_failed(part, &error);
    error.to_string()
}

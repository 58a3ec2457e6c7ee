//! The thread that commits what was added.

use std::ops::DerefMut;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::connection::{LoadConnection, TransactionManager};
use diesel::prelude::*;

use crate::backend::{BackendOf, Dialect};
use crate::connection::{Blocking, Link, TransactionOptions, now};
use crate::error::Error;
use crate::observe;
use crate::operation::idempotency::{Request, Requested, once, release};
use crate::per_process::random;

use super::buffer::{Buffer, Loss};
use super::sums::{AnySums, Fields};

/// A connection that is borrowed from a pool.
pub(super) type Borrowed<Conn> = Box<dyn DerefMut<Target = Conn> + Send>;
/// Borrows a connection, or says why there is none within that time.
pub(super) type Borrow<Conn> = Box<dyn Fn(Duration) -> Result<Borrowed<Conn>, Error> + Send>;

/// How long the writer waits for a connection at a time.
const CONNECTION_WAIT: Duration = Duration::from_secs(1);
/// The pauses between attempts while the database is away.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long a writer may take to end after it has to give up: it notices and tidies up, with some time to spare.
pub(super) const LONGEST_LEAVE: Duration = Duration::from_secs(3);

pub(super) struct Writer<Conn> {
    buffer: Arc<Buffer<Conn>>,
    borrow: Borrow<Conn>,
    /// The key of the last batch that was committed.
    last: Vec<u8>,
}

/// Why a batch was not committed.
struct Failure {
    error: Arc<Error>,
    /// The fault is a row's, as far as it is known. Else the database cannot be reached, or not now.
    is_a_rows: bool,
}

impl Failure {
    fn away(error: Error) -> Self {
        Failure {
            error: Arc::new(error),
            is_a_rows: false,
        }
    }
}

impl<Conn> Writer<Conn>
where
    Conn: LoadConnection + 'static,
    Conn::Backend: BackendOf<Conn>,
{
    pub(super) fn new(buffer: Arc<Buffer<Conn>>, borrow: Borrow<Conn>) -> Self {
        Writer {
            buffer,
            borrow,
            last: vec![],
        }
    }

    /// Commits until the buffer is closed and empty.
    pub(super) fn run(mut self) {
        while let Some(fields) = self.buffer.take() {
            let (began, counters) = (Instant::now(), fields.len());
            let mut losses = vec![];
            let flush = AssertUnwindSafe(|| self.flush(fields, &mut losses));
            let flushed = observe::flush(counters).block(|| panic::catch_unwind(flush));
            observe::flushed(began.elapsed());
            // What was taken and not committed is lost by a panic.
            let lost = match flushed {
                Ok(()) => 0,
                Err(_) => counters.saturating_sub(losses.len()),
            };
            self.buffer.flushed(&losses, lost);
        }
        if let Ok(mut conn) = (self.borrow)(CONNECTION_WAIT) {
            let _ = self.forget(&mut **conn); // else `remove_older_than` removes it
        }
    }

    fn flush(&mut self, fields: Fields<Conn>, losses: &mut Vec<Loss>) {
        let mut parts: Vec<_> = fields.into_sums().collect();
        while let Some(mut sums) = parts.pop() {
            parts.extend(sums.split_off(self.buffer.settings.max_batch));
            let Err(Failure { error, is_a_rows }) = self.commit(&*sums) else {
                continue;
            };
            // The row stands by itself when the halves are small enough.
            let half = (sums.len() / 2).max(1);
            match is_a_rows.then(|| sums.split_off(half)).flatten() {
                Some(rest) => parts.extend([rest, sums]),
                None => losses.extend(sums.lost(&error)),
            }
        }
    }

    /// Commits a batch, in as many attempts as that takes, until the coalescer is closed and gives up.
    fn commit(&mut self, sums: &dyn AnySums<Conn>) -> Result<(), Failure> {
        let key = random::<16>().map_err(|error| Failure::away(error.into()))?;
        let request = Request {
            key: key.to_vec(),
            fingerprint: 0,
        };
        let (mut pause, mut was_unknown) = (FIRST_PAUSE, false);
        loop {
            let error = match self.attempt(sums, &request) {
                Ok(()) => {
                    self.last = request.key;
                    return Ok(());
                }
                Err(failure) if failure.is_a_rows => return Err(failure),
                Err(Failure { error, .. }) => error,
            };
            was_unknown |= matches!(*error, Error::OutcomeUnknown { .. });
            let reason = error.to_string();
            self.buffer.blocked_by(&reason);
            if self.buffer.gives_up() {
                return Err(Failure::away(match was_unknown {
                    true => Error::outcome_unknown(&reason),
                    false => Error::DeadlinePassed {
                        waited: self.buffer.settings.deadline,
                        reason,
                    },
                }));
            }
            self.buffer.settings.retry.sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn attempt(&self, sums: &dyn AnySums<Conn>, request: &Request) -> Result<(), Failure> {
        let patience = match self.buffer.gives_up() {
            true => Duration::ZERO,
            false => CONNECTION_WAIT,
        };
        let mut conn = (self.borrow)(patience).map_err(Failure::away)?;
        let mut batch = Batch {
            sums,
            last: &self.last,
            counts: false,
        };
        let retry = self.buffer.settings.retry.clone();
        let written = now(once(
            &mut Link::blocking(&mut **conn),
            request,
            retry,
            &mut batch,
        ));
        let Err(error) = written.map_err(Error::from) else {
            return Ok(());
        };
        if let Error::NodeNotReady { .. } = error {
            // The pool drops a connection that works, to a server that takes no writes. The next one may lead to another server.
            Conn::TransactionManager::transaction_manager_status_mut(&mut **conn).set_in_error();
        }
        Err(Failure {
            is_a_rows: batch.counts && !error.is_no_rows_fault(),
            error: Arc::new(error),
        })
    }

    /// Deletes the key of the last batch.
    pub(super) fn forget(&mut self, conn: &mut Conn) -> QueryResult<()> {
        now(release(&mut Link::blocking(conn), &self.last))
    }
}

/// A batch inside the transaction that has claimed its key.
struct Batch<'a, Conn> {
    sums: &'a dyn AnySums<Conn>,
    last: &'a [u8],
    /// It has come to the rows: before, no row is at fault.
    counts: bool,
}

impl<Conn> Requested<Blocking, Conn> for Batch<'_, Conn>
where
    Conn: LoadConnection + 'static,
    Conn::Backend: BackendOf<Conn>,
{
    fn transaction(&self, dialect: Dialect) -> TransactionOptions {
        TransactionOptions {
            outermost: true, // only then does our COMMIT decide
            ..TransactionOptions::of_a_count(dialect)
        }
    }

    async fn carry_out(&mut self, link: &mut Link<'_, Blocking, Conn>) -> QueryResult<usize> {
        release(link, self.last).await?;
        self.counts = true;
        self.sums.count(link.conn)?;
        Ok(1)
    }
}

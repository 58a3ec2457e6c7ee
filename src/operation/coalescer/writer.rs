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
pub(super) type Borrow<Conn> = Box<dyn Fn(Duration) -> Result<Borrowed<Conn>, String> + Send>;

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
enum Failure {
    /// The database cannot be reached, or not now.
    Away {
        reason: String,
        /// It may have been committed.
        is_unknown: bool,
        /// The policy has paused already, between conflicts.
        has_paused: bool,
    },
    /// The fault is a row's, as far as it is known.
    OfARow(Error),
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
            if flushed.is_err() {
                self.buffer.panicked(counters);
            }
            observe::flushed(began.elapsed());
            self.buffer.flushed(counters, began.elapsed(), &losses);
        }
        if let Ok(mut conn) = (self.borrow)(CONNECTION_WAIT) {
            let _ = self.forget(&mut **conn); // else `remove_older_than` removes it
        }
    }

    fn flush(&mut self, fields: Fields<Conn>, losses: &mut Vec<Loss>) {
        let mut parts: Vec<_> = fields.into_sums().collect();
        while let Some(mut sums) = parts.pop() {
            parts.extend(sums.split_off(self.buffer.settings.max_batch));
            match self.commit(&*sums) {
                Ok(()) => {}
                Err(Failure::Away {
                    reason, is_unknown, ..
                }) => {
                    losses.extend(sums.lost(&Arc::new(match is_unknown {
                        true => Error::outcome_unknown(&reason),
                        false => Error::DeadlinePassed {
                            waited: self.buffer.settings.deadline,
                            reason,
                        },
                    })));
                }
                // It stands by itself when the halves are small enough.
                Err(Failure::OfARow(error)) => match sums.split_off((sums.len() / 2).max(1)) {
                    Some(rest) => parts.extend([rest, sums]),
                    None => losses.extend(sums.lost(&Arc::new(error))),
                },
            }
        }
    }

    /// Commits a batch, in as many attempts as that takes, until the coalescer is closed and gives up.
    fn commit(&mut self, sums: &dyn AnySums<Conn>) -> Result<(), Failure> {
        let key = random::<16>().map_err(|error| Failure::OfARow(error.into()))?;
        let request = Request {
            key: key.to_vec(),
            fingerprint: 0,
        };
        let (mut pause, mut was_unknown) = (FIRST_PAUSE, false);
        loop {
            let (reason, has_paused) = match self.attempt(sums, &request) {
                Err(Failure::Away {
                    reason,
                    is_unknown,
                    has_paused,
                }) => {
                    was_unknown |= is_unknown;
                    (reason, has_paused)
                }
                Err(Failure::OfARow(error)) => return Err(Failure::OfARow(error)),
                Ok(()) => {
                    self.last = request.key;
                    return Ok(());
                }
            };
            self.buffer.blocked_by(&reason);
            if self.buffer.gives_up() {
                return Err(Failure::Away {
                    reason,
                    is_unknown: was_unknown,
                    has_paused,
                });
            }
            if has_paused {
                pause = FIRST_PAUSE;
            }
            self.buffer.settings.retry.sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn attempt(&self, sums: &dyn AnySums<Conn>, request: &Request) -> Result<(), Failure> {
        let away = |reason| Failure::Away {
            reason,
            is_unknown: false,
            has_paused: false,
        };
        let patience = match self.buffer.gives_up() {
            true => Duration::ZERO,
            false => CONNECTION_WAIT,
        };
        let mut conn = (self.borrow)(patience).map_err(away)?;
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
        let error = match written.map_err(Error::from) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let is_unknown = matches!(error, Error::OutcomeUnknown { .. });
        let has_paused = matches!(error, Error::ConflictPersisted { .. });
        if let Error::NodeNotReady { .. } = error {
            // The pool drops a connection that works, to a server that takes no writes. The next one may lead to another server.
            Conn::TransactionManager::transaction_manager_status_mut(&mut **conn).set_in_error();
        }
        if batch.counts && !error.is_no_rows_fault() {
            return Err(Failure::OfARow(error));
        }
        Err(Failure::Away {
            reason: error.to_string(),
            is_unknown,
            has_paused,
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

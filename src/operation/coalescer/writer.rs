//! The thread that commits what was added.

use std::ops::DerefMut;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::connection::{LoadConnection, TransactionManager};
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};

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
    /// Something was refused until the last deadline, and nothing went well since.
    is_impatient: bool,
}

/// Why a batch was not committed.
struct Failure {
    error: Arc<Error>,
    fault: Fault,
}

/// Whose fault it is that a batch was not committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The database cannot be reached, or not now.
    NoRows,
    /// A row cannot take its sum.
    ARows,
    /// A row's, as where the application's trigger refuses it, or not, as where a privilege is missing.
    Unclear,
    /// A table is missing, or a column.
    Tables,
}

impl Fault {
    /// That of an error that came at the rows.
    fn of(error: &Error) -> Self {
        match error {
            _ if error.is_no_rows_fault() => Fault::NoRows,
            Error::MissingShardsTable { .. } | Error::MissingShardsColumn { .. } => Fault::Tables,
            // The database has no more than a text for a missing privilege or a trigger's error.
            Error::Diesel(DieselError::DatabaseError(DatabaseErrorKind::Unknown, _)) => {
                Fault::Unclear
            }
            _ => Fault::ARows,
        }
    }
}

/// Sums that were refused, and why.
type Refused<Conn> = Vec<(Box<dyn AnySums<Conn>>, Arc<Error>)>;

fn lost<Conn: 'static>(refused: &Refused<Conn>) -> impl Iterator<Item = Loss> {
    refused.iter().flat_map(|(sums, error)| sums.lost(error))
}

impl Failure {
    fn away(error: Error) -> Self {
        Failure {
            error: Arc::new(error),
            fault: Fault::NoRows,
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
            is_impatient: false,
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
        let (mut since, mut pause) = (None, FIRST_PAUSE);
        let mut left: Vec<_> = fields.into_sums().map(|sums| (sums, false)).collect();
        while !left.is_empty() {
            let mut refused = vec![];
            for (sums, others_were_counted) in left.drain(..) {
                let (counted, refusals) = self.commit_each(sums, losses);
                // A row is at fault that is refused again after others of its field were counted.
                match others_were_counted {
                    true => losses.extend(lost(&refusals)),
                    false if refusals.is_empty() => {}
                    false => refused.push((refusals, counted)),
                }
            }
            let Some((_, error)) = refused.iter().flat_map(|(refusals, _)| refusals).last() else {
                self.is_impatient &= since.is_some();
                return;
            };
            // What refuses all rows of a field may be over soon. Who has waited for that in vain waits no more, until nothing is refused.
            let since = *since.get_or_insert_with(Instant::now);
            let patience = self.buffer.settings.retry.deadline();
            if self.is_impatient || since.elapsed() >= patience || self.buffer.gives_up() {
                self.is_impatient = true;
                losses.extend(refused.iter().flat_map(|(refusals, _)| lost(refusals)));
                return;
            }
            self.buffer.blocked_by(&error.to_string());
            self.buffer.settings.retry.sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
            for (refusals, counted) in refused {
                let mut again = Fields::default();
                let sums = refusals.into_iter().map(|(sums, _)| sums);
                sums.for_each(|sums| sums.move_to(&mut again));
                left.extend(again.into_sums().map(|sums| (sums, counted)));
            }
        }
    }

    /// Commits the sums of a field, but for rows that cannot take theirs. Returns those that were refused for an unclear reason, and whether
    /// others of the field were counted after the first of them, or beside a single one.
    fn commit_each(
        &mut self,
        sums: Box<dyn AnySums<Conn>>,
        losses: &mut Vec<Loss>,
    ) -> (bool, Refused<Conn>) {
        let (mut before, mut after) = (false, false);
        let mut refused: Refused<Conn> = vec![];
        let mut parts = vec![sums];
        while let Some(mut sums) = parts.pop() {
            if let (true, Some((_, error))) = (self.buffer.gives_up(), refused.last()) {
                let error = Arc::clone(error);
                refused.push((sums, error));
                continue;
            }
            parts.extend(sums.split_off(self.buffer.settings.max_batch));
            let Err(Failure { error, fault }) = self.commit(&*sums) else {
                before |= refused.is_empty();
                after |= !refused.is_empty();
                continue;
            };
            // The row stands by itself when the halves are small enough.
            let half = (sums.len() / 2).max(1);
            let rest = match fault {
                Fault::NoRows | Fault::Tables => None,
                Fault::ARows | Fault::Unclear => sums.split_off(half),
            };
            match (rest, fault) {
                (Some(rest), _) => parts.extend([rest, sums]),
                (None, Fault::Unclear | Fault::Tables) => refused.push((sums, error)),
                (None, _) => losses.extend(sums.lost(&error)),
            }
        }
        (after || (before && refused.len() == 1), refused)
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
                Err(Failure {
                    error,
                    fault: Fault::NoRows,
                }) => error,
                Err(failure) => return Err(failure),
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
        let fault = match batch.counts {
            true => Fault::of(&error),
            false => Fault::NoRows,
        };
        let error = Arc::new(error);
        Err(Failure { error, fault })
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

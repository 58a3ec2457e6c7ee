//! The thread that commits the additions.

use std::any::TypeId;
use std::collections::HashMap;
use std::ops::DerefMut;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::connection::{LoadConnection, TransactionManager};
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};

use crate::backend::{BackendOf, Dialect};
use crate::conflict::Conflict;
use crate::connection::{Blocking, Link, Over, TransactionOptions, now};
use crate::counting::idempotency::{Expiry, Request, Requested, once, release};
use crate::error::Error;
use crate::observe;
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
    /// Refused sums that will be tried again: the next flush takes them.
    refused: Fields<Conn>,
    /// The fields of these sums.
    waiting: HashMap<TypeId, Waiting>,
    /// The pause before they are tried again.
    pause: Duration,
}

/// A field with refused sums.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    /// The first flush that refused some.
    flush: u64,
    since: Instant,
}

/// Why a batch was not committed.
struct Failure {
    error: Arc<Error>,
    fault: Fault,
}

/// Whose fault it is that a batch was not committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// No row's: the database cannot be reached at the moment.
    NoRows,
    /// A row cannot accept its sum.
    ARows,
    /// It may be a row's, such as when the application's trigger refuses it, or not, such as when a privilege is missing.
    Unclear,
    /// A table is missing, or a column.
    Tables,
}

impl Fault {
    /// The fault behind an error that occurred at the rows.
    fn of(error: &Error) -> Self {
        match error {
            // The application's row may refer to another row that does not exist.
            Error::ConflictPersisted {
                conflict: Conflict::ParentGone,
                ..
            } => Fault::Unclear,
            _ if error.is_no_rows_fault() => Fault::NoRows,
            Error::MissingShardsTable { .. } | Error::MissingShardsColumn { .. } => Fault::Tables,
            // A missing privilege and a trigger's error both come with nothing but a text.
            Error::Diesel(DieselError::DatabaseError(DatabaseErrorKind::Unknown, _)) => {
                Fault::Unclear
            }
            _ => Fault::ARows,
        }
    }
}

/// Refused sums of a field that may still be counted.
struct Refused<Conn> {
    sums: Vec<(Box<dyn AnySums<Conn>>, Arc<Error>)>,
    /// Whether others of the field were counted before the first of them, and after it.
    before: bool,
    after: bool,
    /// A table is missing, which is no row's fault.
    no_table: bool,
}

impl<Conn: 'static> Refused<Conn> {
    fn lost(&self) -> impl Iterator<Item = Loss> {
        let sums = self.sums.iter();
        sums.flat_map(|(sums, error)| sums.lost(error))
    }

    fn move_to(self, fields: &mut Fields<Conn>) {
        let sums = self.sums.into_iter();
        sums.for_each(|(sums, _)| sums.move_to(fields));
    }
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
            refused: Fields::default(),
            waiting: HashMap::new(),
            pause: FIRST_PAUSE,
        }
    }

    /// Commits until the buffer is closed and empty.
    pub(super) fn run(mut self) {
        while let Some((number, mut fields)) = self.buffer.take(self.next_try()) {
            let began = Instant::now();
            let mut counters = fields.len() + self.refused.len();
            let mut losses = vec![];
            let flush = AssertUnwindSafe(|| {
                fields.absorb(std::mem::take(&mut self.refused));
                counters = fields.len();
                observe::flush(counters).block(|| self.flush(number, fields, &mut losses));
            });
            let flushed = panic::catch_unwind(flush);
            // A panic loses the sums that were taken and not committed.
            let lost = match flushed {
                Ok(()) => 0,
                Err(_) => {
                    (self.refused, self.waiting) = Default::default();
                    counters.saturating_sub(losses.len())
                }
            };
            let first = self.waiting.values().map(|waiting| waiting.flush).min();
            let refused = first.map(|first| (first, self.refused.len()));
            self.buffer.flushed(&losses, lost, refused, began);
        }
        if let Ok(mut conn) = (self.borrow)(CONNECTION_WAIT) {
            let _ = self.forget(&mut **conn); // else `remove_older_than` removes it
        }
    }

    /// When the refused sums are tried again.
    fn next_try(&self) -> Option<Instant> {
        (!self.refused.is_empty()).then(|| Instant::now() + self.pause)
    }

    fn flush(&mut self, number: u64, fields: Fields<Conn>, losses: &mut Vec<Loss>) {
        let settings = &self.buffer.settings;
        let patience = settings.retry.deadline().min(settings.deadline / 2);
        for (field, sums) in fields.into_sums() {
            let mut refused = self.commit_each(vec![sums], losses);
            let known = self.waiting.remove(&field);
            let Some((_, error)) = refused.sums.last() else {
                continue;
            };
            let waiting = known.unwrap_or_else(|| Waiting {
                flush: number,
                since: Instant::now(),
            });
            if waiting.since.elapsed() >= patience || self.buffer.gives_up() {
                losses.extend(refused.lost());
                continue;
            }
            self.buffer.blocked_by(&error.to_string());
            // Sums that were counted before the first refusal may have come before its cause. One refused batch by itself is another
            // matter.
            let is_known_or_single = known.is_some() || refused.sums.len() == 1;
            let others_were_counted = refused.after || (refused.before && is_known_or_single);
            if others_were_counted && !refused.no_table {
                let again = refused.sums.into_iter().rev(); // the last one is tried first
                let again = again.map(|(sums, _)| sums).collect();
                refused = self.commit_each(again, losses);
                if !refused.no_table {
                    losses.extend(refused.lost()); // these rows are at fault
                    continue;
                }
            }
            self.waiting.insert(field, waiting);
            refused.move_to(&mut self.refused);
        }
        self.pause = match self.refused.is_empty() {
            true => FIRST_PAUSE,
            false => (self.pause * 2).min(LONGEST_PAUSE),
        };
    }

    /// Commits sums of a field, and returns those that are refused. Sums that their rows cannot accept are lost.
    fn commit_each(
        &mut self,
        mut parts: Vec<Box<dyn AnySums<Conn>>>,
        losses: &mut Vec<Loss>,
    ) -> Refused<Conn> {
        let mut refused = Refused {
            sums: vec![],
            before: false,
            after: false,
            no_table: false,
        };
        while let Some(mut sums) = parts.pop() {
            // Each batch is tried, while the writer has time to end.
            if let (true, Some((_, error))) = (self.buffer.has_to_leave(), refused.sums.last()) {
                let error = Arc::clone(error);
                refused.sums.push((sums, error));
                continue;
            }
            parts.extend(sums.split_off(self.buffer.settings.max_batch));
            let Err(Failure { error, fault }) = self.commit(&*sums) else {
                match refused.sums.is_empty() {
                    true => refused.before = true,
                    false => refused.after = true,
                }
                continue;
            };
            // The row is alone once the halves are small enough.
            let half = (sums.len() / 2).max(1);
            let rest = match fault {
                Fault::NoRows | Fault::Tables => None,
                Fault::ARows | Fault::Unclear => sums.split_off(half),
            };
            refused.no_table |= fault == Fault::Tables;
            match (rest, fault) {
                (Some(rest), _) => parts.extend([rest, sums]),
                (None, Fault::Unclear | Fault::Tables) => refused.sums.push((sums, error)),
                (None, _) => losses.extend(sums.lost(&error)),
            }
        }
        refused
    }

    /// Commits a batch. Repeats failed attempts until the coalescer is closed and gives up.
    fn commit(&mut self, sums: &dyn AnySums<Conn>) -> Result<(), Failure> {
        let key = random::<16>().map_err(|error| Failure::away(error.into()))?;
        let request = Request {
            key: key.to_vec(),
            fingerprint: 0,
            expires: Expiry::NEVER,
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
        let written = {
            let link = &mut Link::blocking(&mut **conn);
            now(once(link, request, retry, &mut batch))
        };
        let Err(error) = written.map_err(Error::from) else {
            return Ok(());
        };
        if let Error::NodeNotReady { .. } = error {
            // The connection works, but its server accepts no writes. Marked so, the pool drops it, and the next one may lead to another
            // server.
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
    /// Whether it has come to the rows: before that, no row is at fault.
    counts: bool,
}

impl<Conn> Requested<Over<Blocking, Conn>> for Batch<'_, Conn>
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

    async fn carry_out(&mut self, link: &mut Link<'_, Over<Blocking, Conn>>) -> QueryResult<usize> {
        release(link, self.last).await?;
        self.counts = true;
        self.sums.count(link.conn)?;
        Ok(1)
    }
}

//! The statements of one chunk.

use std::sync::Arc;

use diesel::connection::LoadConnection;

use crate::backend::{BackendOf, Dialect};
use crate::connection::TransactionOptions;
use crate::engine::own_transaction;
use crate::operation::coalescer::added::CallerResult;
use crate::operation::coalescer::batch::Batch;
use crate::operation::coalescer::chunk::{Chunk, EntrySum};
use crate::operation::coalescer::lane::EntryId;
use crate::operation::coalescer::loss::Loss;
use crate::operation::count_many::{Climbed, Rung};
use crate::policy::RetryPolicy;

use super::exceptions::Exceptions;
use super::failure::{BatchFailure, is_a_rows_fault};

/// How many more times to look for a row that was missing when its shard was to be created.
const ROW_GONE: u32 = 16;

/// Counts chunks inside the batch's transaction.
pub(super) struct ChunkSender<'a, Conn> {
    pub(super) conn: &'a mut Conn,
    pub(super) dialect: Dialect,
    pub(super) batch: &'a Batch<Conn>,
    /// The place of hot keys' shards.
    pub(super) place: u16,
    pub(super) exceptions: &'a mut Exceptions,
}

impl<Conn> ChunkSender<'_, Conn>
where
    Conn: LoadConnection + 'static,
    Conn::Backend: BackendOf<Conn>,
{
    /// Counts one chunk on its rung. If that fails, the chunk gets its next one, for another attempt.
    pub(super) fn send(
        &mut self,
        chunk: &mut Chunk,
        sums: &[EntrySum],
    ) -> Result<(), BatchFailure> {
        let Some(lane) = self.batch.lanes.get(chunk.lane) else {
            return Ok(()); // chunks are made of lanes
        };
        let amounts = match chunk.rung {
            Rung::EachAlone => None,
            _ => EntrySum::as_binds(sums),
        };
        let Some(amounts) = amounts else {
            return self.send_each(chunk.lane, sums);
        };
        let climbed = lane.count_together(self.conn, chunk.rung, &amounts, self.place);
        chunk.rung = match climbed {
            Ok(Climbed::Counted { missing }) => {
                let missing: Vec<_> = missing.into_iter().map(|number| sums[number]).collect();
                return self.send_each(chunk.lane, &missing);
            }
            Ok(Climbed::Again(rung)) => rung,
            Err(error) if is_a_rows_fault(self.dialect, &error) => Rung::EachAlone,
            Err(error) => return Err(BatchFailure::Before(error)),
        };
        Err(BatchFailure::Again)
    }

    fn send_each(&mut self, lane: usize, sums: &[EntrySum]) -> Result<(), BatchFailure> {
        for sum in sums {
            self.send_alone(lane, *sum)?;
        }
        Ok(())
    }

    /// Counts one entry, in a savepoint: the sum of its callers, or if the row cannot take that, each caller's amount by itself.
    fn send_alone(
        &mut self,
        lane: usize,
        EntrySum { entry, sum }: EntrySum,
    ) -> Result<(), BatchFailure> {
        let Some(to) = self.batch.lanes.get(lane) else {
            return Ok(());
        };
        let (conn, dialect) = (&mut *self.conn, self.dialect);
        let mut count = |n: i64| -> Result<CallerResult, BatchFailure> {
            let options = TransactionOptions::default();
            let mut count = || {
                own_transaction(conn, RetryPolicy::never(), options, |conn| {
                    to.count_one(conn, entry, n)
                })
            };
            let mut counted = count();
            // The row was deleted or renamed while its shard was created: look for it again.
            for _ in 0..ROW_GONE {
                match &counted {
                    Err(error) if dialect.is_parent_gone(error) => counted = count(),
                    _ => break,
                }
            }
            match counted {
                Ok(rows) => Ok(Ok(rows)),
                Err(error) if is_a_rows_fault(dialect, &error) => {
                    Ok(Err(Arc::new(error.into()))) // an overflow is an error of its own by now
                }
                Err(error) => Err(BatchFailure::Before(error)),
            }
        };
        if let Ok(n) = i64::try_from(sum) {
            if let Ok(rows) = count(n)? {
                let id = EntryId { lane, entry };
                self.exceptions.rows.insert(id, rows);
                return Ok(());
            }
        }
        for (caller, n, waits) in self.batch.adding_to(EntryId { lane, entry }) {
            let result = count(n)?;
            if let (Err(error), false) = (&result, waits) {
                self.exceptions.losses.push(Loss {
                    counter: to.describe(entry),
                    amount: n.into(),
                    error: Arc::clone(error),
                });
            }
            self.exceptions.callers.push((caller, result));
        }
        let mut rest = to.buffered(entry);
        while rest != 0 {
            let n = rest.clamp(i64::MIN.into(), i64::MAX.into());
            if let Err(error) = count(n as i64)? {
                self.exceptions.losses.push(Loss {
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
}

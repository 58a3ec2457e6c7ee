//! The transaction of a batch.

use diesel::connection::LoadConnection;

use crate::backend::{AtOnce, BackendOf, Dialect};
use crate::conflict::Failure;
use crate::connection::{Link, TransactionOptions, begin, now};
use crate::operation::coalescer::batch::Batch;
use crate::operation::coalescer::chunk::{Chunk, EntrySum};
use crate::operation::coalescer::token::{BatchMark, Token, stamp};
use crate::operation::count_many::Rung;

use super::exceptions::Exceptions;
use super::failure::{BatchFailure, classify, is_a_rows_fault};
use super::requests::{claim_requests, release_requests};
use super::send_chunk::ChunkSender;

/// Sends a part of a batch over one connection.
pub(super) struct BatchSender<'a, Conn> {
    pub(super) conn: &'a mut Conn,
    pub(super) dialect: Dialect,
    pub(super) token: &'a mut Token,
    /// The place of hot keys' shards.
    pub(super) place: u16,
}

impl<Conn> BatchSender<'_, Conn>
where
    Conn: LoadConnection + 'static,
    Conn::Backend: BackendOf<Conn>,
{
    /// Sends the mark and every chunk in one transaction.
    pub(super) fn send(
        &mut self,
        batch: &mut Batch<Conn>,
        part: &mut [Chunk],
        sums: Vec<Vec<EntrySum>>,
        exceptions: &mut Exceptions,
    ) -> Result<(), BatchFailure> {
        let mark = self.token.next();
        let requests = batch.requests(part);
        if requests.is_empty() {
            if let Some(sent) = self.commit_at_once(batch, part, &sums, mark) {
                return sent;
            }
        }
        let (conn, dialect) = (&mut *self.conn, self.dialect);
        let options = TransactionOptions {
            outermost: true, // only then does our COMMIT decide
            ..TransactionOptions::of_a_count(dialect)
        };
        let begun = now(begin(&mut Link::blocking(conn), dialect, options));
        let begun = begun.map_err(BatchFailure::Before)?;
        let stamped = stamp(conn, mark).map_err(BatchFailure::Before);
        let sent = stamped.and_then(|stamped| {
            if !stamped {
                return Err(BatchFailure::Unregistered);
            }
            let sums = match requests.is_empty() {
                true => sums,
                false => {
                    let claimed = claim_requests(conn, batch, part, &requests);
                    claimed.map_err(BatchFailure::Before)?
                }
            };
            let mut sender = ChunkSender {
                conn,
                dialect,
                batch,
                place: self.place,
                exceptions,
            };
            let chunks = part.iter_mut().zip(&sums);
            for (chunk, sums) in chunks.filter(|(_, sums)| !sums.is_empty()) {
                sender.send(chunk, sums)?;
            }
            release_requests(conn, batch, &requests, exceptions).map_err(BatchFailure::Before)?;
            now(begun.check(&mut Link::blocking(conn), dialect)).map_err(BatchFailure::Before)
        });
        if let Err(failure) = sent {
            now(begun.roll_back(&mut Link::blocking(conn)));
            if let BatchFailure::Unregistered = failure {
                self.token.register(conn).map_err(BatchFailure::Before)?;
                return Err(BatchFailure::Again);
            }
            return Err(failure);
        }
        let committed = now(begun.commit(&mut Link::blocking(conn)));
        committed.map_err(|error| {
            now(begun.roll_back(&mut Link::blocking(conn)));
            BatchFailure::AtCommit(error)
        })
    }

    /// Sends a batch of one statement together with its mark, where the database can do that. `None`: nothing was sent, and a
    /// transaction is needed.
    fn commit_at_once(
        &mut self,
        batch: &Batch<Conn>,
        part: &mut [Chunk],
        sums: &[Vec<EntrySum>],
        mark: BatchMark,
    ) -> Option<Result<(), BatchFailure>> {
        let ([chunk], [sums]) = (part, sums) else {
            return None;
        };
        let form = self.dialect.commits_at_once(sums.len())?;
        let next = match (chunk.rung, form) {
            (Rung::Together, AtOnce::With) => Rung::Upserting,
            (Rung::Together, AtOnce::Join) | (Rung::Upserting, AtOnce::With) => Rung::Creating,
            _ => return None,
        };
        let lane = batch.lanes.get(chunk.lane)?;
        let amounts = EntrySum::as_binds(sums)?;
        let (upserts, at_once) = (chunk.rung == Rung::Upserting, (form, mark));
        let committed = lane.commit_at_once(self.conn, &amounts, self.place, upserts, at_once);
        let error = match committed {
            Ok(true) => return Some(Ok(())),
            // A shard or a row is missing, or some row cannot take its amount.
            Ok(false) => None,
            Err(error) if is_a_rows_fault(self.dialect, &error) => None,
            Err(error) => Some(error),
        };
        Some(Err(match error {
            None => {
                chunk.rung = next;
                BatchFailure::Again
            }
            Some(error) if classify(self.dialect, &error) == Failure::ConnectionLost => {
                BatchFailure::AtCommit(error)
            }
            Some(error) => BatchFailure::Before(error),
        }))
    }
}

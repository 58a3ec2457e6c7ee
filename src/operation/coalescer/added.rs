//! The filling of a queue, and its callers' results.

use std::sync::Arc;

use diesel::connection::LoadConnection;

use crate::error::Error;
use crate::operation::idempotency::Request;

use super::coalesced::Field;
use super::lane::{EntryId, Lanes};

/// The additions to one queue since it was last taken.
pub(super) struct Added<Conn> {
    pub(super) lanes: Lanes<Conn>,
    /// The callers whose additions have results of their own, by their numbers on the ticket.
    pub(super) callers: Vec<Caller>,
}

/// A caller who waits for the result of an addition, or gave it an idempotency key.
pub(super) struct Caller {
    /// The entry that the caller adds to.
    pub(super) to: EntryId,
    pub(super) n: i64,
    pub(super) request: Option<Box<Request>>,
    pub(super) waits: bool,
}

impl<Conn> Default for Added<Conn> {
    fn default() -> Self {
        Added {
            lanes: Lanes::default(),
            callers: vec![],
        }
    }
}

impl<Conn: LoadConnection + 'static> Added<Conn> {
    /// Adds `n` for a caller who waits for no result.
    pub(super) fn add_unheard<F: Field<Conn>>(
        &mut self,
        field: F,
        key: &F::Key,
        n: i64,
        request: Option<Request>,
    ) {
        let buffered = if request.is_none() { n } else { 0 };
        let to = self.lanes.add(field, key, buffered);
        if let Some(request) = request {
            self.callers.push(Caller {
                to,
                n,
                request: Some(Box::new(request)),
                waits: false,
            });
        }
    }

    /// Takes over all additions of `other`.
    pub(super) fn absorb(&mut self, other: Self) {
        let ids = self.lanes.absorb(other.lanes);
        self.callers
            .extend(other.callers.into_iter().map(|caller| Caller {
                to: ids[caller.to.lane][caller.to.entry],
                ..caller
            }));
    }

    /// How much of the queue's room it takes: keys and callers.
    pub(super) fn size(&self) -> usize {
        self.lanes.entries() + self.callers.len()
    }
}

/// The results for the callers of one filling.
#[derive(Debug, Default)]
pub(super) enum Landed {
    /// The outcome of the batch is unknown.
    #[default]
    Lost,
    /// Each caller has counted on one row.
    AllCounted,
    /// Each caller's own, by the numbers on the ticket.
    Each(Vec<CallerResult>),
}

/// A caller's own result; the errors of a whole batch are shared.
pub(super) type CallerResult = Result<usize, Arc<Error>>;

impl Landed {
    /// Takes the result of the caller of this number.
    pub(super) fn of(&mut self, number: u32) -> Result<usize, Error> {
        let result = match self {
            Landed::Lost => {
                return Err(Error::outcome_unknown(
                    "the worker stopped while it was in hand",
                ));
            }
            Landed::AllCounted => return Ok(1),
            Landed::Each(results) => results.get_mut(number as usize),
        };
        match result.map(|result| std::mem::replace(result, Ok(0))) {
            Some(Ok(rows)) => Ok(rows),
            Some(Err(error)) => Err(match Arc::try_unwrap(error) {
                Ok(error) => error,
                Err(source) => Error::InBatch { source },
            }),
            None => Err(Error::outcome_unknown("its result is missing")),
        }
    }
}

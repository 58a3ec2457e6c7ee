//! What is committed together: everything that was added, by key, with those who wait for it.

use std::collections::HashSet;
use std::sync::Arc;

use diesel::connection::LoadConnection;

use crate::error::Error;

use super::handoff::Flight;
use super::lane::{Lanes, Place};

/// What was added to one stripe since it was last taken.
pub(super) struct Added<Conn> {
    pub(super) lanes: Lanes<Conn>,
    /// Those who wait, by their numbers on the ticket: where they add, and how much.
    pub(super) callers: Vec<(Place, i64)>,
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
    /// How much of the memory that is allowed it takes: keys and callers.
    pub(super) fn size(&self) -> usize {
        self.lanes.entries() + self.callers.len()
    }
}

/// What the callers of one stripe are told.
#[derive(Debug, Default)]
pub(super) enum Landed {
    /// Nobody knows what became of the batch.
    #[default]
    Lost,
    /// Each has counted on one row.
    AllCounted,
    /// By their numbers on the ticket.
    Each(Vec<Told>),
}

/// A caller's own result; the errors of a whole batch are shared.
pub(super) type Told = Result<usize, Arc<Error>>;

impl Landed {
    pub(super) fn of(&mut self, number: u32) -> Result<usize, Error> {
        let told = match self {
            Landed::Lost => return Err(lost("the worker stopped while it was in hand")),
            Landed::AllCounted => return Ok(1),
            Landed::Each(told) => told.get_mut(number as usize),
        };
        match told.map(|told| std::mem::replace(told, Ok(0))) {
            Some(Ok(rows)) => Ok(rows),
            Some(Err(error)) => Err(match Arc::try_unwrap(error) {
                Ok(error) => error,
                Err(source) => Error::InBatch { source },
            }),
            None => Err(lost("its result is missing")),
        }
    }
}

/// An outcome that nobody knows.
pub(super) fn lost(why: &str) -> Error {
    use diesel::result::{DatabaseErrorKind, Error as DieselError};
    Error::OutcomeUnknown {
        source: DieselError::DatabaseError(DatabaseErrorKind::Unknown, Box::new(why.to_owned())),
    }
}

/// Everything that was taken from the stripes at once.
pub(super) struct Batch<Conn> {
    pub(super) lanes: Lanes<Conn>,
    flights: Vec<Flight<Landed>>,
    callers: Vec<Caller>,
    /// Where the callers of each flight begin.
    begins: Vec<usize>,
    /// A part of it is committed, so that nobody can be let go any more.
    partly_committed: bool,
}

struct Caller {
    place: Place,
    n: i64,
    state: State,
}

enum State {
    Waits,
    Withdrawn,
    Settled(Told),
}

/// A statement's worth of entries of one lane.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) lane: usize,
    pub(super) entries: Vec<usize>,
    pub(super) mode: Mode,
    /// Those that are counted each by itself whatever the mode is: their rows are not there.
    pub(super) alone: HashSet<usize>,
}

/// How a chunk is counted; each takes more than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// In one statement; all shards are there.
    Together,
    /// The missing shards are created first.
    Creating,
    /// Each entry by itself: some row cannot take its amount.
    EachAlone,
}

/// What is to be added to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) entry: usize,
    /// By callers who do not wait, and by those who do.
    pub(super) sum: i128,
}

impl<Conn: LoadConnection + 'static> Batch<Conn> {
    /// Merges what was taken from each stripe.
    pub(super) fn of(taken: Vec<(Added<Conn>, Flight<Landed>)>) -> Self {
        let mut batch = Batch {
            lanes: Lanes::default(),
            flights: vec![],
            callers: vec![],
            begins: vec![],
            partly_committed: false,
        };
        for (added, flight) in taken {
            let places = batch.lanes.absorb(added.lanes);
            batch.flights.push(flight);
            batch.begins.push(batch.callers.len());
            let callers = added.callers.into_iter().map(|(place, n)| Caller {
                place: places[place.lane][place.entry],
                n,
                state: State::Waits,
            });
            batch.callers.extend(callers);
        }
        batch
    }

    pub(super) fn callers(&self) -> usize {
        self.callers.len()
    }

    /// Its entries in statements of at most `in_statement`, and these in transactions of at most `in_transaction`.
    pub(super) fn parts(&self, in_statement: usize, in_transaction: usize) -> Vec<Vec<Chunk>> {
        let mut parts = vec![];
        let mut part = vec![];
        let mut left = in_transaction;
        for (number, lane) in self.lanes.iter().enumerate() {
            let entries = lane.in_order();
            let mut entries = entries.as_slice();
            while !entries.is_empty() {
                let (chunk, rest) = entries.split_at(entries.len().min(in_statement).min(left));
                part.push(Chunk {
                    lane: number,
                    entries: chunk.to_vec(),
                    mode: Mode::Together,
                    alone: HashSet::new(),
                });
                left -= chunk.len();
                entries = rest;
                if left == 0 {
                    parts.push(std::mem::take(&mut part));
                    left = in_transaction;
                }
            }
        }
        if !part.is_empty() {
            parts.push(part);
        }
        parts
    }

    /// From now on nobody can withdraw.
    pub(super) fn take_off(&mut self) {
        for (flight, begin) in self.flights.iter().zip(&self.begins) {
            for number in flight.take_off() {
                if let Some(caller) = self.callers.get_mut(begin + number as usize) {
                    caller.state = State::Withdrawn;
                }
            }
        }
    }

    /// What was sent was taken back.
    pub(super) fn turn_back(&self) {
        if !self.partly_committed {
            for flight in &self.flights {
                flight.turn_back();
            }
        }
    }

    /// What is to be added to each entry that somebody still adds to, by chunk.
    pub(super) fn amounts(&self, part: &[Chunk]) -> Vec<Vec<Amount>> {
        let mut sums: Vec<Vec<Option<i128>>> = self
            .lanes
            .iter()
            .map(|lane| {
                (0..lane.len())
                    .map(|entry| Some(lane.buffered(entry)).filter(|n| *n != 0))
                    .collect()
            })
            .collect();
        for Caller { place, n, state } in &self.callers {
            if matches!(state, State::Waits) {
                let sum = &mut sums[place.lane][place.entry];
                *sum = Some(sum.unwrap_or(0) + i128::from(*n));
            }
        }
        let amount = |lane: usize| {
            let sums = &sums[lane];
            move |&entry: &usize| sums[entry].map(|sum| Amount { entry, sum })
        };
        part.iter()
            .map(|chunk| {
                chunk
                    .entries
                    .iter()
                    .filter_map(amount(chunk.lane))
                    .collect()
            })
            .collect()
    }

    /// Those who wait for this entry: their numbers here, and how much each adds.
    pub(super) fn waiting_for(&self, place: Place) -> Vec<(usize, i64)> {
        let waits = |caller: &Caller| caller.place == place && matches!(caller.state, State::Waits);
        let callers = self.callers.iter().enumerate();
        callers
            .filter(|(_, caller)| waits(caller))
            .map(|(number, caller)| (number, caller.n))
            .collect()
    }

    /// Settles what becomes of one caller.
    pub(super) fn settle(&mut self, caller: usize, told: Told) {
        self.callers[caller].state = State::Settled(told);
    }

    /// Settles those who wait for an entry of this part, and were not settled by themselves.
    pub(super) fn settle_part(&mut self, part: &[Chunk], told: impl Fn(Place) -> Told) {
        let places = |chunk: &Chunk| {
            let lane = chunk.lane;
            let entries = chunk.entries.iter();
            entries.map(|entry| (lane, *entry)).collect::<Vec<_>>()
        };
        let settled: HashSet<(usize, usize)> = part.iter().flat_map(places).collect();
        for caller in &mut self.callers {
            let Place { lane, entry } = caller.place;
            if matches!(caller.state, State::Waits) && settled.contains(&(lane, entry)) {
                caller.state = State::Settled(told(caller.place));
            }
        }
    }

    pub(super) fn committed_a_part(&mut self) {
        self.partly_committed = true;
    }

    /// Tells everyone.
    pub(super) fn land(self) {
        let mut callers = self.callers.into_iter().map(|caller| match caller.state {
            State::Settled(told) => told,
            State::Withdrawn | State::Waits => Err(Arc::new(lost("it was given up"))),
        });
        let ends = self.begins.iter().skip(1).copied().map(Some).chain([None]);
        for ((flight, begin), end) in self.flights.into_iter().zip(&self.begins).zip(ends) {
            let number = end.map_or(usize::MAX, |end| end - begin);
            let told: Vec<Told> = callers.by_ref().take(number).collect();
            flight.land(match told.iter().all(|told| matches!(told, Ok(1))) {
                true => Landed::AllCounted,
                false => Landed::Each(told),
            });
        }
    }
}

//! What is committed together: everything that was added, by key, with those who wait for it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use diesel::connection::LoadConnection;

use crate::error::Error;
use crate::operation::idempotency::{Claimed, Request};

use super::handoff::Flight;
use super::lane::{Lanes, Place};

/// What was added to one stripe since it was last taken.
pub(super) struct Added<Conn> {
    pub(super) lanes: Lanes<Conn>,
    /// Those who cannot be added up without a trace, by their numbers on the ticket.
    pub(super) callers: Vec<Caller>,
}

/// One who adds, and either waits for what becomes of it or has an idempotency key.
pub(super) struct Caller {
    pub(super) place: Place,
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
    callers: Vec<Passenger>,
    /// Where the callers of each flight begin.
    begins: Vec<usize>,
    /// Some caller has an idempotency key.
    has_requests: bool,
    /// A part of it is committed, so that nobody can be let go any more.
    partly_committed: bool,
}

/// A caller of a batch.
struct Passenger {
    caller: Caller,
    state: State,
    /// What stands against counting it in this attempt: its idempotency key is not new.
    repeats: Option<Repeats>,
}

enum State {
    Open,
    Withdrawn,
    Settled(Told),
}

/// What a caller with an idempotency key repeats.
#[derive(Debug, Clone, Copy)]
enum Repeats {
    /// What was counted before, on so many rows.
    Counted(usize),
    /// The key of another addition.
    Reused,
    /// What the caller of this number adds in the same batch.
    Caller(usize),
}

impl Passenger {
    /// It is to be counted in this attempt.
    fn counts(&self) -> bool {
        matches!(self.state, State::Open) && self.repeats.is_none()
    }
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
            has_requests: false,
            partly_committed: false,
        };
        for (added, flight) in taken {
            let places = batch.lanes.absorb(added.lanes);
            batch.flights.push(flight);
            batch.begins.push(batch.callers.len());
            for mut caller in added.callers {
                caller.place = places[caller.place.lane][caller.place.entry];
                batch.has_requests |= caller.request.is_some();
                batch.callers.push(Passenger {
                    caller,
                    state: State::Open,
                    repeats: None,
                });
            }
        }
        batch
    }

    /// How many wait.
    pub(super) fn callers(&self) -> usize {
        let waits = |passenger: &&Passenger| passenger.caller.waits;
        self.callers.iter().filter(waits).count()
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

    /// Begins an attempt: from now on nobody can withdraw.
    pub(super) fn take_off(&mut self) {
        for passenger in &mut self.callers {
            passenger.repeats = None; // what an attempt found before may be otherwise by now
        }
        for (flight, begin) in self.flights.iter().zip(&self.begins) {
            for number in flight.take_off() {
                let number = begin.saturating_add(number as usize);
                if let Some(passenger) = self.callers.get_mut(number) {
                    passenger.state = State::Withdrawn;
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
        for passenger in self.callers.iter().filter(|passenger| passenger.counts()) {
            let Caller { place, n, .. } = passenger.caller;
            let sum = &mut sums[place.lane][place.entry];
            *sum = Some(sum.unwrap_or(0) + i128::from(n));
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

    /// Those who add to this entry: their numbers here, how much each adds, and whether he waits.
    pub(super) fn adding_to(&self, place: Place) -> Vec<(usize, i64, bool)> {
        let adds = |passenger: &Passenger| passenger.caller.place == place && passenger.counts();
        let callers = self.callers.iter().enumerate();
        callers
            .filter(|(_, passenger)| adds(passenger))
            .map(|(number, Passenger { caller, .. })| (number, caller.n, caller.waits))
            .collect()
    }

    /// The requests of this part whose keys are to be claimed, by the numbers of their callers: one for each key.
    pub(super) fn requests(&mut self, part: &[Chunk]) -> Vec<usize> {
        if !self.has_requests {
            return vec![];
        }
        let places = places(part);
        let mut first: HashMap<&[u8], (usize, i64)> = HashMap::new();
        let mut requests = vec![];
        for (number, passenger) in self.callers.iter_mut().enumerate() {
            let Some(request) = &passenger.caller.request else {
                continue;
            };
            if !passenger.counts() || !places.contains(&passenger.caller.place) {
                continue;
            }
            match first.entry(&request.key) {
                Entry::Vacant(vacant) => {
                    vacant.insert((number, request.fingerprint));
                    requests.push(number);
                }
                Entry::Occupied(occupied) => {
                    let (first, fingerprint) = *occupied.get();
                    passenger.repeats = Some(match fingerprint == request.fingerprint {
                        true => Repeats::Caller(first),
                        false => Repeats::Reused,
                    });
                }
            }
        }
        requests
    }

    /// The request of a caller.
    pub(super) fn request(&self, caller: usize) -> Option<&Request> {
        self.callers.get(caller)?.caller.request.as_deref()
    }

    /// Notes what is known of a request, for this attempt.
    pub(super) fn claimed(&mut self, caller: usize, claimed: Claimed) {
        self.callers[caller].repeats = match claimed {
            Claimed::First => None,
            Claimed::Repeated(rows) => Some(Repeats::Counted(rows)),
            Claimed::Reused => Some(Repeats::Reused),
        };
    }

    /// An entry, for people.
    pub(super) fn describe(&self, Place { lane, entry }: Place) -> String {
        let lane = self.lanes.get(lane);
        lane.map_or_else(String::new, |lane| lane.describe(entry))
    }

    /// Whether a caller is counted in this attempt, and on which entry.
    pub(super) fn counts_on(&self, caller: usize) -> Option<Place> {
        let passenger = self
            .callers
            .get(caller)
            .filter(|passenger| passenger.counts())?;
        Some(passenger.caller.place)
    }

    /// Settles what becomes of one caller.
    pub(super) fn settle(&mut self, caller: usize, told: Told) {
        self.callers[caller].state = State::Settled(told);
    }

    /// Settles those of this part who are counted and were not settled by themselves, and then those who repeat. Gives what
    /// nobody who waits was told: the place, the amount and the error.
    pub(super) fn settle_counted(
        &mut self,
        part: &[Chunk],
        rows: impl Fn(Place) -> usize,
    ) -> Vec<(Place, i64, Arc<Error>)> {
        let places = places(part);
        for passenger in &mut self.callers {
            if passenger.counts() && places.contains(&passenger.caller.place) {
                passenger.state = State::Settled(Ok(rows(passenger.caller.place)));
            }
        }
        let mut unheard = vec![];
        for number in 0..self.callers.len() {
            let Passenger {
                caller,
                state: State::Open,
                repeats: Some(repeats),
            } = &self.callers[number]
            else {
                continue;
            };
            if !places.contains(&caller.place) {
                continue;
            }
            let told = match repeats {
                Repeats::Counted(rows) => Ok(*rows),
                Repeats::Reused => Err(Arc::new(Error::IdempotencyKeyReused)),
                Repeats::Caller(first) => match &self.callers[*first].state {
                    State::Settled(told) => told.clone(),
                    State::Open | State::Withdrawn => Ok(0), // the first of a key is settled before
                },
            };
            if let (Err(error), false) = (&told, caller.waits) {
                unheard.push((caller.place, caller.n, Arc::clone(error)));
            }
            self.settle(number, told);
        }
        unheard
    }

    /// Settles those who wait for an entry of this part. What nobody waits for stays open.
    pub(super) fn settle_failed(&mut self, part: &[Chunk], error: &Arc<Error>) {
        let places = places(part);
        for Passenger { caller, state, .. } in &mut self.callers {
            if caller.waits && matches!(state, State::Open) && places.contains(&caller.place) {
                *state = State::Settled(Err(Arc::clone(error)));
            }
        }
    }

    pub(super) fn committed_a_part(&mut self) {
        self.partly_committed = true;
    }

    /// Tells everyone.
    pub(super) fn land(self) {
        let mut callers = self
            .callers
            .into_iter()
            .map(|passenger| match passenger.state {
                State::Settled(told) => told,
                State::Withdrawn | State::Open => Err(Arc::new(lost("it was given up"))),
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

/// The entries of a part.
fn places(part: &[Chunk]) -> HashSet<Place> {
    let places = |chunk: &Chunk| {
        let lane = chunk.lane;
        let place = move |entry| Place { lane, entry };
        chunk.entries.clone().into_iter().map(place)
    };
    part.iter().flat_map(places).collect()
}

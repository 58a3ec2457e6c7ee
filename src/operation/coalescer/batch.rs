//! A batch: everything that is committed together, by key, with its callers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use diesel::connection::LoadConnection;

use crate::error::Error;
use crate::operation::idempotency::{Claimed, Request};

use super::added::{Added, Caller, CallerResult, Landed};
use super::chunk::{Chunk, EntrySum, entries_of};
use super::handoff::QueueFlight;
use super::lane::{EntryId, Lanes};

/// Everything that was taken from the queues at once.
pub(super) struct Batch<Conn> {
    pub(super) lanes: Lanes<Conn>,
    flights: Vec<QueueFlight<Landed>>,
    callers: Vec<BatchCaller>,
    /// The number of each flight's first caller.
    begins: Vec<usize>,
    /// Some caller has an idempotency key.
    has_requests: bool,
    /// A part of it is committed, so that no caller can withdraw any more.
    partly_committed: bool,
}

struct BatchCaller {
    caller: Caller,
    state: CallerState,
    /// Why this attempt does not count it: its idempotency key is not new.
    repeats: Option<Repeats>,
}

enum CallerState {
    Open,
    Withdrawn,
    Settled(CallerResult),
}

/// The earlier use of a caller's idempotency key.
#[derive(Debug, Clone, Copy)]
enum Repeats {
    /// The same addition, and the number of rows on which it was counted.
    Counted(usize),
    /// Another addition.
    Reused,
    /// The same addition, by the caller of this number in this batch.
    Caller(usize),
}

impl BatchCaller {
    /// Whether this attempt counts it.
    fn counts(&self) -> bool {
        matches!(self.state, CallerState::Open) && self.repeats.is_none()
    }
}

impl<Conn: LoadConnection + 'static> Batch<Conn> {
    /// Merges the fillings of all queues.
    pub(super) fn of(taken: Vec<(Added<Conn>, QueueFlight<Landed>)>) -> Self {
        let mut batch = Batch {
            lanes: Lanes::default(),
            flights: vec![],
            callers: vec![],
            begins: vec![],
            has_requests: false,
            partly_committed: false,
        };
        let mut all = Added::default();
        for (added, flight) in taken {
            batch.flights.push(flight);
            batch.begins.push(all.callers.len());
            all.absorb(added);
        }
        batch.lanes = all.lanes;
        batch.has_requests = all.callers.iter().any(|caller| caller.request.is_some());
        let callers = all.callers.into_iter().map(|caller| BatchCaller {
            caller,
            state: CallerState::Open,
            repeats: None,
        });
        batch.callers = callers.collect();
        batch
    }

    /// How many callers wait.
    pub(super) fn waiting_callers(&self) -> usize {
        let waits = |caller: &&BatchCaller| caller.caller.waits;
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
                part.push(Chunk::new(number, chunk.to_vec()));
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
        for caller in &mut self.callers {
            caller.repeats = None; // the last attempt's answer may be outdated
        }
        for (flight, begin) in self.flights.iter().zip(&self.begins) {
            for number in flight.take_off() {
                let number = begin.saturating_add(number as usize);
                if let Some(caller) = self.callers.get_mut(number) {
                    caller.state = CallerState::Withdrawn;
                }
            }
        }
    }

    /// Ends an attempt that was rolled back.
    pub(super) fn turn_back(&self) {
        if !self.partly_committed {
            for flight in &self.flights {
                flight.turn_back();
            }
        }
    }

    /// The sums of the entries that somebody still adds to, by chunk.
    pub(super) fn sums(&self, part: &[Chunk]) -> Vec<Vec<EntrySum>> {
        let mut sums: Vec<Vec<Option<i128>>> = self
            .lanes
            .iter()
            .map(|lane| {
                (0..lane.len())
                    .map(|entry| Some(lane.buffered(entry)).filter(|n| *n != 0))
                    .collect()
            })
            .collect();
        for caller in self.callers.iter().filter(|caller| caller.counts()) {
            let Caller { to, n, .. } = caller.caller;
            let sum = &mut sums[to.lane][to.entry];
            *sum = Some(sum.unwrap_or(0) + i128::from(n));
        }
        let sum_of = |lane: usize| {
            let sums = &sums[lane];
            move |&entry: &usize| sums[entry].map(|sum| EntrySum { entry, sum })
        };
        part.iter()
            .map(|chunk| {
                let entries = chunk.entries.iter();
                entries.filter_map(sum_of(chunk.lane)).collect()
            })
            .collect()
    }

    /// The callers who add to this entry: the number of each, how much it adds, and whether it waits.
    pub(super) fn adding_to(&self, entry: EntryId) -> Vec<(usize, i64, bool)> {
        let adds = |caller: &BatchCaller| caller.caller.to == entry && caller.counts();
        let callers = self.callers.iter().enumerate();
        callers
            .filter(|(_, caller)| adds(caller))
            .map(|(number, BatchCaller { caller, .. })| (number, caller.n, caller.waits))
            .collect()
    }

    /// The numbers of the callers whose idempotency keys this part has to claim, one caller for each key.
    pub(super) fn requests(&mut self, part: &[Chunk]) -> Vec<usize> {
        if !self.has_requests {
            return vec![];
        }
        let entries = entries_of(part);
        let mut first: HashMap<&[u8], (usize, i64)> = HashMap::new();
        let mut requests = vec![];
        for (number, caller) in self.callers.iter_mut().enumerate() {
            let Some(request) = &caller.caller.request else {
                continue;
            };
            if !caller.counts() || !entries.contains(&caller.caller.to) {
                continue;
            }
            match first.entry(&request.key) {
                Entry::Vacant(vacant) => {
                    vacant.insert((number, request.fingerprint));
                    requests.push(number);
                }
                Entry::Occupied(occupied) => {
                    let (first, fingerprint) = *occupied.get();
                    caller.repeats = Some(match fingerprint == request.fingerprint {
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

    /// Notes the answer to a request, for this attempt.
    pub(super) fn claimed(&mut self, caller: usize, claimed: Claimed) {
        self.callers[caller].repeats = match claimed {
            Claimed::First => None,
            Claimed::Repeated(rows) => Some(Repeats::Counted(rows)),
            Claimed::Reused => Some(Repeats::Reused),
        };
    }

    /// The name of an entry in messages.
    pub(super) fn describe(&self, EntryId { lane, entry }: EntryId) -> String {
        let lane = self.lanes.get(lane);
        lane.map_or_else(String::new, |lane| lane.describe(entry))
    }

    /// The entry on which this attempt counts a caller; `None` if it does not.
    pub(super) fn counts_on(&self, caller: usize) -> Option<EntryId> {
        let caller = self.callers.get(caller).filter(|caller| caller.counts())?;
        Some(caller.caller.to)
    }

    /// Sets the result of one caller.
    pub(super) fn settle(&mut self, caller: usize, result: CallerResult) {
        self.callers[caller].state = CallerState::Settled(result);
    }

    /// Sets the results of all callers of this part that were counted and have none yet, and then of those who repeat. Returns the
    /// errors of callers who do not wait, each with its entry and amount.
    pub(super) fn settle_counted(
        &mut self,
        part: &[Chunk],
        rows: impl Fn(EntryId) -> usize,
    ) -> Vec<(EntryId, i64, Arc<Error>)> {
        let entries = entries_of(part);
        for caller in &mut self.callers {
            if caller.counts() && entries.contains(&caller.caller.to) {
                caller.state = CallerState::Settled(Ok(rows(caller.caller.to)));
            }
        }
        let mut unheard = vec![];
        for number in 0..self.callers.len() {
            let BatchCaller {
                caller,
                state: CallerState::Open,
                repeats: Some(repeats),
            } = &self.callers[number]
            else {
                continue;
            };
            if !entries.contains(&caller.to) {
                continue;
            }
            let result = match repeats {
                Repeats::Counted(rows) => Ok(*rows),
                Repeats::Reused => Err(Arc::new(Error::IdempotencyKeyReused)),
                Repeats::Caller(first) => match &self.callers[*first].state {
                    CallerState::Settled(result) => result.clone(),
                    CallerState::Open | CallerState::Withdrawn => Ok(0), // the first of a key is settled before
                },
            };
            if let (Err(error), false) = (&result, caller.waits) {
                unheard.push((caller.to, caller.n, Arc::clone(error)));
            }
            self.settle(number, result);
        }
        unheard
    }

    /// Gives this error to the callers who wait for an entry of this part. The other additions stay open.
    pub(super) fn settle_failed(&mut self, part: &[Chunk], error: &Arc<Error>) {
        let entries = entries_of(part);
        for BatchCaller { caller, state, .. } in &mut self.callers {
            let is_open = matches!(state, CallerState::Open);
            if caller.waits && is_open && entries.contains(&caller.to) {
                *state = CallerState::Settled(Err(Arc::clone(error)));
            }
        }
    }

    pub(super) fn committed_a_part(&mut self) {
        self.partly_committed = true;
    }

    /// Hands all results to the callers.
    pub(super) fn land(self) {
        let mut results = self.callers.into_iter().map(|caller| match caller.state {
            CallerState::Settled(result) => result,
            CallerState::Withdrawn | CallerState::Open => {
                Err(Arc::new(Error::outcome_unknown("it was given up")))
            }
        });
        let ends = self.begins.iter().skip(1).copied().map(Some).chain([None]);
        for ((flight, begin), end) in self.flights.into_iter().zip(&self.begins).zip(ends) {
            let number = end.map_or(usize::MAX, |end| end - begin);
            let results: Vec<CallerResult> = results.by_ref().take(number).collect();
            flight.land(match results.iter().all(|result| matches!(result, Ok(1))) {
                true => Landed::AllCounted,
                false => Landed::Each(results),
            });
        }
    }
}

//! The additions that are not committed yet.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::observe;

use super::settings::Settings;
use super::sums::{Coalesced, Fields};
use super::writer::LONGEST_LEAVE;

/// What a [`Coalescer`](super::Coalescer) has in memory, and its work since it was built.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Counters that wait to be flushed.
    pub queued_counters: usize,
    /// Flushes that have ended.
    pub flushes: u64,
    /// Counters that lost additions; see [`on_loss`](super::CoalescerBuilder::on_loss).
    pub losses: u64,
    /// Why the last failed attempt failed.
    pub last_error: Option<String>,
}

/// An addition that will not be counted; see [`on_loss`](super::CoalescerBuilder::on_loss).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Loss {
    /// The field and the key of the row, or the counter's name. For a greatest or least value also that value.
    pub counter: String,
    /// The amount that is lost, or may be lost if the outcome is unknown: the sum of all additions. 0 for a greatest or least value.
    pub amount: i128,
    /// Why.
    pub error: Arc<Error>,
}

/// The sums that wait for the writer.
pub(super) struct Buffer<Conn> {
    pub(super) settings: Settings,
    state: Mutex<State<Conn>>,
    /// Notified at the first addition, when a flush is wanted, begins or ends, and at the close.
    changed: Condvar,
}

struct State<Conn> {
    fields: Fields<Conn>,
    /// When the first of them was added.
    since: Option<Instant>,
    flush_wanted: bool,
    /// The flushes that have begun.
    begun: u64,
    /// The first flush with refused sums that will be tried again, and the number of their counters.
    refused: Option<(u64, usize)>,
    /// When the writer gives up, once it is closed.
    gives_up_at: Option<Instant>,
    stats: Stats,
}

impl<Conn: 'static> Buffer<Conn> {
    pub(super) fn new(settings: Settings) -> Self {
        Buffer {
            settings,
            state: Mutex::new(State {
                fields: Fields::default(),
                since: None,
                flush_wanted: false,
                begun: 0,
                refused: None,
                gives_up_at: None,
                stats: Stats::default(),
            }),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<Conn>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, but no longer than `until`.
    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State<Conn>>,
        until: Option<Instant>,
    ) -> MutexGuard<'a, State<Conn>> {
        let Some(until) = until else {
            let changed = self.changed.wait(state);
            return changed.unwrap_or_else(PoisonError::into_inner);
        };
        let patience = until.saturating_duration_since(Instant::now());
        let changed = self.changed.wait_timeout(state, patience);
        changed.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Adds `n` as soon as there is room.
    pub(super) fn add<K: Coalesced<Conn>>(&self, key: &K::Key, n: K::Sum) -> Result<(), Error> {
        let mut full_since = None;
        let mut state = self.state();
        while state.gives_up_at.is_none() && state.queued() >= self.settings.max_queued {
            let began = *full_since.get_or_insert_with(Instant::now);
            if began.elapsed() >= self.settings.deadline {
                return Err(Error::DeadlinePassed {
                    waited: began.elapsed(),
                    reason: state.obstacle(),
                });
            }
            if !std::mem::replace(&mut state.flush_wanted, true) {
                self.changed.notify_all();
            }
            state = self.wait(state, Some(began + self.settings.deadline));
        }
        self.fill(state, |fields| fields.add::<K>(key, n))
            .ok_or(Error::CoalescerClosed)
    }

    /// Takes the increments of a transaction that has committed, even if the buffer is full.
    pub(super) fn absorb(&self, counts: Fields<Conn>) -> Result<(), Error> {
        if counts.is_empty() {
            return Ok(());
        }
        self.fill(self.state(), |fields| fields.absorb(counts))
            .ok_or(Error::CommittedNotCounted)
    }

    /// `None` if it is closed.
    fn fill(
        &self,
        mut state: MutexGuard<'_, State<Conn>>,
        fill: impl FnOnce(&mut Fields<Conn>),
    ) -> Option<()> {
        if state.gives_up_at.is_some() {
            return None;
        }
        fill(&mut state.fields);
        if state.since.is_none() {
            state.since = Some(Instant::now());
            self.changed.notify_all();
        }
        Some(())
    }

    /// Waits until a flush is due, or until the writer's refused sums are to be tried again. Returns the number of the flush and the sums
    /// that wait; `None` if nothing more will come.
    pub(super) fn take(&self, next_try: Option<Instant>) -> Option<(u64, Fields<Conn>)> {
        let mut state = self.state();
        loop {
            let is_closed = state.gives_up_at.is_some();
            let due = state
                .since
                .and_then(|since| since.checked_add(self.settings.max_delay));
            let next = due.into_iter().chain(next_try).min();
            let is_wanted = state.since.is_some() && (state.flush_wanted || is_closed);
            if is_wanted || next.is_some_and(|next| next <= Instant::now()) {
                break;
            }
            if is_closed && next.is_none() {
                return None;
            }
            state = self.wait(state, next);
        }
        (state.since, state.flush_wanted) = (None, false);
        state.begun += 1;
        self.changed.notify_all();
        Some((state.begun, std::mem::take(&mut state.fields)))
    }

    /// Notes that a flush has ended, with these losses, and that a panic in a key's code `lost` this number of further counters. The
    /// `refused` sums will be tried again: the first flush that has some, and the number of their counters.
    pub(super) fn flushed(
        &self,
        losses: &[Loss],
        lost: usize,
        refused: Option<(u64, usize)>,
        began: Instant,
    ) {
        let number = losses.len() + lost;
        let observe = || {
            observe::flushed(began.elapsed());
            (0..number).for_each(|_| observe::lost());
        };
        let _ = panic::catch_unwind(AssertUnwindSafe(observe));
        let report = || {
            let on_loss = self.settings.on_loss.iter();
            on_loss.for_each(|on_loss| losses.iter().for_each(on_loss));
        };
        let reported = panic::catch_unwind(AssertUnwindSafe(report));
        let mut state = self.state();
        state.refused = refused;
        let stats = &mut state.stats;
        stats.flushes += 1;
        stats.losses += number as u64;
        if let Some(loss) = losses.last() {
            stats.last_error = Some(match reported {
                Ok(()) => loss.error.to_string(),
                Err(_) => format!("{}; and `on_loss` panicked", loss.error),
            });
        } else if lost > 0 {
            stats.last_error = Some("the code of a key panicked".into());
        }
        self.changed.notify_all();
    }

    /// Notes why an attempt failed; it will be repeated.
    pub(super) fn blocked_by(&self, reason: &str) {
        self.state().stats.last_error = Some(reason.to_owned());
    }

    /// Waits until everything that was added before has been flushed.
    pub(super) fn flush(&self) -> Result<(), Error> {
        let began = Instant::now();
        let mut state = self.state();
        let mut awaited = state.begun;
        if state.since.is_some() {
            awaited += 1;
            state.flush_wanted = true;
            self.changed.notify_all();
        }
        while state.stats.flushes < awaited
            || state.refused.is_some_and(|(first, _)| first <= awaited)
        {
            if began.elapsed() >= self.settings.deadline {
                drop(state);
                return Err(self.flush_pending(began.elapsed()));
            }
            state = self.wait(state, Some(began + self.settings.deadline));
        }
        Ok(())
    }

    /// Refuses further additions. Returns the number of losses so far, and the time until the writer gives up.
    pub(super) fn close(&self) -> (u64, Duration) {
        let mut state = self.state();
        let now = Instant::now();
        let gives_up_at = *state
            .gives_up_at
            .get_or_insert(now + self.settings.deadline);
        self.changed.notify_all();
        (
            state.stats.losses,
            gives_up_at.saturating_duration_since(now),
        )
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().gives_up_at.is_some()
    }

    /// Whether it is closed, and its deadline has passed.
    pub(super) fn gives_up(&self) -> bool {
        let at = self.state().gives_up_at;
        at.is_some_and(|at| at <= Instant::now())
    }

    /// Whether its deadline passed so long ago that the writer has to end.
    pub(super) fn has_to_leave(&self) -> bool {
        let at = self.state().gives_up_at;
        at.is_some_and(|at| at.elapsed() >= LONGEST_LEAVE / 2)
    }

    pub(super) fn flush_pending(&self, waited: Duration) -> Error {
        let reason = self.state().obstacle();
        Error::FlushPending { waited, reason }
    }

    pub(super) fn stats(&self) -> Stats {
        let state = self.state();
        Stats {
            queued_counters: state.queued(),
            ..state.stats.clone()
        }
    }
}

impl<Conn: 'static> State<Conn> {
    fn queued(&self) -> usize {
        self.fields.len() + self.refused.map_or(0, |(_, counters)| counters)
    }

    fn obstacle(&self) -> String {
        let reason = self.stats.last_error.clone();
        reason.unwrap_or_else(|| "the database is slower than what is added".into())
    }
}

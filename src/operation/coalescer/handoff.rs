//! Hands counts from the threads that make them to the thread that commits them, and the results back.
//!
//! Threads are spread over several [`Queue`]s, so that they seldom meet. Each filling of a queue has a [`Ticket`], on which
//! threads and tasks wait for its result. The worker takes a filling, and its ticket as a [`QueueFlight`]: the flight takes off
//! with each attempt, turns back if the transaction was rolled back, and lands with the results. A caller whose deadline passes
//! withdraws from a flight that is waiting, and then nothing was counted for certain. Nobody can withdraw from a flight
//! that has taken off. The [`Bell`] wakes the worker.
//!
//! This module knows nothing of counters. A model checker tries all its interleavings.

use std::collections::BTreeMap;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use super::sync::{Arc, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, PoisonError};

/// A queue of additions, `P`. Each filling gets one `R` back; `R`'s default stands for a flight that never landed.
pub(crate) struct Queue<P, R> {
    filling: Mutex<Filling<P, R>>,
    taken: Condvar,
}

struct Filling<P, R> {
    added: P,
    ticket: Arc<Ticket<R>>,
    /// The ticket of the filling that was taken last.
    taken: Option<Arc<Ticket<R>>>,
    /// Something was added.
    started: bool,
    /// How many threads wait for room.
    waiting: usize,
    closed: bool,
}

/// Why nothing could be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There was no room until the deadline.
    Full,
    Closed,
}

impl<P: Default, R: Default> Queue<P, R> {
    pub(crate) fn new() -> Self {
        Queue {
            filling: Mutex::new(Filling {
                added: P::default(),
                ticket: Arc::default(),
                taken: None,
                started: false,
                waiting: 0,
                closed: false,
            }),
            taken: Condvar::new(),
        }
    }

    /// Adds as soon as there is room. `add` gets the ticket to wait on.
    pub(crate) fn add<T>(
        &self,
        deadline: Instant,
        has_room: impl Fn(&P) -> bool,
        add: impl FnOnce(&mut P, &Arc<Ticket<R>>) -> T,
    ) -> Result<T, Refused> {
        let mut filling = lock(&self.filling);
        loop {
            if filling.closed {
                return Err(Refused::Closed);
            }
            if has_room(&filling.added) {
                break;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Refused::Full);
            }
            filling.waiting += 1;
            filling = wait(&self.taken, filling, Some(left));
            filling.waiting -= 1;
        }
        filling.started = true;
        let Filling { added, ticket, .. } = &mut *filling;
        Ok(add(added, ticket))
    }

    /// Takes the filling, if anything was added to it.
    pub(crate) fn take(&self) -> Option<(P, QueueFlight<R>)> {
        let mut filling = lock(&self.filling);
        if !std::mem::take(&mut filling.started) {
            return None;
        }
        let added = std::mem::take(&mut filling.added);
        let flight = QueueFlight {
            ticket: std::mem::take(&mut filling.ticket),
        };
        filling.taken = Some(flight.ticket());
        if filling.waiting > 0 {
            self.taken.notify_all();
        }
        Some((added, flight))
    }

    /// The tickets of all fillings that may not have landed yet.
    pub(crate) fn tickets(&self) -> impl Iterator<Item = Arc<Ticket<R>>> {
        let filling = lock(&self.filling);
        let added = filling.started.then(|| Arc::clone(&filling.ticket));
        filling.taken.clone().into_iter().chain(added)
    }

    /// Looks at the filling.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&P) -> T) -> T {
        look(&lock(&self.filling).added)
    }

    /// Refuses all further additions.
    pub(crate) fn close(&self) {
        lock(&self.filling).closed = true;
        self.taken.notify_all();
    }
}

/// The result of one filling, which its callers wait for.
pub(crate) struct Ticket<R> {
    state: Mutex<TicketState<R>>,
    landed: Condvar,
}

struct TicketState<R> {
    phase: FlightPhase<R>,
    /// The numbers of the callers who have withdrawn since the flight last took off.
    withdrawn: Vec<u32>,
    /// The tasks that wait, by their callers' numbers.
    tasks: BTreeMap<u32, Waker>,
}

enum FlightPhase<R> {
    Waiting,
    InFlight,
    Landed(R),
}

impl<R> Default for Ticket<R> {
    fn default() -> Self {
        Ticket {
            state: Mutex::new(TicketState {
                phase: FlightPhase::Waiting,
                withdrawn: vec![],
                tasks: BTreeMap::new(),
            }),
            landed: Condvar::new(),
        }
    }
}

/// The outcome of a caller whose deadline has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimedOut {
    /// It was certainly not counted.
    Withdrawn,
    /// It may be counted or not.
    InFlight,
}

impl<R> Ticket<R> {
    /// Waits until the flight has landed, and reads the result; at the deadline the caller of this number withdraws.
    pub(crate) fn wait<T>(
        &self,
        number: u32,
        deadline: Instant,
        read: impl FnOnce(&mut R) -> T,
    ) -> Result<T, TimedOut> {
        let mut state = lock(&self.state);
        loop {
            if let FlightPhase::Landed(result) = &mut state.phase {
                return Ok(read(result));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(state.withdraw(number));
            }
            state = wait(&self.landed, state, Some(left));
        }
    }
}

impl<R> Ticket<R> {
    /// Reads the result if the flight has landed, or else wakes the task of the caller of this number when it has.
    pub(crate) fn poll<T>(
        &self,
        number: u32,
        task: &Waker,
        read: impl FnOnce(&mut R) -> T,
    ) -> Poll<T> {
        let mut state = lock(&self.state);
        if let FlightPhase::Landed(result) = &mut state.phase {
            return Poll::Ready(read(result));
        }
        state.tasks.insert(number, task.clone());
        Poll::Pending
    }
}

impl<R> TicketState<R> {
    fn withdraw(&mut self, number: u32) -> TimedOut {
        match self.phase {
            FlightPhase::Waiting => {
                self.withdrawn.push(number);
                TimedOut::Withdrawn
            }
            _ => TimedOut::InFlight,
        }
    }
}

/// The worker's side of a ticket. If it is dropped, it lands with the default of `R`, so that nobody waits for ever.
#[derive(Default)]
pub(crate) struct QueueFlight<R: Default> {
    ticket: Arc<Ticket<R>>,
}

impl<R: Default> QueueFlight<R> {
    pub(crate) fn ticket(&self) -> Arc<Ticket<R>> {
        Arc::clone(&self.ticket)
    }

    /// Begins an attempt: from now on nobody can withdraw. Returns the callers who have withdrawn since the last attempt.
    pub(crate) fn take_off(&self) -> Vec<u32> {
        let mut state = lock(&self.ticket.state);
        state.phase = FlightPhase::InFlight;
        std::mem::take(&mut state.withdrawn)
    }

    /// Ends an attempt that certainly counted nothing: callers may withdraw again.
    pub(crate) fn turn_back(&self) {
        lock(&self.ticket.state).phase = FlightPhase::Waiting;
    }

    /// Tells everyone.
    pub(crate) fn land(self, result: R) {
        self.tell(result);
    }

    fn tell(&self, result: R) {
        let tasks = {
            let mut state = lock(&self.ticket.state);
            state.phase = FlightPhase::Landed(result);
            std::mem::take(&mut state.tasks)
        };
        self.ticket.landed.notify_all();
        tasks.into_values().for_each(Waker::wake);
    }
}

impl<R: Default> Drop for QueueFlight<R> {
    fn drop(&mut self) {
        if !matches!(lock(&self.ticket.state).phase, FlightPhase::Landed(_)) {
            self.tell(R::default());
        }
    }
}

/// Wakes the worker.
pub(crate) struct Bell {
    urgency: AtomicUsize,
    asleep: Mutex<()>,
    rung: Condvar,
}

/// How soon the worker has to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Urgency {
    Later = 1,
    Now = 2,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Bell {
            urgency: AtomicUsize::new(0),
            asleep: Mutex::new(()),
            rung: Condvar::new(),
        }
    }

    /// Wakes the worker. Ring after adding: the worker takes everything that was added before it heard the bell.
    pub(crate) fn ring(&self, urgency: Urgency) {
        let urgency = urgency as usize;
        // An earlier ring that nobody has heard yet is enough: the worker takes our addition when it hears that one.
        if self.urgency.load(Ordering::Acquire) < urgency
            && self.urgency.fetch_max(urgency, Ordering::AcqRel) < urgency
        {
            drop(lock(&self.asleep)); // a worker that is about to sleep does so first
            self.rung.notify_one();
        }
    }

    /// Sleeps until the bell is rung, and then for `delay` if it was not urgent, but not longer than `at_most`. Returns whether it was
    /// rung.
    pub(crate) fn wait(&self, delay: Duration, at_most: Option<Duration>) -> bool {
        let began = Instant::now();
        let mut heard = None;
        let mut asleep = lock(&self.asleep);
        loop {
            let left = match self.urgency.load(Ordering::Acquire) {
                0 => at_most.map(|longest| longest.saturating_sub(began.elapsed())),
                urgency if urgency == Urgency::Now as usize => break,
                _ => {
                    let heard = *heard.get_or_insert_with(Instant::now);
                    Some(delay.saturating_sub(heard.elapsed()))
                }
            };
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            asleep = wait(&self.rung, asleep, left);
        }
        self.urgency.swap(0, Ordering::AcqRel) > 0
    }
}

/// Ignores poison: no thread here panics between two changes that belong together.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    at_most: Option<Duration>,
) -> MutexGuard<'a, T> {
    match at_most {
        Some(at_most) => {
            condvar
                .wait_timeout(guard, at_most)
                .unwrap_or_else(PoisonError::into_inner)
                .0
        }
        None => condvar.wait(guard).unwrap_or_else(PoisonError::into_inner),
    }
}

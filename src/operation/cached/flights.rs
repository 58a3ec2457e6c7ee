//! Merges concurrent reads of one total into a single read.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
#[cfg(feature = "async")]
use std::task::Poll;
use std::task::Waker;
use std::time::Duration;

use crate::per_process::PerProcess;

/// The reads that are under way in this process, by key.
#[derive(Debug, Clone)]
pub struct Flights {
    under_way: Arc<PerProcess<UnderWay>>,
}

type UnderWay = Mutex<HashMap<String, Arc<Flight>>>;

impl Default for Flights {
    fn default() -> Self {
        Flights {
            under_way: Arc::new(PerProcess::new(|_| Mutex::default())),
        }
    }
}

/// One read, which others may wait for.
#[derive(Debug, Default)]
struct Flight {
    state: Mutex<State>,
    landed: Condvar,
    /// The tasks that wait.
    tasks: Mutex<Vec<Waker>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    UnderWay,
    /// The reader gave up: it had an error, or panicked.
    Failed,
    Total(i64),
}

/// The role of a reader in the read of a key.
#[derive(Debug)]
pub enum Role {
    /// Read, and share the total.
    Lead(Lead),
    /// Another reader has read this total.
    Share(i64),
    /// Read alone: the other reader failed, or took too long.
    Alone,
}

impl Flights {
    /// Joins the read of `key` that is under way, for at most `patience`, or begins one.
    pub(super) fn join(&self, key: &str, patience: Duration) -> Role {
        match self.board(key) {
            Boarded::Lead(lead) => Role::Lead(lead),
            Boarded::Waiting(waiting) => {
                waiting.0.flight.wait(patience);
                waiting.role()
            }
        }
    }

    /// The same, but does not wait.
    pub(crate) fn board(&self, key: &str) -> Boarded {
        let (flight, is_first) = match lock(self.under_way.own()).entry(key.to_owned()) {
            Entry::Occupied(entry) => (Arc::clone(entry.get()), false),
            Entry::Vacant(entry) => (Arc::clone(entry.insert(Arc::default())), true),
        };
        let seat = Seat {
            flights: self.clone(),
            key: key.to_owned(),
            flight,
        };
        match is_first {
            true => Boarded::Lead(Lead(seat)),
            false => Boarded::Waiting(Waiting(seat)),
        }
    }

    /// Those who wait for the read that is under way. Each holds the flight, as do the map and the lead.
    #[cfg(test)]
    pub(super) fn waiting(&self, key: &str) -> usize {
        let under_way = lock(self.under_way.own());
        let held = under_way.get(key).map_or(0, Arc::strong_count);
        held.saturating_sub(2)
    }
}

impl Flight {
    fn wait(&self, patience: Duration) {
        let under_way = |state: &mut State| *state == State::UnderWay;
        let state = lock(&self.state);
        drop(self.landed.wait_timeout_while(state, patience, under_way));
    }

    fn land(&self, state: State) {
        *lock(&self.state) = state;
        self.landed.notify_all();
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.into_iter().for_each(Waker::wake);
    }
}

/// A key that is being read already, or not.
#[derive(Debug)]
pub enum Boarded {
    Lead(Lead),
    Waiting(Waiting),
}

/// A place in the read of one key.
#[derive(Debug)]
struct Seat {
    flights: Flights,
    key: String,
    flight: Arc<Flight>,
}

impl Seat {
    /// Those who come next begin a read of their own.
    fn forget(&self) {
        let mut under_way = lock(self.flights.under_way.own());
        if under_way
            .get(&self.key)
            .is_some_and(|flight| Arc::ptr_eq(flight, &self.flight))
        {
            under_way.remove(&self.key);
        }
    }
}

/// Somebody who waits for the read of one key.
#[derive(Debug)]
pub struct Waiting(Seat);

impl Waiting {
    /// Whether the read has ended; if not, the task is woken when it does.
    #[cfg(feature = "async")]
    pub(crate) fn poll(&self, task: &Waker) -> Poll<()> {
        // Before the look, so that an end in between is not missed.
        let mut tasks = lock(&self.0.flight.tasks);
        if !tasks.iter().any(|other| other.will_wake(task)) {
            tasks.push(task.clone());
        }
        drop(tasks);
        match *lock(&self.0.flight.state) {
            State::UnderWay => Poll::Pending,
            State::Failed | State::Total(_) => Poll::Ready(()),
        }
    }

    /// The role of the reader after waiting, even in vain.
    pub(crate) fn role(self) -> Role {
        let state = *lock(&self.0.flight.state);
        match state {
            State::Total(total) => Role::Share(total),
            State::Failed => Role::Alone,
            State::UnderWay => {
                // Those who come next shall not wait in vain too.
                self.0.forget();
                Role::Alone
            }
        }
    }
}

/// The read of one key. Ends when it is dropped, however that comes.
#[derive(Debug)]
pub struct Lead(Seat);

impl Lead {
    /// Gives the total to those who wait, and to those who come until the read ends.
    pub(super) fn share(&self, total: i64) {
        self.0.flight.land(State::Total(total));
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.0.forget();
        let shared = *lock(&self.0.flight.state) != State::UnderWay;
        if !shared {
            self.0.flight.land(State::Failed);
        }
    }
}

/// Nothing that holds one of these locks can panic half-way through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    const LONG: Duration = Duration::MAX;

    fn lead(flights: &Flights, key: &str) -> Lead {
        match flights.join(key, LONG) {
            Role::Lead(lead) => lead,
            role => panic!("{role:?}"),
        }
    }

    /// The totals of `n` threads that join while `lead` is under way, which `end` then ends.
    fn joined(flights: &Flights, n: usize, lead: Lead, end: impl FnOnce(Lead)) -> Vec<Option<i64>> {
        thread::scope(|scope| {
            let wait = || match flights.join("a", LONG) {
                Role::Share(total) => Some(total),
                Role::Alone => None,
                Role::Lead(_) => panic!("two reads at once"),
            };
            let threads: Vec<_> = (0..n).map(|_| scope.spawn(wait)).collect();
            while flights.waiting("a") < n {
                thread::yield_now();
            }
            end(lead);
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    #[test]
    fn all_who_wait_share_one_total() {
        let flights = Flights::default();
        let leader = lead(&flights, "a");
        assert_eq!(
            joined(&flights, 8, leader, |lead| lead.share(7)),
            [Some(7); 8]
        );
        drop(lead(&flights, "a"));
    }

    #[test]
    fn whoever_comes_before_the_read_has_ended_shares_it_too() {
        let flights = Flights::default();
        let lead = lead(&flights, "a");
        lead.share(7);
        assert!(matches!(flights.join("a", LONG), Role::Share(7)));
    }

    #[test]
    fn nobody_waits_for_a_reader_that_failed_or_panicked() {
        let flights = Flights::default();
        let leader = lead(&flights, "a");
        assert_eq!(joined(&flights, 3, leader, drop), [None; 3]);
        let leader = lead(&flights, "a");
        let panics = |lead: Lead| {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let _lead = lead;
                std::panic::resume_unwind(Box::new("the reader's own"));
            }));
            assert!(panicked.is_err());
        };
        assert_eq!(joined(&flights, 3, leader, panics), [None; 3]);
        drop(lead(&flights, "a"));
    }

    #[test]
    fn nobody_waits_for_ever_and_the_next_begin_anew() {
        let flights = Flights::default();
        let slow = lead(&flights, "a");
        assert!(matches!(flights.join("a", Duration::ZERO), Role::Alone));
        let next = lead(&flights, "a");
        drop(slow);
        next.share(7);
        assert!(matches!(flights.join("a", LONG), Role::Share(7)));
    }

    #[test]
    fn keys_do_not_wait_for_each_other() {
        let flights = Flights::default();
        let _a = lead(&flights, "a");
        let _b = lead(&flights, "b");
    }
}

//! Threads and tasks that hand numbers over to a worker, and wait until it has counted them.

use std::time::{Duration, Instant};

use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

use crate::handoff::{Bell, Queue, Refused, Ticket, TimedOut, Urgency};
use crate::task::awaited;

/// How many threads were counted together, or `None` if that is unknown.
type Counted = Option<usize>;

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

fn past() -> Instant {
    Instant::now()
}

struct Handoff {
    queue: Queue<Vec<u32>, Counted>,
    bell: Bell,
}

impl Handoff {
    fn new() -> Arc<Self> {
        Arc::new(Handoff {
            queue: Queue::new(),
            bell: Bell::new(),
        })
    }

    /// Adds to fillings of so many at the most. Returns the caller's number, and its ticket.
    fn add(&self, most: usize) -> Result<(u32, Arc<Ticket<Counted>>), Refused> {
        let has_room = |added: &Vec<u32>| added.len() < most;
        self.queue.add(far(), has_room, |added, ticket| {
            added.push(1);
            (added.len() as u32 - 1, Arc::clone(ticket))
        })
    }

    /// Adds, rings and waits.
    fn call(&self, most: usize, deadline: Instant) -> Result<Counted, TimedOut> {
        let (number, ticket) = self
            .add(most)
            .expect("the queue is open, and there is time");
        self.bell.ring(Urgency::Now);
        ticket.wait(number, deadline, |result| *result)
    }

    /// Counts the filling. Returns how many were in it.
    fn count(&self) -> usize {
        let Some((added, flight)) = self.queue.take() else {
            return 0;
        };
        assert!(flight.take_off().is_empty());
        flight.land(Some(added.len()));
        added.len()
    }
}

/// A thread of the model checker's that does this.
fn spawn<T: 'static>(
    handoff: &Arc<Handoff>,
    work: impl FnOnce(&Handoff) -> T + 'static,
) -> JoinHandle<T> {
    let handoff = Arc::clone(handoff);
    thread::spawn(move || work(&handoff))
}

fn ended<T>(thread: JoinHandle<T>) -> T {
    thread.join().expect("no panic")
}

fn await_number(ticket: &Ticket<Counted>, number: u32) -> Counted {
    awaited(|task| ticket.poll(number, task.waker(), |result| *result))
}

/// Whether the landing comes first or the tasks that wait for it.
pub fn tasks_that_wait_are_woken(tasks: u32) {
    let handoff = Handoff::new();
    let (_, ticket) = handoff
        .add(2)
        .expect("the queue is open, and there is time");
    let landing = spawn(&handoff, |handoff| assert_eq!(handoff.count(), 1));
    let others: Vec<_> = (1..tasks)
        .map(|number| {
            let ticket = Arc::clone(&ticket);
            thread::spawn(move || await_number(&ticket, number))
        })
        .collect();
    assert_eq!(await_number(&ticket, 0), Some(1));
    for other in others {
        assert_eq!(ended(other), Some(1));
    }
    ended(landing);
}

/// A worker that lets go of a flight wakes the tasks too.
pub fn a_task_is_not_left_waiting() {
    let handoff = Handoff::new();
    let (_, ticket) = handoff
        .add(2)
        .expect("the queue is open, and there is time");
    let letting_go = spawn(&handoff, |handoff| drop(handoff.queue.take()));
    assert_eq!(await_number(&ticket, 0), None);
    ended(letting_go);
}

/// Two callers, in fillings of so many: who finds no room comes with the next.
pub fn every_caller_is_told(most: usize) {
    let handoff = Handoff::new();
    let callers = [(); 2].map(|()| spawn(&handoff, move |handoff| handoff.call(most, far())));
    let mut counted = 0;
    while counted < callers.len() {
        assert!(handoff.bell.wait(Duration::ZERO, None));
        counted += handoff.count();
    }
    for caller in callers {
        let together = ended(caller).expect("it waits").expect("it is known");
        assert!((1..=most).contains(&together));
    }
}

/// The first attempt meets a conflict.
pub fn who_withdraws_is_not_counted() {
    let handoff = Handoff::new();
    let caller = spawn(&handoff, |handoff| handoff.call(2, past()));
    handoff.bell.wait(Duration::ZERO, None);
    let taken = handoff.queue.take();
    let (added, flight) = taken.expect("the bell was rung after adding");
    let mut withdrawn = flight.take_off();
    flight.turn_back();
    withdrawn.extend(flight.take_off());
    let counted = added.len() - withdrawn.len();
    flight.land(Some(counted));
    match ended(caller) {
        Ok(told) => assert_eq!((told, counted), (Some(1), 1)),
        Err(TimedOut::Withdrawn) => assert_eq!(counted, 0),
        Err(TimedOut::InFlight) => assert_eq!(counted, 1),
    }
}

pub fn what_was_let_in_before_the_close_is_taken() {
    let handoff = Handoff::new();
    let caller = spawn(&handoff, |handoff| handoff.add(2).map(drop));
    handoff.queue.close();
    let taken = handoff.queue.take().map_or(0, |(added, _)| added.len());
    match ended(caller) {
        Ok(()) => assert_eq!(taken, 1),
        Err(refused) => assert_eq!((refused, taken), (Refused::Closed, 0)),
    }
    assert!(handoff.queue.look(Vec::is_empty));
}

/// Room never comes.
pub fn who_waits_for_room_is_refused_by_a_close() {
    let handoff = Handoff::new();
    let callers = [(); 2].map(|()| spawn(&handoff, |handoff| handoff.add(0).map(drop)));
    handoff.queue.close();
    for caller in callers {
        assert_eq!(ended(caller), Err(Refused::Closed));
    }
}

pub fn a_flight_that_is_let_go_leaves_nobody_waiting() {
    let handoff = Handoff::new();
    let caller = spawn(&handoff, |handoff| handoff.call(2, far()));
    handoff.bell.wait(Duration::ZERO, None);
    let added = handoff.queue.tickets().next();
    drop(handoff.queue.take());
    let taken = handoff.queue.tickets().next();
    assert_eq!(ended(caller), Ok(None));
    for ticket in [added, taken] {
        let ticket = ticket.expect("something was added");
        assert_eq!(ticket.wait(u32::MAX, past(), |result| *result), Ok(None));
    }
}

/// A bell that was rung for later is heard, and one that is also rung for now is not lost.
pub fn no_bell_is_lost() {
    let handoff = Handoff::new();
    let ringers = [Urgency::Later, Urgency::Now]
        .map(|urgency| spawn(&handoff, move |handoff| handoff.bell.ring(urgency)));
    assert!(handoff.bell.wait(Duration::ZERO, None));
    ringers.into_iter().for_each(ended);
    // A ring that came after the wait is heard by the next one.
    handoff.bell.ring(Urgency::Later);
    assert!(handoff.bell.wait(Duration::ZERO, None));
}

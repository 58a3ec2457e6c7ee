//! The hand-off of the coalescer and the claims of ranks: the interleavings of a few threads, by a model checker; and many threads for
//! real.

#![expect(
    clippy::duplicate_mod,
    reason = "once over the model checker's threads, once over real ones"
)]

#[path = "../../../../src/operation/coalescer/handoff.rs"]
mod handoff;

/// The model checker's, under the hand-off.
mod sync {
    pub use loom::sync::atomic::{AtomicUsize, Ordering};
    pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub use std::sync::PoisonError;
}

use std::task::{Poll, Wake, Waker};
use std::time::{Duration, Instant};

use diesel_sharded_model::ranks;

use self::handoff::{Bell, Queue, Refused, Ticket, TimedOut, Urgency};
use self::sync::{Arc, Condvar, Mutex};

/// The threads add numbers; the result is how many threads were counted together, or `None` if that is unknown.
type Numbers = Queue<Vec<u32>, Option<usize>>;

/// Tries every interleaving that interrupts threads at most twice, apart from where they wait: more would take hours.
pub(super) fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut checker = loom::model::Builder::new();
    checker.preemption_bound = Some(2);
    checker.check(run);
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

fn past() -> Instant {
    Instant::now()
}

fn room_for(most: usize) -> impl Fn(&Vec<u32>) -> bool {
    move |added| added.len() < most
}

struct Model {
    queue: Numbers,
    bell: Bell,
}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Model {
            queue: Queue::new(),
            bell: Bell::new(),
        })
    }

    /// Adds, rings and waits.
    fn call(&self, room: usize, deadline: Instant) -> Result<Option<usize>, TimedOut> {
        let queued = self.queue.add(far(), room_for(room), |added, ticket| {
            added.push(1);
            (added.len() - 1, Arc::clone(ticket))
        });
        let (number, ticket) = queued.expect("the queue is open, and there is time");
        self.bell.ring(Urgency::Now);
        ticket.wait(number as u32, deadline, |result| *result)
    }

    /// Counts until so many are counted.
    fn work(&self, calls: usize) {
        let mut counted = 0;
        while counted < calls {
            assert!(self.bell.wait(Duration::ZERO, None));
            if let Some((added, flight)) = self.queue.take() {
                assert!(flight.take_off().is_empty());
                counted += added.len();
                flight.land(Some(added.len()));
            }
        }
    }
}

/// A thread of the model checker's that does this.
fn spawn<T: 'static>(
    model: &Arc<Model>,
    work: impl FnOnce(&Model) -> T + 'static,
) -> loom::thread::JoinHandle<T> {
    let model = Arc::clone(model);
    loom::thread::spawn(move || work(&model))
}

/// A task, as far as it sleeps until it is woken.
struct Task {
    woken: Mutex<bool>,
    wakes: Condvar,
}

impl Wake for Task {
    fn wake(self: std::sync::Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        self.wakes.notify_one();
    }
}

/// Polls until the flight has landed, and sleeps in between.
fn awaited(ticket: &Ticket<Option<usize>>, number: u32) -> Option<usize> {
    let task = std::sync::Arc::new(Task {
        woken: Mutex::new(false),
        wakes: Condvar::new(),
    });
    let waker = Waker::from(std::sync::Arc::clone(&task));
    loop {
        if let Poll::Ready(told) = ticket.poll(number, &waker, |result| *result) {
            return told;
        }
        let mut woken = task.woken.lock().unwrap();
        while !std::mem::take(&mut *woken) {
            woken = task.wakes.wait(woken).unwrap();
        }
    }
}

/// Whether the landing comes first or the task that waits for it; also with another task at the same ticket.
#[test]
fn a_task_that_waits_is_woken() {
    for others in [false, true] {
        model(move || {
            let model = Model::new();
            let (_, ticket) = model
                .queue
                .add(far(), room_for(2), |added, ticket| {
                    added.push(1);
                    (added.len() - 1, Arc::clone(ticket))
                })
                .expect("the queue is open, and there is time");
            let landing = spawn(&model, |model| {
                let (_, flight) = model.queue.take().expect("something was added");
                assert!(flight.take_off().is_empty());
                flight.land(Some(1));
            });
            let other = others.then(|| {
                let ticket = Arc::clone(&ticket);
                loom::thread::spawn(move || awaited(&ticket, 1))
            });
            assert_eq!(awaited(&ticket, 0), Some(1));
            if let Some(other) = other {
                assert_eq!(other.join().unwrap(), Some(1));
            }
            landing.join().unwrap();
        });
    }
}

/// A worker that lets go of a flight wakes the tasks too.
#[test]
fn a_task_is_not_left_waiting() {
    model(|| {
        let model = Model::new();
        let added = model
            .queue
            .add(far(), room_for(2), |_, ticket| Arc::clone(ticket));
        let ticket = added.expect("the queue is open, and there is time");
        let letting_go = spawn(&model, |model| drop(model.queue.take()));
        assert_eq!(awaited(&ticket, 0), None);
        letting_go.join().unwrap();
    });
}

#[test]
fn every_caller_is_counted_once_and_told() {
    model(|| {
        let model = Model::new();
        let callers = [(); 2].map(|()| spawn(&model, |model| model.call(2, far())));
        model.work(2);
        for caller in callers {
            assert!(matches!(caller.join().unwrap(), Ok(Some(1 | 2))));
        }
    });
}

#[test]
fn who_finds_no_room_comes_with_the_next() {
    model(|| {
        let model = Model::new();
        let callers = [(); 2].map(|()| spawn(&model, |model| model.call(1, far())));
        model.work(2);
        for caller in callers {
            assert_eq!(caller.join().unwrap(), Ok(Some(1)));
        }
    });
}

#[test]
fn who_withdraws_is_not_counted() {
    model(|| {
        let model = Model::new();
        let caller = spawn(&model, |model| model.call(2, past()));
        model.bell.wait(Duration::ZERO, None);
        let (mut added, flight) = model.queue.take().expect("the bell was rung after adding");
        let mut withdraw = |numbers: Vec<u32>| {
            for number in numbers {
                added[number as usize] = 0;
            }
        };
        withdraw(flight.take_off());
        flight.turn_back(); // the first attempt met a conflict
        withdraw(flight.take_off());
        let counted = added.iter().sum::<u32>() as usize;
        flight.land(Some(counted));
        match caller.join().unwrap() {
            Ok(told) => assert_eq!((told, counted), (Some(1), 1)),
            Err(TimedOut::Withdrawn) => assert_eq!(counted, 0),
            Err(TimedOut::InFlight) => assert_eq!(counted, 1),
        }
    });
}

#[test]
fn what_was_let_in_before_the_close_is_taken() {
    model(|| {
        let model = Model::new();
        let caller = spawn(&model, |model| {
            let queue = &model.queue;
            queue.add(far(), room_for(2), |added, _| added.push(1))
        });
        model.queue.close();
        let taken = model.queue.take().map_or(0, |(added, _)| added.len());
        match caller.join().unwrap() {
            Ok(()) => assert_eq!(taken, 1),
            Err(refused) => assert_eq!((refused, taken), (Refused::Closed, 0)),
        }
        assert!(model.queue.look(Vec::is_empty));
    });
}

/// Room never comes.
#[test]
fn who_waits_for_room_is_refused_by_a_close() {
    model(|| {
        let model = Model::new();
        let callers = [(); 2].map(|()| {
            spawn(&model, |model| {
                let queue = &model.queue;
                queue.add(far(), |_| false, |added, _| added.push(1))
            })
        });
        model.queue.close();
        for caller in callers {
            assert_eq!(caller.join().unwrap(), Err(Refused::Closed));
        }
    });
}

#[test]
fn a_worker_that_lets_go_of_a_flight_leaves_nobody_waiting() {
    model(|| {
        let model = Model::new();
        let caller = spawn(&model, |model| model.call(2, far()));
        model.bell.wait(Duration::ZERO, None);
        let added = model.queue.tickets().next().expect("something was added");
        drop(model.queue.take());
        let taken = model.queue.tickets().next().expect("something was taken");
        assert_eq!(caller.join().unwrap(), Ok(None));
        for ticket in [added, taken] {
            assert_eq!(ticket.wait(u32::MAX, past(), |result| *result), Ok(None));
        }
    });
}

/// A bell that was rung for later is heard, and one that is also rung for now is not lost.
#[test]
fn no_bell_is_lost() {
    model(|| {
        let bell = Arc::new(Bell::new());
        let ringers = [Urgency::Later, Urgency::Now].map(|urgency| {
            let bell = Arc::clone(&bell);
            loom::thread::spawn(move || bell.ring(urgency))
        });
        assert!(bell.wait(Duration::ZERO, None));
        for ringer in ringers {
            ringer.join().unwrap();
        }
        // A ring that came after the wait is heard by the next one.
        bell.ring(Urgency::Later);
        assert!(bell.wait(Duration::ZERO, None));
    });
}

#[test]
fn as_many_ranks_as_threads() {
    model(ranks::as_many_ranks_as_threads);
}

#[test]
fn fewer_ranks_than_threads() {
    model(ranks::fewer_ranks_than_threads);
}

#[test]
fn threads_that_keep_their_ranks() {
    model(ranks::threads_that_keep_their_ranks);
}

/// The same code as the library runs it.
#[path = "../../../../src/operation/coalescer"]
mod real {
    mod handoff;
    mod sync;

    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::task::{Poll, Wake, Waker};
    use std::thread::{self, Thread};
    use std::time::{Duration, Instant};

    use self::handoff::{Bell, Queue, Refused, Ticket, TimedOut, Urgency};

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    /// Polls until the flight has landed, and sleeps in between.
    fn awaited(ticket: &Ticket<Option<usize>>, number: u32) -> Option<usize> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            match ticket.poll(number, &waker, |result| *result) {
                Poll::Ready(told) => return told,
                Poll::Pending => thread::park(),
            }
        }
    }

    #[test]
    fn many_threads_for_real() {
        let queues: [Queue<Vec<u32>, Option<usize>>; 4] = std::array::from_fn(|_| Queue::new());
        let bell = Bell::new();
        let (counted, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (told, unknown) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    bell.wait(Duration::from_millis(1), Some(Duration::from_millis(10)));
                    for (mut added, flight) in queues.iter().filter_map(Queue::take) {
                        for number in flight.take_off() {
                            added[number as usize] = 0;
                        }
                        counted.fetch_add(added.iter().sum::<u32>() as usize, Ordering::Relaxed);
                        flight.land(Some(added.len()));
                    }
                }
            });
            let callers: Vec<_> = (0..64)
                .map(|thread: usize| {
                    let (queue, bell) = (&queues[thread % 4], &bell);
                    let (told, unknown) = (&told, &unknown);
                    scope.spawn(move || {
                        for round in 0..500 {
                            let patience = match (thread + round) % 7 {
                                0 => Duration::from_micros(50),
                                _ => Duration::from_secs(60),
                            };
                            let full = |added: &Vec<u32>| added.len() < 10;
                            let deadline = Instant::now() + Duration::from_secs(60);
                            let queued = queue.add(deadline, full, |added, ticket| {
                                added.push(1);
                                (added.len() - 1, Arc::clone(ticket))
                            });
                            let (number, ticket) = queued.unwrap();
                            bell.ring(Urgency::Now);
                            let deadline = Instant::now() + patience;
                            let landed = match (thread + round) % 7 {
                                1 => Ok(awaited(&ticket, number as u32)),
                                _ => ticket.wait(number as u32, deadline, |result| *result),
                            };
                            match landed {
                                Ok(result) => {
                                    assert!(result.is_some());
                                    told.fetch_add(1, Ordering::Relaxed);
                                }
                                Err(TimedOut::Withdrawn) => {}
                                Err(TimedOut::InFlight) => {
                                    unknown.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                        }
                    })
                })
                .collect();
            for caller in callers {
                caller.join().unwrap();
            }
            over.store(true, Ordering::Relaxed);
            bell.ring(Urgency::Later);
        });
        let [counted, told, unknown] = [counted, told, unknown].map(AtomicUsize::into_inner);
        assert_eq!(counted, told + unknown);
        assert!(told > 64 * 400, "{told}");
    }

    #[test]
    fn no_room_until_the_deadline() {
        let queue = Queue::<Vec<u32>, Option<usize>>::new();
        let full = |_: &Vec<u32>| false;
        let soon = Instant::now() + Duration::from_millis(20);
        assert_eq!(queue.add(soon, full, |_, _| ()), Err(Refused::Full));
        assert!(Instant::now() >= soon);
        assert!(queue.tickets().next().is_none() && queue.look(Vec::is_empty));
        queue.close();
        assert_eq!(queue.add(soon, full, |_, _| ()), Err(Refused::Closed));
    }

    #[test]
    fn a_flight_that_turned_back_lets_callers_go() {
        let queue = Queue::<Vec<u32>, Option<usize>>::new();
        let far = Instant::now() + Duration::from_secs(60);
        let ticket = queue.add(
            far,
            |_| true,
            |added, ticket| {
                added.push(1);
                Arc::clone(ticket)
            },
        );
        let ticket = ticket.unwrap();
        let (_, flight) = queue.take().unwrap();
        assert!(flight.take_off().is_empty());
        let now = Instant::now();
        assert_eq!(ticket.wait(0, now, |_| ()), Err(TimedOut::InFlight));
        flight.turn_back();
        assert_eq!(ticket.wait(0, now, |_| ()), Err(TimedOut::Withdrawn));
        assert_eq!(flight.take_off(), [0]);
    }
}

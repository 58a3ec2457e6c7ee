//! Callers, a worker and the hand-off between them.

#[path = "../../../../src/operation/coalescer/handoff.rs"]
mod handoff;

/// The scheduler's, under the hand-off.
mod sync {
    pub(super) use shuttle::sync::atomic::{AtomicUsize, Ordering};
    pub(super) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(super) use std::sync::PoisonError;
}

use std::collections::BTreeSet;
use std::task::{Poll, Wake, Waker};
use std::time::{Duration, Instant};

use self::handoff::{Bell, Queue, Refused, Ticket, TimedOut, Urgency};
use self::sync::{Arc, AtomicUsize, Condvar, Mutex, Ordering};

/// Callers add their names. The result is who was counted together; nobody, if that is unknown.
type Names = Queue<Vec<Option<u32>>, BTreeSet<u32>>;

struct HandOff {
    queues: [Names; 2],
    bell: Bell,
    /// Everyone who was counted, in the order of flights.
    counted: Mutex<Vec<u32>>,
    /// Callers who have their answer.
    answered: AtomicUsize,
}

/// How a caller waits.
#[derive(Clone, Copy)]
enum Waits {
    /// Until the flight has landed.
    ForEver,
    /// Not at all.
    Never,
    /// As a task.
    AsTask,
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

impl HandOff {
    fn new() -> Arc<Self> {
        Arc::new(HandOff {
            queues: std::array::from_fn(|_| Queue::new()),
            bell: Bell::new(),
            counted: Mutex::new(vec![]),
            answered: AtomicUsize::new(0),
        })
    }

    fn queue_of(&self, name: u32) -> &Names {
        &self.queues[name as usize % 2]
    }

    /// Adds a name, rings, and waits for the answer, which is true.
    fn call(&self, name: u32, room: usize, waits: Waits) {
        let added = self.queue_of(name).add(
            far(),
            |added| added.len() < room,
            |added, ticket| {
                added.push(Some(name));
                (added.len() as u32 - 1, Arc::clone(ticket))
            },
        );
        let (number, ticket) = added.expect("the queue is open, and there is time");
        self.bell.ring(match name % 3 {
            0 => Urgency::Later,
            _ => Urgency::Now,
        });
        let read = |counted: &mut BTreeSet<u32>| counted.contains(&name);
        let answer = match waits {
            Waits::ForEver => ticket.wait(number, far(), read),
            Waits::Never => ticket.wait(number, Instant::now(), read),
            Waits::AsTask => Ok(awaited(&ticket, number, read)),
        };
        let counted = || self.counted.lock().expect("nobody panics").contains(&name);
        match answer {
            Ok(told) => assert!(told && counted(), "{name} is told that it was counted"),
            Err(TimedOut::Withdrawn) => assert!(!counted(), "{name} has withdrawn"),
            Err(TimedOut::InFlight) => {}
        }
        self.answered.fetch_add(1, Ordering::SeqCst);
        self.bell.ring(Urgency::Now);
    }

    /// Counts until so many callers have their answers. Every other flight turns back once.
    fn work(&self, callers: usize) {
        let mut turns_back = true;
        while self.answered.load(Ordering::SeqCst) < callers {
            self.bell.wait(Duration::ZERO, None);
            for queue in &self.queues {
                let Some((mut added, flight)) = queue.take() else {
                    continue;
                };
                let mut withdraw = |numbers: Vec<u32>| {
                    for number in numbers {
                        added[number as usize] = None;
                    }
                };
                withdraw(flight.take_off());
                if turns_back {
                    flight.turn_back();
                    withdraw(flight.take_off());
                }
                turns_back = !turns_back;
                let names: Vec<u32> = added.into_iter().flatten().collect();
                self.counted.lock().expect("nobody panics").extend(&names);
                flight.land(names.into_iter().collect());
            }
        }
    }

    /// Nobody was counted twice.
    fn check(&self) {
        let counted = self.counted.lock().expect("nobody panics");
        let different: BTreeSet<_> = counted.iter().collect();
        assert_eq!(different.len(), counted.len(), "{counted:?}");
    }
}

/// A task, as far as it sleeps until it is woken.
struct Task {
    woken: Mutex<bool>,
    wakes: Condvar,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().expect("nobody panics") = true;
        self.wakes.notify_one();
    }
}

/// Polls until the flight has landed, and sleeps in between.
fn awaited<R, T>(ticket: &Ticket<R>, number: u32, read: impl Fn(&mut R) -> T) -> T {
    let task = Arc::new(Task {
        woken: Mutex::new(false),
        wakes: Condvar::new(),
    });
    let waker = Waker::from(Arc::clone(&task));
    loop {
        if let Poll::Ready(told) = ticket.poll(number, &waker, &read) {
            return told;
        }
        let mut woken = task.woken.lock().expect("nobody panics");
        while !std::mem::take(&mut *woken) {
            woken = task.wakes.wait(woken).expect("nobody panics");
        }
    }
}

/// Six callers on two queues with room for two: some wait for ever, some not at all, some as tasks.
pub fn callers_who_wait_in_every_way() {
    let hand_off = HandOff::new();
    let ways = [Waits::ForEver, Waits::Never, Waits::AsTask];
    let callers = (0..6).zip(ways.into_iter().cycle()).map(|(name, waits)| {
        let hand_off = Arc::clone(&hand_off);
        shuttle::thread::spawn(move || hand_off.call(name, 2, waits))
    });
    let callers: Vec<_> = callers.collect();
    hand_off.work(callers.len());
    for caller in callers {
        caller.join().expect("its answer is true");
    }
    hand_off.check();
}

/// Three callers count three times each, one after the other, where there is room for one.
pub fn callers_who_find_no_room() {
    let hand_off = HandOff::new();
    let callers = (0..3).map(|caller| {
        let hand_off = Arc::clone(&hand_off);
        shuttle::thread::spawn(move || {
            (0..3).for_each(|call| hand_off.call(caller + 4 * call, 1, Waits::ForEver));
        })
    });
    let callers: Vec<_> = callers.collect();
    hand_off.work(3 * callers.len());
    for caller in callers {
        caller.join().expect("its answer is true");
    }
    hand_off.check();
    assert_eq!(hand_off.counted.lock().expect("nobody panics").len(), 9);
}

/// Callers come while the queue is closed: each is refused, or counted by the worker's last look.
pub fn callers_beside_a_close() {
    let hand_off = HandOff::new();
    let callers = (0..4).map(|caller: u32| {
        let hand_off = Arc::clone(&hand_off);
        shuttle::thread::spawn(move || {
            let name = 2 * caller; // all on one queue
            let added = hand_off.queue_of(name).add(
                far(),
                |added| added.len() < 2,
                |added, ticket| {
                    added.push(Some(name));
                    Arc::clone(ticket)
                },
            );
            match added {
                Ok(ticket) => awaited(&ticket, caller, |counted| counted.contains(&name)),
                Err(refused) => {
                    assert_eq!(refused, Refused::Closed);
                    false
                }
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    let [queue, _] = &hand_off.queues;
    let mut counted = 0;
    let mut land = || {
        if let Some((added, flight)) = queue.take() {
            assert!(flight.take_off().is_empty());
            counted += added.len();
            flight.land(added.into_iter().flatten().collect());
        }
    };
    land();
    queue.close();
    land();
    let told = callers
        .into_iter()
        .map(|caller| caller.join().expect("nobody panics"));
    assert_eq!(told.filter(|told| *told).count(), counted);
    assert!(queue.look(Vec::is_empty));
}

/// Callers wait for room that never comes, and a close refuses them.
pub fn callers_who_are_refused() {
    let hand_off = HandOff::new();
    let callers = [0, 2, 4].map(|name| {
        let hand_off = Arc::clone(&hand_off);
        shuttle::thread::spawn(move || {
            let queue = hand_off.queue_of(name);
            let refused = queue.add(far(), |_| false, |added, _| added.push(Some(name)));
            assert_eq!(refused, Err(Refused::Closed));
        })
    });
    hand_off.queue_of(0).close();
    for caller in callers {
        caller.join().expect("nobody is left waiting");
    }
}

/// Three bells are rung for later and for now, again and again; each addition is taken.
pub fn bells_that_ring_at_once() {
    let rung = Arc::new((Bell::new(), AtomicUsize::new(0)));
    let ringers = [Urgency::Later, Urgency::Now, Urgency::Later].map(|urgency| {
        let rung = Arc::clone(&rung);
        shuttle::thread::spawn(move || {
            for _ in 0..3 {
                rung.1.fetch_add(1, Ordering::SeqCst);
                rung.0.ring(urgency);
            }
        })
    });
    let mut taken = 0;
    while taken < 9 {
        assert!(rung.0.wait(Duration::ZERO, None));
        taken = rung.1.load(Ordering::SeqCst);
    }
    for ringer in ringers {
        ringer.join().expect("nobody panics");
    }
}

/// A worker that lets go of its flights leaves nobody waiting.
pub fn a_worker_that_lets_go() {
    let hand_off = HandOff::new();
    let callers = [0, 2, 4].map(|name| {
        let hand_off = Arc::clone(&hand_off);
        shuttle::thread::spawn(move || {
            let queue = hand_off.queue_of(name);
            let added = queue.add(
                far(),
                |added| added.len() < 2,
                |_, ticket| Arc::clone(ticket),
            );
            let ticket = added.expect("the queue is open, and there is time");
            hand_off.answered.fetch_add(1, Ordering::SeqCst);
            hand_off.bell.ring(Urgency::Now);
            assert!(awaited(&ticket, name, |counted| counted.is_empty()));
        })
    });
    let [queue, _] = &hand_off.queues;
    let mut let_go = 0;
    while let_go < callers.len() {
        hand_off.bell.wait(Duration::ZERO, None);
        let_go = hand_off.answered.load(Ordering::SeqCst);
        assert!(queue.tickets().count() <= 2);
        drop(queue.take());
    }
    for caller in callers {
        caller.join().expect("nobody is left waiting");
    }
}

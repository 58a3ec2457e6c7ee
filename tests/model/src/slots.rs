//! Threads that combine on one counter, over the locks of the model checker loom.

#[path = "../../../src/operation/combine/slots.rs"]
mod of_library;
#[path = "../../../src/connection/wait.rs"]
mod wait;

/// The model checker's, under the slots.
mod sync {
    pub(super) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(super) use std::sync::PoisonError;
}

use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicI64, Ordering};
use loom::thread;

use self::of_library::{Entered, Lead, Outcome, Slots, Turn};
use self::wait::Waiting;

const PATIENT: Duration = Duration::from_secs(3600);

/// How a caller behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// It counts, for others too.
    Counts,
    /// It counts its own amount, and may count for nobody else.
    CountsAlone,
    /// It gives up as soon as it has to wait.
    GivesUp,
    /// It does not wait for its turn, but counts alone.
    Impatient,
}

/// The slots, the sum that was counted, and the sum of what callers were told is counted.
struct Counter {
    slots: Arc<Slots<u8>>,
    counted: AtomicI64,
    told: AtomicI64,
}

impl Counter {
    fn count(&self, caller: Caller, n: i64) {
        match Slots::enter(&self.slots, 7, &[n]) {
            Entered::Leads(lead) => {
                self.counted.fetch_add(n, Ordering::SeqCst);
                self.count_for_others(caller, lead);
            }
            Entered::Waits(wait) if caller == Caller::GivesUp => return drop(wait),
            Entered::Waits(wait) => {
                let patience = match caller {
                    Caller::Impatient => Duration::ZERO,
                    _ => PATIENT,
                };
                match wait.block(patience) {
                    Turn::Ended(outcome) => assert_eq!(outcome, Outcome::Counted(1)),
                    Turn::Leads(lead) if caller != Caller::CountsAlone => {
                        self.count_for_others(caller, lead);
                    }
                    Turn::Leads(_) | Turn::Left => {
                        self.counted.fetch_add(n, Ordering::SeqCst);
                    }
                }
            }
        }
        self.told.fetch_add(n, Ordering::SeqCst);
    }

    fn count_for_others(&self, caller: Caller, mut lead: Lead<u8>) {
        while let Some((sums, _)) = lead.next() {
            if caller == Caller::CountsAlone {
                return; // the lead is dropped before anything was sent
            }
            lead.send();
            self.counted.fetch_add(sums[0] as i64, Ordering::SeqCst);
            lead.end(Outcome::Counted(1));
        }
    }
}

/// What callers are told is counted once, and nothing else but what somebody gave up too late; and no slot stays.
pub fn each_amount_is_counted_once(callers: &'static [Caller]) {
    let counter = Arc::new(Counter {
        slots: Arc::new(Slots::new()),
        counted: AtomicI64::new(0),
        told: AtomicI64::new(0),
    });
    let threads: Vec<_> = (1..callers.len())
        .map(|number| {
            let counter = Arc::clone(&counter);
            thread::spawn(move || counter.count(callers[number], 1 << number))
        })
        .collect();
    counter.count(callers[0], 1);
    for thread in threads {
        thread.join().expect("no panic");
    }
    let told = counter.told.load(Ordering::SeqCst);
    let too_much = counter.counted.load(Ordering::SeqCst) - told;
    let given_up = callers.iter().enumerate();
    let given_up: i64 = given_up
        .filter(|(_, caller)| **caller == Caller::GivesUp)
        .map(|(number, _)| 1 << number)
        .sum();
    assert!(too_much & !given_up == 0 && too_much >= 0, "{too_much}");
    assert!(matches!(
        Slots::enter(&counter.slots, 7, &[1]),
        Entered::Leads(_)
    ));
}

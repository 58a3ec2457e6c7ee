//! Threads that combine on one counter.

use std::task::Poll;
use std::time::{Duration, Instant};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicI64, Ordering};
use loom::thread;

use crate::slots::{Entered, Lead, Outcome, Slots, Turn};
use crate::task::awaited;
use crate::wait::Waiting;

const PATIENT: Duration = Duration::from_secs(3600);

/// How a caller behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// It counts, for others too.
    Counts,
    /// It counts on others' counters too.
    CountsAll,
    /// It counts its own amount, and may count for nobody else.
    CountsAlone,
    /// It counts nothing of a batch: each of the batch's callers counts alone.
    Fails,
    /// It leads beside one other.
    Beside,
    /// It counts on another counter of the same slot.
    CountsOther,
    /// It is a task, which waits until it is woken.
    Awaits,
    /// It gives up as soon as it has to wait.
    GivesUp,
    /// It is a task that gives up when it is woken.
    GivesUpWoken,
    /// It takes whoever leads for asleep.
    Impatient,
    /// It does so, and has no time left to lead.
    OutOfTime,
    /// It is a task that does so when it is woken.
    ImpatientWoken,
}

/// The slots, the sum that was counted, and the sum of what callers were told is counted.
struct Counter {
    slots: Arc<Slots<u8>>,
    counted: AtomicI64,
    told: AtomicI64,
}

impl Counter {
    fn count(&self, caller: Caller, n: i64) {
        let key = if caller == Caller::CountsOther { 8 } else { 7 };
        let slot = (7, if caller == Caller::Beside { 2 } else { 1 });
        match Slots::enter(&self.slots, slot, key, &[n], Instant::now()) {
            Entered::Leads(lead) => {
                self.counted.fetch_add(n, Ordering::SeqCst);
                self.count_for_others(caller, lead);
            }
            Entered::Waits(wait) if caller == Caller::GivesUp => return drop(wait),
            Entered::Waits(mut wait) => {
                let patience = match caller {
                    Caller::Impatient | Caller::OutOfTime => Duration::ZERO,
                    _ => PATIENT,
                };
                wait = wait.without_lead(caller == Caller::OutOfTime);
                let mut is_woken = false;
                let turn = match caller {
                    Caller::Awaits => awaited(|task| wait.poll(task)),
                    Caller::GivesUpWoken | Caller::ImpatientWoken => {
                        let turn = awaited(|task| match std::mem::replace(&mut is_woken, true) {
                            true => Poll::Ready(None),
                            false => wait.poll(task).map(Some),
                        });
                        match turn {
                            Some(turn) => turn,
                            None if caller == Caller::GivesUpWoken => return,
                            None => wait.block(Duration::ZERO),
                        }
                    }
                    _ => wait.block(patience),
                };
                let outcome = match turn {
                    Turn::Ended(outcome) => outcome,
                    Turn::Leads(_) if caller == Caller::OutOfTime => Outcome::Nothing,
                    Turn::Leads(lead) => self.count_for_others(caller, lead),
                    Turn::Left => Outcome::Nothing,
                };
                if matches!(outcome, Outcome::Nothing | Outcome::Failed(_)) {
                    self.counted.fetch_add(n, Ordering::SeqCst);
                }
            }
        }
        self.told.fetch_add(n, Ordering::SeqCst);
    }

    /// The outcome of the first batch.
    fn count_for_others(&self, caller: Caller, mut lead: Lead<u8>) -> Outcome {
        let outcome = match caller {
            Caller::Fails => Outcome::Failed("a conflict".into()),
            Caller::CountsAlone => Outcome::Nothing,
            _ => Outcome::Counted(1),
        };
        while lead.next(|_| matches!(caller, Caller::CountsAll | Caller::CountsAlone)) {
            if caller == Caller::CountsAlone {
                break; // the lead is dropped before anything was sent
            }
            let sent = lead.send();
            assert!(sent.iter().all(|batch| batch.since.is_some()));
            if outcome == Outcome::Counted(1) {
                let sum: i128 = sent.iter().map(|batch| batch.sums[0]).sum();
                assert!(
                    sent.iter()
                        .all(|batch| batch.callers > 0 && [7, 8].contains(&batch.key))
                );
                self.counted.fetch_add(sum as i64, Ordering::SeqCst);
            }
            lead.end(sent.iter().map(|_| outcome.clone()));
        }
        outcome
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
        .filter(|(_, caller)| matches!(caller, Caller::GivesUp | Caller::GivesUpWoken))
        .map(|(number, _)| 1 << number)
        .sum();
    assert!(too_much & !given_up == 0 && too_much >= 0, "{too_much}");
    assert!(!counter.slots.has(&7));
}

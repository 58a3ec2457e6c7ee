//! Threads that combine on one counter.

use std::task::Poll;
use std::time::{Duration, Instant};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicI64, Ordering};
use loom::thread;

use crate::slots::{Entered, Lead, Member, Outcome, Slots, Turn};
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
    /// It gives up as soon as it has to wait.
    GivesUp,
    /// It gives up when it is woken.
    GivesUpWoken,
    /// It takes over as soon as it has to wait.
    Impatient,
    /// It takes over when it is woken.
    ImpatientWoken,
    /// It leaves as soon as it has to wait, or when it is to lead.
    OutOfTime,
}

/// The slots, the sum that was counted, and the sum of what callers were told is counted.
struct Counter {
    slots: Arc<Slots>,
    counted: AtomicI64,
    told: AtomicI64,
}

fn key_of(caller: Caller) -> u8 {
    if caller == Caller::CountsOther { 8 } else { 7 }
}

impl Counter {
    fn count(&self, caller: Caller, n: i64) {
        let key = key_of(caller);
        let slot = (7, if caller == Caller::Beside { 2 } else { 1 });
        match Slots::enter(&self.slots, slot, key, &[i128::from(n)], Instant::now()) {
            // Its first batch contains its own amount.
            Entered::Leads(lead) if lead.was_member() => {
                let outcome = self.count_for_others(caller, lead);
                if matches!(outcome, Outcome::Nothing | Outcome::Failed(_)) {
                    self.counted.fetch_add(n, Ordering::SeqCst);
                }
            }
            Entered::Leads(mut lead) => {
                self.counted.fetch_add(n, Ordering::SeqCst);
                lead.has_counted();
                self.count_for_others(caller, lead);
            }
            Entered::Waits(member) => {
                let outcome = match wait(caller, member) {
                    Ended::GivenUp => return,
                    Ended::Left => Outcome::Nothing,
                    Ended::Turn(Turn::Done(outcome)) => outcome,
                    Ended::Turn(Turn::Leads(_)) if caller == Caller::OutOfTime => Outcome::Nothing,
                    Ended::Turn(Turn::Leads(lead)) => self.count_for_others(caller, lead),
                };
                if matches!(outcome, Outcome::Nothing | Outcome::Failed(_)) {
                    self.counted.fetch_add(n, Ordering::SeqCst);
                }
            }
        }
        self.told.fetch_add(n, Ordering::SeqCst);
    }

    /// The outcome of the first batch.
    fn count_for_others(&self, caller: Caller, mut lead: Lead) -> Outcome {
        let key = key_of(caller);
        let outcome = match caller {
            Caller::Fails => Outcome::Failed("a conflict".into()),
            Caller::CountsAlone => Outcome::Nothing,
            _ => Outcome::Counted(1),
        };
        let counts = |_: &u8| matches!(caller, Caller::CountsAll | Caller::CountsAlone);
        while lead.has_work(&counts) {
            if caller == Caller::CountsAlone {
                break; // the lead is dropped before anything ran
            }
            let is_own_first = lead.was_member();
            lead.answered(Duration::ZERO);
            let running = lead.run(&counts);
            assert!(!is_own_first || running[0].key == key);
            assert!(running.iter().all(|batch| batch.since.is_some()));
            if outcome == Outcome::Counted(1) {
                let sum: i128 = running.iter().map(|batch| batch.sums[0]).sum();
                assert!(
                    running
                        .iter()
                        .all(|batch| batch.members > 0 && [7, 8].contains(&batch.key))
                );
                self.counted.fetch_add(sum as i64, Ordering::SeqCst);
            }
            lead.end(running.iter().map(|_| outcome.clone()).collect());
        }
        outcome
    }
}

/// How a caller's wait ended.
enum Ended {
    Turn(Turn),
    Left,
    GivenUp,
}

fn wait(caller: Caller, mut member: Member) -> Ended {
    // A thread; the others are tasks.
    if caller == Caller::Counts {
        let turn = member.block(PATIENT);
        return Ended::Turn(turn.expect("it is woken"));
    }
    let mut is_woken = false;
    let first = awaited(|task| match std::mem::replace(&mut is_woken, true) {
        true => Poll::Ready(None),
        false => match (member.poll(task), caller) {
            (Poll::Pending, Caller::GivesUp | Caller::Impatient | Caller::OutOfTime) => {
                Poll::Ready(None)
            }
            (turn, _) => turn.map(Some),
        },
    });
    let turn = first.or_else(|| match caller {
        Caller::Impatient | Caller::ImpatientWoken => {
            member.take_over(Duration::ZERO).map(Turn::Leads)
        }
        _ => None,
    });
    match (turn, caller) {
        (Some(turn), _) => Ended::Turn(turn),
        (None, Caller::GivesUp | Caller::GivesUpWoken) => Ended::GivenUp,
        (None, Caller::OutOfTime) if member.leave() => Ended::Left,
        _ => Ended::Turn(awaited(|task| member.poll(task))),
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

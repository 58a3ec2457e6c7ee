//! Who counts for whom: the part of combining that knows no database.
//!
//! A slot stands for one counter, or for all counters of a database that has one writer at a time, and exists while somebody leads it. A caller
//! who finds no slot leads: it counts its own amount, and then, round by round, whatever others added to the same counter meanwhile. A caller
//! who finds a slot adds its amount to the open batch of its counter and waits. After a few rounds, or if only other counters are left, the
//! leader offers the oldest batch to those who wait for it, and one of them leads on.
//!
//! | a batch is | its callers | it becomes |
//! |---|---|---|
//! | open | join, and may leave | taken by the leader, or offered |
//! | offered | may leave; the first who comes leads | taken |
//! | taken | may leave | sent, or offered if the lead is dropped |
//! | sent | wait for the outcome | ended |
//! | ended | read the outcome | |
//!
//! After [flat combining](https://doi.org/10.1145/1810479.1810540) (Hendler, Incze, Shavit, Tzafrir, 2010). There the combiner works on a
//! structure in memory; here its work is a statement, on its own connection.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use super::wait::Waiting;

/// Slots are spread over so many maps, so that callers of different counters seldom meet.
const MAPS: usize = 16;

/// How many batches a leader counts before it offers the next one to those who wait.
const ROUNDS: u8 = 4;

/// The slots of one process, by the counter.
pub(crate) struct Slots<K> {
    maps: [Mutex<Map<K>>; MAPS],
}

/// The open batches of each slot, from the oldest on; in a slot of one counter there is one at most.
type Map<K> = HashMap<K, VecDeque<(K, Arc<Batch>)>, Hasher>;

/// The same in each run: the model checker repeats what it has seen.
type Hasher = BuildHasherDefault<DefaultHasher>;

/// The role of a caller who came to a slot.
pub(crate) enum Entered<K: Key> {
    Leads(Lead<K>),
    Waits(Wait<K>),
}

/// How a wait ended.
pub(crate) enum Turn<K: Key> {
    /// The batch was counted, or was not.
    Ended(Outcome),
    /// The caller leads, and begins with the batch that holds its own amount.
    Leads(Lead<K>),
    /// The deadline has passed. The amount was taken back.
    Left,
}

/// The outcome of a batch, for each of its callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// So many rows were counted on.
    Counted(usize),
    /// Nothing was counted, for certain: each caller counts alone.
    Nothing,
    /// Nobody knows whether the batch was counted, for this reason.
    Unknown(Box<str>),
}

/// The name of a counter.
pub(crate) trait Key: Hash + Eq + Clone + Send {}

impl<K: Hash + Eq + Clone + Send> Key for K {}

impl<K: Key> Slots<K> {
    pub(crate) fn new() -> Self {
        Slots {
            maps: std::array::from_fn(|_| Mutex::new(Map::default())),
        }
    }

    /// Comes to the slot with an amount for each field of the counter `key`.
    pub(crate) fn enter(slots: &Arc<Self>, slot: K, key: K, amounts: &[i64]) -> Entered<K> {
        let mut map = slots.map(&slot);
        let (slot, batch) = match map.entry(slot) {
            Entry::Vacant(vacant) => {
                let slot = vacant.key().clone();
                vacant.insert(VecDeque::new());
                return Entered::Leads(Lead {
                    slots: Arc::clone(slots),
                    slot,
                    key,
                    batch: None,
                    own: None,
                    rounds: 0,
                    is_sent: false,
                    leads: true,
                });
            }
            Entry::Occupied(led) => {
                let slot = led.key().clone();
                let open = led.into_mut();
                let batch = match open.iter().find(|(of, _)| *of == key) {
                    Some((_, batch)) => Arc::clone(batch),
                    None => {
                        let batch = Arc::new(Batch::default());
                        open.push_back((key.clone(), Arc::clone(&batch)));
                        batch
                    }
                };
                (slot, batch)
            }
        };
        let number = batch.lock().join(amounts);
        drop(map);
        Entered::Waits(Wait {
            slots: Arc::clone(slots),
            slot,
            key,
            batch,
            number,
            amounts: amounts.into(),
            waits: true,
        })
    }

    fn map(&self, key: &K) -> MutexGuard<'_, Map<K>> {
        let hash = Hasher::default().hash_one(key);
        lock(&self.maps[hash as usize % MAPS])
    }

    /// The leader of the slot leaves it to one of those who wait; without any, the slot ends.
    fn pass_on(&self, slot: &K) {
        let mut map = self.map(slot);
        let offered = match map.get_mut(slot).and_then(VecDeque::pop_front) {
            Some((_, oldest)) => oldest.offer(),
            None => {
                map.remove(slot);
                None
            }
        };
        drop(map); // whoever is woken may come to the slot at once
        wake(offered);
    }

    /// Offers a batch that was taken and not sent; without anybody who waits for it, another one.
    fn offer(&self, slot: &K, batch: &Batch) {
        let map = self.map(slot); // nobody leaves meanwhile
        let is_empty = batch.lock().callers == 0;
        let offered = if is_empty { None } else { batch.offer() };
        drop(map);
        wake(offered);
        if is_empty {
            self.pass_on(slot);
        }
    }

    /// How many slots there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.maps.iter().map(|map| lock(map).len()).sum()
    }
}

/// The amounts of callers who wait together.
#[derive(Default)]
pub(crate) struct Batch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// The sum for each field.
    sums: Vec<i128>,
    /// How many callers the sums are of.
    callers: usize,
    /// The number of the next caller.
    next: u64,
    /// The tasks that wait, by their numbers.
    tasks: BTreeMap<u64, Waker>,
}

#[derive(Default)]
enum Phase {
    #[default]
    Open,
    Offered,
    Taken,
    Sent,
    Ended(Outcome),
}

impl Batch {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Offers the lead to those who wait; the batch has one at least. Returns a task that is to be woken when no lock is held.
    fn offer(&self) -> Option<Waker> {
        let mut state = self.lock();
        state.phase = Phase::Offered;
        let task = state.tasks.pop_first();
        drop(state);
        self.changed.notify_one();
        task.map(|(_, task)| task)
    }

    fn end(&self, outcome: Outcome) {
        let mut state = self.lock();
        state.phase = Phase::Ended(outcome);
        let tasks = std::mem::take(&mut state.tasks);
        drop(state);
        self.changed.notify_all();
        tasks.into_values().for_each(Waker::wake);
    }
}

impl State {
    fn join(&mut self, amounts: &[i64]) -> u64 {
        self.sums.resize(amounts.len(), 0);
        for (sum, n) in self.sums.iter_mut().zip(amounts) {
            *sum += i128::from(*n);
        }
        self.callers += 1;
        self.next += 1;
        self.next
    }

    fn leave(&mut self, amounts: &[i64]) {
        for (sum, n) in self.sums.iter_mut().zip(amounts) {
            *sum -= i128::from(*n);
        }
        self.callers -= 1;
    }
}

/// A caller who waits for the batch that it has joined. If it is dropped, it takes its amount back, unless that was taken.
pub(crate) struct Wait<K: Key> {
    slots: Arc<Slots<K>>,
    slot: K,
    key: K,
    batch: Arc<Batch>,
    number: u64,
    amounts: Box<[i64]>,
    waits: bool,
}

impl<K: Key> Waiting for Wait<K> {
    type Turn = Turn<K>;

    fn block(mut self, patience: Duration) -> Turn<K> {
        let deadline = Instant::now().checked_add(patience);
        let batch = Arc::clone(&self.batch);
        let mut state = batch.lock();
        loop {
            if let Some(turn) = self.turn(&mut state) {
                return turn;
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let may_leave = !matches!(state.phase, Phase::Sent);
            state = match left.filter(|_| may_leave) {
                None => batch
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => {
                    drop(state); // the map's lock comes first
                    if let Some(left) = self.leave() {
                        return left;
                    }
                    batch.lock()
                }
                Some(left) => {
                    let waited = batch.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Turn<K>> {
        let (batch, task) = (Arc::clone(&self.batch), context.waker().clone());
        let mut state = batch.lock();
        let turn = self.turn(&mut state);
        let before = match turn {
            Some(_) => state.tasks.remove(&self.number),
            None => state.tasks.insert(self.number, task),
        };
        drop(state);
        drop(before); // not under the lock: it may be the last of its task
        turn.map_or(Poll::Pending, Poll::Ready)
    }

    fn leave(&mut self) -> Option<Turn<K>> {
        self.take_back().then_some(Turn::Left)
    }
}

impl<K: Key> Wait<K> {
    fn turn(&mut self, state: &mut State) -> Option<Turn<K>> {
        match &state.phase {
            Phase::Open | Phase::Taken | Phase::Sent => None,
            Phase::Ended(outcome) => {
                self.waits = false;
                Some(Turn::Ended(outcome.clone()))
            }
            Phase::Offered => {
                state.phase = Phase::Taken;
                self.waits = false;
                Some(Turn::Leads(Lead {
                    slots: Arc::clone(&self.slots),
                    slot: self.slot.clone(),
                    key: self.key.clone(),
                    batch: Some(Arc::clone(&self.batch)),
                    own: Some(std::mem::take(&mut self.amounts)),
                    rounds: 0,
                    is_sent: false,
                    leads: true,
                }))
            }
        }
    }

    /// Takes the amount back. False if it was sent before.
    fn take_back(&mut self) -> bool {
        let mut map = self.slots.map(&self.slot);
        let mut state = self.batch.lock();
        let task = state.tasks.remove(&self.number);
        let is_offered = match state.phase {
            Phase::Open | Phase::Taken => false,
            Phase::Offered => true,
            Phase::Sent | Phase::Ended(_) => {
                drop((state, map));
                drop(task);
                return false;
            }
        };
        state.leave(&self.amounts);
        self.waits = false;
        let is_empty = state.callers == 0;
        drop(state);
        let offered = match (is_empty, is_offered) {
            (true, false) => {
                // The leader is there, and the next caller opens another batch.
                if let Some(open) = map.get_mut(&self.slot) {
                    open.retain(|(_, batch)| !Arc::ptr_eq(batch, &self.batch));
                }
                None
            }
            // The offer may have woken this very caller.
            (false, true) => self.batch.offer(),
            _ => None,
        };
        drop(map);
        drop(task);
        wake(offered);
        if is_empty && is_offered {
            self.slots.pass_on(&self.slot);
        }
        true
    }
}

impl<K: Key> Drop for Wait<K> {
    fn drop(&mut self) {
        if self.waits {
            self.take_back();
        }
    }
}

/// The lead of a slot. If it is dropped, somebody else leads on; what was not sent is theirs to count, and what was has an unknown outcome. The
/// caller's own amounts are its own to count then.
pub(crate) struct Lead<K: Key> {
    slots: Arc<Slots<K>>,
    slot: K,
    /// The counter that it counts on.
    key: K,
    /// The batch that is being counted.
    batch: Option<Arc<Batch>>,
    /// The caller's own amounts, if they are in the batch.
    own: Option<Box<[i64]>>,
    rounds: u8,
    is_sent: bool,
    leads: bool,
}

impl<K: Key> Lead<K> {
    /// Whether there is a batch to be counted. If nobody waits, or others have to lead on, the lead ends.
    pub(crate) fn next(&mut self) -> bool {
        if self.batch.is_none() && self.leads {
            self.take();
        }
        self.batch.is_some()
    }

    fn take(&mut self) {
        if self.rounds >= ROUNDS {
            return self.pass_on();
        }
        self.rounds += 1;
        let mut map = self.slots.map(&self.slot);
        let own = map.get_mut(&self.slot).and_then(|open| {
            let number = open.iter().position(|(of, _)| *of == self.key)?;
            open.remove(number)
        });
        match own {
            Some((_, batch)) => {
                batch.lock().phase = Phase::Taken;
                self.batch = Some(batch);
            }
            None => {
                drop(map);
                self.pass_on();
            }
        }
    }

    /// The sums of the batch, and the number of its callers, of whom nobody may leave any more: the outcome is unknown until it
    /// [ends](Self::end). `None` if all have left.
    pub(crate) fn send(&mut self) -> Option<(Vec<i128>, usize)> {
        let batch = self.batch.as_ref()?;
        let mut state = batch.lock();
        if state.callers == 0 {
            drop(state);
            self.batch = None;
            return None;
        }
        state.phase = Phase::Sent;
        self.is_sent = true;
        Some((state.sums.clone(), state.callers))
    }

    /// Hands the outcome of the batch to its callers.
    pub(crate) fn end(&mut self, outcome: Outcome) {
        self.is_sent = false;
        self.own = None;
        if let Some(batch) = self.batch.take() {
            batch.end(outcome);
        }
    }

    /// Leaves the slot to others, with a batch that was not sent. The caller's own amounts in it are the caller's again.
    fn give_back(&mut self) {
        let Some(batch) = self.batch.take() else {
            return self.pass_on();
        };
        if let Some(own) = self.own.take() {
            batch.lock().leave(&own);
        }
        self.leads = false;
        self.slots.offer(&self.slot, &batch);
    }

    fn pass_on(&mut self) {
        self.leads = false;
        self.slots.pass_on(&self.slot);
    }
}

impl<K: Key> Drop for Lead<K> {
    fn drop(&mut self) {
        if self.is_sent {
            self.end(Outcome::Unknown(
                "the caller who counted for others was cancelled".into(),
            ));
        }
        if self.leads {
            self.give_back();
        }
    }
}

fn wake(task: Option<Waker>) {
    if let Some(task) = task {
        task.wake();
    }
}

/// Ignores poison: no caller's code runs under a lock, but for a key's `Hash`, `Eq` and `Clone`.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
    use std::thread;

    const PATIENT: Duration = Duration::from_secs(300);

    fn slots() -> Arc<Slots<u8>> {
        Arc::new(Slots::new())
    }

    fn lead(slots: &Arc<Slots<u8>>) -> Lead<u8> {
        match Slots::enter(slots, 7, 7, &[1]) {
            Entered::Leads(lead) => lead,
            Entered::Waits(_) => panic!("somebody leads"),
        }
    }

    fn wait(slots: &Arc<Slots<u8>>, n: i64) -> Wait<u8> {
        wait_for(slots, 7, n)
    }

    fn wait_for(slots: &Arc<Slots<u8>>, key: u8, n: i64) -> Wait<u8> {
        match Slots::enter(slots, 7, key, &[n]) {
            Entered::Waits(wait) => wait,
            Entered::Leads(_) => panic!("nobody leads"),
        }
    }

    /// The sums of the next batch, and its callers, as it is sent.
    fn sent(lead: &mut Lead<u8>) -> Option<(Vec<i128>, usize)> {
        while lead.next() {
            if let Some(sent) = lead.send() {
                return Some(sent);
            }
        }
        None
    }

    /// The next batch has this sum and so many callers, and is counted.
    fn counts(lead: &mut Lead<u8>, sum: i128, callers: usize) {
        assert_eq!(sent(lead), Some((vec![sum], callers)));
        lead.end(Outcome::Counted(1));
    }

    /// Nothing is left to count, and nobody waits.
    fn ends(mut lead: Lead<u8>, slots: &Slots<u8>) {
        assert_eq!((sent(&mut lead), slots.len()), (None, 0));
    }

    fn outcome(wait: Wait<u8>) -> Outcome {
        match wait.block(PATIENT) {
            Turn::Ended(outcome) => outcome,
            Turn::Leads(_) => panic!("it leads"),
            Turn::Left => panic!("it left"),
        }
    }

    fn leads(wait: Wait<u8>) -> Lead<u8> {
        match wait.block(PATIENT) {
            Turn::Leads(lead) => lead,
            Turn::Ended(outcome) => panic!("{outcome:?}"),
            Turn::Left => panic!("it left"),
        }
    }

    #[test]
    fn whoever_comes_while_another_counts_is_counted_together() {
        let slots = slots();
        let mut lead = lead(&slots);
        let waits = [wait(&slots, 2), wait(&slots, -5)];
        assert_eq!(sent(&mut lead), Some((vec![-3], 2)));
        let late = wait(&slots, 1);
        lead.end(Outcome::Counted(1));
        let counted = || Outcome::Counted(1);
        assert_eq!(waits.map(outcome), [counted(), counted()]);
        assert_eq!(sent(&mut lead), Some((vec![1], 1)));
        lead.end(Outcome::Nothing);
        assert_eq!(outcome(late), Outcome::Nothing);
        ends(lead, &slots);
    }

    #[test]
    fn counters_do_not_meet() {
        let slots = slots();
        let _seven = lead(&slots);
        let other = Slots::enter(&slots, 8, 8, &[1]);
        assert!(matches!(other, Entered::Leads(_)));
    }

    /// Where a database has one writer at a time, whoever counts on another counter waits for its turn, in the order in which they came.
    #[test]
    fn counters_of_one_slot_take_turns() {
        let slots = slots();
        let mut first = lead(&slots);
        let other = |key| wait_for(&slots, key, 1);
        let (eight, nine, again) = (other(8), other(9), other(8));
        let own = wait(&slots, 2);
        counts(&mut first, 2, 1);
        outcome(own);
        assert_eq!(sent(&mut first), None);
        let mut second = leads(eight);
        counts(&mut second, 2, 2);
        outcome(again);
        assert_eq!(sent(&mut second), None);
        let mut third = leads(nine);
        counts(&mut third, 1, 1);
        ends(third, &slots);
    }

    #[test]
    fn a_leader_counts_a_few_rounds_and_then_somebody_else_leads() {
        let slots = slots();
        let mut first = lead(&slots);
        for _ in 0..ROUNDS {
            let wait = wait(&slots, 1);
            counts(&mut first, 1, 1);
            outcome(wait);
        }
        let next = wait(&slots, 3);
        assert_eq!(sent(&mut first), None);
        drop(first);
        let mut second = leads(next);
        let late = wait(&slots, 1);
        counts(&mut second, 3, 1);
        counts(&mut second, 1, 1);
        outcome(late);
        ends(second, &slots);
    }

    #[test]
    fn who_leaves_takes_the_amount_back() {
        let slots = slots();
        let mut leader = lead(&slots);
        let (stays, leaves) = (wait(&slots, 2), wait(&slots, 40));
        let leaves_late = wait(&slots, 6_000);
        assert!(matches!(leaves.block(Duration::ZERO), Turn::Left));
        drop(wait(&slots, 500));
        assert!(leader.next());
        // Taken, but not sent.
        drop(leaves_late);
        assert_eq!(leader.send(), Some((vec![2], 1)));
        leader.end(Outcome::Counted(1));
        assert_eq!(outcome(stays), Outcome::Counted(1));
        ends(leader, &slots);
    }

    #[test]
    fn a_batch_that_all_have_left_is_not_sent() {
        let slots = slots();
        let mut lead = lead(&slots);
        let leaves = wait(&slots, 2);
        assert!(lead.next());
        drop(leaves);
        let stays = wait(&slots, 3);
        counts(&mut lead, 3, 1);
        outcome(stays);
        ends(lead, &slots);
    }

    #[test]
    fn who_was_sent_waits_beyond_the_deadline() {
        let slots = slots();
        let mut lead = lead(&slots);
        let waits = wait(&slots, 2);
        assert!(sent(&mut lead).is_some());
        thread::scope(|scope| {
            let waits = scope.spawn(|| matches!(waits.block(Duration::ZERO), Turn::Ended(_)));
            thread::sleep(Duration::from_millis(20));
            lead.end(Outcome::Counted(1));
            assert!(waits.join().unwrap());
        });
    }

    #[test]
    fn the_lead_passes_on_when_it_is_dropped() {
        let slots = slots();
        // Before it has taken a batch, and after that, but before it has sent it.
        for takes in [false, true] {
            let mut first = lead(&slots);
            let (one, other) = (wait(&slots, 2), wait(&slots, 3));
            assert!(!takes || first.next());
            drop(first);
            let mut second = leads(one);
            counts(&mut second, 5, 2);
            assert_eq!(outcome(other), Outcome::Counted(1));
            ends(second, &slots);
        }
    }

    #[test]
    fn what_a_dropped_lead_had_sent_is_unknown_and_the_rest_is_not() {
        let slots = slots();
        let mut first = lead(&slots);
        let lost = wait(&slots, 2);
        assert!(sent(&mut first).is_some());
        let open = wait(&slots, 3);
        drop(first);
        assert!(matches!(outcome(lost), Outcome::Unknown(_)));
        assert_eq!(sent(&mut leads(open)), Some((vec![3], 1)));
        assert_eq!(slots.len(), 0);
    }

    #[test]
    fn an_offer_is_passed_on_by_who_does_not_take_it() {
        let slots = slots();
        let first = lead(&slots);
        let waits = [wait(&slots, 2), wait(&slots, 3)];
        drop(first); // offers
        let [gone, stays] = waits;
        drop(gone);
        assert_eq!(sent(&mut leads(stays)), Some((vec![3], 1)));
        let first = lead(&slots);
        let last = wait(&slots, 2);
        drop(first);
        drop(last);
        assert_eq!(slots.len(), 0);
    }

    #[test]
    fn a_promoted_leader_that_may_not_count_for_others_leaves() {
        let slots = slots();
        let first = lead(&slots);
        let (one, other) = (wait(&slots, 2), wait(&slots, 3));
        drop(first);
        drop(leads(one));
        let mut lead = leads(other);
        assert_eq!(sent(&mut lead), Some((vec![3], 1)));
        drop(lead);
        assert_eq!(slots.len(), 0);
    }

    /// Some callers are impatient, some give up, some leads are dropped: what was acknowledged was counted, and nothing else.
    #[test]
    fn many_threads_count_each_amount_once() {
        let slots = slots();
        let (counted, acknowledged) = (AtomicI64::new(0), AtomicI64::new(0));
        let batches = AtomicUsize::new(0);
        let count_for_others = |mut lead: Lead<u8>, drops: bool| {
            while lead.next() {
                if drops {
                    return;
                }
                let Some((sums, _)) = lead.send() else {
                    continue;
                };
                thread::yield_now();
                counted.fetch_add(sums[0] as i64, Ordering::Relaxed);
                batches.fetch_add(1, Ordering::Relaxed);
                lead.end(Outcome::Counted(1));
            }
        };
        let count = |number: i64, round: i64| {
            let n = number + round;
            let alone = || {
                counted.fetch_add(n, Ordering::Relaxed);
            };
            match Slots::enter(&slots, 7, 7, &[n]) {
                Entered::Leads(lead) => {
                    alone();
                    count_for_others(lead, n % 7 == 0);
                }
                Entered::Waits(mut wait) => {
                    let leaves = n % 11 == 0;
                    if leaves && wait.leave().is_some() {
                        alone();
                        return;
                    }
                    let is_patient = leaves || n % 5 != 0;
                    let patience = if is_patient { PATIENT } else { Duration::ZERO };
                    match wait.block(patience) {
                        Turn::Ended(_) => {}
                        Turn::Left => alone(),
                        Turn::Leads(lead) => count_for_others(lead, false),
                    }
                }
            }
        };
        thread::scope(|scope| {
            for number in 0..16 {
                let (count, acknowledged) = (&count, &acknowledged);
                scope.spawn(move || {
                    for round in 0..2_000 {
                        count(number, round);
                        acknowledged.fetch_add(number + round, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(counted.into_inner(), acknowledged.into_inner());
        assert_eq!(slots.len(), 0);
        assert!(batches.into_inner() > 0);
    }
}

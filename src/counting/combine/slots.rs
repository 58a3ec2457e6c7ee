//! Who counts for whom: the part of combining that knows no database.
//!
//! A slot stands for one counter, or for all counters of a database that has one writer at a time, and exists while somebody leads it. A caller
//! who finds no slot leads: it counts its own amount, and then, round by round, whatever others added to the same counter meanwhile. A caller
//! who finds one adds its amount to the open batch of its counter and waits. (A second one may lead too, until somebody has waited: two who meet
//! are no crowd, and count beside each other sooner.) After a few rounds, or if only other counters are left, a leader offers the oldest batch to
//! those who wait for it, and one of them leads on. Where it can count on other counters too, it does so in the same round.
//!
//! Whoever leads may sleep: its task is not polled, or its statement waits for a lock. A caller who has waited for long begins another term: it
//! leads, and leaders of earlier terms count what they have taken. They take more only until a leader of the new term has come with a connection.
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

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::Told;
use super::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use super::wait::Waiting;

/// Slots are spread over so many maps, so that callers of different counters seldom meet.
const MAPS: usize = 16;

/// How many rounds a leader counts before it offers the next batch to those who wait.
const ROUNDS: u8 = 4;

/// How many batches a round has at most.
const BATCHES: usize = 100;

/// The slots of one process, by the counter.
pub(crate) struct Slots<K> {
    maps: [Mutex<Map<K>>; MAPS],
}

struct Map<K> {
    slots: HashMap<K, Slot<K>, Hasher>,
    /// The last term of all its slots.
    term: Term,
}

type Term = u64;

struct Slot<K> {
    /// The open batches, from the oldest on; in a slot of one counter there is one at most.
    open: VecDeque<(K, Arc<Batch>)>,
    /// How many lead in this term.
    leaders: usize,
    /// Somebody has waited.
    is_crowded: bool,
    term: Term,
    /// When a caller who had waited began this term.
    began: Option<Instant>,
    /// A leader of this term has come to take batches: it has a connection.
    is_awake: bool,
}

impl<K> Slot<K> {
    fn remove(&mut self, batch: &Arc<Batch>) {
        self.open.retain(|(_, open)| !Arc::ptr_eq(open, batch));
    }
}

impl<K: Key> Map<K> {
    /// The slot. A new one begins a term without leaders.
    fn slot(&mut self, key: K) -> &mut Slot<K> {
        let term = &mut self.term;
        self.slots.entry(key).or_insert_with(|| {
            *term += 1;
            Slot {
                open: VecDeque::new(),
                leaders: 0,
                is_crowded: false,
                term: *term,
                began: None,
                is_awake: false,
            }
        })
    }
}

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
    /// The caller has waited for long, and neither leads nor was counted. The amount was taken back.
    Left,
}

/// The outcome of a batch, for each of its callers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// So many rows were counted on.
    Counted(usize),
    /// Nothing was counted, for certain: each caller counts alone.
    Nothing,
    /// The same, by no fault of a row: its callers combine again while there is time.
    Failed(Told),
    /// Nobody knows whether the batch was counted, for this reason.
    Unknown(Told),
}

/// The name of a counter.
pub(crate) trait Key: Hash + Eq + Clone + Send {}

impl<K: Hash + Eq + Clone + Send> Key for K {}

impl<K: Key> Slots<K> {
    pub(crate) fn new() -> Self {
        Slots {
            maps: std::array::from_fn(|_| {
                let slots = HashMap::default();
                Mutex::new(Map { slots, term: 0 })
            }),
        }
    }

    /// Comes to the slot with an amount for each field of the counter `key`, of a caller who began `since`. A new slot has so many leaders at
    /// `most`.
    pub(crate) fn enter(
        slots: &Arc<Self>,
        (slot, most): (K, usize),
        key: K,
        amounts: &[i64],
        since: Instant,
    ) -> Entered<K> {
        let mut map = slots.map(&slot);
        let found = map.slot(slot.clone());
        if found.leaders == 0 || (found.leaders < most && !found.is_crowded) {
            found.leaders += 1;
            return Entered::Leads(Lead::new(slots, slot, found.term, key));
        }
        found.is_crowded = true;
        let batch = match found.open.iter().find(|(of, _)| *of == key) {
            Some((_, batch)) => Arc::clone(batch),
            None => {
                let batch = Arc::new(Batch::default());
                found.open.push_back((key.clone(), Arc::clone(&batch)));
                batch
            }
        };
        let number = batch.lock().join(amounts, since);
        drop(map);
        Entered::Waits(Wait {
            slots: Arc::clone(slots),
            slot,
            key,
            batch,
            number,
            amounts: amounts.into(),
            waits: true,
            only_leaves: false,
        })
    }

    /// Whether somebody leads there at the moment.
    pub(crate) fn has(&self, slot: &K) -> bool {
        self.map(slot).slots.contains_key(slot)
    }

    fn map(&self, key: &K) -> MutexGuard<'_, Map<K>> {
        let hash = Hasher::default().hash_one(key);
        lock(&self.maps[hash as usize % MAPS])
    }

    /// A leader of the slot leaves its lead to one of those who wait, if there are some. Without leaders the slot ends.
    fn pass_on(&self, mut map: MutexGuard<'_, Map<K>>, key: &K, term: Term) {
        let mut offered = None;
        let slot = map.slots.get_mut(key);
        if let Some(slot) = slot.filter(|slot| slot.term == term) {
            match slot.open.pop_front() {
                Some((_, oldest)) => offered = oldest.offer(term),
                None => slot.leaders -= 1,
            }
            if slot.leaders == 0 {
                map.slots.remove(key);
            }
        }
        drop(map); // whoever is woken may come to the slot at once
        wake(offered);
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
    /// When the first of them began.
    since: Option<Instant>,
    /// The number of the next caller.
    next: u64,
    /// The tasks that wait, by their numbers.
    tasks: BTreeMap<u64, Waker>,
}

#[derive(Default)]
enum Phase {
    #[default]
    Open,
    Offered(Term),
    Taken,
    Sent,
    Ended(Outcome),
}

impl Batch {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Offers the lead to those who wait; the batch has one at least. Returns a task that is to be woken when no lock is held.
    fn offer(&self, term: Term) -> Option<Waker> {
        let mut state = self.lock();
        state.phase = Phase::Offered(term);
        let task = state.tasks.pop_first();
        drop(state);
        self.changed.notify_one();
        task.map(|(_, task)| task)
    }

    /// Ends the batch. Returns the tasks that are to be woken.
    fn end(&self, outcome: Outcome) -> impl Iterator<Item = Waker> {
        let mut state = self.lock();
        state.phase = Phase::Ended(outcome);
        let tasks = std::mem::take(&mut state.tasks);
        drop(state);
        self.changed.notify_all();
        tasks.into_values()
    }
}

impl State {
    fn join(&mut self, amounts: &[i64], since: Instant) -> u64 {
        self.since = Some(self.since.map_or(since, |first| first.min(since)));
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
    only_leaves: bool,
}

impl<K: Key> Waiting for Wait<K> {
    type Turn = Turn<K>;

    fn block(mut self, patience: Duration) -> Turn<K> {
        let mut deadline = Instant::now().checked_add(patience);
        let batch = Arc::clone(&self.batch);
        let mut state = batch.lock();
        loop {
            if let Some(turn) = self.turn(&mut state) {
                return turn;
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            state = match left {
                None => batch
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => {
                    drop(state); // the map's lock comes first
                    if let Some(turn) = self.lead(patience) {
                        return turn;
                    }
                    deadline = None; // its amount was sent
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

    /// It leaves a batch that another has taken, or beside which somebody has come to lead meanwhile.
    fn lead(&mut self, waited: Duration) -> Option<Turn<K>> {
        let (slots, batch) = (Arc::clone(&self.slots), Arc::clone(&self.batch));
        let mut map = slots.map(&self.slot);
        let Map { slots: led, term } = &mut *map;
        let mut state = batch.lock();
        let slot = led.get_mut(&self.slot).filter(|slot| {
            let is_open = matches!(state.phase, Phase::Open);
            is_open && !self.only_leaves && slot.began.is_none_or(|began| began.elapsed() >= waited)
        });
        if let Some(slot) = slot {
            *term += 1;
            (slot.term, slot.leaders, slot.is_awake) = (*term, 1, false);
            slot.began = Some(Instant::now());
            slot.remove(&batch);
            state.phase = Phase::Offered(*term);
        }
        let turn = self.turn(&mut state);
        let task = turn.as_ref().and_then(|_| state.tasks.remove(&self.number));
        drop((state, map));
        drop(task);
        turn.or_else(|| self.take_back().then_some(Turn::Left))
    }
}

impl<K: Key> Wait<K> {
    /// Whether it begins no term when it has waited for long: no time is left to lead.
    pub(crate) fn without_lead(mut self, only_leaves: bool) -> Self {
        self.only_leaves = only_leaves;
        self
    }

    fn turn(&mut self, state: &mut State) -> Option<Turn<K>> {
        match &state.phase {
            Phase::Open | Phase::Taken | Phase::Sent => None,
            Phase::Ended(outcome) => {
                self.waits = false;
                Some(Turn::Ended(outcome.clone()))
            }
            Phase::Offered(term) => {
                let term = *term;
                state.phase = Phase::Taken;
                self.waits = false;
                let (slot, key) = (self.slot.clone(), self.key.clone());
                let mut lead = Lead::new(&self.slots, slot, term, key.clone());
                lead.batches.push((key, Arc::clone(&self.batch)));
                lead.own = Some(std::mem::take(&mut self.amounts));
                Some(Turn::Leads(lead))
            }
        }
    }

    /// Takes the amount back. False if it was sent before.
    fn take_back(&mut self) -> bool {
        let mut map = self.slots.map(&self.slot);
        let mut state = self.batch.lock();
        let task = state.tasks.remove(&self.number);
        let offered = match state.phase {
            Phase::Open | Phase::Taken => None,
            Phase::Offered(term) => Some(term),
            Phase::Sent | Phase::Ended(_) => {
                drop((state, map));
                drop(task);
                return false;
            }
        };
        state.leave(&self.amounts);
        self.waits = false;
        let is_empty = state.callers == 0;
        // The offer may have woken this very caller. It stands: another may lead already when the batch is not locked any more.
        let next = offered.and_then(|_| state.tasks.pop_first());
        drop(state);
        if offered.is_some() {
            self.batch.changed.notify_one();
        } else if is_empty {
            // The leader is there, and the next caller opens another batch.
            if let Some(slot) = map.slots.get_mut(&self.slot) {
                slot.remove(&self.batch);
            }
        }
        match offered {
            Some(term) if is_empty => self.slots.pass_on(map, &self.slot, term),
            _ => drop(map),
        }
        drop(task);
        wake(next.map(|(_, task)| task));
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
    term: Term,
    /// The counter that it counts on.
    key: K,
    /// The batches of the round. The one that the caller had waited for is the first.
    batches: Vec<(K, Arc<Batch>)>,
    /// The caller's own amounts, if they are in that.
    own: Option<Box<[i64]>>,
    rounds: u8,
    is_sent: bool,
    leads: bool,
}

/// A batch that is to be counted.
#[derive(Debug)]
pub(crate) struct Sent<K> {
    pub(crate) key: K,
    /// The sum for each field.
    pub(crate) sums: Vec<i128>,
    /// How many callers the sums are of.
    pub(crate) callers: usize,
    /// When the first of them began.
    pub(crate) since: Option<Instant>,
}

impl<K: Key> Lead<K> {
    fn new(slots: &Arc<Slots<K>>, slot: K, term: Term, key: K) -> Self {
        Lead {
            slots: Arc::clone(slots),
            slot,
            term,
            key,
            batches: vec![],
            own: None,
            rounds: 0,
            is_sent: false,
            leads: true,
        }
    }

    /// Whether there is something to be counted: the caller's own counter, and those of others that it `counts` too. If nobody waits, or others
    /// have to lead on, the lead ends.
    pub(crate) fn next(&mut self, counts: impl Fn(&K) -> bool) -> bool {
        if self.leads {
            self.take(counts);
        }
        !self.batches.is_empty()
    }

    fn take(&mut self, counts: impl Fn(&K) -> bool) {
        let has_waited = self.own.is_some();
        if !has_waited {
            if self.rounds >= ROUNDS {
                return self.pass_on();
            }
            self.rounds += 1;
        }
        let mut map = self.slots.map(&self.slot);
        let mut has_own = has_waited;
        let slot = map.slots.get_mut(&self.slot);
        if let Some(slot) = slot.filter(|slot| slot.term == self.term || !slot.is_awake) {
            slot.is_awake |= slot.term == self.term;
            slot.open.retain(|(of, batch)| {
                // What another leader gave back is a batch of its own.
                let is_own = !has_own && *of == self.key;
                has_own |= is_own;
                let takes = self.batches.len() < BATCHES && (is_own || counts(of));
                if takes {
                    batch.lock().phase = Phase::Taken;
                    self.batches.push((of.clone(), Arc::clone(batch)));
                }
                !takes
            });
        }
        drop(map);
        if self.batches.is_empty() {
            self.pass_on();
        }
    }

    /// The batches of the round, whose callers may not leave any more: their outcome is unknown until it [ends](Self::end). None if all have
    /// left.
    pub(crate) fn send(&mut self) -> Vec<Sent<K>> {
        let mut sent = vec![];
        self.batches.retain(|(key, batch)| {
            let mut state = batch.lock();
            if state.callers == 0 {
                return false;
            }
            state.phase = Phase::Sent;
            sent.push(Sent {
                key: key.clone(),
                sums: state.sums.clone(),
                callers: state.callers,
                since: state.since,
            });
            true
        });
        self.is_sent = !sent.is_empty();
        sent
    }

    /// Hands its outcome to the callers of each batch of the round; without one it is unknown.
    pub(crate) fn end(&mut self, outcomes: impl IntoIterator<Item = Outcome>) {
        self.is_sent = false;
        self.own = None;
        let mut outcomes = outcomes.into_iter();
        let mut tasks = vec![];
        for (_, batch) in self.batches.drain(..) {
            let unknown = || Outcome::Unknown("who counted for others was cancelled".into());
            tasks.extend(batch.end(outcomes.next().unwrap_or_else(unknown)));
        }
        tasks.into_iter().for_each(Waker::wake); // at last: foreign code
    }

    /// Leaves the slot to others, with the batches that were not sent. The caller's own amounts are the caller's again.
    fn give_back(&mut self) {
        if let (Some(own), Some((_, batch))) = (self.own.take(), self.batches.first()) {
            batch.lock().leave(&own);
        }
        let mut map = self.slots.map(&self.slot);
        // In a later term others may have led to the slot's end.
        let slot = map.slot(self.slot.clone());
        if slot.leaders == 0 {
            (slot.leaders, self.term) = (1, slot.term);
        }
        for (key, batch) in self.batches.drain(..).rev() {
            let mut state = batch.lock();
            if state.callers > 0 {
                state.phase = Phase::Open;
                drop(state);
                slot.is_crowded = true;
                slot.open.push_front((key, batch));
            }
        }
        self.leads = false;
        self.slots.pass_on(map, &self.slot, self.term);
    }

    fn pass_on(&mut self) {
        self.leads = false;
        let map = self.slots.map(&self.slot);
        self.slots.pass_on(map, &self.slot, self.term);
    }
}

impl<K: Key> Drop for Lead<K> {
    fn drop(&mut self) {
        if self.is_sent {
            self.end([]);
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

    impl Slots<u8> {
        fn len(&self) -> usize {
            self.maps.iter().map(|map| lock(map).slots.len()).sum()
        }
    }

    fn slots() -> Arc<Slots<u8>> {
        Arc::new(Slots::new())
    }

    fn lead(slots: &Arc<Slots<u8>>) -> Lead<u8> {
        match Slots::enter(slots, (7, 1), 7, &[1], Instant::now()) {
            Entered::Leads(lead) => lead,
            Entered::Waits(_) => panic!("somebody leads"),
        }
    }

    fn wait(slots: &Arc<Slots<u8>>, n: i64) -> Wait<u8> {
        wait_for(slots, 7, n)
    }

    fn wait_for(slots: &Arc<Slots<u8>>, key: u8, n: i64) -> Wait<u8> {
        match Slots::enter(slots, (7, 1), key, &[n], Instant::now()) {
            Entered::Waits(wait) => wait,
            Entered::Leads(_) => panic!("nobody leads"),
        }
    }

    /// The sums of the next batch, and its callers, as it is sent.
    fn sent(lead: &mut Lead<u8>) -> Option<(Vec<i128>, usize)> {
        while lead.next(|_| false) {
            if let Some(batch) = lead.send().pop() {
                return Some((batch.sums, batch.callers));
            }
        }
        None
    }

    /// The counters of the next round, and their sums, as it is sent by a leader who counts on each.
    fn sent_together(lead: &mut Lead<u8>) -> Vec<(u8, i128)> {
        assert!(lead.next(|_| true));
        let sent = lead.send().into_iter();
        sent.map(|batch| (batch.key, batch.sums[0])).collect()
    }

    /// The next batch has this sum and so many callers, and is counted.
    fn counts(lead: &mut Lead<u8>, sum: i128, callers: usize) {
        assert_eq!(sent(lead), Some((vec![sum], callers)));
        lead.end([Outcome::Counted(1)]);
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

    fn leads_now(wait: &mut Wait<u8>) -> Lead<u8> {
        match wait.lead(Duration::ZERO) {
            Some(Turn::Leads(lead)) => lead,
            _ => panic!("it does not lead"),
        }
    }

    #[test]
    fn whoever_comes_while_another_counts_is_counted_together() {
        let slots = slots();
        let mut lead = lead(&slots);
        let waits = [wait(&slots, 2), wait(&slots, -5)];
        assert_eq!(sent(&mut lead), Some((vec![-3], 2)));
        let late = wait(&slots, 1);
        lead.end([Outcome::Counted(1)]);
        let counted = || Outcome::Counted(1);
        assert_eq!(waits.map(outcome), [counted(), counted()]);
        assert_eq!(sent(&mut lead), Some((vec![1], 1)));
        lead.end([Outcome::Nothing]);
        assert_eq!(outcome(late), Outcome::Nothing);
        ends(lead, &slots);
    }

    #[test]
    fn counters_do_not_meet() {
        let slots = slots();
        let _seven = lead(&slots);
        let other = Slots::enter(&slots, (8, 1), 8, &[1], Instant::now());
        assert!(matches!(other, Entered::Leads(_)));
    }

    #[test]
    fn a_slot_may_have_two_leaders() {
        let slots = slots();
        let enter = |n| Slots::enter(&slots, (7, 2), 7, &[n], Instant::now());
        let (Entered::Leads(mut one), Entered::Leads(mut other)) = (enter(1), enter(1)) else {
            panic!("nobody leads")
        };
        let Entered::Waits(early) = enter(2) else {
            panic!("three lead")
        };
        assert_eq!(sent(&mut one), Some((vec![2], 1)));
        let Entered::Waits(late) = enter(3) else {
            panic!("three lead")
        };
        counts(&mut other, 3, 1);
        one.end([Outcome::Counted(1)]);
        assert_eq!(
            [early, late].map(outcome),
            [Outcome::Counted(1), Outcome::Counted(1)]
        );
        assert_eq!(sent(&mut other), None);
        assert!(matches!(enter(1), Entered::Waits(_)));
        ends(one, &slots);
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

    /// Where the leader counts on other counters too, nobody waits for a turn; those who come meanwhile are in the next round.
    #[test]
    fn a_leader_counts_on_several_counters_in_a_round() {
        let slots = slots();
        let mut first = lead(&slots);
        let waits = [(8, 2), (7, 3), (9, 5), (8, 10)].map(|(key, n)| wait_for(&slots, key, n));
        assert_eq!(sent_together(&mut first), [(8, 12), (7, 3), (9, 5)]);
        let late = wait_for(&slots, 9, 1);
        first.end([Outcome::Counted(1), Outcome::Nothing, Outcome::Counted(0)]);
        let [eight, seven, nine, again] = waits.map(outcome);
        assert_eq!([eight, again], [Outcome::Counted(1), Outcome::Counted(1)]);
        assert_eq!([seven, nine], [Outcome::Nothing, Outcome::Counted(0)]);
        assert_eq!(sent_together(&mut first), [(9, 1)]);
        first.end([Outcome::Counted(1)]);
        outcome(late);
        ends(first, &slots);
    }

    /// Also those of counters that it would have counted beside its own.
    #[test]
    fn what_a_leader_took_and_did_not_send_is_counted_by_others() {
        let slots = slots();
        let first = lead(&slots);
        let (seven, eight, nine) = (
            wait(&slots, 2),
            wait_for(&slots, 8, 3),
            wait_for(&slots, 9, 5),
        );
        drop(first);
        let mut second = leads(seven);
        assert!(second.next(|_| true));
        drop(nine);
        let (late, tenth) = (wait_for(&slots, 8, 20), wait_for(&slots, 10, 7));
        drop(second);
        let mut third = leads(eight);
        assert_eq!(sent_together(&mut third), [(8, 3), (8, 20), (10, 7)]);
        drop(third);
        assert!(
            [late, tenth]
                .map(outcome)
                .iter()
                .all(|end| matches!(end, Outcome::Unknown(_)))
        );
        assert_eq!(slots.len(), 0);
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
        drop(leaves);
        assert!(leader.next(|_| false));
        // Taken, but not sent.
        assert!(matches!(leaves_late.block(Duration::ZERO), Turn::Left));
        let sent = leader.send();
        assert_eq!((sent[0].sums[0], sent[0].callers), (2, 1));
        leader.end([Outcome::Counted(1)]);
        assert_eq!(outcome(stays), Outcome::Counted(1));
        ends(leader, &slots);
    }

    #[test]
    fn a_batch_that_all_have_left_is_not_sent() {
        let slots = slots();
        let mut lead = lead(&slots);
        let leaves = wait(&slots, 2);
        assert!(lead.next(|_| false));
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
            lead.end([Outcome::Counted(1)]);
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
            assert!(!takes || first.next(|_| false));
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

    /// The leader is a task that nobody polls, or a statement that does not end.
    #[test]
    fn who_waits_leads_beside_a_leader_who_sleeps() {
        let slots = slots();
        let mut sleeps = lead(&slots);
        let asleep_too = wait(&slots, 100);
        assert!(sleeps.next(|_| false)); // and sends nothing
        let (mut one, other) = (wait(&slots, 2), wait(&slots, 3));
        let mut awake = leads_now(&mut one);
        counts(&mut awake, 5, 2);
        assert_eq!(outcome(other), Outcome::Counted(1));
        ends(awake, &slots);
        // Whoever comes now finds nobody who sleeps, and the leader wakes up.
        let mut next = lead(&slots);
        let late = wait(&slots, 20);
        drop(sleeps);
        counts(&mut next, 100, 1);
        counts(&mut next, 20, 1);
        assert_eq!(outcome(late), Outcome::Counted(1));
        assert_eq!(outcome(asleep_too), Outcome::Counted(1));
        ends(next, &slots);
    }

    /// It counts what it has taken, and leaves the rest to those who lead now.
    #[test]
    fn a_leader_who_wakes_up_leads_no_more() {
        let slots = slots();
        let first = lead(&slots);
        let sleeps = wait(&slots, 2);
        drop(first);
        let mut sleeps = leads(sleeps);
        let mut awake = leads_now(&mut wait(&slots, 3));
        assert!(awake.next(|_| false));
        let late = wait(&slots, 20);
        counts(&mut sleeps, 2, 1);
        assert_eq!(sent(&mut sleeps), None);
        drop(sleeps);
        counts(&mut awake, 3, 1);
        counts(&mut awake, 20, 1);
        assert_eq!(outcome(late), Outcome::Counted(1));
        ends(awake, &slots);
    }

    /// It has only waited for a connection, as those do who lead since.
    #[test]
    fn a_leader_leads_on_until_another_has_a_connection() {
        let slots = slots();
        let first = lead(&slots);
        let promoted = wait(&slots, 2);
        drop(first);
        let mut early = leads(promoted);
        let mut late = leads_now(&mut wait(&slots, 3));
        let waits = wait(&slots, 20);
        counts(&mut early, 2, 1);
        counts(&mut early, 20, 1);
        assert_eq!(outcome(waits), Outcome::Counted(1));
        assert_eq!(sent(&mut early), None);
        counts(&mut late, 3, 1);
        ends(late, &slots);
    }

    /// It gives back what it had taken, also where nobody leads any more.
    #[test]
    fn a_leader_who_wakes_up_loses_nothing() {
        let slots = slots();
        let mut sleeps = lead(&slots);
        let taken = wait(&slots, 2);
        assert!(sleeps.next(|_| false));
        let mut awake = leads_now(&mut wait(&slots, 3));
        counts(&mut awake, 3, 1);
        ends(awake, &slots);
        drop(sleeps);
        let mut last = leads(taken);
        counts(&mut last, 2, 1);
        ends(last, &slots);
    }

    /// One more leads at a time, and the others come again.
    #[test]
    fn not_all_who_have_waited_lead() {
        let slots = slots();
        let _sleeps = lead(&slots);
        let (mut eight, mut nine) = (wait_for(&slots, 8, 1), wait_for(&slots, 9, 1));
        let long = Duration::from_secs(3600);
        let Some(Turn::Leads(_lead)) = eight.lead(long) else {
            panic!("it does not lead")
        };
        assert!(matches!(nine.lead(long), Some(Turn::Left)));
    }

    /// Also if it finds nobody else who would.
    #[test]
    fn who_has_no_time_left_to_lead_leaves() {
        let slots = slots();
        let sleeps = lead(&slots);
        let late = wait(&slots, 2).without_lead(true);
        assert!(matches!(late.block(Duration::ZERO), Turn::Left));
        ends(sleeps, &slots);
    }

    /// The oldest of those who wait is offered the lead.
    #[test]
    fn who_waits_leads_in_the_place_of_a_member_who_sleeps() {
        let slots = slots();
        let first = lead(&slots);
        let (sleeps, mut awake) = (wait(&slots, 2), wait(&slots, 3));
        drop(first); // offers
        let mut second = leads_now(&mut awake);
        counts(&mut second, 5, 2);
        assert_eq!(outcome(sleeps), Outcome::Counted(1));
        ends(second, &slots);
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

    /// Some callers give up, some leads are dropped: what was acknowledged was counted, and nothing else. Nobody waits for more than the round
    /// that is under way and the next one, where no other leads beside it.
    #[test]
    fn many_threads_count_each_amount_once() {
        for some_are_impatient in [false, true] {
            count_on_many_threads(some_are_impatient);
        }
    }

    fn count_on_many_threads(some_are_impatient: bool) {
        let slots = slots();
        let (counted, acknowledged) = (AtomicI64::new(0), AtomicI64::new(0));
        let rounds = AtomicUsize::new(0);
        let count_for_others = |mut lead: Lead<u8>, drops: bool| {
            while lead.next(|_| true) {
                if drops {
                    return;
                }
                let sent = lead.send();
                if sent.is_empty() {
                    continue;
                }
                let round = rounds.fetch_add(1, Ordering::SeqCst) + 1;
                thread::yield_now();
                for batch in &sent {
                    counted.fetch_add(batch.sums[0] as i64, Ordering::Relaxed);
                }
                lead.end(sent.iter().map(|_| Outcome::Counted(round)));
            }
        };
        let count = |number: i64, round: i64| {
            let n = number + round;
            let alone = || {
                counted.fetch_add(n, Ordering::Relaxed);
            };
            match Slots::enter(&slots, (7, 1), number as u8 % 3, &[n], Instant::now()) {
                Entered::Leads(lead) => {
                    alone();
                    thread::yield_now(); // to those who are to wait
                    count_for_others(lead, n % 7 == 0);
                }
                Entered::Waits(mut wait) => {
                    let seen = rounds.load(Ordering::SeqCst); // perhaps without the one under way
                    if n % 11 == 0 && wait.take_back() {
                        alone();
                        return;
                    }
                    let is_impatient = some_are_impatient && n % 5 == 0;
                    let patience = if is_impatient {
                        Duration::ZERO
                    } else {
                        PATIENT
                    };
                    match wait.block(patience) {
                        Turn::Ended(Outcome::Counted(round)) => {
                            assert!(some_are_impatient || round <= seen + 2);
                        }
                        Turn::Ended(outcome) => panic!("{outcome:?}"),
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
        assert!(rounds.into_inner() > 0);
    }
}

//! Who counts for whom: the part of combining that knows no database.
//!
//! Callers of one counter meet in a slot, and so do callers of all counters where a database has one writer at a time. A slot exists while it has
//! a leader. A caller who finds none leads: it counts its own amount, and then, in one round, the amounts that others queue meanwhile. A
//! caller who finds as many leaders as [may lead](super::leaders), or too few members for a batch, becomes a member of its counter's batch, and
//! waits. Otherwise it leads too, and counts those members together with its own amount.
//!
//! | a batch is | its members |
//! |---|---|
//! | queued | join, and may leave |
//! | running | wait for the outcome |
//! | done | read the outcome |
//!
//! A leader goes as soon as there is no full batch for it, if others lead. After its round, or if it cannot count on any of the counters
//! that are left, the last leader hands its lead over to the oldest batch. So a leader waits for about twice as long as a member.
//! The first member of that batch to wake up leads next. It leaves the batch, and its own amount joins the first batch that it runs: until
//! then it may still fail to get a connection.
//!
//! A leader may sleep: its task is not polled, or its statement waits for a lock. A member who has waited for long takes over, and the slot
//! forgets its other leaders. If one of them wakes up after all, it leads again.
//!
//! After [flat combining](https://doi.org/10.1145/1810479.1810540) (Hendler, Incze, Shavit, Tzafrir, 2010). There the combiner works on a
//! structure in memory; here its work is a statement, on its own connection.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::leaders::{Leaders, Peak};
use super::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use super::wait::Waiting;
use super::{CounterKey, MadeIn, SharedError, Sum};

/// The number of maps over which slots are spread, so that callers of different counters seldom meet.
const MAPS: usize = 16;

/// The greatest number of batches in a round.
const BATCHES: usize = 100;

/// The slots of one process.
pub(crate) struct Slots {
    maps: [Mutex<Map>; MAPS],
    learned: Leaders,
    made_in: MadeIn,
}

type Map = HashMap<CounterKey, Slot, Hasher>;

/// Hashes the same in each run: the model checker repeats what it has seen.
type Hasher = BuildHasherDefault<DefaultHasher>;

struct Slot {
    /// The queued batches, the oldest first: one for each counter.
    queued: Vec<(CounterKey, SharedBatch)>,
    /// The leaders, except those presumed asleep.
    leaders: Vec<CallerId>,
    /// The greatest number of leaders.
    most: usize,
    /// How many members wait for a batch that runs.
    running: usize,
    callers: Peak,
    /// When a caller last came or went.
    at: Instant,
    /// How long callers were present since calls ended, two callers for a second being two seconds.
    spent: Duration,
    /// When a member last took over.
    taken_over: Option<Instant>,
}

impl Slot {
    fn new(most: usize) -> Self {
        Slot {
            queued: vec![],
            leaders: vec![],
            most,
            running: 0,
            callers: Peak::default(),
            at: Instant::now(),
            spent: Duration::ZERO,
            taken_over: None,
        }
    }

    /// How many members wait in the queued batch of the counter.
    fn queued(&self, key: &CounterKey) -> usize {
        let batch = self.queued.iter().find(|(of, _)| of == key);
        batch.map_or(0, |(_, batch)| lock(&batch.0).members)
    }

    /// How many callers may lead.
    fn most_leaders(&self, learned: &Leaders) -> usize {
        learned.choose(self.callers.callers()).min(self.most)
    }

    /// How many callers are present, if all of them count on this counter.
    fn present(&self, key: &CounterKey) -> usize {
        self.leaders.len() + self.running + self.queued(key)
    }

    /// Notes the time until now, before a caller comes or these calls end.
    fn elapse(&mut self, present: usize, ended: usize, learned: &Leaders) {
        if self.most == 1 {
            return; // there is nothing to learn
        }
        let since = std::mem::replace(&mut self.at, Instant::now());
        let time = self.at.duration_since(since);
        let present = u32::try_from(present).unwrap_or(u32::MAX);
        self.spent = self.spent.saturating_add(time.saturating_mul(present));
        if ended > 0 {
            let spent = std::mem::take(&mut self.spent);
            learned.learn(self.callers.callers(), spent, ended);
        }
    }

    /// Whether this many callers are the share of one of these leaders.
    fn is_share(&self, callers: usize, leaders: usize) -> bool {
        callers * leaders >= self.callers.callers()
    }

    /// The queued batch of the counter.
    fn batch(&mut self, key: &CounterKey) -> SharedBatch {
        if let Some((_, batch)) = self.queued.iter().find(|(of, _)| of == key) {
            return Arc::clone(batch);
        }
        let batch = SharedBatch::default();
        self.queued.push((key.clone(), Arc::clone(&batch)));
        batch
    }
}

/// Identifies a caller. A lead that is handed over keeps its id.
type CallerId = u64;

/// The role of a caller in its slot.
pub(crate) enum Entered {
    Leads(Lead),
    Waits(Member),
}

/// How a wait ended.
#[allow(
    clippy::large_enum_variant,
    reason = "it is returned once a round and taken apart at once"
)]
pub(crate) enum Turn {
    /// The batch is done.
    Done(Outcome),
    /// The member leads, and its own amount is in the first batch that it runs.
    Leads(Lead),
}

/// The outcome of a batch, for each of its members.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// The number of rows that were counted on.
    Counted(usize),
    /// Nothing was counted, for certain: each member counts alone.
    Nothing,
    /// Nothing was counted, and no row was at fault: the members combine again while there is time.
    Failed(SharedError),
    /// Nobody knows whether the batch was counted, for this reason.
    Unknown(SharedError),
}

impl Outcome {
    pub(crate) fn is_counted(&self) -> bool {
        matches!(self, Outcome::Counted(_))
    }
}

impl Slots {
    pub(crate) fn new() -> Self {
        Slots {
            maps: std::array::from_fn(|_| Mutex::new(HashMap::default())),
            learned: Leaders::default(),
            made_in: MadeIn::this_process(),
        }
    }

    /// Enters the slot, of at most `most` leaders, with an amount for each field of the counter `key`. The caller began at `since`.
    pub(crate) fn enter(
        slots: &Arc<Self>,
        (slot, most): (CounterKey, usize),
        key: CounterKey,
        amounts: &[Sum],
        since: Instant,
    ) -> Entered {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let id = LAST.fetch_add(1, Ordering::Relaxed);
        let address = Address {
            slots: Arc::clone(slots),
            slot,
            key,
        };
        let mut map = address.map();
        let slot = map.entry(address.slot.clone());
        let slot = slot.or_insert_with(|| Slot::new(most));
        let own = || Own {
            amounts: amounts.into(),
            since,
        };
        let (leaders, queued) = (slot.leaders.len(), slot.queued(&address.key));
        let present = leaders + slot.running + queued;
        slot.elapse(present, 0, &slots.learned);
        slot.callers.see(present + 1);
        let most = slot.most_leaders(&slots.learned);
        if leaders == 0 || (leaders < most && slot.is_share(queued + 1, most)) {
            slot.leaders.push(id);
            drop(map);
            let own = (queued > 0).then(own);
            return Entered::Leads(Lead::new(address, id, own));
        }
        let (batch, own) = (slot.batch(&address.key), own());
        lock(&batch.0).join(&own);
        drop(map);
        Entered::Waits(Member {
            address,
            id,
            batch,
            own: Some(own),
        })
    }

    /// Whether the slot has a leader at the moment.
    pub(crate) fn has(&self, slot: &CounterKey) -> bool {
        self.map(slot).contains_key(slot)
    }

    fn map(&self, slot: &CounterKey) -> MutexGuard<'_, Map> {
        let hash = Hasher::default().hash_one(slot);
        lock(&self.maps[hash as usize % MAPS])
    }
}

/// Where a caller counts: its counter, and that counter's slot.
#[derive(Clone)]
struct Address {
    slots: Arc<Slots>,
    slot: CounterKey,
    key: CounterKey,
}

impl Address {
    /// Whether this is in a child's copy of its parent's member or lead. The parent counts the batches, and one of its threads may hold the
    /// locks forever.
    fn is_copy(&self) -> bool {
        !self.slots.made_in.is_this_process()
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.slots.map(&self.slot)
    }
}

/// The amounts that a caller adds, one for each field, and when it began.
struct Own {
    amounts: Box<[Sum]>,
    since: Instant,
}

/// A batch, and the condition that wakes the threads that wait for it: all at once, since a waker for each thread cost a fifth of the
/// increments.
type SharedBatch = Arc<(Mutex<Batch>, Condvar)>;

/// The amounts of callers who wait together. A map's lock comes before a batch's.
struct Batch {
    phase: Phase,
    /// The sum for each field, if anybody has joined.
    sums: Vec<Sum>,
    /// How many callers the sums are of.
    members: usize,
    /// When the first of them began.
    since: Option<Instant>,
    /// The wakers of the tasks that wait.
    wakers: BTreeMap<CallerId, Waker>,
}

enum Phase {
    Queued {
        /// The lead that was handed over to its members.
        lead: Option<CallerId>,
    },
    Running,
    Done(Outcome),
}

impl Default for Batch {
    fn default() -> Self {
        Batch {
            phase: Phase::Queued { lead: None },
            sums: vec![],
            members: 0,
            since: None,
            wakers: BTreeMap::new(),
        }
    }
}

impl Batch {
    fn join(&mut self, own: &Own) {
        self.since = Some(self.since.map_or(own.since, |first| first.min(own.since)));
        if self.sums.is_empty() {
            self.sums = own.amounts.to_vec();
        } else {
            for (sum, n) in self.sums.iter_mut().zip(&own.amounts) {
                *sum += n;
            }
        }
        self.members += 1;
    }

    fn leave(&mut self, own: &Own) {
        for (sum, n) in self.sums.iter_mut().zip(&own.amounts) {
            *sum -= n;
        }
        self.members -= 1;
    }

    fn is_queued(&self) -> bool {
        matches!(self.phase, Phase::Queued { .. })
    }

    /// Takes back the lead that was handed over.
    fn take_lead(&mut self) -> Option<CallerId> {
        match &mut self.phase {
            Phase::Queued { lead } => lead.take(),
            Phase::Running | Phase::Done(_) => None,
        }
    }
}

/// A caller who waits for its batch. If it is dropped, it leaves.
pub(crate) struct Member {
    address: Address,
    id: CallerId,
    batch: SharedBatch,
    /// Its part of the batch, until it has left or knows the outcome.
    own: Option<Own>,
}

impl Member {
    /// Its turn, if it has come.
    fn turn(&mut self, batch: &mut Batch) -> Option<Turn> {
        let lead = batch.take_lead();
        if let Phase::Done(outcome) = &batch.phase {
            self.own = None;
            return Some(Turn::Done(outcome.clone()));
        }
        let id = lead?;
        let own = self.own.take();
        own.iter().for_each(|own| batch.leave(own));
        Some(Turn::Leads(Lead::new(self.address.clone(), id, own)))
    }

    /// Leads instead of leaders who seem to sleep, unless its batch runs or another member took over within the time that it `waited`.
    pub(crate) fn take_over(&mut self, waited: Duration) -> Option<Lead> {
        if self.address.is_copy() {
            return None;
        }
        let mut map = self.address.map();
        let slot = map.get_mut(&self.address.slot)?;
        if slot.taken_over.is_some_and(|at| at.elapsed() < waited) {
            return None;
        }
        let mut batch = lock(&self.batch.0);
        let own = self.own.take_if(|_| batch.is_queued())?;
        batch.leave(&own);
        let waker = batch.wakers.remove(&self.id);
        drop(batch);
        for (_, queued) in &slot.queued {
            lock(&queued.0).take_lead(); // its heir sleeps too
        }
        slot.leaders = vec![self.id];
        slot.taken_over = Some(Instant::now());
        drop(map);
        drop(waker);
        Some(Lead::new(self.address.clone(), self.id, Some(own)))
    }

    /// Takes its amount back. False if the batch runs or is done.
    pub(crate) fn leave(&mut self) -> bool {
        if self.address.is_copy() {
            return false;
        }
        let mut batch = lock(&self.batch.0);
        let Some(own) = self.own.take_if(|_| batch.is_queued()) else {
            return false;
        };
        batch.leave(&own);
        let own_waker = batch.wakers.remove(&self.id);
        // The lead may have been handed over to this very member.
        let (lead, next) = match batch.phase {
            Phase::Queued { lead: Some(_) } if batch.members == 0 => (batch.take_lead(), None),
            Phase::Queued { lead: Some(_) } => (None, batch.wakers.pop_first()),
            _ => (None, None),
        };
        drop(batch);
        drop(own_waker);
        match lead {
            Some(id) => drop(Lead::new(self.address.clone(), id, None)), // hands it over to another batch
            None => self.batch.1.notify_one(),
        }
        wake(next);
        true
    }
}

impl Waiting for Member {
    type Turn = Turn;

    fn block(&mut self, patience: Duration) -> Option<Turn> {
        let deadline = Instant::now().checked_add(patience);
        let shared = Arc::clone(&self.batch);
        let (batch, changed) = &*shared;
        let mut batch = lock(batch);
        loop {
            let turn = self.turn(&mut batch);
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            batch = match (turn, left) {
                (Some(turn), _) => return Some(turn),
                (None, Some(Duration::ZERO)) => return None,
                (None, Some(left)) => {
                    let waited = changed.wait_timeout(batch, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                (None, None) => changed.wait(batch).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Turn> {
        if self.address.is_copy() {
            let forked = "the process forked while another caller was to count".into();
            return Poll::Ready(Turn::Done(Outcome::Unknown(forked)));
        }
        let waker = context.waker().clone();
        let shared = Arc::clone(&self.batch);
        let mut batch = lock(&shared.0);
        let turn = self.turn(&mut batch);
        let before = match turn {
            Some(_) => batch.wakers.remove(&self.id),
            None => batch.wakers.insert(self.id, waker),
        };
        drop(batch);
        drop(before); // not under the lock: it may be the last waker of its task
        turn.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The lead of a slot. If it is dropped, somebody else leads, and the batches that it was running end as [`Unknown`](Outcome::Unknown).
pub(crate) struct Lead {
    address: Address,
    id: CallerId,
    /// The amounts of a leader who was a member, until they are in a batch that runs.
    own: Option<Own>,
    /// Whether it has counted a round for others.
    has_run: bool,
    running: Vec<SharedBatch>,
    /// How many members those batches have, without the leader.
    members: usize,
    /// Whether its own amount is counted.
    has_counted: bool,
}

/// A batch that the leader has to count.
pub(crate) struct Running {
    pub(crate) key: CounterKey,
    /// The sum for each field.
    pub(crate) sums: Vec<Sum>,
    /// How many callers the sums are of.
    pub(crate) members: usize,
    /// When the first of them began.
    pub(crate) since: Option<Instant>,
}

impl Lead {
    fn new(address: Address, id: CallerId, own: Option<Own>) -> Self {
        Lead {
            address,
            id,
            own,
            has_run: false,
            running: vec![],
            members: 0,
            has_counted: false,
        }
    }

    /// Whether the leader was a member: then the first batch that it runs contains its own amount.
    pub(crate) fn was_member(&self) -> bool {
        self.own.is_some()
    }

    /// Notes that the leader waited so long for an answer that needs no commit.
    pub(crate) fn answered(&self, time: Duration) {
        if self.address.is_copy() {
            return;
        }
        let map = self.address.map();
        let slot = map.get(&self.address.slot);
        if let Some(slot) = slot.filter(|slot| slot.most > 1) {
            let learned = &self.address.slots.learned;
            learned.answered(slot.callers.callers(), time);
        }
    }

    /// Notes that the leader's own amount is counted.
    pub(crate) fn has_counted(&mut self) {
        self.has_counted = true;
    }

    /// Whether there may be something to [run](Self::run): on the leader's own counter, or on another one that it `counts` too.
    pub(crate) fn has_work(&self, counts: &dyn Fn(&CounterKey) -> bool) -> bool {
        if self.address.is_copy() {
            return false;
        }
        if self.own.is_some() {
            return true;
        }
        let is_counted = |(key, _): &(CounterKey, _)| *key == self.address.key || counts(key);
        let map = self.address.map();
        let Some(slot) = map.get(&self.address.slot) else {
            return false;
        };
        let others_lead = slot.leaders.len() > 1;
        let has_share = || {
            let most = slot.most_leaders(&self.address.slots.learned);
            slot.is_share(slot.queued(&self.address.key), most)
        };
        !self.has_run && slot.queued.iter().any(is_counted) && (!others_lead || has_share())
    }

    /// Takes the queued batches. Their members can no longer leave: the outcome is unknown until the round [ends](Self::end). The batch of
    /// a leader who was a member comes first.
    pub(crate) fn run(&mut self, counts: &dyn Fn(&CounterKey) -> bool) -> Vec<Running> {
        let Address {
            slot, key: own_key, ..
        } = &self.address;
        if self.address.is_copy() {
            return vec![];
        }
        let (mut batches, mut empty) = (vec![], vec![]); // beyond the locks: dropping a key may run a caller's code
        let mut map = self.address.map();
        let mut slot = map.get_mut(slot);
        if let Some(slot) = &mut slot {
            slot.queued.retain(|(key, batch)| {
                let takes = batches.len() < BATCHES && (key == own_key || counts(key));
                if takes {
                    batches.push((key.clone(), Arc::clone(batch)));
                }
                !takes
            });
        }
        let own = self.own.take();
        let leaders = usize::from(own.is_some());
        if let Some(own) = own {
            let queued = batches.iter().position(|(key, _)| key == own_key);
            let batch = match queued {
                Some(at) => batches.remove(at).1,
                None => Arc::default(),
            };
            lock(&batch.0).join(&own);
            batches.insert(0, (own_key.clone(), batch));
        }
        let mut running: Vec<Running> = vec![];
        let mut leads = vec![];
        for (key, taken) in batches {
            let mut batch = lock(&taken.0);
            if batch.members == 0 {
                empty.push(key); // all have left
                continue;
            }
            leads.extend(batch.take_lead());
            batch.phase = Phase::Running;
            running.push(Running {
                key,
                sums: batch.sums.clone(),
                members: batch.members,
                since: batch.since,
            });
            drop(batch);
            self.running.push(taken);
        }
        self.has_run |= leaders == 0 && !running.is_empty();
        if let Some(slot) = slot {
            // This leader may have been presumed asleep, and another lead handed over to a batch that it runs now.
            leads.push(self.id);
            slot.leaders.retain(|leader| !leads.contains(leader));
            slot.leaders.push(self.id);
            let members: usize = running.iter().map(|batch| batch.members).sum();
            self.members = members.saturating_sub(leaders);
            slot.running += self.members;
        }
        running
    }

    /// Tells the members of each batch of the round its outcome. A batch without one ends as [`Unknown`](Outcome::Unknown).
    pub(crate) fn end(&mut self, outcomes: Vec<Outcome>) {
        if self.running.is_empty() || self.address.is_copy() {
            return;
        }
        let mut wakers = vec![];
        let mut map = self.address.map();
        if let Some(slot) = map.get_mut(&self.address.slot) {
            let present = slot.present(&self.address.key);
            let is_counted = outcomes.iter().any(Outcome::is_counted);
            self.has_counted |= is_counted;
            let ended = if is_counted { self.members } else { 0 };
            slot.elapse(present, ended, &self.address.slots.learned);
            // It may be another one, if this leader was presumed asleep.
            slot.running = slot.running.saturating_sub(self.members);
            slot.callers.fall();
        }
        drop(map);
        self.members = 0;
        let mut outcomes = outcomes.into_iter();
        for ran in self.running.drain(..) {
            let unknown = || Outcome::Unknown("who counted for others was cancelled".into());
            let mut batch = lock(&ran.0);
            batch.phase = Phase::Done(outcomes.next().unwrap_or_else(unknown));
            wakers.extend(std::mem::take(&mut batch.wakers).into_values());
            drop(batch);
            ran.1.notify_all();
        }
        wakers.into_iter().for_each(Waker::wake); // last, since wakers run foreign code
    }

    /// Leaves the slot. The last leader hands its lead over to a batch that has members. If there is none, the slot ends.
    fn hand_over(&mut self) {
        let mut map = self.address.map();
        let Some(slot) = map.get_mut(&self.address.slot) else {
            return;
        };
        let present = slot.present(&self.address.key);
        let learned = &self.address.slots.learned;
        slot.elapse(present, self.has_counted.into(), learned);
        slot.callers.fall();
        slot.leaders.retain(|leader| *leader != self.id);
        if !slot.leaders.is_empty() {
            return;
        }
        let mut batches = slot.queued.iter();
        let woken = batches.find_map(|(_, queued)| {
            let mut batch = lock(&queued.0);
            if batch.members == 0 {
                return None;
            }
            let lead = Some(self.id);
            batch.phase = Phase::Queued { lead };
            let task = batch.wakers.pop_first();
            drop(batch);
            queued.1.notify_one();
            Some(task)
        });
        match woken {
            Some(woken) => {
                slot.leaders.push(self.id);
                drop(map); // the woken member may enter the slot at once
                wake(woken);
            }
            None => {
                let ended = map.remove(&self.address.slot);
                drop(map); // first: dropping a key may run a caller's code
                drop(ended);
            }
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if !self.address.is_copy() {
            self.end(vec![]);
            self.hand_over();
        }
    }
}

fn wake(waiting: Option<(CallerId, Waker)>) {
    if let Some((_, waker)) = waiting {
        waker.wake();
    }
}

/// Ignores poison: no caller's code runs under a lock, except a key's `Hash`, `Eq` and `Clone`.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Amount;
    use std::sync::atomic::{AtomicI64, AtomicUsize};
    use std::task::Wake;
    use std::thread;

    fn key(n: u8) -> CounterKey {
        CounterKey {
            backend: "",
            identity: 0,
            table: "",
            fields: &[],
            inserts: false,
            key: n.to_string().into(),
            handed: None,
        }
    }

    fn sum(n: i128) -> Sum {
        Sum::of(Amount::Integer(n))
    }

    fn number(sum: &Sum) -> i128 {
        match sum {
            Sum::Exact(Amount::Integer(n)) => *n,
            other => panic!("{other:?}"),
        }
    }

    impl Slots {
        fn len(&self) -> usize {
            self.maps.iter().map(|map| lock(map).len()).sum()
        }
    }

    fn slots() -> Arc<Slots> {
        Arc::new(Slots::new())
    }

    fn lead(slots: &Arc<Slots>) -> Lead {
        match Slots::enter(slots, (key(7), 1), key(7), &[sum(1)], Instant::now()) {
            Entered::Leads(lead) => lead,
            Entered::Waits(_) => panic!("somebody leads"),
        }
    }

    fn wait(slots: &Arc<Slots>, n: i128) -> Member {
        wait_for(slots, 7, n)
    }

    fn wait_for(slots: &Arc<Slots>, of: u8, n: i128) -> Member {
        match Slots::enter(slots, (key(7), 1), key(of), &[sum(n)], Instant::now()) {
            Entered::Waits(member) => member,
            Entered::Leads(_) => panic!("nobody leads"),
        }
    }

    /// The sums of the next batch, and its members, as it runs.
    fn ran(lead: &mut Lead) -> Option<(Vec<i128>, usize)> {
        while lead.has_work(&|_| false) {
            if let Some(batch) = lead.run(&|_| false).pop() {
                return Some((batch.sums.iter().map(number).collect(), batch.members));
            }
        }
        None
    }

    /// The counters of the next round, and their sums. A leader who counts on each of them runs it.
    fn ran_together(lead: &mut Lead) -> Vec<(u8, i128)> {
        assert!(lead.has_work(&|_| true));
        let running = lead.run(&|_| true).into_iter();
        let named = |name: &CounterKey| (0..=u8::MAX).find(|n| key(*n) == *name);
        running
            .map(|batch| (named(&batch.key).unwrap(), number(&batch.sums[0])))
            .collect()
    }

    /// The next batch has this sum and this many members, and is counted.
    fn counts(lead: &mut Lead, sum: i128, members: usize) {
        assert_eq!(ran(lead), Some((vec![sum], members)));
        lead.end(vec![Outcome::Counted(1)]);
    }

    /// Nothing is left to count, and nobody waits.
    fn ends(mut lead: Lead, slots: &Slots) {
        assert_eq!(ran(&mut lead), None);
        drop(lead);
        assert_eq!(slots.len(), 0);
    }

    /// What a member finds when it looks.
    fn look(member: &mut Member) -> Poll<Turn> {
        member.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn outcome(mut member: Member) -> Outcome {
        match look(&mut member) {
            Poll::Ready(Turn::Done(outcome)) => outcome,
            Poll::Ready(Turn::Leads(_)) => panic!("it leads"),
            Poll::Pending => panic!("it waits"),
        }
    }

    fn leads(mut member: Member) -> Lead {
        match look(&mut member) {
            Poll::Ready(Turn::Leads(lead)) => lead,
            Poll::Ready(Turn::Done(outcome)) => panic!("{outcome:?}"),
            Poll::Pending => panic!("it waits"),
        }
    }

    fn takes_over(member: &mut Member) -> Lead {
        member.take_over(Duration::ZERO).expect("it leads")
    }

    /// A thread that waits to be woken.
    fn awaited(member: &mut Member) -> Turn {
        struct Unpark(thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            match member.poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(turn) => return turn,
                Poll::Pending => thread::park(),
            }
        }
    }

    #[test]
    fn whoever_comes_while_another_counts_is_counted_together() {
        let slots = slots();
        let mut lead = lead(&slots);
        let waits = [wait(&slots, 2), wait(&slots, -5)];
        assert_eq!(ran(&mut lead), Some((vec![-3], 2)));
        let late = wait(&slots, 1);
        lead.end(vec![Outcome::Counted(1)]);
        let counted = || Outcome::Counted(1);
        assert_eq!(waits.map(outcome), [counted(), counted()]);
        assert_eq!(ran(&mut lead), None);
        drop(lead);
        let mut next = leads(late);
        counts(&mut next, 1, 1);
        ends(next, &slots);
    }

    #[test]
    fn counters_do_not_meet() {
        let slots = slots();
        let _seven = lead(&slots);
        let other = Slots::enter(&slots, (key(8), 1), key(8), &[sum(1)], Instant::now());
        assert!(matches!(other, Entered::Leads(_)));
    }

    /// Commits are slow, and few callers meet.
    #[test]
    fn few_callers_all_lead() {
        let slots = slots();
        slots.learned.are(16);
        let enter = || Slots::enter(&slots, (key(7), 16), key(7), &[sum(1)], Instant::now());
        let leads: Vec<_> = (0..16).map(|_| enter()).collect();
        assert!(leads.iter().all(|one| matches!(one, Entered::Leads(_))));
        assert!(matches!(enter(), Entered::Waits(_)));
        drop(leads);
        let _leads = lead(&slots); // in a slot of one leader
        wait(&slots, 1);
    }

    #[test]
    fn each_increment_that_is_counted_is_learned_from() {
        let slots = slots();
        let enter = |n| Slots::enter(&slots, (key(7), 16), key(7), &[sum(n)], Instant::now());
        for (outcome, learned) in [(Outcome::Nothing, 0), (Outcome::Counted(1), 3)] {
            let Entered::Leads(mut lead) = enter(1) else {
                panic!("nobody leads")
            };
            let members = [enter(2), enter(3)];
            assert_eq!(ran(&mut lead), Some((vec![5], 2)));
            lead.end(vec![outcome]);
            drop((lead, members));
            assert_eq!(slots.learned.calls(3), learned);
        }
    }

    /// Each leader takes its share of all callers, and leaves if it finds less while another one stays.
    #[test]
    fn several_lead_with_a_share_of_the_callers() {
        let slots = slots();
        let enter = |n| Slots::enter(&slots, (key(7), 16), key(7), &[sum(n)], Instant::now());
        let Entered::Leads(one) = enter(1) else {
            panic!("nobody leads")
        };
        let members: Vec<_> = (0..19).map(|_| enter(2)).collect();
        slots.learned.are(2);
        let Entered::Leads(mut other) = enter(5) else {
            panic!("a full batch waits")
        };
        assert!(other.was_member());
        assert_eq!(ran(&mut other), Some((vec![43], 20)));
        let late = wait(&slots, 3);
        assert!(!one.has_work(&|_| false)); // one caller is no share
        other.end(vec![Outcome::Counted(1)]);
        for member in members {
            let Entered::Waits(member) = member else {
                panic!("more than one led")
            };
            assert_eq!(outcome(member), Outcome::Counted(1));
        }
        drop(one);
        counts(&mut other, 3, 1);
        outcome(late);
        ends(other, &slots);
    }

    /// Where a database has one writer at a time, callers of other counters wait for their turn, in the order in which they came.
    #[test]
    fn counters_of_one_slot_take_turns() {
        let slots = slots();
        let mut first = lead(&slots);
        let other = |key| wait_for(&slots, key, 1);
        let (eight, nine, again) = (other(8), other(9), other(8));
        let own = wait(&slots, 2);
        counts(&mut first, 2, 1);
        outcome(own);
        assert_eq!(ran(&mut first), None);
        drop(first);
        let mut second = leads(eight);
        counts(&mut second, 2, 2);
        outcome(again);
        assert_eq!(ran(&mut second), None);
        drop(second);
        let mut third = leads(nine);
        counts(&mut third, 1, 1);
        ends(third, &slots);
    }

    /// If the leader counts on other counters too, nobody waits for a turn. Callers who come meanwhile are in the next round.
    #[test]
    fn a_leader_counts_on_several_counters_in_a_round() {
        let slots = slots();
        let mut first = lead(&slots);
        let waits = [(8, 2), (7, 3), (9, 5), (8, 10)].map(|(key, n)| wait_for(&slots, key, n));
        assert_eq!(ran_together(&mut first), [(8, 12), (7, 3), (9, 5)]);
        let late = wait_for(&slots, 9, 1);
        first.end(vec![
            Outcome::Counted(1),
            Outcome::Nothing,
            Outcome::Counted(0),
        ]);
        let [eight, seven, nine, again] = waits.map(outcome);
        assert_eq!([eight, again], [Outcome::Counted(1), Outcome::Counted(1)]);
        assert_eq!([seven, nine], [Outcome::Nothing, Outcome::Counted(0)]);
        drop(first);
        let mut next = leads(late);
        assert_eq!(ran_together(&mut next), [(9, 1)]);
        next.end(vec![Outcome::Counted(1)]);
        ends(next, &slots);
    }

    /// Its outcome is that of the round's first batch.
    #[test]
    fn the_own_batch_of_a_member_who_leads_comes_first() {
        let slots = slots();
        let first = lead(&slots);
        let (eight, mut nine, other) = (
            wait_for(&slots, 8, 1),
            wait_for(&slots, 9, 2),
            wait_for(&slots, 9, 20),
        );
        let mut alone = wait_for(&slots, 10, 300);
        let mut second = takes_over(&mut nine);
        assert!(second.was_member());
        assert_eq!(ran_together(&mut second)[..2], [(9, 22), (8, 1)]);
        second.end(vec![
            Outcome::Counted(1),
            Outcome::Nothing,
            Outcome::Nothing,
        ]);
        assert_eq!(
            [other, eight].map(outcome),
            [Outcome::Counted(1), Outcome::Nothing]
        );
        assert!(matches!(
            look(&mut alone),
            Poll::Ready(Turn::Done(Outcome::Nothing))
        ));
        drop(first);
        ends(second, &slots);
    }

    /// This includes counters that it would have counted beside its own. Its own amount is in no batch then.
    #[test]
    fn what_a_leader_did_not_run_is_counted_by_others() {
        let slots = slots();
        let first = lead(&slots);
        let (seven, eight, nine) = (
            wait(&slots, 2),
            wait_for(&slots, 8, 3),
            wait_for(&slots, 9, 5),
        );
        drop(first);
        let second = leads(seven);
        assert!(second.has_work(&|_| true));
        drop(nine);
        let (late, tenth) = (wait_for(&slots, 8, 20), wait_for(&slots, 10, 7));
        drop(second);
        let mut third = leads(eight);
        assert_eq!(ran_together(&mut third), [(8, 23), (10, 7)]);
        drop(third);
        let outcomes = [late, tenth].map(outcome);
        assert!(
            outcomes
                .iter()
                .all(|end| matches!(end, Outcome::Unknown(_)))
        );
        assert_eq!(slots.len(), 0);
    }

    #[test]
    fn a_leader_counts_one_round_and_then_somebody_else_leads() {
        let slots = slots();
        let mut first = lead(&slots);
        let member = wait(&slots, 1);
        counts(&mut first, 1, 1);
        outcome(member);
        let next = wait(&slots, 3);
        assert_eq!(ran(&mut first), None);
        drop(first);
        let mut second = leads(next);
        let late = wait(&slots, 1);
        counts(&mut second, 4, 2);
        outcome(late);
        ends(second, &slots);
    }

    #[test]
    fn who_leaves_takes_the_amount_back() {
        let slots = slots();
        let mut leader = lead(&slots);
        let (stays, leaves) = (wait(&slots, 2), wait(&slots, 40));
        let mut leaves_late = wait(&slots, 6_000);
        drop(leaves);
        assert!(leader.has_work(&|_| false));
        assert!(leaves_late.leave());
        assert!(!leaves_late.leave()); // it has left
        counts(&mut leader, 2, 1);
        assert_eq!(outcome(stays), Outcome::Counted(1));
        ends(leader, &slots);
    }

    #[test]
    fn a_batch_that_all_have_left_does_not_run() {
        let slots = slots();
        let mut lead = lead(&slots);
        drop(wait(&slots, 2));
        assert!(lead.has_work(&|_| false) && lead.run(&|_| false).is_empty());
        drop(wait(&slots, 3));
        let stays = wait(&slots, 3);
        counts(&mut lead, 3, 1);
        outcome(stays);
        drop(wait(&slots, 3));
        drop(lead);
        assert_eq!(slots.len(), 0);
    }

    #[test]
    fn nobody_leaves_or_leads_a_batch_that_runs() {
        let slots = slots();
        let mut lead = lead(&slots);
        let mut member = wait(&slots, 2);
        assert!(ran(&mut lead).is_some());
        assert!(!member.leave() && member.take_over(Duration::ZERO).is_none());
        assert!(look(&mut member).is_pending());
        lead.end(vec![Outcome::Counted(1)]);
        assert!(!member.leave());
        assert_eq!(outcome(member), Outcome::Counted(1));
    }

    #[test]
    fn a_lead_that_is_dropped_is_handed_over() {
        let slots = slots();
        let first = lead(&slots);
        let (one, other) = (wait(&slots, 2), wait(&slots, 3));
        drop(first);
        let mut second = leads(one);
        counts(&mut second, 5, 2);
        assert_eq!(outcome(other), Outcome::Counted(1));
        ends(second, &slots);
    }

    #[test]
    fn what_a_dropped_lead_ran_is_unknown_and_the_rest_is_not() {
        let slots = slots();
        let mut first = lead(&slots);
        let lost = wait(&slots, 2);
        assert!(ran(&mut first).is_some());
        let queued = wait(&slots, 3);
        drop(first);
        assert!(matches!(outcome(lost), Outcome::Unknown(_)));
        assert_eq!(ran(&mut leads(queued)), Some((vec![3], 1)));
        assert_eq!(slots.len(), 0);
    }

    /// The leader is a task that nobody polls, or a statement that does not end.
    #[test]
    fn who_waits_leads_beside_a_leader_who_sleeps() {
        let slots = slots();
        let mut sleeps = lead(&slots);
        let asleep_too = wait(&slots, 100);
        assert_eq!(ran(&mut sleeps), Some((vec![100], 1)));
        let (mut one, other) = (wait(&slots, 2), wait(&slots, 3));
        let mut awake = takes_over(&mut one);
        counts(&mut awake, 5, 2);
        assert_eq!(outcome(other), Outcome::Counted(1));
        ends(awake, &slots);
        // The next caller finds no leader, and then the sleeping one wakes up.
        let mut next = lead(&slots);
        let late = wait(&slots, 20);
        sleeps.end(vec![Outcome::Counted(1)]);
        assert_eq!(outcome(asleep_too), Outcome::Counted(1));
        assert_eq!(ran(&mut sleeps), None);
        drop(sleeps);
        counts(&mut next, 20, 1);
        assert_eq!(outcome(late), Outcome::Counted(1));
        ends(next, &slots);
    }

    /// It counts its own amount, even if the slot is gone.
    #[test]
    fn a_leader_who_wakes_up_leads_again() {
        for slot_is_gone in [false, true] {
            let slots = slots();
            let first = lead(&slots);
            let sleeps = wait(&slots, 2);
            drop(first);
            let mut sleeps = leads(sleeps);
            let mut awake = takes_over(&mut wait(&slots, 3));
            if slot_is_gone {
                counts(&mut awake, 3, 1);
                ends(awake, &slots);
                counts(&mut sleeps, 2, 1);
            } else {
                let early = wait(&slots, 20);
                counts(&mut sleeps, 22, 2); // as if both waited for a connection, and it got one first
                let late = wait(&slots, 30);
                counts(&mut awake, 33, 2);
                drop(awake);
                assert_eq!([early, late].map(outcome), [1, 1].map(Outcome::Counted));
                let last = wait(&slots, 40);
                counts(&mut sleeps, 40, 1);
                outcome(last);
            }
            ends(sleeps, &slots);
        }
    }

    /// One more member leads at a time, and the others go on waiting.
    #[test]
    fn not_all_who_have_waited_take_over() {
        let slots = slots();
        let _sleeps = lead(&slots);
        let (mut eight, mut nine) = (wait_for(&slots, 8, 1), wait_for(&slots, 9, 1));
        let long = Duration::from_secs(3600);
        let first = eight.take_over(long).expect("it leads");
        assert!(nine.take_over(long).is_none() && look(&mut nine).is_pending());
        drop(first);
        counts(&mut leads(nine), 1, 1);
    }

    /// The lead is handed over to the oldest member, who sleeps.
    #[test]
    fn who_waits_leads_instead_of_a_member_who_sleeps() {
        let slots = slots();
        let first = lead(&slots);
        let (mut sleeps, mut awake) = (wait(&slots, 2), wait(&slots, 3));
        drop(first); // hands over
        let mut second = takes_over(&mut awake);
        assert!(look(&mut sleeps).is_pending());
        counts(&mut second, 5, 2);
        assert_eq!(outcome(sleeps), Outcome::Counted(1));
        ends(second, &slots);
    }

    /// A leader who was presumed asleep runs the batch that the lead was handed over to.
    #[test]
    fn a_lead_ends_with_the_batch_that_it_was_handed_over_to() {
        let slots = slots();
        let mut sleeps = lead(&slots);
        let awake = takes_over(&mut wait(&slots, 2));
        let member = wait(&slots, 3);
        drop(awake); // hands over
        counts(&mut sleeps, 3, 1);
        outcome(member);
        ends(sleeps, &slots);
    }

    #[test]
    fn a_lead_is_handed_on_by_who_does_not_take_it() {
        let slots = slots();
        let first = lead(&slots);
        let [gone, stays] = [wait(&slots, 2), wait(&slots, 3)];
        drop(first); // hands over
        drop(gone);
        assert_eq!(ran(&mut leads(stays)), Some((vec![3], 1)));
        // All members of a batch have left, and another batch waits.
        let first = lead(&slots);
        let (last, other) = (wait(&slots, 2), wait_for(&slots, 8, 5));
        drop(first);
        drop(last);
        let mut second = leads(other);
        counts(&mut second, 5, 1);
        ends(second, &slots);
        let first = lead(&slots);
        let last = wait(&slots, 2);
        drop(first);
        drop(last);
        assert_eq!(slots.len(), 0);
    }

    #[test]
    fn a_member_who_leads_and_may_not_count_for_others_leaves() {
        let slots = slots();
        let first = lead(&slots);
        let (one, other) = (wait(&slots, 2), wait(&slots, 3));
        drop(first);
        drop(leads(one));
        let mut lead = leads(other);
        assert_eq!(ran(&mut lead), Some((vec![3], 1)));
        drop(lead);
        assert_eq!(slots.len(), 0);
    }

    /// Some callers give up, and some leads are dropped. The increments are exactly those that were acknowledged. Unless a second leader takes
    /// over, nobody waits for more than the round in progress and the next one.
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
        let count_for_others = |mut lead: Lead, drops: bool| {
            while lead.has_work(&|_| true) {
                if drops {
                    return;
                }
                let running = lead.run(&|_| true);
                if running.is_empty() {
                    continue;
                }
                let round = rounds.fetch_add(1, Ordering::SeqCst) + 1;
                thread::yield_now();
                for batch in &running {
                    counted.fetch_add(number(&batch.sums[0]) as i64, Ordering::Relaxed);
                }
                lead.end(running.iter().map(|_| Outcome::Counted(round)).collect());
            }
        };
        let count = |number: i64, round: i64| {
            let n = number + round;
            let alone = || {
                counted.fetch_add(n, Ordering::Relaxed);
            };
            match Slots::enter(
                &slots,
                (key(7), 1),
                key(number as u8 % 3),
                &[sum(n.into())],
                Instant::now(),
            ) {
                Entered::Leads(lead) => {
                    alone();
                    thread::yield_now(); // lets other callers wait
                    count_for_others(lead, n % 7 == 0);
                }
                Entered::Waits(mut member) => {
                    let seen = rounds.load(Ordering::SeqCst); // perhaps without the one under way
                    if n % 11 == 0 && member.leave() {
                        alone();
                        return;
                    }
                    let is_impatient = some_are_impatient && n % 5 == 0;
                    let taken_over = is_impatient.then(|| member.take_over(Duration::ZERO));
                    if let Some(lead) = taken_over.flatten() {
                        return count_for_others(lead, false);
                    }
                    match awaited(&mut member) {
                        Turn::Done(Outcome::Counted(round)) => {
                            assert!(some_are_impatient || round <= seen + 2);
                        }
                        Turn::Done(outcome) => panic!("{outcome:?}"),
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

//! The sums of additions to one field, by key, and those to all fields.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use diesel::connection::LoadConnection;
use diesel::result::QueryResult;

use crate::backend::AtOnce;
use crate::placement::Stripe;

use super::coalesced::{Addition, Climbed, Field, Rung};
use super::hot_keys::HotKeys;
use super::token::BatchMark;

/// The additions to one field, of any type.
pub(super) trait AnyLane<Conn>: Send {
    fn as_any_mut(&mut self) -> &mut dyn Any;

    fn len(&self) -> usize;

    /// Takes over all entries of `other`, if it is of the same field. Returns the number here of each entry there.
    fn absorb(&mut self, other: &mut dyn AnyLane<Conn>) -> Option<Vec<usize>>;

    /// The numbers of all entries, in the order of their keys.
    fn in_order(&self) -> Vec<usize>;

    /// The sum that callers who do not wait have added to an entry.
    fn buffered(&self, entry: usize) -> i128;

    /// Notes which entries have hot keys.
    fn note_contention(&mut self, keys: &mut HotKeys, now: Instant);

    /// Adds each amount to its entry's shard, on this rung, unless that is the last one.
    ///
    /// A cold key's shard is the first, where every process begins, and a hot key's is at `place`.
    fn count_together(
        &self,
        conn: &mut Conn,
        rung: Rung,
        amounts: &[(usize, i64)],
        place: u16,
    ) -> QueryResult<Climbed>;

    /// The same together with the mark, as a commit of its own, where shards may be missing if it `upserts`. Returns whether it was
    /// committed.
    fn commit_at_once(
        &self,
        conn: &mut Conn,
        amounts: &[(usize, i64)],
        place: u16,
        upserts: bool,
        at_once: (AtOnce, BatchMark),
    ) -> QueryResult<bool>;

    /// Adds `n` to one entry as a counting update of its own would. Returns the number of rows counted.
    fn count_one(&self, conn: &mut Conn, entry: usize, n: i64) -> QueryResult<usize>;

    /// The field and the key of an entry, for people.
    fn describe(&self, entry: usize) -> String;
}

struct Lane<F: Field<Conn>, Conn: LoadConnection> {
    field: F,
    numbers: HashMap<F::Key, usize>,
    entries: Vec<LaneEntry<F::Key>>,
}

struct LaneEntry<Key> {
    key: Key,
    buffered: i128,
    is_hot: bool,
}

impl<F: Field<Conn>, Conn: LoadConnection> Lane<F, Conn> {
    fn new(field: F) -> Self {
        Lane {
            field,
            numbers: HashMap::new(),
            entries: vec![],
        }
    }

    /// The number of this key's entry, which is created if it is missing.
    fn entry(&mut self, key: &F::Key) -> usize {
        if let Some(number) = self.numbers.get(key) {
            return *number;
        }
        let number = self.entries.len();
        let (named, key) = (key.clone(), key.clone()); // a key's own code may panic: not between the next two lines
        self.numbers.insert(named, number);
        self.entries.push(LaneEntry {
            key,
            buffered: 0,
            is_hot: false,
        });
        number
    }

    /// Each amount with its key, and the shard that it is counted on.
    fn additions(&self, amounts: &[(usize, i64)], place: u16) -> Vec<Addition<F::Key>> {
        let stripe = Stripe::global();
        let [cold, hot] = [0, place % stripe.shards(self.field.shards())];
        let addition = |(entry, n): &(usize, i64)| {
            let LaneEntry { key, is_hot, .. } = &self.entries[*entry];
            Addition {
                key: key.clone(),
                n: *n,
                shard: stripe.shard(if *is_hot { hot } else { cold }),
            }
        };
        amounts.iter().map(addition).collect()
    }

    fn add(&mut self, key: &F::Key, buffered: i64) -> usize {
        let entry = self.entry(key);
        self.entries[entry].buffered += i128::from(buffered);
        entry
    }
}

impl<F, Conn> AnyLane<Conn> for Lane<F, Conn>
where
    F: Field<Conn>,
    Conn: LoadConnection + 'static,
{
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn absorb(&mut self, other: &mut dyn AnyLane<Conn>) -> Option<Vec<usize>> {
        let other = other.as_any_mut().downcast_mut::<Self>()?;
        let entries = std::mem::take(&mut other.entries);
        let numbers = entries.into_iter().map(|theirs| {
            let number = self.entry(&theirs.key);
            self.entries[number].buffered += theirs.buffered;
            number
        });
        Some(numbers.collect())
    }

    fn in_order(&self) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..self.entries.len()).collect();
        numbers.sort_unstable_by(|a, b| self.entries[*a].key.cmp(&self.entries[*b].key));
        numbers
    }

    fn buffered(&self, entry: usize) -> i128 {
        self.entries[entry].buffered
    }

    fn note_contention(&mut self, keys: &mut HotKeys, now: Instant) {
        for entry in &mut self.entries {
            let mut hash = DefaultHasher::new();
            (TypeId::of::<F>(), &entry.key).hash(&mut hash);
            entry.is_hot = keys.add(hash.finish(), now);
        }
    }

    fn count_together(
        &self,
        conn: &mut Conn,
        rung: Rung,
        amounts: &[(usize, i64)],
        place: u16,
    ) -> QueryResult<Climbed> {
        let additions = self.additions(amounts, place);
        self.field.count_together(conn, rung, additions)
    }

    fn commit_at_once(
        &self,
        conn: &mut Conn,
        amounts: &[(usize, i64)],
        place: u16,
        upserts: bool,
        at_once: (AtOnce, BatchMark),
    ) -> QueryResult<bool> {
        let additions = self.additions(amounts, place);
        self.field.commit_at_once(conn, additions, upserts, at_once)
    }

    fn count_one(&self, conn: &mut Conn, entry: usize, n: i64) -> QueryResult<usize> {
        self.field.count(conn, &self.entries[entry].key, n)
    }

    fn describe(&self, entry: usize) -> String {
        format!("{} of {:?}", self.field.name(), self.entries[entry].key)
    }
}

/// The additions to all fields.
pub(super) struct Lanes<Conn>(Vec<Box<dyn AnyLane<Conn>>>);

/// An entry: the number of its lane, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct EntryId {
    pub(super) lane: usize,
    pub(super) entry: usize,
}

impl<Conn> Default for Lanes<Conn> {
    fn default() -> Self {
        Lanes(vec![])
    }
}

impl<Conn: LoadConnection + 'static> Lanes<Conn> {
    /// Adds `buffered`, which nobody waits for, to a key; 0 only makes the entry.
    pub(super) fn add<F: Field<Conn>>(&mut self, field: F, key: &F::Key, buffered: i64) -> EntryId {
        for (number, lane) in self.0.iter_mut().enumerate() {
            if let Some(lane) = lane.as_any_mut().downcast_mut::<Lane<F, Conn>>() {
                let entry = lane.add(key, buffered);
                return EntryId {
                    lane: number,
                    entry,
                };
            }
        }
        let mut lane = Lane::<F, Conn>::new(field);
        let entry = lane.add(key, buffered);
        self.0.push(Box::new(lane));
        EntryId {
            lane: self.0.len() - 1,
            entry,
        }
    }

    /// Takes over all lanes of `other`. Returns the entry here for each entry there, by lane and number.
    pub(super) fn absorb(&mut self, other: Self) -> Vec<Vec<EntryId>> {
        other
            .0
            .into_iter()
            .map(|lane| self.absorb_lane(lane))
            .collect()
    }

    fn absorb_lane(&mut self, mut theirs: Box<dyn AnyLane<Conn>>) -> Vec<EntryId> {
        let at = |lane| move |entry| EntryId { lane, entry };
        for (number, lane) in self.0.iter_mut().enumerate() {
            if let Some(entries) = lane.absorb(theirs.as_mut()) {
                return entries.into_iter().map(at(number)).collect();
            }
        }
        let entries = 0..theirs.len();
        self.0.push(theirs);
        entries.map(at(self.0.len() - 1)).collect()
    }

    /// How many entries there are.
    pub(super) fn entries(&self) -> usize {
        self.0.iter().map(|lane| lane.len()).sum()
    }

    /// Notes which keys are hot.
    pub(super) fn note_contention(&mut self, keys: &mut HotKeys, now: Instant) {
        for lane in &mut self.0 {
            lane.note_contention(keys, now);
        }
    }

    pub(super) fn get(&self, lane: usize) -> Option<&dyn AnyLane<Conn>> {
        self.0.get(lane).map(AsRef::as_ref)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &dyn AnyLane<Conn>> {
        self.0.iter().map(AsRef::as_ref)
    }
}

//! Bases and shards in memory: a right implementation, or one with a bug. Rows are deleted, inserted again and renamed while others fold.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use diesel_sharded_chaos::lives::workload::MOST;
use diesel_sharded_chaos::lives::{Answer, Operation, Seen};
use diesel_sharded_chaos::operation::Refused;
use diesel_sharded_chaos::store::Store;

use super::turns::Turns;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    None,
    /// A fold moves the shards of a parent that was missing when it took its locks.
    FoldIgnoresLocked,
    /// A fold empties shards without adding them to the base.
    FoldIgnoresWritten,
    /// A set reports success without writing the base.
    SetIgnoresWritten,
    /// A repair reports success without writing the base.
    RepairIgnoresWritten,
    /// A count within bounds reports success without writing a shard.
    BoundedIgnoresWritten,
    /// A count within bounds ignores the bounds.
    BoundedIgnoresBounds,
    /// A rename loses the row's shards.
    RenameLosesShards,
    /// A delete leaves the row's shards to the next row with its key.
    DeleteLeavesShards,
    /// A count reports success on a missing row.
    CountsOnNothing,
    /// A count reports a row as missing that is there.
    SaysNotThere,
    /// A read leaves a row out.
    ReadLeavesOut,
}

/// The key of a row or of a named counter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Row(i64),
    Named(String),
}

struct Parent {
    life: i64,
    base: i64,
    /// Whether a write of its total was left out.
    is_stale: bool,
}

/// All rows and named counters, and how often the bug has shown.
pub struct World {
    bug: Bug,
    parents: BTreeMap<Key, Parent>,
    shards: BTreeMap<(Key, u32), i64>,
    pub operations: u32,
    /// The reads among them.
    pub reads: u32,
    chances: u32,
    /// How often the bug has shown.
    pub strikes: u32,
}

impl World {
    pub fn with(bug: Bug) -> Self {
        World {
            bug,
            parents: BTreeMap::new(),
            shards: BTreeMap::new(),
            operations: 0,
            reads: 0,
            chances: 0,
            strikes: 0,
        }
    }

    /// Whether the bug shows now, if this is a chance for it: at every third one.
    fn strikes(&mut self, bug: Bug, is_a_chance: bool) -> bool {
        let is_a_chance = is_a_chance && self.bug == bug;
        self.chances += u32::from(is_a_chance);
        let strikes = is_a_chance && self.chances.is_multiple_of(3);
        self.strikes += u32::from(strikes);
        strikes
    }

    fn on_shards(&self, key: &Key) -> i64 {
        let shards = self.shards.iter().filter(|((of, _), _)| of == key);
        shards.map(|(_, value)| value).sum()
    }

    fn empty(&mut self, key: &Key) {
        self.shards.retain(|(of, _), _| of != key);
    }

    fn total(&self, key: &Key) -> Option<i64> {
        let parent = self.parents.get(key)?;
        Some(parent.base + self.on_shards(key))
    }

    fn add(&mut self, key: &Key, n: i64) {
        let shard = (key.clone(), self.operations % 4);
        *self.shards.entry(shard).or_default() += n;
    }

    /// Writes a base, and returns whether it was there.
    fn write(&mut self, key: &Key, base: i64) -> bool {
        let parent = self.parents.get_mut(key);
        let is_there = parent.is_some();
        if let Some(parent) = parent {
            parent.base = base;
            parent.is_stale = false;
        }
        is_there
    }

    fn remove(&mut self, key: &Key) -> Option<Parent> {
        let parent = self.parents.remove(key)?;
        if self.bug != Bug::DeleteLeavesShards {
            self.empty(key);
        }
        Some(parent)
    }

    fn insert(&mut self, key: Key, life: i64, base: i64) {
        let inherits = self.on_shards(&key);
        if inherits > 0 {
            self.strikes += 1; // only this bug leaves shards without a row
        } else {
            self.empty(&key);
        }
        let parent = Parent {
            life,
            base,
            is_stale: false,
        };
        self.parents.insert(key, parent);
    }

    fn see(&self, key: i64) -> Option<Seen> {
        let of = Key::Row(key);
        let (life, total) = (self.parents.get(&of)?.life, self.total(&of)?);
        Some(Seen { key, life, total })
    }

    fn count(&mut self, key: i64, n: i64) -> usize {
        let of = Key::Row(key);
        if !self.parents.contains_key(&of) {
            return usize::from(self.strikes(Bug::CountsOnNothing, n > 0));
        }
        if self.strikes(Bug::SaysNotThere, true) {
            return 0;
        }
        self.add(&of, n);
        1
    }

    fn count_bounded(&mut self, key: i64, n: i64) -> Answer {
        let of = Key::Row(key);
        let Some(total) = self.total(&of) else {
            return Answer::Rows(0);
        };
        let fits = (0..=MOST).contains(&(total + n));
        if !fits && !self.strikes(Bug::BoundedIgnoresBounds, true) {
            return Answer::Unchanged;
        }
        if !self.strikes(Bug::BoundedIgnoresWritten, n > 0) {
            self.add(&of, n);
        }
        Answer::Rows(1)
    }

    fn set(&mut self, key: i64, total: i64) -> Answer {
        let of = Key::Row(key);
        if self.bug == Bug::SetIgnoresWritten && self.total(&of).is_some_and(|is| is != total) {
            self.empty(&of);
            if let Some(parent) = self.parents.get_mut(&of) {
                parent.is_stale = true;
            }
            return Answer::Rows(1);
        }
        let is_there = self.write(&of, total);
        self.empty(&of);
        Answer::Rows(usize::from(is_there))
    }

    fn repair(&mut self, key: i64, expected: i64) -> Answer {
        let of = Key::Row(key);
        let on_shards = self.on_shards(&of);
        match self.total(&of) {
            Some(total) if total != expected => {
                if self.bug != Bug::RepairIgnoresWritten {
                    self.write(&of, expected - on_shards);
                } else if let Some(parent) = self.parents.get_mut(&of) {
                    parent.is_stale = true;
                }
                Answer::Rows(1)
            }
            _ => Answer::Unchanged,
        }
    }

    fn rename(&mut self, from: i64, to: i64) -> Answer {
        let (of, becomes) = (Key::Row(from), Key::Row(to));
        if self.parents.contains_key(&becomes) {
            return Answer::Lives(vec![]);
        }
        let Some(seen) = self.see(from) else {
            return Answer::Lives(vec![]);
        };
        let on_shards = self.on_shards(&of);
        let loses = self.strikes(Bug::RenameLosesShards, on_shards > 0);
        if let Some(parent) = self.parents.remove(&of) {
            self.parents.insert(becomes.clone(), parent);
        }
        self.empty(&of);
        if !loses {
            self.add(&becomes, on_shards);
        }
        Answer::Lives(vec![Seen { key: to, ..seen }])
    }

    fn read(&mut self, first: i64, last: i64) -> Answer {
        let mut seen: Vec<_> = (first..=last).filter_map(|key| self.see(key)).collect();
        let shown = seen.iter().map(|seen| Key::Row(seen.key));
        let stale = shown.filter(|key| self.parents[key].is_stale).count();
        self.strikes += stale as u32;
        if self.strikes(Bug::ReadLeavesOut, !seen.is_empty()) {
            seen.pop();
        }
        Answer::Lives(seen)
    }
}

/// A client's access to the world.
pub struct Memory<'w> {
    pub world: &'w Mutex<World>,
    pub turns: &'w Turns,
    pub client: usize,
}

impl Memory<'_> {
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Waits for some operations of other clients, unless these have ended.
    fn pause(&self) {
        let enough = self.world().operations + 3;
        for _ in 0..1000 {
            if self.world().operations >= enough {
                return;
            }
            self.turns.pass(self.client);
        }
    }

    /// Pauses until a condition holds, or for a limited time.
    fn pause_until(&self, is_so: impl Fn(&World) -> bool) -> MutexGuard<'_, World> {
        for _ in 0..10 {
            self.pause();
            let world = self.world();
            if is_so(&world) {
                return world;
            }
        }
        self.world()
    }

    /// Picks the parents with non-empty shards, and later moves these under their locks.
    fn fold(&self, named: bool) -> Answer {
        let picked: Vec<_> = {
            let world = self.world();
            let keys = world.parents.keys();
            let of_table = keys.filter(|key| matches!(key, Key::Named(_)) == named);
            let keys = of_table.filter(|key| world.on_shards(key) != 0);
            keys.cloned().collect()
        };
        self.pause();
        let mut world = self.world();
        let (held, absent): (Vec<_>, Vec<_>) = picked
            .into_iter()
            .partition(|key| world.parents.contains_key(key));
        let mut folded = 0;
        for key in held {
            let on_shards = world.on_shards(&key);
            folded += usize::from(on_shards != 0);
            if !world.strikes(Bug::FoldIgnoresWritten, on_shards > 0) {
                let base = world.parents[&key].base;
                world.write(&key, base + on_shards);
            }
            world.empty(&key);
        }
        if world.bug == Bug::FoldIgnoresLocked {
            drop(world);
            for key in absent {
                self.fold_without_lock(&key);
            }
        }
        Answer::Rows(folded)
    }

    /// Folds in two statements without a lock: one adds the shards to the base, the other empties them. Others count in between.
    fn fold_without_lock(&self, key: &Key) {
        let mut world = self.pause_until(|world| world.parents.contains_key(key));
        let moved = world.on_shards(key);
        let Some(parent) = world.parents.get_mut(key) else {
            return;
        };
        let life = parent.life;
        parent.base += moved;
        // In one transaction, nobody sees the new base before the shards are empty. Here the negative count hides it from others.
        world.add(key, -moved);
        drop(world);
        let mut world = self.pause_until(|world| world.on_shards(key) > 0);
        let lost = world.on_shards(key);
        let is_there = world.parents.get(key).map(|parent| parent.life) == Some(life);
        if is_there && lost > 0 {
            world.empty(key);
            world.strikes += 1;
        }
    }
}

impl Store<Operation, Answer> for Memory<'_> {
    fn run(&mut self, operation: &Operation) -> Result<Answer, Refused> {
        self.turns.pass(self.client); // others run while this operation is under way
        let mut world = self.world();
        world.operations += 1;
        if let Operation::Read { .. } | Operation::ReadNamed { .. } = operation {
            world.reads += 1;
        }
        let answer = match operation {
            // Most of the time another client holds one of the locks.
            Operation::Fold { .. } | Operation::FoldNamed { .. }
                if !world.operations.is_multiple_of(5) =>
            {
                Answer::Rows(0)
            }
            Operation::Fold { .. } | Operation::FoldNamed { .. } => {
                drop(world);
                self.fold(matches!(operation, Operation::FoldNamed { .. }))
            }
            Operation::Insert { key, life, total } => match world.see(*key) {
                Some(_) => Answer::Rows(0),
                None => {
                    world.insert(Key::Row(*key), *life, *total);
                    Answer::Rows(1)
                }
            },
            Operation::Delete { key } => {
                let seen = world.see(*key);
                world.remove(&Key::Row(*key));
                Answer::Lives(seen.into_iter().collect())
            }
            Operation::Rename { from, to } => world.rename(*from, *to),
            Operation::Count { key, n } => Answer::Rows(world.count(*key, *n)),
            Operation::CountBounded { key, n } => world.count_bounded(*key, *n),
            Operation::Set { key, total } => world.set(*key, *total),
            Operation::Repair { key, total } => world.repair(*key, *total),
            Operation::Read { first, last } => world.read(*first, *last),
            Operation::CountNamed { name, n } => {
                let key = Key::Named(name.clone());
                if !world.parents.contains_key(&key) {
                    world.insert(key.clone(), 0, 0);
                }
                world.add(&key, *n);
                Answer::Rows(1)
            }
            Operation::DeleteNamed { name } => {
                let removed = world.remove(&Key::Named(name.clone()));
                Answer::Rows(usize::from(removed.is_some()))
            }
            Operation::ReadNamed { name } => {
                Answer::Total(world.total(&Key::Named(name.clone())).unwrap_or(0))
            }
        };
        Ok(answer)
    }
}

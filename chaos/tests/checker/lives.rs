//! Rows that are deleted, inserted again and renamed, and named counters that are deleted.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use clap::ValueEnum;
use diesel_sharded_chaos::checker::{Aftermath, Judgement, Rule, judge};
use diesel_sharded_chaos::operation::{
    Answer, By, Count, Counter, Folded, On, Operation, Refused, Store, Totals,
};
use diesel_sharded_chaos::workload::{Kind as Drawn, MOST, Round, Scene};

use super::turns::Turns;
use super::{Bug, catches, played};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
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
struct World {
    bug: Bug<Kind>,
    parents: BTreeMap<Key, Parent>,
    shards: BTreeMap<(Key, u32), i64>,
    operations: u32,
    /// The reads among them.
    reads: u32,
}

impl World {
    fn with(kind: Kind) -> Self {
        World {
            bug: Bug::new(kind),
            parents: BTreeMap::new(),
            shards: BTreeMap::new(),
            operations: 0,
            reads: 0,
        }
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
        if self.bug.kind != Kind::DeleteLeavesShards {
            self.empty(key);
        }
        Some(parent)
    }

    fn insert(&mut self, key: Key, life: i64, base: i64) {
        let inherits = self.on_shards(&key);
        if inherits > 0 {
            self.bug.strikes += 1; // only this bug leaves shards without a row
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

    /// The life of a row, and its total.
    fn see(&self, row: i64) -> Totals {
        let of = Key::Row(row);
        let life = self.parents.get(&of).map(|parent| parent.life);
        let life = life.map(|number| Counter::Life { number, row });
        life.into_iter().zip(self.total(&of)).collect()
    }

    fn count(&mut self, key: i64, n: i64) -> usize {
        let of = Key::Row(key);
        if !self.parents.contains_key(&of) {
            return usize::from(self.bug.strikes(Kind::CountsOnNothing, n > 0));
        }
        if self.bug.strikes(Kind::SaysNotThere, true) {
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
        if !fits && !self.bug.strikes(Kind::BoundedIgnoresBounds, true) {
            return Answer::Unchanged;
        }
        if !self.bug.strikes(Kind::BoundedIgnoresWritten, n > 0) {
            self.add(&of, n);
        }
        Answer::Rows(1)
    }

    fn set(&mut self, key: i64, total: i64) -> Answer {
        let of = Key::Row(key);
        if self.bug.kind == Kind::SetIgnoresWritten && self.total(&of).is_some_and(|is| is != total)
        {
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
                if self.bug.kind != Kind::RepairIgnoresWritten {
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
        if self.parents.contains_key(&becomes) || !self.parents.contains_key(&of) {
            return Answer::Totals(vec![]);
        }
        let mut seen = self.see(from);
        for (counter, _) in &mut seen {
            if let Counter::Life { row, .. } = counter {
                *row = to;
            }
        }
        let on_shards = self.on_shards(&of);
        let loses = self.bug.strikes(Kind::RenameLosesShards, on_shards > 0);
        if let Some(parent) = self.parents.remove(&of) {
            self.parents.insert(becomes.clone(), parent);
        }
        self.empty(&of);
        if !loses {
            self.add(&becomes, on_shards);
        }
        Answer::Totals(seen)
    }

    fn read(&mut self, first: i64, last: i64) -> Answer {
        let mut seen: Totals = (first..=last).flat_map(|row| self.see(row)).collect();
        let there = (first..=last).filter_map(|row| self.parents.get(&Key::Row(row)));
        let stale = there.filter(|parent| parent.is_stale).count();
        self.bug.strikes += stale as u32;
        if self.bug.strikes(Kind::ReadLeavesOut, !seen.is_empty()) {
            seen.pop();
        }
        Answer::Totals(seen)
    }
}

/// A client's access to the world.
struct Memory<'w> {
    world: &'w Mutex<World>,
    turns: &'w Turns,
    client: usize,
}

impl Memory<'_> {
    fn world(&self) -> MutexGuard<'_, World> {
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
            if !world.bug.strikes(Kind::FoldIgnoresWritten, on_shards > 0) {
                let base = world.parents[&key].base;
                world.write(&key, base + on_shards);
            }
            world.empty(&key);
        }
        if world.bug.kind == Kind::FoldIgnoresLocked {
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
            world.bug.strikes += 1;
        }
    }
}

impl Store for Memory<'_> {
    fn run(&mut self, operation: &Operation) -> Result<Answer, Refused> {
        self.turns.pass(self.client); // others run while this operation is under way
        let mut world = self.world();
        world.operations += 1;
        world.reads += u32::from(operation.is_read());
        Ok(match operation {
            // Most of the time another client holds one of the locks.
            Operation::Fold { .. } if !world.operations.is_multiple_of(5) => Answer::Rows(0),
            Operation::Fold { what, .. } => {
                drop(world);
                self.fold(*what == Folded::AllNamed)
            }
            Operation::Insert { row, life, total } => match world.see(*row)[..] {
                [_, ..] => Answer::Rows(0),
                [] => {
                    world.insert(Key::Row(*row), *life, *total);
                    Answer::Rows(1)
                }
            },
            Operation::Delete { row } => {
                let seen = world.see(*row);
                world.remove(&Key::Row(*row));
                Answer::Totals(seen)
            }
            Operation::Rename { from, to } => world.rename(*from, *to),
            Operation::SetTotal { row, total } => world.set(*row, *total),
            Operation::Repair { row, total } => world.repair(*row, *total),
            Operation::ReadRows { first, last } => world.read(*first, *last),
            Operation::Count(Count { on, by, n, .. }) => match (on, by) {
                (On::Row(row), By::Bounded(..)) => world.count_bounded(*row, *n),
                (On::Row(row), _) => Answer::Rows(world.count(*row, *n)),
                (On::Named(name), _) => {
                    let key = Key::Named(name.clone());
                    if !world.parents.contains_key(&key) {
                        world.insert(key.clone(), 0, 0);
                    }
                    world.add(&key, *n);
                    Answer::Rows(1)
                }
                (On::Team { .. }, _) => unreachable!("no client counts on a team"),
            },
            Operation::DeleteNamed { name } => {
                let removed = world.remove(&Key::Named(name.clone()));
                Answer::Rows(usize::from(removed.is_some()))
            }
            Operation::ReadNamed { name } => {
                let total = world.total(&Key::Named(name.clone()));
                Answer::Totals(vec![(Counter::Named(name.clone()), total.unwrap_or(0))])
            }
            other => unreachable!("{other:?} is of other rows"),
        })
    }
}

/// The least number of times that a bug has to show.
const ENOUGH: u32 = 10;
/// The fewest operations that a right implementation has to pass.
const OPERATIONS: u32 = 3000;
/// The fewest reads among them.
const READS: u32 = 200;

/// Runs the clients of a scene until the bug has shown several times, and judges their history.
fn judged(kind: Kind, scene: Scene, seed: u64) -> Judgement {
    let others = match scene {
        Scene::Named => &[Drawn::Keep(1)][..],
        _ => &[Drawn::CountLives; 2],
    };
    let drawn = [&[Drawn::Keep(0)], others, &[Drawn::FoldLives; 3]].concat();
    let round = Round {
        number: 1,
        clients: drawn.len() as u16,
        scene: Some(scene),
    };
    let world = &Mutex::new(World::with(kind));
    let store = |client, turns| Memory {
        world,
        turns,
        client,
    };
    let mixes = drawn.into_iter().map(|kind| vec![(kind, 1)]).collect();
    let history = played(round, mixes, seed, store, || {
        let world = world.lock().unwrap();
        let has_shown = kind == Kind::None || world.bug.strikes >= ENOUGH;
        has_shown && world.operations >= OPERATIONS && world.reads >= READS
    });
    let world = world.lock().unwrap();
    let totals = round.reads().map(|read| match read {
        Operation::ReadRows { first, last } => {
            (first..=last).flat_map(|row| world.see(row)).collect()
        }
        Operation::ReadNamed { name } => {
            let total = world.total(&Key::Named(name.clone()));
            vec![(Counter::Named(name), total.unwrap_or(0))]
        }
        other => unreachable!("{other:?} is no read"),
    });
    let aftermath = Aftermath {
        totals: totals.concat(),
        tokens: vec![],
    };
    judge(&round.rules(), &history, &aftermath)
}

#[test]
fn a_right_implementation_passes() {
    for &scene in Scene::value_variants() {
        for seed in 0..5 {
            let judgement = judged(Kind::None, scene, 100 * seed);
            assert_eq!(judgement.findings, [], "{scene:?}, seed {seed}");
            let (ok, reads) = (judgement.ok, judgement.reads);
            assert!(
                ok >= OPERATIONS as usize && reads > 30,
                "{scene:?}: {ok}, {reads}"
            );
        }
    }
}

catches! { Scene:
    a_fold_that_ignores_how_many_rows_it_locked: FoldIgnoresLocked {
        Replaced: RightSum, Renamed: RightSum, Bounded: RightSum, Named: InBounds
    }
    a_fold_that_ignores_how_many_rows_it_wrote: FoldIgnoresWritten {
        Replaced: RightSum, Renamed: RightSum, Bounded: RightSum, Set: InBounds, Named: InBounds
    }
    a_set_that_ignores_how_many_rows_it_wrote: SetIgnoresWritten { Set: InBounds }
    a_repair_that_ignores_how_many_rows_it_wrote: RepairIgnoresWritten { Set: InBounds }
    a_bounded_count_that_ignores_how_many_rows_it_wrote: BoundedIgnoresWritten { Bounded: RightSum }
    a_bounded_count_beyond_its_bounds: BoundedIgnoresBounds { Bounded: Bounds }
    a_rename_that_loses_shards: RenameLosesShards { Renamed: RightSum, Bounded: RightSum }
    shards_that_outlive_their_row: DeleteLeavesShards { Replaced: RightSum, Set: InBounds, Named: InBounds }
    a_count_on_nothing: CountsOnNothing { Replaced: RightSum }
    a_row_that_is_there_and_said_not_to_be: SaysNotThere { Replaced: There }
    a_row_that_a_read_leaves_out: ReadLeavesOut { Renamed: There }
}

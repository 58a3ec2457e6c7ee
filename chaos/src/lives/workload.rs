//! A client's workload on rows that are deleted, inserted again and renamed.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use clap::ValueEnum;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::checker::{Aftermath, judge};
use super::{Answer, History, Operation};
use crate::checker::Judgement;
use crate::store::Store;

/// The ways in which lives begin and end in a round, and the operations besides counts and folds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scene {
    /// Two keys are deleted and inserted again.
    Replaced,
    /// A row is renamed from one key to another and back.
    Renamed,
    /// Two keys are deleted and inserted again, and totals are set and repaired.
    Set,
    /// A row is deleted, inserted again and renamed, and counted on within bounds.
    Bounded,
    /// Named counters are deleted, and the next count creates them again.
    Named,
}

impl Scene {
    /// The bounds of its rows' totals.
    pub fn bounds(self) -> Option<RangeInclusive<i64>> {
        (self == Scene::Bounded).then_some(0..=MOST)
    }
}

/// The upper bound of rows that have bounds; the lower one is 0.
pub const MOST: i64 = 20;

/// One round of a scene, on rows of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    pub scene: Scene,
    pub number: i64,
}

impl Round {
    /// The first of the two keys; the second follows it.
    fn key(self) -> i64 {
        10 * self.number
    }

    fn names(self) -> [String; 2] {
        [0, 1].map(|n| format!("life {n} in round {}", self.number))
    }

    fn reads(self) -> Vec<Operation> {
        let [first, second] = self.names();
        vec![
            self.read(),
            Operation::ReadNamed { name: first },
            Operation::ReadNamed { name: second },
        ]
    }

    fn read(self) -> Operation {
        Operation::Read {
            first: self.key(),
            last: self.key() + 1,
        }
    }

    /// Reads everything after all clients have stopped.
    ///
    /// # Panics
    /// If a read fails.
    pub fn aftermath(self, store: &mut impl Store<Operation, Answer>) -> Aftermath {
        let mut aftermath = Aftermath::default();
        for read in self.reads() {
            store.prepare();
            match (&read, store.run(&read)) {
                (Operation::ReadNamed { name }, Ok(Answer::Total(total))) => {
                    aftermath.named.push((name.clone(), total));
                }
                (_, Ok(Answer::Lives(seen))) => aftermath.lives.extend(seen),
                (_, answer) => panic!("{read:?}: {answer:?}"),
            }
        }
        aftermath
    }

    /// Judges the history of the round.
    pub fn judge(self, history: &History, aftermath: &Aftermath) -> Judgement {
        judge(self.scene.bounds(), history, aftermath)
    }
}

/// The role of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Ends lives and begins them, counts in between, and reads. A round has one keeper of rows. Named counters have two keepers,
    /// each with a counter that nobody else counts on.
    Keeper(usize),
    /// Counts on rows, whichever life is there.
    Counting,
    Folding,
}

impl Role {
    /// The clients of a scene.
    pub fn of(scene: Scene) -> Vec<Role> {
        let others = match scene {
            Scene::Named => &[Role::Keeper(1)][..],
            _ => &[Role::Counting; 2],
        };
        [&[Role::Keeper(0)], others, &[Role::Folding; 3]].concat()
    }
}

/// The operations of one client.
#[derive(Debug)]
pub struct Workload {
    round: Round,
    role: Role,
    random: SmallRng,
    /// The operations that come next.
    planned: VecDeque<Operation>,
    lives: i64,
}

impl Workload {
    pub fn new(round: Round, role: Role, seed: u64) -> Self {
        Workload {
            round,
            role,
            random: SmallRng::seed_from_u64(seed),
            planned: VecDeque::new(),
            lives: 0,
        }
    }

    /// Draws the next operation.
    pub fn draw(&mut self) -> Operation {
        if self.planned.is_empty() {
            self.planned = match (self.role, self.round.scene) {
                (Role::Keeper(n), Scene::Named) => self.named(n),
                (Role::Keeper(_), scene) => self.lead(scene),
                (Role::Counting, scene) => [self.count(scene)].into(),
                (Role::Folding, scene) => [self.fold(scene)].into(),
            };
        }
        self.planned.pop_front().expect("each plan has something")
    }

    /// Plans to end a life, to begin another, and to count on it and read it.
    fn lead(&mut self, scene: Scene) -> VecDeque<Operation> {
        let (first, second) = (self.round.key(), self.round.key() + 1);
        let replaced = match scene {
            Scene::Renamed | Scene::Bounded => first,
            _ => self.random.random_range(first..=second),
        };
        let mut plan = vec![];
        if scene != Scene::Renamed || self.lives == 0 || self.random.random_ratio(1, 8) {
            self.lives += 1;
            plan.push(Operation::Delete { key: replaced });
            plan.push(Operation::Insert {
                key: replaced,
                life: 1_000_000 * self.round.number + self.lives,
                total: self.random.random_range(0..=MOST),
            });
        }
        let counts = |workload: &mut Self, key| [(); 3].map(|()| workload.count_on(scene, key));
        plan.extend(counts(self, replaced));
        match scene {
            Scene::Replaced | Scene::Named => {}
            Scene::Renamed | Scene::Bounded => {
                for (from, to) in [(first, second), (second, first)] {
                    plan.push(Operation::Rename { from, to });
                    plan.extend(counts(self, to));
                }
            }
            Scene::Set => {
                // A set hides earlier errors, so there is a read before it.
                plan.push(self.round.read());
                plan.push(self.set(replaced));
                plan.extend(counts(self, replaced));
                plan.push(self.round.read());
                plan.push(self.repair(replaced));
                plan.extend(counts(self, replaced));
            }
        }
        plan.push(self.round.read());
        plan.into()
    }

    /// Plans counts on a named counter, a read and a delete. No other client uses this counter.
    fn named(&mut self, n: usize) -> VecDeque<Operation> {
        let name = self.round.names()[n].clone();
        let counts = (0..4).map(|_| Operation::CountNamed {
            name: name.clone(),
            n: 1,
        });
        let read = Operation::ReadNamed { name: name.clone() };
        let delete = Operation::DeleteNamed { name: name.clone() };
        counts.chain([read, delete]).collect()
    }

    fn count(&mut self, scene: Scene) -> Operation {
        let key = self.round.key() + self.random.random_range(0..=1);
        match (self.random.random_range(0..10), scene) {
            (0, _) => self.round.read(),
            (1, Scene::Set) => self.set(key),
            (2, Scene::Set) => self.repair(key),
            _ => self.count_on(scene, key),
        }
    }

    fn count_on(&mut self, scene: Scene, key: i64) -> Operation {
        // An amount of either sign, never 0.
        let n = match self.random.random_range(-3..=6) {
            0 => 7,
            n => n,
        };
        match scene {
            Scene::Bounded => Operation::CountBounded { key, n },
            _ => Operation::Count { key, n },
        }
    }

    fn set(&mut self, key: i64) -> Operation {
        Operation::Set {
            key,
            total: self.random.random_range(0..1000),
        }
    }

    fn repair(&mut self, key: i64) -> Operation {
        Operation::Repair {
            key,
            total: self.random.random_range(1000..2000),
        }
    }

    fn fold(&mut self, scene: Scene) -> Operation {
        let keep = if self.random.random() { 0 } else { 4 };
        match scene {
            Scene::Named => Operation::FoldNamed { keep },
            _ => Operation::Fold { keep },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::kind;
    use std::collections::BTreeSet;

    fn operations(scene: Scene) -> Vec<Operation> {
        let round = Round { scene, number: 3 };
        let of_role = |role| {
            let mut workload = Workload::new(round, role, 7);
            (0..1000).map(move |_| workload.draw()).collect::<Vec<_>>()
        };
        Role::of(scene).into_iter().flat_map(of_role).collect()
    }

    #[test]
    fn every_operation_is_drawn_and_every_life_is_new() {
        let all: Vec<_> = Scene::value_variants()
            .iter()
            .copied()
            .flat_map(operations)
            .collect();
        let names: BTreeSet<_> = all.iter().map(kind).collect();
        assert_eq!(names.len(), 13, "{names:?}");
        for &scene in Scene::value_variants() {
            let operations = operations(scene);
            let lives = operations.iter().filter_map(|operation| match operation {
                Operation::Insert { life, .. } => Some(*life),
                _ => None,
            });
            let lives: Vec<_> = lives.collect();
            let different: BTreeSet<_> = lives.iter().collect();
            assert_eq!(lives.len(), different.len(), "{scene:?}");
        }
    }

    /// Plain counts and repairs ignore bounds.
    #[test]
    fn rows_within_bounds_are_counted_on_by_nothing_else() {
        let is_boundless = |operation: &Operation| {
            matches!(
                operation,
                Operation::Count { .. } | Operation::Repair { .. }
            )
        };
        assert!(!operations(Scene::Bounded).iter().any(is_boundless));
    }
}

//! A client's workload: random operations on the counters of its round.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::checker::Rules;
use crate::history::Log;
use crate::operation::{Begin, By, Count, Counter, Folded, NO_CONNECTION, On, Operation, Store};

/// The counters of one round. Each round has its own, so that counts with an unknown outcome affect no other round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    pub number: i64,
    /// The number of clients in all processes.
    pub clients: u16,
    /// How rows are deleted, inserted and renamed, if they are. Then clients count on these rows alone.
    pub scene: Option<Scene>,
}

/// The ways in which lives begin and end in a round, and the operations besides counts and folds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Scene {
    /// Two rows are deleted and inserted again.
    Replaced,
    /// A row is renamed from one id to another and back.
    Renamed,
    /// Two rows are deleted and inserted again, and totals are set and repaired.
    Set,
    /// A row is deleted, inserted again and renamed, and counted on within bounds.
    Bounded,
    /// Named counters are deleted, and the next count creates them again.
    Named,
}

/// The upper bound of rows that have bounds; the lower one is 0.
pub const MOST: i64 = 20;
/// Bounds that no client's counts reach.
const FAR: By = By::Bounded(-1_000_000, 1_000_000);

/// The number of ids of each round.
const IDS: i64 = 1000;
/// `views` of every row at the beginning.
pub(crate) const BASE: i64 = 1000;

/// The row of each round that only single updates count on.
const PLAIN: i64 = 3;
/// The row that is not there at the beginning.
const INSERTED: i64 = 7;
const COALESCED: i64 = 8;
/// The row that repeated requests count on.
const REQUESTED: i64 = 9;
/// The row that is counted on within bounds.
const BOUNDED: i64 = 10;
/// The first of the two rows that are deleted, inserted and renamed.
const LIFE: i64 = 100;

impl Round {
    /// The id of a row of the round, from 1 to 999. The clients count on the first ones.
    pub fn row(self, n: i64) -> i64 {
        self.number * IDS + n
    }

    /// The rows that only transactions with tokens count on.
    fn of_tokens(self) -> [i64; 2] {
        [self.row(1), self.row(2)]
    }

    /// The rows that are always counted together.
    pub fn team(self) -> Vec<i64> {
        vec![self.row(4), self.row(5), self.row(6)]
    }

    /// The row that one client alone sets and counts on.
    fn own(self, client: u16) -> i64 {
        self.row(11 + i64::from(client))
    }

    fn named_life(self, n: usize) -> String {
        format!("life {n} in round {}", self.number)
    }

    /// The rows that are there at the beginning, each with its team if it has one.
    pub fn rows(self) -> Vec<(i64, Option<i64>)> {
        let team = self.team();
        (self.row(1)..=self.own(self.clients))
            .filter(|row| *row != self.row(INSERTED))
            .map(|row| (row, team.contains(&row).then_some(self.number)))
            .collect()
    }

    /// The named counter that single counts are on.
    pub fn named(self) -> String {
        format!("round {}", self.number)
    }

    fn named_of_tokens(self) -> String {
        format!("round {}, in transactions", self.number)
    }

    /// The reads that return all counters.
    pub fn reads(self) -> [Operation; 3] {
        let (first, last, names) = match self.scene {
            None => {
                let names = [self.named(), self.named_of_tokens()];
                (self.row(1), self.row(IDS - 1), names)
            }
            Some(_) => {
                let names = [0, 1].map(|n| self.named_life(n));
                (self.row(LIFE), self.row(LIFE) + 1, names)
            }
        };
        let [name, other] = names.map(|name| Operation::ReadNamed { name });
        [Operation::ReadRows { first, last }, name, other]
    }

    /// The prefix of all tokens of this round.
    pub fn tokens_prefix(self) -> String {
        format!("{}-", self.number)
    }

    /// The rules for the checker.
    pub fn rules(self) -> Rules {
        let rows = self.rows().into_iter();
        Rules {
            base: rows.map(|(row, _)| (Counter::Views(row), BASE)).collect(),
            teams: vec![self.team().into_iter().map(Counter::Views).collect()],
            lives: self.scene.map(|_| self.row(LIFE)..=self.row(LIFE) + 1),
            bounds: (self.scene == Some(Scene::Bounded)).then_some(0..=MOST),
        }
    }
}

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Count,
    CountBoth,
    CountTeam,
    CountOrInsert,
    CountNamed,
    CountCoalesced,
    CountOnce,
    CountBounded,
    /// A token and one or more counts.
    Transaction,
    /// A token and a count on both rows, which other clients count on in the opposite order.
    Crossing(Begin),
    CountOwn,
    SetOwn,
    Fold,
    Resize,
    ReadRows,
    ReadNamed,
    /// The operations that end lives and begin them, counts in between, and reads. A scene has one such client, but of named counters
    /// two: each with a counter that nobody else counts on.
    Keep(usize),
    /// Counts on the rows of a scene, whichever life is there.
    CountLives,
    FoldLives,
}

/// The weight of each kind.
pub type Mix = Vec<(Kind, u32)>;

/// The mix of all kinds of operations but counts within bounds.
pub fn everything() -> Mix {
    vec![
        (Kind::Count, 20),
        (Kind::CountBoth, 8),
        (Kind::CountTeam, 12),
        (Kind::CountOrInsert, 8),
        (Kind::CountNamed, 8),
        (Kind::CountCoalesced, 12),
        (Kind::CountOnce, 12),
        (Kind::Transaction, 24),
        (Kind::Crossing(Begin::Plainly), 4),
        (Kind::CountOwn, 8),
        (Kind::SetOwn, 3),
        (Kind::Fold, 4),
        (Kind::Resize, 1),
        (Kind::ReadRows, 12),
        (Kind::ReadNamed, 4),
    ]
}

/// The operations of one client.
#[derive(Debug)]
pub struct Workload {
    round: Round,
    client: u16,
    mix: Mix,
    random: SmallRng,
    transactions: u64,
    requests: u64,
    lives: i64,
    /// The operations that come next.
    planned: VecDeque<Operation>,
    /// A set whose outcome is unknown. The client repeats it, which does no harm.
    unfinished: Option<Operation>,
}

impl Workload {
    pub fn new(round: Round, client: u16, mix: Mix, seed: u64) -> Self {
        Workload {
            round,
            client,
            mix,
            random: SmallRng::seed_from_u64(seed),
            transactions: 0,
            requests: 0,
            lives: 0,
            planned: VecDeque::new(),
            unfinished: None,
        }
    }

    /// Runs and logs one operation. Returns whether it succeeded.
    pub fn step(&mut self, store: &mut impl Store, log: &mut Log) -> io::Result<bool> {
        store.prepare();
        let operation = self.unfinished.take().unwrap_or_else(|| self.draw());
        let result = log.record(&operation, |operation| store.run(operation))?;
        let Err(refused) = result else {
            return Ok(true);
        };
        if operation.sets().is_some() {
            self.unfinished = Some(operation);
        }
        if refused.kind == NO_CONNECTION {
            thread::sleep(Duration::from_millis(20)); // the log would grow faster than the server starts
        }
        Ok(false)
    }

    /// Runs operations until `stop` is set.
    pub fn run(
        &mut self,
        store: &mut impl Store,
        log: &mut Log,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        while !stop.load(Ordering::SeqCst) {
            self.step(store, log)?;
        }
        Ok(())
    }

    /// Draws the next operation.
    pub fn draw(&mut self) -> Operation {
        if let Some(planned) = self.planned.pop_front() {
            return planned;
        }
        let all: u32 = self.mix.iter().map(|(_, weight)| weight).sum();
        let mut drawn = self.random.random_range(0..all);
        let mut kinds = self.mix.iter();
        let kind = loop {
            let (kind, weight) = *kinds.next().expect("the weights add up");
            match drawn.checked_sub(weight) {
                Some(rest) => drawn = rest,
                None => break kind,
            }
        };
        self.of_kind(kind)
    }

    fn of_kind(&mut self, kind: Kind) -> Operation {
        let round = self.round;
        let row = |n| On::Row(round.row(n));
        let (on, by) = match kind {
            Kind::Count | Kind::CountBoth => (row(PLAIN), By::Update),
            Kind::CountTeam => {
                let (team, rows) = (round.number, round.team());
                (On::Team { team, rows }, By::Update)
            }
            Kind::CountOrInsert => (row(INSERTED), By::OrInsert),
            Kind::CountNamed => (On::Named(round.named()), By::Counter),
            Kind::CountCoalesced => (row(COALESCED), By::Coalescer),
            Kind::CountBounded => (row(BOUNDED), FAR),
            Kind::CountOwn => (On::Row(round.own(self.client)), By::Update),
            other => return self.other_than_counts(other),
        };
        let n = match kind {
            Kind::CountTeam | Kind::CountOrInsert => self.random.random_range(1..=5), // so that the total only grows
            _ => self.amount(),
        };
        let likes = (kind == Kind::CountBoth).then(|| self.random.random_range(-3..=5));
        let request = None;
        Operation::Count(Count {
            on,
            by,
            n,
            likes,
            request,
        })
    }

    fn other_than_counts(&mut self, kind: Kind) -> Operation {
        let round = self.round;
        let [rows, named, of_tokens] = round.reads();
        match kind {
            Kind::CountOnce => self.request(),
            Kind::Transaction => self.transaction(),
            Kind::Crossing(begin) => self.crossing(begin),
            Kind::SetOwn => Operation::SetTotal {
                row: round.own(self.client),
                total: self.random.random_range(0..1000),
            },
            Kind::Fold => Operation::Fold {
                what: Folded::Rows(round.row(1), round.row(IDS - 1)),
                keep: if self.random.random() { 0 } else { 16 },
            },
            Kind::Resize => Operation::Resize {
                shards: self.random.random_range(1..=32),
            },
            Kind::ReadRows => rows,
            Kind::ReadNamed if self.random.random() => named,
            Kind::ReadNamed => of_tokens,
            Kind::Keep(n) => {
                self.planned = match self.scene() {
                    Scene::Named => self.keep_name(n).into(),
                    scene => self.keep_rows(scene).into(),
                };
                self.draw()
            }
            Kind::CountLives => {
                let row = round.row(LIFE) + self.random.random_range(0..=1);
                match (self.random.random_range(0..10), self.scene()) {
                    (0, _) => rows,
                    (1, Scene::Set) => self.set(row),
                    (2, Scene::Set) => self.repair(row),
                    (_, scene) => self.count_on_life(scene, row),
                }
            }
            Kind::FoldLives => Operation::Fold {
                what: match self.scene() {
                    Scene::Named => Folded::AllNamed,
                    _ => Folded::Table,
                },
                keep: if self.random.random() { 0 } else { 4 },
            },
            counts => unreachable!("{counts:?} is a count"),
        }
    }

    fn scene(&self) -> Scene {
        self.round.scene.expect("a round with a scene")
    }

    /// Plans to end a life, to begin another, and to count on it and read it.
    fn keep_rows(&mut self, scene: Scene) -> Vec<Operation> {
        let [read, ..] = self.round.reads();
        let (first, second) = (self.round.row(LIFE), self.round.row(LIFE) + 1);
        let replaced = match scene {
            Scene::Renamed | Scene::Bounded => first,
            _ => self.random.random_range(first..=second),
        };
        let mut plan = vec![];
        if scene != Scene::Renamed || self.lives == 0 || self.random.random_ratio(1, 8) {
            self.lives += 1;
            plan.push(Operation::Delete { row: replaced });
            plan.push(Operation::Insert {
                row: replaced,
                life: 1_000_000 * self.round.number + self.lives,
                total: self.random.random_range(0..=MOST),
            });
        }
        let counts =
            |workload: &mut Self, row| [(); 3].map(|()| workload.count_on_life(scene, row));
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
                plan.extend([read.clone(), self.set(replaced)]);
                plan.extend(counts(self, replaced));
                plan.extend([read.clone(), self.repair(replaced)]);
                plan.extend(counts(self, replaced));
            }
        }
        plan.push(read);
        plan
    }

    /// Plans counts on a named counter, a read and a delete.
    fn keep_name(&mut self, n: usize) -> Vec<Operation> {
        let name = self.round.named_life(n);
        let count = Operation::count(On::Named(name.clone()), By::Counter, 1);
        let read = Operation::ReadNamed { name: name.clone() };
        let mut plan = vec![count; 4];
        plan.extend([read, Operation::DeleteNamed { name }]);
        plan
    }

    fn count_on_life(&mut self, scene: Scene, row: i64) -> Operation {
        let by = match scene {
            Scene::Bounded => By::Bounded(0, MOST),
            _ => By::Update,
        };
        Operation::count(On::Row(row), by, self.amount())
    }

    fn set(&mut self, row: i64) -> Operation {
        let total = self.random.random_range(0..1000);
        Operation::SetTotal { row, total }
    }

    fn repair(&mut self, row: i64) -> Operation {
        let total = self.random.random_range(1000..2000);
        Operation::Repair { row, total }
    }

    fn transaction(&mut self) -> Operation {
        let [first, second] = self.round.of_tokens();
        let mut counts = vec![(Counter::Views(first), self.amount())];
        if self.random.random_ratio(1, 3) {
            counts.push((Counter::Views(second), self.amount()));
            counts.push((Counter::Likes(first), self.amount()));
        }
        if self.random.random_ratio(1, 4) {
            counts.push((Counter::Named(self.round.named_of_tokens()), self.amount()));
        }
        Operation::Transaction {
            token: self.token(),
            counts,
            begin: Begin::Plainly,
            reads_first: false,
        }
    }

    fn crossing(&mut self, begin: Begin) -> Operation {
        let mut rows = self.round.of_tokens();
        if self.random.random() {
            rows.reverse();
        }
        Operation::Transaction {
            token: self.token(),
            counts: rows
                .iter()
                .map(|row| (Counter::Views(*row), self.amount()))
                .collect(),
            begin,
            reads_first: begin == Begin::Serializable,
        }
    }

    /// Draws one of a few requests that other clients also make, at about the same time.
    fn request(&mut self) -> Operation {
        self.requests += 1;
        let number = self.requests / 2 + self.random.random_range(0..4);
        let amounts = [1, 3, -2, 5];
        Operation::Count(Count {
            on: On::Row(self.round.row(REQUESTED)),
            by: By::Counter,
            n: amounts[number as usize % amounts.len()],
            likes: None,
            request: Some(format!("{}request-{number}", self.round.tokens_prefix())),
        })
    }

    fn token(&mut self) -> String {
        self.transactions += 1;
        let prefix = self.round.tokens_prefix();
        format!("{prefix}{}-{}", self.client, self.transactions)
    }

    /// Draws an amount of either sign, never 0.
    fn amount(&mut self) -> i64 {
        match self.random.random_range(-4..=8) {
            0 => 9,
            n => n,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn drawn(scene: Option<Scene>, mix: Mix, operations: usize) -> Vec<Operation> {
        let round = Round {
            number: 3,
            clients: 2,
            scene,
        };
        let mut workload = Workload::new(round, 1, mix, 7);
        (0..operations).map(|_| workload.draw()).collect()
    }

    fn kinds<'o>(operations: impl IntoIterator<Item = &'o Operation>) -> BTreeSet<String> {
        operations.into_iter().map(Operation::kind).collect()
    }

    #[test]
    fn every_kind_is_drawn_every_token_is_new_and_requests_are_repeated() {
        let mut mix = everything();
        mix.push((Kind::CountBounded, 8));
        let operations = drawn(None, mix, 10_000);
        let names = kinds(&operations);
        assert_eq!(names.len(), 13, "{names:?}");
        let is_request = |operation: &&Operation| matches!(operation, Operation::Count(_));
        let (requests, others): (Vec<_>, Vec<_>) = operations.iter().partition(is_request);
        let tokens: Vec<_> = others.into_iter().filter_map(Operation::token).collect();
        let different: BTreeSet<_> = tokens.iter().collect();
        assert_eq!(tokens.len(), different.len());
        let asked = requests.iter().filter_map(|request| request.token());
        let asked: Vec<_> = asked.collect();
        let different: BTreeSet<_> = asked.iter().collect();
        assert!(asked.len() > different.len() && different.len() > 100);
        assert!(tokens.iter().all(|token| token.starts_with("3-")));
    }

    fn of_lives(scene: Scene) -> Vec<Operation> {
        let kinds = [Kind::Keep(0), Kind::CountLives, Kind::FoldLives];
        let drawn = kinds.map(|kind| drawn(Some(scene), vec![(kind, 1)], 1000));
        match scene {
            Scene::Named => [&drawn[0][..], &drawn[2]].concat(),
            _ => drawn.concat(),
        }
    }

    #[test]
    fn every_operation_on_lives_is_drawn_and_every_life_is_new() {
        let all: Vec<_> = Scene::value_variants()
            .iter()
            .map(|scene| of_lives(*scene))
            .collect();
        let names = kinds(all.iter().flatten());
        assert_eq!(names.len(), 12, "{names:?}");
        for operations in all {
            let lives = operations.iter().filter_map(|operation| match operation {
                Operation::Insert { life, .. } => Some(*life),
                _ => None,
            });
            let lives: Vec<_> = lives.collect();
            let different: BTreeSet<_> = lives.iter().collect();
            assert_eq!(lives.len(), different.len());
        }
    }

    /// Plain counts and repairs ignore bounds.
    #[test]
    fn rows_within_bounds_are_counted_on_by_nothing_else() {
        let names = kinds(&of_lives(Scene::Bounded));
        let boundless = ["CountRowByUpdate", "Repair", "SetTotal"];
        assert!(boundless.iter().all(|kind| !names.contains(*kind)));
    }
}

//! A client's workload: random operations on the counters of its round.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::checker::Rules;
use crate::history::Log;
use crate::operation::{Begin, By, Count, Counter, Folded, NO_CONNECTION, On, Operation, Store};

/// The counters of one round. Each round has its own, so that increments with an unknown outcome affect no other round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    pub number: i64,
    /// The number of clients in all processes.
    pub clients: u16,
}

/// Bounds that no client's increments reach.
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

impl Round {
    /// The id of a row of the round, from 1 to 999. The clients count on the first ones.
    pub fn row(self, n: i64) -> i64 {
        self.number * IDS + n
    }

    /// The row that only single updates count on.
    pub fn plain(self) -> i64 {
        self.row(PLAIN)
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

    /// The rows that are there at the beginning, each with its team if it has one.
    pub fn rows(self) -> Vec<(i64, Option<i64>)> {
        let team = self.team();
        (self.row(1)..=self.own(self.clients))
            .filter(|row| *row != self.row(INSERTED))
            .map(|row| (row, team.contains(&row).then_some(self.number)))
            .collect()
    }

    /// The named counter that single increments are on.
    pub fn named(self) -> String {
        format!("round {}", self.number)
    }

    fn named_of_tokens(self) -> String {
        format!("round {}, in transactions", self.number)
    }

    /// The reads that return all counters.
    pub fn reads(self) -> [Operation; 3] {
        let (first, last) = (self.row(1), self.row(IDS - 1));
        let names = [self.named(), self.named_of_tokens()];
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
    /// A token and one or more increments.
    Transaction,
    /// A token and an increment on both rows, which other clients count on in the opposite order.
    Crossing(Begin),
    CountOwn,
    SetOwn,
    Fold,
    Resize,
    ReadRows,
    ReadNamed,
}

/// The weight of each kind.
pub type Mix = Vec<(Kind, u32)>;

/// The mix of all kinds of operations but increments within bounds.
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
        if refused.unknown && operation.sets().is_some() {
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
            counts => unreachable!("{counts:?} is a count"),
        }
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

    fn drawn(mix: Mix, operations: usize) -> Vec<Operation> {
        let round = Round {
            number: 3,
            clients: 2,
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
        let operations = drawn(mix, 10_000);
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
}

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
use crate::operation::{Begin, Counter, Operation};
use crate::store::{NO_CONNECTION, Store};

/// The counters of one round. Each round has its own, so that counts with an unknown outcome affect no other round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    pub number: i64,
    /// The number of clients in all processes.
    pub clients: u16,
}

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
    fn row(self, n: i64) -> i64 {
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

    fn last(self) -> i64 {
        self.own(self.clients)
    }

    /// The rows that are there at the beginning, each with its team if it has one.
    pub fn rows(self) -> Vec<(i64, Option<i64>)> {
        let team = self.team();
        (self.row(1)..=self.last())
            .filter(|row| *row != self.row(INSERTED))
            .map(|row| (row, team.contains(&row).then_some(self.number)))
            .collect()
    }

    fn named(self) -> String {
        format!("round {}", self.number)
    }

    fn named_of_tokens(self) -> String {
        format!("round {}, in transactions", self.number)
    }

    /// The reads that return all counters.
    pub fn reads(self) -> [Operation; 3] {
        [
            Operation::ReadRows {
                first: self.row(1),
                last: self.last(),
            },
            Operation::ReadNamed { name: self.named() },
            Operation::ReadNamed {
                name: self.named_of_tokens(),
            },
        ]
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
        let operation = self.unfinished.take().unwrap_or_else(|| self.next());
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
    fn next(&mut self) -> Operation {
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
        match kind {
            Kind::Count => Operation::Count {
                row: round.row(PLAIN),
                views: self.amount(),
                likes: None,
            },
            Kind::CountBoth => Operation::Count {
                row: round.row(PLAIN),
                views: self.amount(),
                likes: Some(self.random.random_range(-3..=5)),
            },
            Kind::CountTeam => Operation::CountTeam {
                team: round.number,
                rows: round.team(),
                n: self.random.random_range(1..=5),
            },
            Kind::CountOrInsert => Operation::CountOrInsert {
                row: round.row(INSERTED),
                n: self.random.random_range(1..=5),
            },
            Kind::CountNamed => Operation::CountNamed {
                name: round.named(),
                n: self.amount(),
            },
            Kind::CountCoalesced => Operation::CountCoalesced {
                row: round.row(COALESCED),
                n: self.amount(),
            },
            Kind::CountOnce => self.request(),
            Kind::CountBounded => Operation::CountBounded {
                row: round.row(BOUNDED),
                n: self.amount(),
            },
            Kind::Transaction => self.transaction(),
            Kind::Crossing(begin) => self.crossing(begin),
            Kind::CountOwn => Operation::Count {
                row: round.own(self.client),
                views: self.amount(),
                likes: None,
            },
            Kind::SetOwn => Operation::SetTotal {
                row: round.own(self.client),
                total: self.random.random_range(0..1000),
            },
            Kind::Fold => Operation::Fold {
                first: round.row(1),
                last: round.last(),
                keep: if self.random.random() { 0 } else { 16 },
            },
            Kind::Resize => Operation::Resize {
                shards: self.random.random_range(1..=32),
            },
            Kind::ReadRows => {
                let [rows, _, _] = round.reads();
                rows
            }
            Kind::ReadNamed => {
                let [_, named, of_tokens] = round.reads();
                if self.random.random() {
                    named
                } else {
                    of_tokens
                }
            }
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
        Operation::CountOnce {
            request: format!("{}request-{number}", self.round.tokens_prefix()),
            row: self.round.row(REQUESTED),
            n: amounts[number as usize % amounts.len()],
            coalesced: self.random.random(),
        }
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
    use crate::operation::kind;
    use std::collections::BTreeSet;

    #[test]
    fn every_kind_is_drawn_every_token_is_new_and_requests_are_repeated() {
        let round = Round {
            number: 3,
            clients: 2,
        };
        let mut mix = everything();
        mix.push((Kind::CountBounded, 8));
        let mut workload = Workload::new(round, 1, mix, 7);
        let operations: Vec<_> = (0..10_000).map(|_| workload.next()).collect();
        let names: BTreeSet<_> = operations.iter().map(kind).collect();
        assert_eq!(names.len(), 13, "{names:?}");
        let is_request = |operation: &&Operation| matches!(operation, Operation::CountOnce { .. });
        let (requests, others): (Vec<_>, Vec<_>) = operations.iter().partition(is_request);
        let tokens: Vec<_> = others.into_iter().filter_map(Operation::token).collect();
        let different: BTreeSet<_> = tokens.iter().collect();
        assert_eq!(tokens.len(), different.len());
        let asked = requests.iter().filter_map(|request| request.token());
        let different: BTreeSet<_> = asked.collect();
        assert!(requests.len() > different.len() && different.len() > 100);
        let prefix = round.tokens_prefix();
        assert!(tokens.iter().all(|token| token.starts_with(&prefix)));
    }
}

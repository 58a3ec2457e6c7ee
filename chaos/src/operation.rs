//! What clients do, as values: they are logged before they are done, and the checker knows from them what they may change.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One number that is counted: a field of a row, or a named counter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Counter {
    /// `views` of the row with this id.
    Views(i64),
    /// `likes` of the row with this id.
    Likes(i64),
    /// The named counter of this name.
    Named(String),
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Counter::Views(row) => write!(f, "views of row {row}"),
            Counter::Likes(row) => write!(f, "likes of row {row}"),
            Counter::Named(name) => write!(f, "counter {name:?}"),
        }
    }
}

/// How a transaction is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Begin {
    /// As `retry::transaction` does by default.
    Plainly,
    /// SERIALIZABLE; on SQLite without the write lock (`deferred`), so that a write after a read may be too late.
    Serializable,
}

/// One call of the library by a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// `update(rows.find(row)).set(..)`, of one field, or of both.
    Count {
        row: i64,
        views: i64,
        likes: Option<i32>,
    },
    /// `update(rows.filter(team.eq(team))).set(..)`: every row of a team, and the ids are those of its rows.
    CountTeam { team: i64, rows: Vec<i64>, n: i64 },
    /// `update(rows.find(row)).set(..).or_insert(..)`.
    CountOrInsert { row: i64, n: i64 },
    /// `Counter::named(name).add(n)`.
    CountNamed { name: String, n: i64 },
    /// `coalescer.add(row, n)`.
    CountCoalesced { row: i64, n: i64 },
    /// The same with an idempotency key, by the coalescer or without one: several clients ask for it, and it counts once.
    CountOnce {
        request: String,
        row: i64,
        n: i64,
        coalesced: bool,
    },
    /// `retry::transaction`: a token row is inserted, then each is counted, in this order.
    Transaction {
        token: String,
        counts: Vec<(Counter, i64)>,
        begin: Begin,
        /// Whether the totals are read before they are counted.
        reads_first: bool,
    },
    /// `set_total(rows.find(row), views, total)`.
    SetTotal { row: i64, total: i64 },
    /// `fold(rows)`, of those between two ids, keeping so many empty shards.
    Fold { first: i64, last: i64, keep: u16 },
    /// `ShardCount::of(views).resize(shards)`.
    Resize { shards: u16 },
    /// The totals of the rows between two ids, in one query.
    ReadRows { first: i64, last: i64 },
    /// `Counter::named(name).get`.
    ReadNamed { name: String },
}

impl Operation {
    /// What it adds, if it happens.
    pub fn adds(&self) -> Vec<(Counter, i64)> {
        match self {
            Operation::Count { row, views, likes } => {
                let likes = likes.map(|n| (Counter::Likes(*row), i64::from(n)));
                std::iter::once((Counter::Views(*row), *views))
                    .chain(likes)
                    .collect()
            }
            Operation::CountTeam { rows, n, .. } => {
                rows.iter().map(|row| (Counter::Views(*row), *n)).collect()
            }
            Operation::CountOrInsert { row, n }
            | Operation::CountCoalesced { row, n }
            | Operation::CountOnce { row, n, .. } => {
                vec![(Counter::Views(*row), *n)]
            }
            Operation::CountNamed { name, n } => vec![(Counter::Named(name.clone()), *n)],
            Operation::Transaction { counts, .. } => counts.clone(),
            Operation::SetTotal { .. }
            | Operation::Fold { .. }
            | Operation::Resize { .. }
            | Operation::ReadRows { .. }
            | Operation::ReadNamed { .. } => vec![],
        }
    }

    /// The total that it sets, if it happens.
    pub fn sets(&self) -> Option<(Counter, i64)> {
        match self {
            Operation::SetTotal { row, total } => Some((Counter::Views(*row), *total)),
            _ => None,
        }
    }

    /// Its token, if it leaves one. Operations of the same token are one, asked for more than once.
    pub fn token(&self) -> Option<&str> {
        match self {
            Operation::Transaction { token, .. } | Operation::CountOnce { request: token, .. } => {
                Some(token)
            }
            _ => None,
        }
    }

    /// Its kind, for reports.
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Count { .. } => "count",
            Operation::CountTeam { .. } => "count by filter",
            Operation::CountOrInsert { .. } => "count or insert",
            Operation::CountNamed { .. } => "count by name",
            Operation::CountCoalesced { .. } => "count coalesced",
            Operation::CountOnce { .. } => "count once",
            Operation::Transaction { .. } => "transaction",
            Operation::SetTotal { .. } => "set",
            Operation::Fold { .. } => "fold",
            Operation::Resize { .. } => "resize",
            Operation::ReadRows { .. } => "read rows",
            Operation::ReadNamed { .. } => "read by name",
        }
    }
}

/// What a read saw.
pub type Totals = Vec<(Counter, i64)>;

/// Why an operation gave no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Whether it may have happened all the same. `false`: the library promises that nothing was changed.
    pub unknown: bool,
    /// The kind of the error.
    pub kind: String,
    /// Its text.
    pub text: String,
}

//! The clients' operations as values: the logs hold them, and the checker derives from them which totals may change.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A counter: a sharded field of a row, or a named counter.
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
    /// By the defaults of `retry::transaction`.
    Plainly,
    /// SERIALIZABLE. On SQLite `deferred`, without the write lock, so that a write after a read may fail.
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
    /// `update(rows.filter(team.eq(team))).set(..)`: every row of a team. `rows` are their ids.
    CountTeam { team: i64, rows: Vec<i64>, n: i64 },
    /// `update(rows.find(row)).set(..).or_insert(..)`.
    CountOrInsert { row: i64, n: i64 },
    /// `Counter::named(name).add(n)`.
    CountNamed { name: String, n: i64 },
    /// `coalescer.add(row, n)`.
    CountCoalesced { row: i64, n: i64 },
    /// A count with an idempotency key, through the coalescer or directly. Several clients make the same request, and it counts
    /// once.
    CountOnce {
        request: String,
        row: i64,
        n: i64,
        coalesced: bool,
    },
    /// `RowCounter::of(views, row).never_below(..).never_above(..).add(n)`, within bounds that nothing reaches.
    CountBounded { row: i64, n: i64 },
    /// `retry::transaction`: inserts a token row, then adds to each counter in this order.
    Transaction {
        token: String,
        counts: Vec<(Counter, i64)>,
        begin: Begin,
        /// Whether it reads the totals before it counts.
        reads_first: bool,
    },
    /// `set_total(rows.find(row), views, total)`.
    SetTotal { row: i64, total: i64 },
    /// `fold(rows)` of the rows between two ids, with `keep_shards(keep)`.
    Fold { first: i64, last: i64, keep: u16 },
    /// `ShardCount::of(views).resize(shards)`.
    Resize { shards: u16 },
    /// Reads the totals of the rows between two ids in one query.
    ReadRows { first: i64, last: i64 },
    /// `Counter::named(name).get`.
    ReadNamed { name: String },
}

impl Operation {
    /// The amounts that it adds if it happens.
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
            | Operation::CountBounded { row, n }
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

    /// Whether it changes nothing that is read.
    pub fn is_read(&self) -> bool {
        let is_named = matches!(self, Operation::ReadNamed { .. });
        is_named || matches!(self, Operation::ReadRows { .. })
    }

    /// The total that it sets, if it happens.
    pub fn sets(&self) -> Option<(Counter, i64)> {
        match self {
            Operation::SetTotal { row, total } => Some((Counter::Views(*row), *total)),
            _ => None,
        }
    }

    /// The token that it leaves behind, if any. Operations with the same token are one request, made more than once.
    pub fn token(&self) -> Option<&str> {
        match self {
            Operation::Transaction { token, .. } | Operation::CountOnce { request: token, .. } => {
                Some(token)
            }
            _ => None,
        }
    }
}

/// The totals that a read returned.
pub type Totals = Vec<(Counter, i64)>;

/// The error of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Whether the operation may have happened all the same. If `false`, the library promises that it changed nothing.
    pub unknown: bool,
    /// The kind of the error.
    pub kind: String,
    /// The text of the error.
    pub text: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.text)
    }
}

/// The name of a value's variant, for reports.
pub fn kind(value: &impl fmt::Debug) -> String {
    let text = format!("{value:?}");
    let kind = text.split(|c: char| !c.is_alphanumeric()).next();
    kind.unwrap_or_default().to_owned()
}

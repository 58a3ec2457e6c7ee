//! The clients' operations as values: the logs hold them, and the checker derives from them which totals may change.

use std::fmt;
use std::path::PathBuf;

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

/// The rows or the name that an increment is on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum On {
    Row(i64),
    /// Every row of a team, by a filter. `rows` are their ids.
    Team {
        team: i64,
        rows: Vec<i64>,
    },
    Named(String),
}

/// The way in which an increment is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum By {
    /// `update(..).set(..)`
    Update,
    /// `update(..).set(..).or_insert(..)`
    OrInsert,
    /// `RowCounter::add` or `Counter::add`
    Counter,
    /// `RowCounter::of(..).never_below(..).never_above(..).add(..)`
    Bounded(i64, i64),
    /// `Coalescer::add_later`, and `flush`
    Coalescer,
}

/// An increment of one amount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    pub on: On,
    pub by: By,
    pub n: i64,
    /// What it adds to `likes`, besides.
    pub likes: Option<i32>,
    /// The idempotency key. Several clients may make the same request, and it counts once.
    pub request: Option<String>,
}

/// The rows or counters that a fold is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Folded {
    Row(i64),
    /// The rows between two ids.
    Rows(i64, i64),
    Team(i64),
    /// All rows, a few at a time.
    Table,
    Named(String),
    /// A row, whose base is reported to the end of this file.
    Reported(i64, PathBuf),
}

/// One call of the library by a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    Count(Count),
    /// `retry::transaction`: inserts a token row, then adds to each counter in this order.
    Transaction {
        token: String,
        counts: Vec<(Counter, i64)>,
        begin: Begin,
        /// Whether it reads the totals before it counts.
        reads_first: bool,
    },
    /// `set_total(rows.find(row), views, total)`.
    SetTotal {
        row: i64,
        total: i64,
    },
    /// `verify(rows.find(row), views, recount).repair(..)` with a recount that returns `total`.
    Repair {
        row: i64,
        total: i64,
    },
    /// `fold(..)` with `keep_shards(keep)`.
    Fold {
        what: Folded,
        keep: u16,
    },
    /// `ShardCount::of(views).resize(shards)`.
    Resize {
        shards: u16,
    },
    /// `ShardCount::of(views).increase(shards)`.
    Increase {
        shards: u16,
    },
    /// `ShardsTable::of(rows).drop(..)`.
    DropShards,
    /// Reads the totals of the rows between two ids in one query.
    ReadRows {
        first: i64,
        last: i64,
    },
    /// `Counter::named(name).get`.
    ReadNamed {
        name: String,
    },
}

impl Operation {
    /// An increment of `n`.
    pub fn count(on: On, by: By, n: i64) -> Self {
        Operation::Count(Count {
            on,
            by,
            n,
            likes: None,
            request: None,
        })
    }

    /// The amounts that it adds if it happens.
    pub fn adds(&self) -> Vec<(Counter, i64)> {
        match self {
            Operation::Count(Count { on, n, likes, .. }) => match on {
                On::Row(row) => {
                    let likes = likes.map(|n| (Counter::Likes(*row), i64::from(n)));
                    let views = (Counter::Views(*row), *n);
                    std::iter::once(views).chain(likes).collect()
                }
                On::Team { rows, .. } => {
                    rows.iter().map(|row| (Counter::Views(*row), *n)).collect()
                }
                On::Named(name) => vec![(Counter::Named(name.clone()), *n)],
            },
            Operation::Transaction { counts, .. } => counts.clone(),
            _ => vec![],
        }
    }

    /// The total that it sets, if it happens.
    pub fn sets(&self) -> Option<(Counter, i64)> {
        match self {
            Operation::SetTotal { row, total } | Operation::Repair { row, total } => {
                Some((Counter::Views(*row), *total))
            }
            _ => None,
        }
    }

    /// The number of rows that it has to find, if that is known.
    pub fn rows(&self) -> Option<usize> {
        match self {
            Operation::Count(Count { on, .. }) => match on {
                On::Row(_) | On::Named(_) => Some(1),
                On::Team { rows, .. } => Some(rows.len()),
            },
            Operation::Transaction { counts, .. } => Some(counts.len()),
            Operation::SetTotal { .. } | Operation::Repair { .. } => Some(1),
            _ => None,
        }
    }

    /// Whether it changes nothing that is read.
    pub fn is_read(&self) -> bool {
        let is_named = matches!(self, Operation::ReadNamed { .. });
        is_named || matches!(self, Operation::ReadRows { .. })
    }

    pub fn is_coalesced(&self) -> bool {
        matches!(self, Operation::Count(count) if count.by == By::Coalescer)
    }

    /// The token that it leaves behind, if any. Operations with the same token are one request, made more than once.
    pub fn token(&self) -> Option<&str> {
        match self {
            Operation::Transaction { token, .. } => Some(token),
            Operation::Count(Count { request, .. }) => request.as_deref(),
            _ => None,
        }
    }

    /// Its name, for reports.
    pub fn kind(&self) -> String {
        match self {
            Operation::Count(Count {
                on, by, request, ..
            }) => {
                let once = if request.is_some() { "Once" } else { "" };
                format!("Count{}By{}{once}", kind(on), kind(by))
            }
            other => kind(other),
        }
    }
}

/// The totals that an operation returned.
pub type Totals = Vec<(Counter, i64)>;

/// The answer of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The number of rows that were met.
    Rows(usize),
    /// Nothing was written: a bound refused the increment, or there was nothing to repair.
    Unchanged,
    /// The totals of rows that were read.
    Totals(Totals),
}

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

/// The kind of error when the database could not be reached, so that nothing was sent.
pub const NO_CONNECTION: &str = "NoConnection";

/// The name of a value's variant, for reports.
pub fn kind(value: &impl fmt::Debug) -> String {
    let text = format!("{value:?}");
    let kind = text.split(|c: char| !c.is_alphanumeric()).next();
    kind.unwrap_or_default().to_owned()
}

/// A store of counters, on which a client runs its operations: a database through the library, or a test's replacement.
pub trait Store {
    /// Prepares for the next operation. This work belongs to no operation.
    fn prepare(&mut self) {}

    /// Runs one operation, and returns its answer.
    ///
    /// # Errors
    /// If it did not happen, or may not have happened.
    fn run(&mut self, operation: &Operation) -> Result<Answer, Refused>;
}

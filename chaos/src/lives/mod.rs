//! Rows that are deleted, inserted again under the same key, and renamed, while clients count on them.
//!
//! Each row from its insert to its delete is a *life*, a counter of its own: it carries a number that no other row has, and keeps it
//! when its key changes. A delete and a rename lock the row and its shards, read number and total, and answer with them: so it is
//! known with what total each life ended, and where it was when.

pub mod checker;
pub mod schema;
pub mod sql;
pub mod workload;

use serde::{Deserialize, Serialize};

/// One call by a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Begins a life. Answers 1, or 0 if the key is taken.
    Insert { key: i64, life: i64, total: i64 },
    /// Ends the life that is there, and answers with it.
    Delete { key: i64 },
    /// `UPDATE … SET id = to WHERE id = from`; answers with the life, or with none if there is none or `to` is taken.
    Rename { from: i64, to: i64 },
    /// `update(rows.find(key)).set(..)`
    Count { key: i64, n: i64 },
    /// `RowCounter::of(views, key).never_below(..).never_above(..).add(n)`
    CountBounded { key: i64, n: i64 },
    /// `set_total(rows.find(key), views, total)`
    Set { key: i64, total: i64 },
    /// `verify(rows.find(key), views, recount).repair(..)`, with a recount that gives `total`.
    Repair { key: i64, total: i64 },
    /// `fold(rows)`, keeping so many empty shards.
    Fold { keep: u16 },
    /// The totals of the rows between two keys, in one query.
    Read { first: i64, last: i64 },
    /// `Counter::named(name).add(n)`
    CountNamed { name: String, n: i64 },
    /// `Counter::named(name).delete(..)`
    DeleteNamed { name: String },
    /// `fold(counters::table)`, keeping so many empty shards.
    FoldNamed { keep: u16 },
    /// `Counter::named(name).get(..)`
    ReadNamed { name: String },
}

impl Operation {
    /// Its kind, for reports.
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Insert { .. } => "insert",
            Operation::Delete { .. } => "delete",
            Operation::Rename { .. } => "rename",
            Operation::Count { .. } => "count",
            Operation::CountBounded { .. } => "count within bounds",
            Operation::Set { .. } => "set",
            Operation::Repair { .. } => "repair",
            Operation::Fold { .. } => "fold",
            Operation::Read { .. } => "read",
            Operation::CountNamed { .. } => "count by name",
            Operation::DeleteNamed { .. } => "delete by name",
            Operation::FoldNamed { .. } => "fold the named",
            Operation::ReadNamed { .. } => "read by name",
        }
    }
}

/// A row as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// For a rename, the new one.
    pub key: i64,
    pub life: i64,
    pub total: i64,
}

/// What an operation answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// So many rows were written. 0: there is none of this key.
    Rows(usize),
    /// A bound was in the way, or there was nothing to repair.
    Unchanged,
    /// Rows as they were read.
    Lives(Vec<Seen>),
    /// The total of a named counter.
    Total(i64),
}

pub type History = crate::history::History<Operation, Answer>;

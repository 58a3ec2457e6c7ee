//! Rows that are deleted, inserted again under the same key, and renamed, while clients count on them.
//!
//! Each row from its insert to its delete is a *life*, a counter of its own. It carries a unique number and keeps it when its key
//! changes. A delete and a rename lock the row and its shards, and return its number and total. So the history shows where each life
//! was at any time, and the total with which it ended.

pub mod checker;
pub mod sql;
pub mod workload;

use diesel::Queryable;
use serde::{Deserialize, Serialize};

/// One call by a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Begins a life. Returns 1, or 0 if the key is taken.
    Insert { key: i64, life: i64, total: i64 },
    /// Ends the life under this key, and returns it.
    Delete { key: i64 },
    /// `UPDATE … SET id = to WHERE id = from`. Returns the life, or none if there is none under `from` or if `to` is taken.
    Rename { from: i64, to: i64 },
    /// `update(rows.find(key)).set(..)`
    Count { key: i64, n: i64 },
    /// `RowCounter::of(views, key).never_below(..).never_above(..).add(n)`
    CountBounded { key: i64, n: i64 },
    /// `set_total(rows.find(key), views, total)`
    Set { key: i64, total: i64 },
    /// `verify(rows.find(key), views, recount).repair(..)` with a recount that returns `total`.
    Repair { key: i64, total: i64 },
    /// `fold(rows)` with `keep_shards(keep)`.
    Fold { keep: u16 },
    /// Reads the totals of the rows between two keys in one query.
    Read { first: i64, last: i64 },
    /// `Counter::named(name).add(n)`
    CountNamed { name: String, n: i64 },
    /// `Counter::named(name).delete(..)`
    DeleteNamed { name: String },
    /// `fold(counters::table)` with `keep_shards(keep)`.
    FoldNamed { keep: u16 },
    /// `Counter::named(name).get(..)`
    ReadNamed { name: String },
}

/// A row as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Queryable)]
pub struct Seen {
    /// Its key; after a rename, the new one.
    pub key: i64,
    pub life: i64,
    pub total: i64,
}

/// The answer of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The number of rows that were written; 0 if there is none with this key.
    Rows(usize),
    /// Nothing was written: a bound refused the count, or there was nothing to repair.
    Unchanged,
    /// The rows that were read.
    Lives(Vec<Seen>),
    /// The total of a named counter.
    Total(i64),
}

pub type History = crate::history::History<Operation, Answer>;

//! What the statements of a counting update depend on.

use crate::backend::Dialect;
use crate::connection::{Io, Link, in_transaction};
use crate::model::{ShardsColumn, TableName};
use crate::observe;
use crate::placement::{ShardChoice, Stripe, Subject};
use diesel::result::QueryResult;

/// The facts that the statements of a counting update depend on. None of the update's types are among them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    /// The filter names the key and nothing else.
    pub(crate) by_key: bool,
    /// The counted rows are wanted back.
    pub(crate) returning: bool,
    /// The statement that counts cannot read the rows too: a difference between two values of a counted field may not be exact, or
    /// the shards table is inside a schema. It matters only where rows are wanted.
    pub(crate) loads_apart: bool,
    /// An idempotency key is claimed by the statement that counts.
    pub(crate) once: bool,
    /// There is a row to insert if no parent matches.
    pub(crate) inserts: bool,
    pub(crate) part_of: PartOf,
    pub(crate) dialect: Dialect,
    pub(crate) shard_choice: ShardChoice,
    pub(crate) shards_table: TableName<'static>,
    /// Its key's columns.
    pub(crate) key_columns: &'static [ShardsColumn],
    /// Its sharded fields.
    pub(crate) columns: &'static [ShardsColumn],
    /// The names of those that are counted.
    pub(crate) fields: &'static [&'static str],
    pub(crate) keys: observe::Keys,
    /// The filter's [hash](crate::placement::hash_of), where the choice needs one.
    pub(crate) key: u64,
    /// How many shards there are to choose from, at least 1.
    pub(crate) shards: u16,
}

/// The transaction that a count is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartOf {
    /// None: the count commits by itself.
    Nothing,
    /// The caller's, which may count on other rows too.
    CallersTransaction,
    /// One of this crate's own, which counts on nothing else.
    OwnTransaction,
}

impl PartOf {
    /// As Diesel and the operation know it.
    pub(crate) fn of<M: Io>(link: &mut Link<'_, M>) -> QueryResult<Self> {
        Ok(match in_transaction(link)? {
            true if link.owns_transaction => PartOf::OwnTransaction,
            true => PartOf::CallersTransaction,
            false => PartOf::Nothing,
        })
    }
}

impl Facts {
    /// The facts that its shard depends on.
    pub(crate) fn subject(&self) -> Subject {
        Subject {
            choice: self.shard_choice,
            table: self.shards_table.as_str(),
            key: self.key,
            shards: self.shards,
            stripe: Stripe::global(),
            one_writer: !self.dialect.has_row_locks(),
            in_transaction: self.part_of == PartOf::CallersTransaction,
            in_batch: false,
            timed: self.by_key && self.part_of != PartOf::OwnTransaction,
        }
    }
}

//! A counting update as its statements depend on it.

use std::any::TypeId;

use crate::backend::Dialect;
use crate::model::ShardsColumn;
use crate::observe;
use crate::placement::{ShardChoice, Stripe, Subject};

/// The properties of a counting update that its statements depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// The filter names the key and nothing else.
    pub(crate) by_key: bool,
    /// The types of the filter, where they stand for its SQL.
    pub(crate) filter: Option<TypeId>,
    /// The counted rows are wanted back.
    pub(crate) returning: bool,
    /// The statement that counts cannot read the rows too: a difference between two values of a counted field may not be exact, or
    /// the shards table is inside a schema.
    pub(crate) loads_apart: bool,
    /// An idempotency key is claimed by the statement that counts.
    pub(crate) once: bool,
    /// There is a row to insert if no parent matches.
    pub(crate) inserts: bool,
    /// The caller has a transaction open.
    pub(crate) in_transaction: bool,
    /// That transaction is of this crate's own, and counts on nothing else.
    pub(crate) alone: bool,
    pub(crate) dialect: Dialect,
    pub(crate) shard_choice: ShardChoice,
    /// The shards table's name.
    pub(crate) table: &'static str,
    /// Its key's columns.
    pub(crate) key_columns: &'static [ShardsColumn],
    pub(crate) keys: observe::Keys,
    /// The filter's [hash](crate::shard_choice::hash_of), where the choice needs one.
    pub(crate) key: u64,
    /// How many shards there are to choose from, at least 1.
    pub(crate) shards: u16,
}

impl Plan {
    /// The same in a transaction of this crate's own, or by itself.
    pub(crate) fn in_own_transaction(self, in_transaction: bool) -> Self {
        Plan {
            in_transaction,
            alone: in_transaction,
            ..self
        }
    }

    /// The facts that its shard depends on.
    pub(crate) fn subject(&self) -> Subject {
        Subject {
            choice: self.shard_choice,
            table: self.table,
            key: self.key,
            shards: self.shards,
            stripe: Stripe::global(),
            one_writer: !self.dialect.has_row_locks(),
            in_transaction: self.in_transaction && !self.alone,
            in_batch: false,
            timed: self.by_key && !self.alone,
        }
    }
}

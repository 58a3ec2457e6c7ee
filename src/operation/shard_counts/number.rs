//! Whose number of shards it is.

use std::borrow::Cow;

use crate::model::{MAX_SHARDS, ShardedTable, TotalColumn};

/// The number of shards of one field, or of one named counter, as the database keeps it.
///
/// A change takes effect in this process at once, except inside a transaction. Other processes see it when they
/// [`refresh`](super::refresh()), at the interval at which they [`follow`](super::follow()), and for named counters after 10 s,
/// outside transactions. No total changes. If the database holds no number, the derive's number is used. An update of several
/// fields at once chooses from the largest of their numbers.
#[derive(Debug, Clone)]
#[must_use = "a number does nothing until it is read or changed"]
pub struct ShardCount {
    pub(super) table: Cow<'static, str>,
    pub(super) counter: Vec<u8>,
    pub(super) default: u16,
}

impl ShardCount {
    /// The largest number of shards.
    pub const MAX: u16 = MAX_SHARDS;

    /// The number of a sharded field.
    pub fn of<C: TotalColumn>(_column: C) -> Self {
        ShardCount {
            table: Cow::Borrowed(<C::Table as ShardedTable>::SHARDS_TABLE.as_str()),
            counter: C::NAME.into(),
            default: <C::Table as ShardedTable>::SHARDS,
        }
    }

    /// Of a field that a tool has found in the database, where the derive's number is not known.
    pub(crate) fn described(table: &str, field: &[u8]) -> Self {
        ShardCount {
            table: Cow::Owned(table.to_owned()),
            counter: field.into(),
            default: 1, // `increase` begins with no less
        }
    }

    /// Of one counter among others in the same column. The zero keeps it apart from a field's: no column's name has one.
    pub(crate) fn of_counter<T: ShardedTable>(counter: &[u8]) -> Self {
        ShardCount {
            table: Cow::Borrowed(T::SHARDS_TABLE.as_str()),
            counter: [b"\0", counter].concat(),
            default: T::SHARDS,
        }
    }
}

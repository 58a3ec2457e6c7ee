//! Rows, and the places where they stand.

/// A parent's primary key.
pub type Key = u8;
/// The identity of a row, which a new row under the same key does not share.
pub type RowId = u8;

/// The primary key of a row, with its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A row of the counted table; its value is the base.
    Parent(Key),
    /// A row of the shards table.
    Shard(Key, u8),
    /// The coalescer's row; its value is the number of the last batch.
    Mark,
    /// An idempotency key; its value stands for the hash of the request.
    Request(u8),
}

impl Place {
    /// The parent's key, if this is a shard.
    pub fn parent_of_shard(self) -> Option<Key> {
        match self {
            Place::Shard(key, _) => Some(key),
            _ => None,
        }
    }
}

/// A row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Row {
    /// Its identity.
    pub id: RowId,
    /// Its one value.
    pub value: i8,
}

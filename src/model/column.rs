//! Columns: their types, how shards merge into a total, and the column `shard` of every shards table.

/// The column of a shards table with the shard's number.
pub(crate) const SHARD: &str = "shard";

/// The most shards that a counter can have.
pub(crate) const MAX_SHARDS: u16 = 4096;

/// The type of a column that a shards table can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)] // the names are Diesel's
pub enum ColumnType {
    TinyInt,
    SmallInt,
    Integer,
    BigInt,
    UnsignedTinyInt,
    UnsignedSmallInt,
    UnsignedInteger,
    UnsignedBigInt,
    Float,
    Double,
    Numeric,
    Text,
    Binary,
    Uuid,
    Date,
    Timestamp,
    Timestamptz,
    Bool,
    /// A key column's own type, such as a database's enum.
    Other,
}

impl ColumnType {
    /// The least and the greatest integer of a type of integers.
    #[doc(hidden)]
    pub fn range(self) -> Option<(i128, i128)> {
        match self {
            ColumnType::TinyInt => Some((i8::MIN.into(), i8::MAX.into())),
            ColumnType::SmallInt => Some((i16::MIN.into(), i16::MAX.into())),
            ColumnType::Integer => Some((i32::MIN.into(), i32::MAX.into())),
            ColumnType::BigInt => Some((i64::MIN.into(), i64::MAX.into())),
            ColumnType::UnsignedTinyInt => Some((0, u8::MAX.into())),
            ColumnType::UnsignedSmallInt => Some((0, u16::MAX.into())),
            ColumnType::UnsignedInteger => Some((0, u32::MAX.into())),
            ColumnType::UnsignedBigInt => Some((0, u64::MAX.into())),
            _ => None,
        }
    }

    /// The [`range`](Self::range) within an `i64`, without `i64::MIN`: SQLite's checks leave that out.
    pub(crate) fn integers(self) -> (i64, i64) {
        let (least, greatest) = self.range().unwrap_or((i128::MIN, i128::MAX));
        let narrow = |n: i128| n.clamp((-i64::MAX).into(), i64::MAX.into()) as i64;
        (narrow(least), narrow(greatest))
    }
}

/// How a field's base and shards merge into its total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge {
    /// The total is their sum.
    Sum,
    /// The total is the greatest of them; `NULL` is no value.
    Max,
    /// The total is the least of them; `NULL` is no value.
    Min,
}

impl Merge {
    /// The SQL aggregate of the shards.
    pub(crate) fn aggregate(self) -> &'static str {
        match self {
            Merge::Sum => "SUM",
            Merge::Max => "MAX",
            Merge::Min => "MIN",
        }
    }

    /// The comparison of a new greatest or least value with the value that it replaces.
    pub(crate) fn beyond(self) -> &'static str {
        match self {
            Merge::Min => " < ",
            Merge::Max | Merge::Sum => " > ",
        }
    }

    /// A shard's value in SQL that leaves the total as it is.
    pub(crate) fn nothing(self) -> &'static str {
        match self {
            Merge::Sum => "0",
            Merge::Max | Merge::Min => "NULL",
        }
    }

    /// The condition, after a shard's column, that its value may affect the total.
    pub(crate) fn is_filled(self) -> &'static str {
        match self {
            Merge::Sum => " <> 0",
            Merge::Max | Merge::Min => " IS NOT NULL",
        }
    }

    /// The condition, after a shard's column, that its value leaves the total as it is.
    pub(crate) fn is_empty(self) -> &'static str {
        match self {
            Merge::Sum => " = 0",
            Merge::Max | Merge::Min => " IS NULL",
        }
    }
}

pub(crate) const fn are_equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

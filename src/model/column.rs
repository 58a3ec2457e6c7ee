//! Columns: their types, how shards make up a total, and the column that every shards table has.

/// The column of a shards table that numbers a parent's shards.
pub(crate) const SHARD: &str = "shard";

/// The most shards that a counter can have.
pub(crate) const MAX_SHARDS: u16 = 4096;

/// The type of a column, as far as a shards table has to know it.
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

    /// The same as far as an `i64` holds it; SQLite's checks leave out the very least one.
    pub(crate) fn integers(self) -> (i64, i64) {
        let (least, greatest) = self.range().unwrap_or((i128::MIN, i128::MAX));
        let narrow = |n: i128| n.clamp((-i64::MAX).into(), i64::MAX.into()) as i64;
        (narrow(least), narrow(greatest))
    }
}

/// How the shards of a field make up its total with the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge {
    /// The sum of all.
    Sum,
    /// The greatest of all; `NULL` for no value.
    Max,
    /// The least of all; `NULL` for no value.
    Min,
}

impl Merge {
    /// The aggregate of shards.
    pub(crate) fn aggregate(self) -> &'static str {
        match self {
            Merge::Sum => "SUM",
            Merge::Max => "MAX",
            Merge::Min => "MIN",
        }
    }

    /// Stands between a greatest or least value and the one whose place it takes.
    pub(crate) fn beyond(self) -> &'static str {
        match self {
            Merge::Min => " < ",
            Merge::Max | Merge::Sum => " > ",
        }
    }

    /// The value of a shard in SQL that changes no total.
    pub(crate) fn nothing(self) -> &'static str {
        match self {
            Merge::Sum => "0",
            Merge::Max | Merge::Min => "NULL",
        }
    }

    /// Follows a column of a shard in the condition that its value may change a total.
    pub(crate) fn is_filled(self) -> &'static str {
        match self {
            Merge::Sum => " <> 0",
            Merge::Max | Merge::Min => " IS NOT NULL",
        }
    }

    /// Follows a column of a shard in the condition that its value changes no total.
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

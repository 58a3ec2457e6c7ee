//! How the shards of a field make up its total with the base.

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

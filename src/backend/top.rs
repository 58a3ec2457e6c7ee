//! The forms of a top N that each database answers fastest; `docs/decisions/0006-totals-and-top.md` has the measurements.

use crate::backend::Dialect;

/// How the totals of the parents with shards are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SumsForm {
    /// All shards are grouped by their parents, and the parents are joined: the fastest where all parents are asked for.
    JoinSums,
    /// Shards and parents are joined and then grouped. MariaDB needs no second temporary table for that, and may begin with the
    /// parents where a filter leaves few of them. Without a filter, `STRAIGHT_JOIN` keeps it at the order of the shards' key.
    GroupJoined { straight: bool },
    /// Each parent's shards are added up on their own, as a total does it: no shard of a parent that the filter leaves out is
    /// read.
    Correlated,
}

impl Dialect {
    /// How totals are added up, of all parents or of those that a filter matches.
    pub(crate) fn sums_form(self, is_filtered: bool) -> SumsForm {
        match self {
            Dialect::Mysql => SumsForm::GroupJoined {
                straight: !is_filtered,
            },
            _ if is_filtered => SumsForm::Correlated,
            _ => SumsForm::JoinSums,
        }
    }

    /// The SQL before and behind a query for one row, as a condition that it finds none. PostgreSQL knows how many parents
    /// pass a `NOT EXISTS`, and so reads the index of the base in its order. MariaDB would read all shards for it.
    pub(crate) fn finds_none(self) -> (&'static str, &'static str) {
        match self {
            Dialect::Mysql => ("(", " LIMIT 1) IS NULL"),
            _ => ("NOT EXISTS (", ")"),
        }
    }
}

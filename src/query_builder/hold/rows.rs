//! The rows that a statement is about.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::Integer;

use crate::backend::ShardedBackend;
use crate::model::SHARD;
use crate::query_builder::names::{Names, push_bind};

/// Which of the rows that are held a statement is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowKind {
    Parents,
    Shards,
}

/// The rows that a statement is about.
pub(crate) struct HeldRows<'a, W, DB: Backend> {
    pub(crate) rows: RowKind,
    pub(crate) names: Names<'a, DB>,
    /// ` WHERE (keys)`
    pub(crate) keys: &'a W,
    pub(crate) shard: Option<i32>,
}

impl<W, DB> HeldRows<'_, W, DB>
where
    W: QueryFragment<DB>,
    DB: ShardedBackend,
{
    /// `parent`, or `shards AS parent`
    pub(super) fn push_table<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        match self.rows {
            RowKind::Parents => self.names.parent.walk_ast(out),
            RowKind::Shards => self.names.push_shards_as_parent(out),
        }
    }

    /// ` WHERE (keys)`, of shards with ` AND parent.shard = $n` if it is one
    pub(super) fn push_where<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.keys.walk_ast(out.reborrow())?;
        match (self.rows, &self.shard) {
            (RowKind::Shards, Some(shard)) => {
                out.push_sql(" AND ");
                self.names.push_column(SHARD, out.reborrow())?;
                out.push_sql(" = ");
                push_bind::<Integer, i32, DB>(shard, out)
            }
            _ => Ok(()),
        }
    }
}

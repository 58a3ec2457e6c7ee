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

impl<'a, W, DB> HeldRows<'a, W, DB>
where
    W: QueryFragment<DB>,
    DB: ShardedBackend,
{
    /// The names under which the rows stand.
    pub(super) fn names(&self) -> Names<'a, DB> {
        match self.rows {
            RowKind::Parents => self.names,
            RowKind::Shards => self.names.under_alias(),
        }
    }

    /// An expression over the parent, for the rows.
    pub(super) fn push<'b, F>(
        &'b self,
        expression: &'b F,
        out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()>
    where
        F: QueryFragment<DB>,
    {
        match self.rows {
            RowKind::Parents => expression.walk_ast(out),
            RowKind::Shards => self.names.push_under_alias(expression, out),
        }
    }

    /// `parent`, or `shards AS parent`
    pub(super) fn push_table<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        match self.rows {
            RowKind::Parents => self.names.parent.walk_ast(out),
            RowKind::Shards => self.names.push_shards_as_parent(out),
        }
    }

    /// `DELETE FROM shards AS parent WHERE (keys)`; MySQL: `DELETE parent FROM …`
    pub(super) fn push_delete<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("DELETE ");
        if out.backend().dialect().deletes_by_alias() {
            self.names().parent.walk_ast(out.reborrow())?;
            out.push_sql(" ");
        }
        out.push_sql("FROM ");
        self.push_table(out.reborrow())?;
        self.push_where(out)
    }

    /// ` FROM parent WHERE (keys) ORDER BY parent.key`, of all rows and as they are locked
    pub(super) fn push_from_parents<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let dialect = out.backend().dialect();
        out.push_sql(" FROM ");
        self.names.parent.walk_ast(out.reborrow())?;
        self.push_where(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        self.names.push_key(out.reborrow())?;
        out.push_sql(dialect.all_rows());
        out.push_sql(dialect.reads_what_is_locked());
        Ok(())
    }

    /// ` WHERE (keys)`, of shards with ` AND parent.shard = $n` if it is one
    pub(super) fn push_where<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.push(self.keys, out.reborrow())?;
        match (self.rows, &self.shard) {
            (RowKind::Shards, Some(shard)) => {
                out.push_sql(" AND ");
                self.names().push_column(SHARD, out.reborrow())?;
                out.push_sql(" = ");
                push_bind::<Integer, i32, DB>(shard, out)
            }
            _ => Ok(()),
        }
    }
}

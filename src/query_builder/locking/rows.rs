//! The rows that a statement is about.

use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryFragment};

use crate::backend::{Dialect, ShardedBackend};
use crate::query_builder::{Names, Sql, on, sql, walk};

/// Which of the rows that are held a statement is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowKind {
    Parents,
    Shards,
}

/// The rows that a statement is about.
pub(crate) struct StatementRows<'a, W, DB: Backend> {
    pub(crate) rows: RowKind,
    pub(crate) names: Names<'a, DB>,
    /// ` WHERE (keys)`
    pub(crate) keys: &'a W,
    pub(crate) shard: Option<i32>,
}

impl<'a, W, DB> StatementRows<'a, W, DB>
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
    pub(super) fn expression<'b>(
        &'b self,
        expression: &'b impl QueryFragment<DB>,
    ) -> impl Sql<'b, DB> {
        move |out: AstPass<'_, 'b, DB>| match self.rows {
            RowKind::Parents => expression.walk_ast(out),
            RowKind::Shards => self.names.aliased(expression).push(out),
        }
    }

    /// `parent`, or `shards AS parent`
    pub(super) fn table<'b>(&'b self) -> impl Sql<'b, DB> {
        move |out: AstPass<'_, 'b, DB>| match self.rows {
            RowKind::Parents => self.names.parent.walk_ast(out),
            RowKind::Shards => self.names.shards_as_parent().push(out),
        }
    }

    /// `DELETE FROM shards AS parent WHERE (keys)`; MySQL: `DELETE parent FROM …`
    pub(super) fn delete<'b>(&'b self) -> impl Sql<'b, DB> {
        let alias = move |dialect: Dialect| {
            let by_alias = dialect.deletes_by_alias();
            by_alias.then(|| sql! { walk(self.names().parent), " " })
        };
        sql! { "DELETE ", on(alias), "FROM ", self.table(), self.filter() }
    }

    /// `parent WHERE (keys) ORDER BY parent.key`, of all rows and as they are locked
    pub(super) fn parents<'b>(&'b self) -> impl Sql<'b, DB> {
        sql! {
            walk(self.names.parent), self.filter(), " ORDER BY ", self.names.key(),
            on(Dialect::all_rows), on(Dialect::reads_what_is_locked)
        }
    }

    /// ` WHERE (keys)`, of shards with ` AND parent.shard = $n` if it is one
    pub(super) fn filter<'b>(&'b self) -> impl Sql<'b, DB> {
        let shard = self.shard.as_ref().filter(|_| self.rows == RowKind::Shards);
        sql! { self.expression(self.keys), if let Some(shard) = shard { " AND ", self.names.shard_is(shard) } }
    }
}

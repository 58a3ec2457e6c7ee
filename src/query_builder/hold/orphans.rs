//! Shards that have no parent.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};

use crate::backend::ShardedBackend;
use crate::query_builder::names::{Names, push_each_key_of};
use crate::query_builder::no_query_id;

use super::rows::HeldRows;

/// The parents beside the shards table, which takes their name.
const PARENTS: &str = "diesel_sharded_parents";

impl<'b, DB: ShardedBackend> Names<'b, DB> {
    /// `NOT EXISTS (SELECT 1 FROM parent AS parents WHERE parents.key = parent.key)`, of shards under the parent's name or alias
    pub(crate) fn push_has_no_parent(self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("NOT EXISTS (SELECT 1 FROM ");
        self.parent.walk_ast(out.reborrow())?;
        out.push_sql(" AS ");
        out.push_identifier(PARENTS)?;
        out.push_sql(" WHERE ");
        push_each_key_of(self.key, " AND ", out.reborrow(), |_, name, mut out| {
            out.push_identifier(PARENTS)?;
            out.push_sql(".");
            out.push_identifier(name)?;
            out.push_sql(" = ");
            self.under_alias().push_column(name, out)
        })?;
        out.push_sql(")");
        Ok(())
    }
}

/// Deletes the shards that have no parent.
///
/// ```sql
/// DELETE FROM "videos_shards" AS "videos" WHERE … AND
///     NOT EXISTS (SELECT 1 FROM "videos" AS "diesel_sharded_parents" WHERE "diesel_sharded_parents"."id" = "videos"."id")
/// ```
pub(crate) struct RemoveOrphans<'a, W, DB: Backend> {
    pub(crate) of: HeldRows<'a, W, DB>,
}

impl<W, DB> QueryFragment<DB> for RemoveOrphans<'_, W, DB>
where
    DB: ShardedBackend,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.of.push_delete(out.reborrow())?;
        out.push_sql(" AND ");
        self.of.names.push_has_no_parent(out)
    }
}

no_query_id!(
    [W, DB: Backend] RemoveOrphans<'_, W, DB>,
);

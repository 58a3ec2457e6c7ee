//! The keys that a shards table holds, batch by batch.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::BigInt;

use crate::backend::ShardedBackend;
use crate::query_builder::names::{Names, push_bind};

impl<'b, DB: ShardedBackend> Names<'b, DB> {
    /// `SELECT parent.key FROM (SELECT DISTINCT parent.key FROM shards AS parent WHERE …) AS parent ORDER BY parent.key`, where
    /// `push_condition` writes the condition, order and limit. The keys are read outside, where a cast may change them.
    pub(crate) fn push_keys_of_shards(
        self,
        mut out: AstPass<'_, 'b, DB>,
        push_condition: impl FnOnce(AstPass<'_, 'b, DB>) -> QueryResult<()>,
    ) -> QueryResult<()> {
        let names = self.under_alias();
        out.push_sql("SELECT ");
        names.push_key_to_read(out.reborrow())?;
        out.push_sql(" FROM (SELECT DISTINCT ");
        names.push_key(out.reborrow())?;
        out.push_sql(" FROM ");
        names.push_shards_as_parent(out.reborrow())?;
        out.push_sql(" WHERE ");
        push_condition(out.reborrow())?;
        out.push_sql(") AS ");
        names.parent.walk_ast(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        names.push_key(out.reborrow())?;
        // The limit inside does not keep a session's setting from cutting what is read outside.
        out.push_sql(out.backend().dialect().all_rows());
        Ok(())
    }

    /// ` AND parent.key > $n ORDER BY parent.key LIMIT $m`
    pub(crate) fn push_next_keys(
        self,
        after: Option<&'b impl QueryFragment<DB>>,
        limit: &'b i64,
        mut out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()> {
        if let Some(after) = after {
            out.push_sql(" AND ");
            self.push_under_alias(after, out.reborrow())?;
        }
        out.push_sql(" ORDER BY ");
        self.under_alias().push_key(out.reborrow())?;
        out.push_sql(" LIMIT ");
        push_bind::<BigInt, i64, DB>(limit, out)
    }
}

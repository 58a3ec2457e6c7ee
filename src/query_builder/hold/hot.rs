//! The statement that tells hot parents from cold ones.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment};
use diesel::sql_types::Integer;

use crate::backend::ShardedBackend;
use crate::query_builder::names::push_bind;
use crate::query_builder::no_query_id;

use super::rows::HeldRows;

/// Reads of each parent, in key order, whether at least so many of its shards are filled.
///
/// ```sql
/// SELECT CASE WHEN (SELECT COUNT(*) FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id"
///     AND ("videos_shards"."views" <> 0 OR "videos_shards"."likes" <> 0)) >= $1 THEN 1 ELSE 0 END
/// FROM "videos" WHERE … ORDER BY "videos"."id"
/// -- MySQL, MariaDB: all SELECTs end in FOR UPDATE
/// ```
pub(crate) struct FindHot<'a, W, DB: Backend> {
    pub(crate) of: HeldRows<'a, W, DB>,
    pub(crate) shards: i32,
}

impl<W, DB> QueryFragment<DB> for FindHot<'_, W, DB>
where
    DB: ShardedBackend,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let (names, dialect) = (self.of.names, out.backend().dialect());
        out.push_sql("SELECT CASE WHEN (SELECT COUNT(*)");
        names.push_from_shards(None, out.reborrow())?;
        for (i, field) in names.fields.iter().enumerate() {
            out.push_sql(if i == 0 { " AND (" } else { " OR " });
            names.push_shards_column(&field.name, out.reborrow())?;
            out.push_sql(field.merge.is_filled());
        }
        out.push_sql(")");
        out.push_sql(dialect.reads_what_is_locked());
        out.push_sql(") >= ");
        push_bind::<Integer, i32, DB>(&self.shards, out.reborrow())?;
        out.push_sql(" THEN 1 ELSE 0 END");
        self.of.push_from_parents(out)
    }
}

impl<W, DB: Backend> Query for FindHot<'_, W, DB> {
    type SqlType = Integer;
}

no_query_id!(
    [W, DB: Backend] FindHot<'_, W, DB>,
);

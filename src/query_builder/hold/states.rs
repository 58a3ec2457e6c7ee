//! The statement that reads bases and sums of shards.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Nullable, Text};

use super::rows::{HeldRows, no_query_id};
use crate::backend::ShardedBackend;
use crate::model::{ShardedTable, ShardsColumn};
use crate::query_builder::names::{push_column, push_from_shards, push_key, push_shards_column};

/// Some fields of a table, in their order.
pub(crate) type Fields = [&'static ShardsColumn];

/// Whether the sums of shards are read too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sums {
    Read,
    /// What the shards hold is going to be thrown away: 0 stands for it.
    Replaced,
}

/// Reads what parents hold of some fields, one text for each parent.
///
/// ```sql
/// SELECT CAST("videos"."views" AS TEXT) || ' ' || CAST(COALESCE((SELECT SUM("videos_shards"."views") FROM "videos_shards"
///     WHERE "videos_shards"."id" = "videos"."id"), 0) AS TEXT) || ' ' || … FROM "videos" WHERE … ORDER BY "videos"."id"
/// -- MySQL, MariaDB: CONCAT(CAST(… AS CHAR), ' ', …), and all SELECTs end in FOR UPDATE
/// ```
pub(crate) struct ReadStates<'a, T, W> {
    pub(crate) of: HeldRows<'a, T, W>,
    pub(crate) fields: &'a Fields,
    pub(crate) sums: Sums,
}

impl<T, W, DB> QueryFragment<DB> for ReadStates<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let dialect = out.backend().dialect();
        let [joined, between, end] = dialect.joined_texts();
        out.push_sql("SELECT ");
        out.push_sql(joined);
        for (i, field) in self.fields.iter().enumerate() {
            let (cast, as_text) = dialect.number_as_text(field.column_type);
            if i > 0 {
                out.push_sql(between);
            }
            out.push_sql(cast);
            push_column::<T, DB>(field.name, out.reborrow())?;
            out.push_sql(as_text);
            out.push_sql(between);
            if self.sums == Sums::Replaced {
                out.push_sql("'0'");
                continue;
            }
            out.push_sql(cast);
            out.push_sql("COALESCE((SELECT SUM(");
            push_shards_column::<T, DB>(field.name, out.reborrow())?;
            out.push_sql(")");
            push_from_shards::<T, DB>(self.of.shard.as_ref(), out.reborrow())?;
            out.push_sql(dialect.reads_what_is_locked());
            out.push_sql("), 0)");
            out.push_sql(as_text);
        }
        out.push_sql(end);
        out.push_sql(" FROM ");
        T::TABLE.walk_ast(out.reborrow())?;
        self.of.push_where(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        push_key::<T, DB>(out.reborrow())?;
        out.push_sql(dialect.all_rows());
        out.push_sql(dialect.reads_what_is_locked());
        Ok(())
    }
}

impl<T, W> Query for ReadStates<'_, T, W> {
    type SqlType = Nullable<Text>;
}

no_query_id! { ReadStates<T, W> }

//! The statement that reads bases and sums of shards.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment};
use diesel::sql_types::{Nullable, Text};

use crate::backend::ShardedBackend;
use crate::model::ShardsColumn;
use crate::query_builder::no_query_id;
use crate::query_builder::total::push_sum_of_shards;

use super::rows::HeldRows;

/// Some fields of a table, in their order.
pub(crate) type Fields<'f> = [&'f ShardsColumn];

/// Whether the sums of shards are read too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sums {
    Read,
    /// The shards are going to be emptied without a look: 0 stands for their sum.
    Replaced,
}

/// Reads what parents hold of some fields, one text for each parent.
///
/// ```sql
/// SELECT CAST("videos"."views" AS TEXT) || ' ' || CAST((SELECT COALESCE(SUM("videos_shards"."views"), 0) FROM "videos_shards"
///     WHERE "videos_shards"."id" = "videos"."id") AS TEXT) || ' ' || … FROM "videos" WHERE … ORDER BY "videos"."id"
/// -- MySQL, MariaDB: CONCAT(CAST(… AS CHAR), ' ', …), and all SELECTs end in FOR UPDATE
/// ```
pub(crate) struct ReadStates<'a, W, DB: Backend> {
    pub(crate) of: HeldRows<'a, W, DB>,
    pub(crate) fields: &'a Fields<'a>,
    pub(crate) sums: Sums,
}

impl<W, DB> QueryFragment<DB> for ReadStates<'_, W, DB>
where
    DB: ShardedBackend,
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
            self.of.names.push_column(&field.name, out.reborrow())?;
            out.push_sql(as_text);
            out.push_sql(between);
            if self.sums == Sums::Replaced {
                out.push_sql("'0'");
                continue;
            }
            out.push_sql(cast);
            let (names, shard) = (self.of.names, self.of.shard.as_ref());
            let lock = dialect.reads_what_is_locked();
            push_sum_of_shards(names, &field.name, shard, lock, out.reborrow())?;
            out.push_sql(as_text);
        }
        out.push_sql(end);
        self.of.push_from_parents(out)
    }
}

impl<W, DB: Backend> Query for ReadStates<'_, W, DB> {
    type SqlType = Nullable<Text>;
}

no_query_id!(
    [W, DB: Backend] ReadStates<'_, W, DB>,
);

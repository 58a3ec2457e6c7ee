//! The statements that read what parents and their shards hold.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment};
use diesel::sql_types::{Integer, Nullable, Text};

use super::rows::StatementRows;
use crate::backend::{Dialect, ShardedBackend};
use crate::model::ShardsColumn;
use crate::query_builder::{bind, no_query_id, on, sql};

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
    pub(crate) of: StatementRows<'a, W, DB>,
    pub(crate) fields: &'a Fields<'a>,
    pub(crate) sums: Sums,
}

impl<W, DB> QueryFragment<DB> for ReadStates<'_, W, DB>
where
    DB: ShardedBackend,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let (table, shard) = (self.of.names, self.of.shard.as_ref());
        let dialect = out.backend().dialect();
        let lock = dialect.reads_what_is_locked();
        let [joined, between, end] = dialect.joined_texts();
        let cast = |field: &ShardsColumn| dialect.number_as_text(field.column_type);
        sql!(out;
            "SELECT ", joined,
            for field in (self.fields, between) {
                cast(field).0, table.column(&field.name), cast(field).1, between,
                if self.sums == Sums::Replaced { "'0'" } else {
                    cast(field).0, table.sum_of_shards(&field.name, shard, lock), cast(field).1
                }
            },
            end, " FROM ", self.of.parents())
    }
}

impl<W, DB: Backend> Query for ReadStates<'_, W, DB> {
    type SqlType = Nullable<Text>;
}

/// Reads base and total of some fields that keep a greatest or least value, one text for each parent. A space stands between two
/// values and in none of them; one that is not there is `NULL`.
///
/// ```sql
/// SELECT REPLACE(COALESCE(CAST("videos"."best" AS TEXT), 'NULL'), ' ', 'T') || ' ' ||
///     REPLACE(COALESCE(CAST(total AS TEXT), 'NULL'), ' ', 'T') || ' ' || … FROM "videos" WHERE … ORDER BY "videos"."id"
/// -- MySQL, MariaDB: CONCAT(…, ' ', …), and all SELECTs end in FOR UPDATE
/// ```
pub(crate) struct ReadPeaks<'a, W, DB: Backend> {
    pub(crate) of: StatementRows<'a, W, DB>,
    pub(crate) fields: &'a Fields<'a>,
}

impl<W, DB> QueryFragment<DB> for ReadPeaks<'_, W, DB>
where
    DB: ShardedBackend,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let (table, shard) = (self.of.names, self.of.shard.as_ref());
        let dialect = out.backend().dialect();
        let lock = dialect.reads_what_is_locked();
        let [joined, between, end] = dialect.joined_texts();
        let cast = |field: &ShardsColumn| dialect.nullable_as_text(field.column_type);
        sql!(out;
            "SELECT ", joined,
            for field in (self.fields, between) {
                "REPLACE(", cast(field).0, table.column(&field.name), cast(field).1, ", ' ', 'T')", between,
                "REPLACE(", cast(field).0, table.peak(field, shard, lock), cast(field).1, ", ' ', 'T')"
            },
            end, " FROM ", self.of.parents())
    }
}

impl<W, DB: Backend> Query for ReadPeaks<'_, W, DB> {
    type SqlType = Nullable<Text>;
}

/// Reads of each parent, in key order, whether at least so many of its shards are filled.
///
/// ```sql
/// SELECT CASE WHEN (SELECT COUNT(*) FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id"
///     AND ("videos_shards"."views" <> 0 OR "videos_shards"."likes" <> 0)) >= $1 THEN 1 ELSE 0 END
/// FROM "videos" WHERE … ORDER BY "videos"."id"
/// -- MySQL, MariaDB: all SELECTs end in FOR UPDATE
/// ```
pub(crate) struct FindHot<'a, W, DB: Backend> {
    pub(crate) of: StatementRows<'a, W, DB>,
    pub(crate) shards: i32,
}

impl<W, DB> QueryFragment<DB> for FindHot<'_, W, DB>
where
    DB: ShardedBackend,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let table = self.of.names;
        sql!(out;
            "SELECT CASE WHEN (SELECT COUNT(*) FROM ", table.shards_of_parent(None),
            " AND (", for field in (table.fields, " OR ") { table.shards_column(&field.name), field.merge.is_filled() }, ")",
            on(Dialect::reads_what_is_locked), ") >= ", bind(Integer, &self.shards), " THEN 1 ELSE 0 END FROM ", self.of.parents())
    }
}

impl<W, DB: Backend> Query for FindHot<'_, W, DB> {
    type SqlType = Integer;
}

no_query_id!(
    [W, DB: Backend] ReadStates<'_, W, DB>,
    [W, DB: Backend] ReadPeaks<'_, W, DB>,
    [W, DB: Backend] FindHot<'_, W, DB>,
);

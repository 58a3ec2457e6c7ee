//! Statements that write bases and shards.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::Integer;

use crate::backend::ShardedBackend;
use crate::model::{SHARD, ShardsColumn};
use crate::query_builder::keys::KeysAre;
use crate::query_builder::{Names, Sql, bind, id, no_query_id, sql, walk, zeros};

use super::read::Fields;
use super::rows::StatementRows;

/// Writes columns of the parents or of their shards.
///
/// ```sql
/// UPDATE "videos" SET … WHERE …
/// UPDATE "videos_shards" AS "videos" SET … WHERE …
/// ```
pub(crate) struct Write<'a, W, A, DB: Backend> {
    pub(crate) of: StatementRows<'a, W, DB>,
    pub(crate) assignments: &'a A,
}

impl<W, A, DB> QueryFragment<DB> for Write<'_, W, A, DB>
where
    DB: ShardedBackend,
    W: QueryFragment<DB>,
    A: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        sql!(out; "UPDATE ", self.of.table(), " SET ", self.of.expression(self.assignments), self.of.filter())
    }
}

/// Adds shards to their bases where one of them is not zero.
///
/// ```sql
/// UPDATE "videos" SET "views" = total, "likes" = total
/// WHERE … AND EXISTS (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id"
///     AND ("videos_shards"."views" <> 0 OR "videos_shards"."likes" <> 0))
/// ```
pub(crate) struct AddShardsToBases<'a, W, DB: Backend> {
    pub(crate) of: StatementRows<'a, W, DB>,
}

impl<W, DB> QueryFragment<DB> for AddShardsToBases<'_, W, DB>
where
    DB: ShardedBackend,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let (table, shard) = (self.of.names, self.of.shard.as_ref());
        sql!(out;
            "UPDATE ", walk(table.parent),
            " SET ", for field in (table.fields, ", ") { id(&field.name), " = ", table.total(field, shard) }, self.of.filter(),
            " AND EXISTS (SELECT 1 FROM ", table.shards_of_parent(shard),
            " AND (", for field in (table.fields, " OR ") { table.shards_column(&field.name), field.merge.is_filled() }, "))")
    }
}

/// Values for the bases of a field.
#[derive(Debug)]
pub(crate) struct BaseValues<'a> {
    pub(crate) field: &'a ShardsColumn,
    /// The number of a parent, and a literal: what is added to a sum, or the base itself.
    pub(crate) of: Vec<(usize, String)>,
}

/// Writes to bases what was read from shards, for a database whose statements may not read what their triggers write. Only fields
/// that are sums may stand together: in a `CASE` the type of all values is one.
///
/// ```sql
/// UPDATE `videos` SET `views` = (`videos`.`views` + CASE WHEN (`videos`.`id` = ?) THEN 5 … ELSE 0 END) WHERE ((`videos`.`id` = ?) OR …)
/// UPDATE `videos` SET `best` = CASE WHEN (`videos`.`id` = ?) THEN '90' … END WHERE ((`videos`.`id` = ?) OR …)
/// ```
pub(crate) struct WriteValues<'a, K, DB: Backend> {
    pub(crate) names: Names<'a, DB>,
    /// The keys of the parents by their numbers.
    pub(crate) keys: &'a [K],
    pub(crate) values: &'a [BaseValues<'a>],
    /// Those that have a value.
    pub(crate) written: KeysAre<&'a K>,
}

impl<K, DB> QueryFragment<DB> for WriteValues<'_, K, DB>
where
    DB: ShardedBackend,
    K: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        sql!(out;
            "UPDATE ", walk(self.names.parent), " SET ",
            for BaseValues { field, of } in (self.values, ", ") {
                id(&field.name), " = ", if field.is_sum() { "(", self.names.column(&field.name), " + " },
                "CASE",
                for (parent, value) in (of, "") { " WHEN ", self.keys.get(*parent).map(walk), " THEN ", value.as_str() },
                if field.is_sum() { " ELSE 0 END)" } else { " END" }
            },
            walk(&self.written))
    }
}

/// Sets fields of shards to zero where they are not.
///
/// ```sql
/// UPDATE "videos_shards" AS "videos" SET "views" = 0, "likes" = 0
/// WHERE … AND ("videos"."views" <> 0 OR "videos"."likes" <> 0)
/// ```
pub(crate) struct EmptyShards<'a, W, DB: Backend> {
    pub(crate) of: StatementRows<'a, W, DB>,
    pub(crate) fields: &'a Fields<'a>,
}

impl<W, DB> QueryFragment<DB> for EmptyShards<'_, W, DB>
where
    DB: ShardedBackend,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let fields = || self.fields.iter().copied();
        let table = self.of.names();
        sql!(out;
            "UPDATE ", self.of.table(), " SET ", zeros(fields()), self.of.filter(),
            " AND (", for field in (fields(), " OR ") { table.column(&field.name), field.merge.is_filled() }, ")")
    }
}

/// Deletes shards from a number on that are empty.
///
/// ```sql
/// DELETE FROM "videos_shards" AS "videos" WHERE … AND "videos"."shard" >= $n AND "videos"."views" = 0 AND …
/// -- MySQL, MariaDB
/// DELETE `videos` FROM `videos_shards` AS `videos` WHERE … AND `videos`.`shard` >= ? AND `videos`.`views` = 0 AND …
/// ```
pub(crate) struct RemoveShards<'a, W, DB: Backend> {
    pub(crate) of: StatementRows<'a, W, DB>,
    pub(crate) first: i32,
}

impl<W, DB> QueryFragment<DB> for RemoveShards<'_, W, DB>
where
    DB: ShardedBackend,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let table = self.of.names();
        sql!(out;
            self.of.delete(), " AND ", table.column(SHARD), " >= ", bind(Integer, &self.first),
            for field in (table.fields, "") { " AND ", table.column(&field.name), field.merge.is_empty() })
    }
}

/// The parents beside the shards table, which takes their name.
const PARENTS: &str = "diesel_sharded_parents";

impl<'b, DB: ShardedBackend> Names<'b, DB> {
    /// `NOT EXISTS (SELECT 1 FROM parent AS parents WHERE parents.key = parent.key)`, of shards under the parent's name or alias
    pub(crate) fn has_no_parent(self) -> impl Sql<'b, DB> {
        sql! {
            "NOT EXISTS (SELECT 1 FROM ", walk(self.parent), " AS ", id(PARENTS), " WHERE ",
            for key in (self.key, " AND ") { id(PARENTS), ".", id(&key.name), " = ", self.under_alias().column(&key.name) },
            ")"
        }
    }
}

/// Deletes the shards that have no parent.
///
/// ```sql
/// DELETE FROM "videos_shards" AS "videos" WHERE … AND
///     NOT EXISTS (SELECT 1 FROM "videos" AS "diesel_sharded_parents" WHERE "diesel_sharded_parents"."id" = "videos"."id")
/// ```
pub(crate) struct RemoveOrphans<'a, W, DB: Backend> {
    pub(crate) of: StatementRows<'a, W, DB>,
}

impl<W, DB> QueryFragment<DB> for RemoveOrphans<'_, W, DB>
where
    DB: ShardedBackend,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        sql!(out; self.of.delete(), " AND ", self.of.names.has_no_parent())
    }
}

no_query_id!(
    [W, A, DB: Backend] Write<'_, W, A, DB>,
    [W, DB: Backend] AddShardsToBases<'_, W, DB>,
    [K, DB: Backend] WriteValues<'_, K, DB>,
    [W, DB: Backend] EmptyShards<'_, W, DB>,
    [W, DB: Backend] RemoveShards<'_, W, DB>,
    [W, DB: Backend] RemoveOrphans<'_, W, DB>,
);

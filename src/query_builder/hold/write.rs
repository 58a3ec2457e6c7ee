//! Statements that write bases and shards.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::Integer;

use crate::backend::ShardedBackend;
use crate::model::{SHARD, ShardsColumn};
use crate::query_builder::keys::KeysAre;
use crate::query_builder::names::{Names, push_bind, push_zeros};
use crate::query_builder::no_query_id;
use crate::query_builder::total::push_total_of;

use super::rows::HeldRows;
use super::states::Fields;

/// Writes columns of the parents or of their shards.
///
/// ```sql
/// UPDATE "videos" SET … WHERE …
/// UPDATE "videos_shards" AS "videos" SET … WHERE …
/// ```
pub(crate) struct Write<'a, W, A, DB: Backend> {
    pub(crate) of: HeldRows<'a, W, DB>,
    pub(crate) assignments: &'a A,
}

impl<W, A, DB> QueryFragment<DB> for Write<'_, W, A, DB>
where
    DB: ShardedBackend,
    W: QueryFragment<DB>,
    A: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("UPDATE ");
        self.of.push_table(out.reborrow())?;
        out.push_sql(" SET ");
        self.of.push(self.assignments, out.reborrow())?;
        self.of.push_where(out)
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
    pub(crate) of: HeldRows<'a, W, DB>,
}

impl<W, DB> QueryFragment<DB> for AddShardsToBases<'_, W, DB>
where
    DB: ShardedBackend,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let shard = self.of.shard.as_ref();
        out.push_sql("UPDATE ");
        self.of.names.parent.walk_ast(out.reborrow())?;
        for (i, field) in self.of.names.fields.iter().enumerate() {
            out.push_sql(if i == 0 { " SET " } else { ", " });
            out.push_identifier(&field.name)?;
            out.push_sql(" = ");
            push_total_of(self.of.names, field, shard, out.reborrow())?;
        }
        self.of.push_where(out.reborrow())?;
        out.push_sql(" AND EXISTS (SELECT 1");
        self.of.names.push_from_shards(shard, out.reborrow())?;
        out.push_sql(" AND (");
        for (i, field) in self.of.names.fields.iter().enumerate() {
            if i > 0 {
                out.push_sql(" OR ");
            }
            self.of
                .names
                .push_shards_column(&field.name, out.reborrow())?;
            out.push_sql(field.merge.is_filled());
        }
        out.push_sql("))");
        Ok(())
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
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("UPDATE ");
        self.names.parent.walk_ast(out.reborrow())?;
        for (i, BaseValues { field, of }) in self.values.iter().enumerate() {
            out.push_sql(if i == 0 { " SET " } else { ", " });
            out.push_identifier(&field.name)?;
            out.push_sql(" = ");
            if field.is_sum() {
                out.push_sql("(");
                self.names.push_column(&field.name, out.reborrow())?;
                out.push_sql(" + ");
            }
            out.push_sql("CASE");
            for (parent, value) in of {
                out.push_sql(" WHEN ");
                if let Some(key_is) = self.keys.get(*parent) {
                    key_is.walk_ast(out.reborrow())?;
                }
                out.push_sql(" THEN ");
                out.push_sql(value);
            }
            out.push_sql(if field.is_sum() {
                " ELSE 0 END)"
            } else {
                " END"
            });
        }
        self.written.walk_ast(out)
    }
}

/// Sets fields of shards to zero where they are not.
///
/// ```sql
/// UPDATE "videos_shards" AS "videos" SET "views" = 0, "likes" = 0
/// WHERE … AND ("videos"."views" <> 0 OR "videos"."likes" <> 0)
/// ```
pub(crate) struct EmptyShards<'a, W, DB: Backend> {
    pub(crate) of: HeldRows<'a, W, DB>,
    pub(crate) fields: &'a Fields<'a>,
}

impl<W, DB> QueryFragment<DB> for EmptyShards<'_, W, DB>
where
    DB: ShardedBackend,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("UPDATE ");
        self.of.push_table(out.reborrow())?;
        out.push_sql(" SET ");
        push_zeros(self.fields.iter().copied(), out.reborrow())?;
        self.of.push_where(out.reborrow())?;
        for (i, field) in self.fields.iter().enumerate() {
            out.push_sql(if i == 0 { " AND (" } else { " OR " });
            self.of.names().push_column(&field.name, out.reborrow())?;
            out.push_sql(field.merge.is_filled());
        }
        out.push_sql(")");
        Ok(())
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
    pub(crate) of: HeldRows<'a, W, DB>,
    pub(crate) first: i32,
}

impl<W, DB> QueryFragment<DB> for RemoveShards<'_, W, DB>
where
    DB: ShardedBackend,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.of.push_delete(out.reborrow())?;
        out.push_sql(" AND ");
        self.of.names().push_column(SHARD, out.reborrow())?;
        out.push_sql(" >= ");
        push_bind::<Integer, i32, DB>(&self.first, out.reborrow())?;
        for field in self.of.names.fields {
            out.push_sql(" AND ");
            self.of.names().push_column(&field.name, out.reborrow())?;
            out.push_sql(field.merge.is_empty());
        }
        Ok(())
    }
}

no_query_id!(
    [W, A, DB: Backend] Write<'_, W, A, DB>,
    [W, DB: Backend] AddShardsToBases<'_, W, DB>,
    [K, DB: Backend] WriteValues<'_, K, DB>,
    [W, DB: Backend] EmptyShards<'_, W, DB>,
    [W, DB: Backend] RemoveShards<'_, W, DB>,
);

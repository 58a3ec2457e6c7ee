//! The statements of a counting update.
//!
//! The shards table carries its parent's column names. Aliased AS the parent, it therefore takes Diesel's own tree for
//! the changes, and for a filter on the key, as they are.

use std::marker::PhantomData;

use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryBuilder, QueryFragment, QueryId};
use diesel::result::Error as DieselError;
use diesel::serialize::ToSql;
use diesel::sql_types::Integer;

use crate::dialect::{KeepsAndLocks, ShardedBackend};
use crate::error::Error;
use crate::field::ShardedTable;
use crate::sql::{SHARD, push_column, push_key, push_shards_column, push_unique_key};

/// Adds to one shard of the parents that `filter` names by their keys, without a look at the parents.
///
/// ```sql
/// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1)
/// WHERE ("videos"."id" = $2) AND "videos"."shard" = $3
/// ```
pub(crate) struct CountByKey<'a, T, W, V, Ch> {
    pub(crate) changes: &'a Ch,
    pub(crate) filter: &'a W,
    pub(crate) shard: i32,
    pub(crate) types: PhantomData<(T, V)>,
}

impl<T, W, V, Ch, DB> QueryFragment<DB> for CountByKey<'_, T, W, V, Ch>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    Ch: QueryFragment<DB>,
    i32: ToSql<Integer, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_update::<T, DB>(out.reborrow())?;
        out.push_sql(" SET ");
        self.changes.walk_ast(out.reborrow())?;
        self.filter.walk_ast(out.reborrow())?;
        out.push_sql(" AND ");
        push_shard_is::<T, DB>(&self.shard, out)
    }
}

/// Adds to one shard of the parents that `filter` matches, whatever it looks at.
///
/// ```sql
/// -- PostgreSQL, SQLite
/// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1)
/// FROM (SELECT "videos"."id" AS "key_0" FROM "videos" WHERE …) AS "picked"
/// WHERE "picked"."key_0" = "videos"."id" AND "videos"."shard" = $2
/// -- MySQL, MariaDB
/// UPDATE `videos_shards` AS `videos`
/// JOIN (SELECT DISTINCT `videos`.`id` AS `key_0` FROM `videos` WHERE …) AS `picked` ON `picked`.`key_0` = `videos`.`id`
/// SET `views` = (`videos`.`views` + ?) WHERE `videos`.`shard` = ?
/// ```
pub(crate) struct CountPicked<'a, T, W, V, Ch> {
    pub(crate) changes: &'a Ch,
    pub(crate) filter: &'a W,
    pub(crate) shard: i32,
    pub(crate) types: PhantomData<(T, V)>,
}

impl<T, W, V, Ch, DB> QueryFragment<DB> for CountPicked<'_, T, W, V, Ch>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    Ch: QueryFragment<DB>,
    i32: ToSql<Integer, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let joins_before_set = out.backend().dialect().joins_before_set();
        push_update::<T, DB>(out.reborrow())?;
        if joins_before_set {
            out.push_sql(" JOIN ");
            push_picked::<T, W, DB>(self.filter, out.reborrow())?;
            out.push_sql(" ON ");
            push_picked_is_parent::<T, DB>(out.reborrow())?;
        }
        out.push_sql(" SET ");
        self.changes.walk_ast(out.reborrow())?;
        if joins_before_set {
            out.push_sql(" WHERE ");
        } else {
            out.push_sql(" FROM ");
            push_picked::<T, W, DB>(self.filter, out.reborrow())?;
            out.push_sql(" WHERE ");
            push_picked_is_parent::<T, DB>(out.reborrow())?;
            out.push_sql(" AND ");
        }
        push_shard_is::<T, DB>(&self.shard, out)
    }
}

/// Inserts the missing shards of the parents that `filter` matches, at zero, and locks the others; in key order, so that
/// two such statements cannot deadlock.
///
/// ```sql
/// INSERT INTO "videos_shards" ("id", "shard") SELECT "videos"."id", $1 FROM "videos" WHERE … ORDER BY "videos"."id"
/// ON CONFLICT ("id", "shard") DO UPDATE SET "shard" = excluded."shard" WHERE FALSE      -- PostgreSQL
/// ON CONFLICT ("id", "shard") DO NOTHING                                                -- SQLite
/// ON DUPLICATE KEY UPDATE `shard` = `videos_shards`.`shard`                             -- MySQL, MariaDB
/// ```
pub(crate) struct CreateShards<'a, T, W> {
    pub(crate) filter: &'a W,
    pub(crate) shard: i32,
    pub(crate) table: PhantomData<T>,
}

impl<T, W, DB> QueryFragment<DB> for CreateShards<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    i32: ToSql<Integer, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("INSERT INTO ");
        out.push_identifier(T::SHARDS_TABLE)?;
        out.push_sql(" ");
        push_unique_key::<T, DB>(out.reborrow())?;
        out.push_sql(" SELECT ");
        push_key::<T, DB>(out.reborrow())?;
        out.push_sql(", ");
        out.push_bind_param::<Integer, _>(&self.shard)?;
        out.push_sql(" FROM ");
        T::TABLE.walk_ast(out.reborrow())?;
        self.filter.walk_ast(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        push_key::<T, DB>(out.reborrow())?;
        match out.backend().dialect().keeps_and_locks() {
            KeepsAndLocks::ConflictLocks => {
                out.push_sql(" ON CONFLICT ");
                push_unique_key::<T, DB>(out.reborrow())?;
                out.push_sql(" DO UPDATE SET ");
                out.push_identifier(SHARD)?;
                out.push_sql(" = excluded.");
                out.push_identifier(SHARD)?;
                out.push_sql(" WHERE FALSE");
            }
            KeepsAndLocks::ConflictIgnored => {
                out.push_sql(" ON CONFLICT ");
                push_unique_key::<T, DB>(out.reborrow())?;
                out.push_sql(" DO NOTHING");
            }
            KeepsAndLocks::DuplicateKeyLocks => {
                out.push_sql(" ON DUPLICATE KEY UPDATE ");
                out.push_identifier(SHARD)?;
                out.push_sql(" = ");
                push_shards_column::<T, DB>(SHARD, out.reborrow())?;
            }
        }
        Ok(())
    }
}

/// Finds the shard of a parent named by its key, without locking anything.
///
/// ```sql
/// SELECT 1 FROM (SELECT 1) AS one
/// WHERE /*M!110600 TRUE OR */ EXISTS (SELECT 1 FROM `videos_shards` AS `videos` WHERE (`videos`.`id` = ?) AND `videos`.`shard` = ?)
/// ```
pub(crate) struct FindShard<'a, T, W> {
    pub(crate) filter: &'a W,
    pub(crate) shard: i32,
    pub(crate) table: PhantomData<T>,
}

impl<T, W, DB> QueryFragment<DB> for FindShard<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    i32: ToSql<Integer, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let always = out.backend().dialect().finds_without_a_look();
        out.push_sql("SELECT 1 FROM (SELECT 1) AS one WHERE ");
        out.push_sql(always);
        out.push_sql("EXISTS (SELECT 1 FROM ");
        push_shards_as_parent::<T, DB>(out.reborrow())?;
        self.filter.walk_ast(out.reborrow())?;
        out.push_sql(" AND ");
        push_shard_is::<T, DB>(&self.shard, out.reborrow())?;
        out.push_sql(")");
        Ok(())
    }
}

/// Reads `selection` of the parents that `filter` matches.
///
/// ```sql
/// SELECT … FROM "videos" WHERE …
/// ```
pub(crate) struct SelectParents<'a, T, W, S> {
    pub(crate) selection: &'a S,
    pub(crate) filter: &'a W,
    pub(crate) table: PhantomData<T>,
}

impl<T, W, S, DB> QueryFragment<DB> for SelectParents<'_, T, W, S>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    S: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        self.selection.walk_ast(out.reborrow())?;
        out.push_sql(" FROM ");
        T::TABLE.walk_ast(out.reborrow())?;
        self.filter.walk_ast(out)
    }
}

impl<T, W, S: Expression> Query for SelectParents<'_, T, W, S> {
    type SqlType = S::SqlType;
}

/// A `WHERE` clause that names parents by their keys.
///
/// ```sql
/// WHERE (("videos"."id" = $1) OR ("videos"."id" = $2))
/// ```
pub(crate) struct KeysAre<P>(pub(crate) Vec<P>);

impl<P, DB> QueryFragment<DB> for KeysAre<P>
where
    DB: ShardedBackend,
    P: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared(); // one text for each number of keys
        for (i, key_is) in self.0.iter().enumerate() {
            out.push_sql(if i == 0 { " WHERE (" } else { " OR " });
            key_is.walk_ast(out.reborrow())?;
        }
        out.push_sql(")");
        Ok(())
    }
}

impl<P> QueryId for KeysAre<P> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

/// The text of a statement depends on nothing but its types and the dialect, so that Diesel can keep it prepared. `V`, the
/// changes as they were written, has a static id where Diesel's own tree for them, `Ch`, has none.
macro_rules! query_ids {
    ($($statement:ident<$lifetime:lifetime, $($part:ident),+ $(; $untold:ident)?>)+) => {$(
        impl<$lifetime, $($part: QueryId,)+ $($untold)?> QueryId for $statement<$lifetime, $($part,)+ $($untold)?> {
            type QueryId = $statement<'static, $($part::QueryId,)+ $(query_ids!(@unit $untold))?>;
            const HAS_STATIC_QUERY_ID: bool = $($part::HAS_STATIC_QUERY_ID)&&+;
        }
    )+};
    (@unit $untold:ident) => { () };
}

query_ids! {
    CountByKey<'a, T, W, V; Ch>
    CountPicked<'a, T, W, V; Ch>
    CreateShards<'a, T, W>
    FindShard<'a, T, W>
    SelectParents<'a, T, W, S>
}

/// Never reaches the database: its building fails with [`Error::QualifiedTable`] where the table is declared inside a
/// schema, and with [`DieselError::RollbackTransaction`] where it is not.
pub(crate) struct RequireUnqualified<T>(pub(crate) PhantomData<T>);

impl<T, DB> QueryFragment<DB> for RequireUnqualified<T>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut name = out.backend().query_builder();
        T::TABLE.to_sql(&mut name, out.backend())?;
        let table = name.finish();
        Err(if table.contains("\".\"") || table.contains("`.`") {
            Error::QualifiedTable { table }.into()
        } else {
            DieselError::RollbackTransaction
        })
    }
}

impl<T> QueryId for RequireUnqualified<T> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

/// `UPDATE shards AS parent`
fn push_update<T, DB>(mut out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    out.push_sql("UPDATE ");
    push_shards_as_parent::<T, DB>(out)
}

/// `shards AS parent`
fn push_shards_as_parent<T, DB>(mut out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    out.push_identifier(T::SHARDS_TABLE)?;
    out.push_sql(" AS ");
    T::TABLE.walk_ast(out)
}

/// `parent.shard = $n`
fn push_shard_is<'b, T, DB>(shard: &'b i32, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
    i32: ToSql<Integer, DB>,
{
    push_column::<T, DB>(SHARD, out.reborrow())?;
    out.push_sql(" = ");
    out.push_bind_param::<Integer, _>(shard)
}

const PICKED: &str = "picked";

/// `(SELECT parent.key AS key_0 FROM parent WHERE …) AS picked`
fn push_picked<'b, T, W, DB>(filter: &'b W, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    DB: ShardedBackend,
{
    let select = out.backend().dialect().select_unmerged();
    out.push_sql("(");
    out.push_sql(select);
    for (i, column) in T::KEY.iter().enumerate() {
        if i > 0 {
            out.push_sql(", ");
        }
        push_column::<T, DB>(column.name, out.reborrow())?;
        out.push_sql(" AS ");
        out.push_identifier(&format!("key_{i}"))?;
    }
    out.push_sql(" FROM ");
    T::TABLE.walk_ast(out.reborrow())?;
    filter.walk_ast(out.reborrow())?;
    out.push_sql(") AS ");
    out.push_identifier(PICKED)
}

/// `picked.key_0 = parent.key`
fn push_picked_is_parent<T, DB>(mut out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    for (i, column) in T::KEY.iter().enumerate() {
        if i > 0 {
            out.push_sql(" AND ");
        }
        out.push_identifier(PICKED)?;
        out.push_sql(".");
        out.push_identifier(&format!("key_{i}"))?;
        out.push_sql(" = ");
        push_column::<T, DB>(column.name, out.reborrow())?;
    }
    Ok(())
}

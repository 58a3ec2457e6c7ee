//! Statements that lock parents and shards, and that look for what they did not lock.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryBuilder, QueryFragment};
use diesel::sql_types::Integer;

use crate::backend::ShardedBackend;
use crate::model::{SHARD, ShardedTable};
use crate::query_builder::keys::KeysAre;
use crate::query_builder::literal::literal;
use crate::query_builder::names::push_key_to_read;
use crate::query_builder::no_query_id;
use crate::query_builder::pick_keys::push_select_keys;

use super::rows::HeldRows;

/// Locks parents in key order, and reads their keys.
///
/// ```sql
/// SELECT "videos"."id" FROM "videos" WHERE … ORDER BY "videos"."id" FOR UPDATE
/// ```
pub(crate) struct LockParents<'a, T, W> {
    pub(crate) keys: &'a W,
    pub(crate) clause: &'static str,
    pub(crate) table: PhantomData<T>,
}

impl<T, W, DB> QueryFragment<DB> for LockParents<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_select_keys::<T, W, DB>(self.keys, out.reborrow())?;
        out.push_sql(self.clause);
        Ok(())
    }
}

impl<T: Table<PrimaryKey: Expression>, W> Query for LockParents<'_, T, W> {
    type SqlType = <T::PrimaryKey as Expression>::SqlType;
}

/// Finds parents that can be seen and were not locked.
///
/// ```sql
/// SELECT "videos"."id" FROM "videos" WHERE ("videos"."id" = $1 OR …) AND NOT ("videos"."id" = $2 OR …)
///     AND row_security_active('"videos"')
/// ```
pub(crate) struct NotLocked<'a, T, P> {
    pub(crate) keys: &'a KeysAre<P>,
    pub(crate) locked: &'a KeysAre<P>,
    pub(crate) table: PhantomData<T>,
}

impl<T, P, DB> QueryFragment<DB> for NotLocked<'_, T, P>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    P: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        push_key_to_read::<T, DB>(out.reborrow())?;
        out.push_sql(" FROM ");
        T::TABLE.walk_ast(out.reborrow())?;
        self.keys.walk_ast(out.reborrow())?;
        if !self.locked.0.is_empty() {
            out.push_sql(" AND NOT ");
            self.locked.push_any(out.reborrow())?;
        }
        let mut table = out.backend().query_builder();
        T::TABLE.to_sql(&mut table, out.backend())?;
        out.push_sql(" AND row_security_active(");
        out.push_sql(&literal(out.backend().dialect(), &table.finish()));
        out.push_sql(")");
        Ok(())
    }
}

impl<T: Table<PrimaryKey: Expression>, P> Query for NotLocked<'_, T, P> {
    type SqlType = <T::PrimaryKey as Expression>::SqlType;
}

/// Reads a row if row security applies to this role's view of the shards table.
///
/// ```sql
/// SELECT 1 WHERE row_security_active('"videos_shards"')
/// ```
pub(crate) struct FindShardsPolicy<T>(pub(crate) PhantomData<T>);

impl<T, DB> QueryFragment<DB> for FindShardsPolicy<T>
where
    DB: ShardedBackend,
    T: ShardedTable,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut table = out.backend().query_builder();
        table.push_identifier(T::SHARDS_TABLE)?;
        out.push_sql("SELECT 1 WHERE row_security_active(");
        out.push_sql(&literal(out.backend().dialect(), &table.finish()));
        out.push_sql(")");
        Ok(())
    }
}

impl<T> Query for FindShardsPolicy<T> {
    type SqlType = Integer;
}

no_query_id!([T: 'static] FindShardsPolicy<T>);

/// Locks shards in the order in which counts lock them, and reads which of them are not empty.
///
/// ```sql
/// SELECT CASE WHEN "videos"."views" <> 0 OR "videos"."likes" <> 0 THEN 1 ELSE 0 END FROM "videos_shards" AS "videos"
/// WHERE … ORDER BY "videos"."id", "videos"."shard" FOR UPDATE
/// ```
pub(crate) struct LockShards<'a, W, DB: Backend> {
    pub(crate) of: HeldRows<'a, W, DB>,
    pub(crate) clause: &'static str,
}

impl<W, DB> QueryFragment<DB> for LockShards<'_, W, DB>
where
    DB: ShardedBackend,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT CASE WHEN ");
        for (i, field) in self.of.names.fields.iter().enumerate() {
            if i > 0 {
                out.push_sql(" OR ");
            }
            self.of.names.push_column(field.name, out.reborrow())?;
            out.push_sql(" <> 0");
        }
        out.push_sql(" THEN 1 ELSE 0 END FROM ");
        self.of.push_table(out.reborrow())?;
        self.of.push_where(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        self.of.names.push_key(out.reborrow())?;
        out.push_sql(", ");
        self.of.names.push_column(SHARD, out.reborrow())?;
        out.push_sql(out.backend().dialect().all_rows());
        out.push_sql(self.clause);
        Ok(())
    }
}

impl<W, DB: Backend> Query for LockShards<'_, W, DB> {
    type SqlType = Integer;
}

/// Reads the numbers of the shards that there are.
///
/// ```sql
/// SELECT "videos"."shard" FROM "videos_shards" AS "videos" WHERE …
/// ```
pub(crate) struct SelectShards<'a, W, DB: Backend> {
    pub(crate) of: HeldRows<'a, W, DB>,
}

impl<W, DB> QueryFragment<DB> for SelectShards<'_, W, DB>
where
    DB: ShardedBackend,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        self.of.names.push_column(SHARD, out.reborrow())?;
        out.push_sql(" FROM ");
        self.of.push_table(out.reborrow())?;
        self.of.push_where(out.reborrow())?;
        out.push_sql(out.backend().dialect().all_rows());
        Ok(())
    }
}

impl<W, DB: Backend> Query for SelectShards<'_, W, DB> {
    type SqlType = Integer;
}

no_query_id!(
    [W, DB: Backend] LockShards<'_, W, DB>,
    [W, DB: Backend] SelectShards<'_, W, DB>,
);

// Its text has one length for each number of keys.
no_query_id!([T, W] LockParents<'_, T, W>);

// As [`LockParents`].
no_query_id!([T, P] NotLocked<'_, T, P>);

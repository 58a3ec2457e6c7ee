//! Statements that lock parents and shards, and that look for what they did not lock.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment};
use diesel::sql_types::Integer;

use crate::backend::ShardedBackend;
use crate::model::SHARD;
use crate::query_builder::keys::KeysAre;
use crate::query_builder::names::Names;
use crate::query_builder::no_query_id;

use super::policy::push_row_security_active;
use super::rows::HeldRows;

/// Locks parents in key order, and reads their keys.
///
/// ```sql
/// SELECT "videos"."id" FROM "videos" WHERE … ORDER BY "videos"."id" FOR UPDATE
/// ```
pub(crate) struct LockParents<'a, W, ST, DB: Backend> {
    pub(crate) names: Names<'a, DB>,
    pub(crate) keys: &'a W,
    pub(crate) clause: &'static str,
    pub(crate) key_sql: PhantomData<ST>,
}

impl<W, ST, DB> QueryFragment<DB> for LockParents<'_, W, ST, DB>
where
    DB: ShardedBackend,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.names.push_select_keys(self.keys, out.reborrow())?;
        out.push_sql(self.clause);
        Ok(())
    }
}

impl<W, ST, DB: Backend> Query for LockParents<'_, W, ST, DB> {
    type SqlType = ST;
}

/// Finds parents that can be seen and were not locked.
///
/// ```sql
/// SELECT "videos"."id" FROM "videos" WHERE ("videos"."id" = $1 OR …) AND NOT ("videos"."id" = $2 OR …)
///     AND row_security_active('"videos"')
/// ```
pub(crate) struct NotLocked<'a, P, ST, DB: Backend> {
    pub(crate) names: Names<'a, DB>,
    pub(crate) keys: &'a KeysAre<P>,
    pub(crate) locked: &'a KeysAre<P>,
    pub(crate) key_sql: PhantomData<ST>,
}

impl<P, ST, DB> QueryFragment<DB> for NotLocked<'_, P, ST, DB>
where
    DB: ShardedBackend,
    P: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        self.names.push_key_to_read(out.reborrow())?;
        out.push_sql(" FROM ");
        self.names.parent.walk_ast(out.reborrow())?;
        self.keys.walk_ast(out.reborrow())?;
        if !self.locked.0.is_empty() {
            out.push_sql(" AND NOT ");
            self.locked.push_any(out.reborrow())?;
        }
        out.push_sql(" AND ");
        push_row_security_active(self.names.parent, out)
    }
}

impl<P, ST, DB: Backend> Query for NotLocked<'_, P, ST, DB> {
    type SqlType = ST;
}

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
            self.of.names().push_column(&field.name, out.reborrow())?;
            out.push_sql(field.merge.is_filled());
        }
        out.push_sql(" THEN 1 ELSE 0 END FROM ");
        self.of.push_table(out.reborrow())?;
        self.of.push_where(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        self.of.names().push_key(out.reborrow())?;
        out.push_sql(", ");
        self.of.names().push_column(SHARD, out.reborrow())?;
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
        self.of.names().push_column(SHARD, out.reborrow())?;
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
no_query_id!([W, ST, DB: Backend] LockParents<'_, W, ST, DB>);

// As [`LockParents`].
no_query_id!([P, ST, DB: Backend] NotLocked<'_, P, ST, DB>);

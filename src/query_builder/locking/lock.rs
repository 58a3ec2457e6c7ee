//! Statements that lock parents and shards, and that look for what they did not lock.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryBuilder, QueryFragment};
use diesel::sql_types::Integer;

use crate::backend::{Dialect, ShardedBackend};
use crate::model::SHARD;
use crate::query_builder::keys::KeysAre;
use crate::query_builder::{Names, Sql, literal, no_query_id, on, part, sql, walk};

use super::rows::StatementRows;

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
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        sql!(out; self.names.select_keys(self.keys), self.clause)
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
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        sql!(out;
            "SELECT ", self.names.key_to_read(), " FROM ", walk(self.names.parent), walk(self.keys),
            if !self.locked.0.is_empty() { " AND NOT ", self.locked.any() },
            " AND ", row_security_active(self.names.parent))
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
    pub(crate) of: StatementRows<'a, W, DB>,
    pub(crate) clause: &'static str,
}

impl<W, DB> QueryFragment<DB> for LockShards<'_, W, DB>
where
    DB: ShardedBackend,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let table = self.of.names();
        sql!(out;
            "SELECT CASE WHEN ",
            for field in (table.fields, " OR ") { table.column(&field.name), field.merge.is_filled() },
            " THEN 1 ELSE 0 END FROM ", self.of.table(), self.of.filter(),
            " ORDER BY ", table.key(), ", ", table.column(SHARD), on(Dialect::all_rows), self.clause)
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
    pub(crate) of: StatementRows<'a, W, DB>,
}

impl<W, DB> QueryFragment<DB> for SelectShards<'_, W, DB>
where
    DB: ShardedBackend,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        sql!(out; "SELECT ", self.of.names().column(SHARD), " FROM ", self.of.table(), self.of.filter(), on(Dialect::all_rows))
    }
}

impl<W, DB: Backend> Query for SelectShards<'_, W, DB> {
    type SqlType = Integer;
}

/// Reads a row if row security applies to this role's view of a table.
///
/// ```sql
/// SELECT 1 WHERE row_security_active('"videos"')
/// ```
pub(crate) struct FindPolicy<F>(pub(crate) F);

impl<F, DB> QueryFragment<DB> for FindPolicy<F>
where
    F: QueryFragment<DB>,
    DB: ShardedBackend,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        sql!(out; "SELECT 1 WHERE ", row_security_active(&self.0))
    }
}

impl<F> Query for FindPolicy<F> {
    type SqlType = Integer;
}

/// `row_security_active('"videos"')`
fn row_security_active<'b, F, DB>(table: &'b F) -> impl Sql<'b, DB>
where
    F: QueryFragment<DB> + ?Sized,
    DB: ShardedBackend,
{
    part(|out: AstPass<'_, 'b, DB>| {
        let mut name = out.backend().query_builder();
        table.to_sql(&mut name, out.backend())?;
        let name = literal(out.backend().dialect(), &name.finish());
        sql!(out; "row_security_active(", &*name, ")")
    })
}

no_query_id!(
    [W, DB: Backend] LockShards<'_, W, DB>,
    [W, DB: Backend] SelectShards<'_, W, DB>,
    [F] FindPolicy<F>,
);

// Its text has one length for each number of keys.
no_query_id!([W, ST, DB: Backend] LockParents<'_, W, ST, DB>);

// As [`LockParents`].
no_query_id!([P, ST, DB: Backend] NotLocked<'_, P, ST, DB>);

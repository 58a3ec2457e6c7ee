//! The same number, counted anew.

use diesel::dsl::SqlTypeOf;
use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment};

use crate::backend::ShardedBackend;
use crate::model::{FieldType, ShardedColumn, ShardedTable};
use crate::operation::verify::Verify;
use crate::query_builder::{no_query_id, sql};

use super::cache::CounterCache;
use super::child::ChildTable;

/// Keys of parents and the numbers that a [`CounterCache`] should have for them, as a query; made by
/// [`recount`](CounterCache::recount).
///
/// ```sql
/// SELECT "comments"."post_id", COUNT(*) FROM "comments" WHERE "comments"."post_id" IS NOT NULL GROUP BY "comments"."post_id"
/// -- a sum: COALESCE(SUM("orders"."amount"), 0); PostgreSQL: CAST(… AS BIGINT), AS DOUBLE PRECISION or AS NUMERIC
/// ```
#[derive(Debug, Clone, Copy)]
#[must_use = "a query does nothing until it is loaded"]
pub struct CacheRecount<C, Child, Condition>(pub(super) CounterCache<C, Child, Condition>);

impl<C, Child, W, DB> QueryFragment<DB> for CacheRecount<C, Child, W>
where
    C: ShardedColumn<Table: QueryFragment<DB>>,
    Child: ChildTable<DB>,
    W: QueryFragment<DB>,
    DB: ShardedBackend,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared(); // a text of its own for each cache
        let declared = self.0.declaration(out.backend())?;
        sql!(out; declared.recount().as_str())
    }
}

impl<C, Child, W> Query for CacheRecount<C, Child, W>
where
    C: ShardedColumn,
    <C::Table as Table>::PrimaryKey: Expression,
{
    type SqlType = (
        SqlTypeOf<<C::Table as Table>::PrimaryKey>,
        <C::SqlType as FieldType>::Sum,
    );
}

impl<C, Child, W, Conn> RunQueryDsl<Conn> for CacheRecount<C, Child, W> {}

no_query_id!([C, Child, W] CacheRecount<C, Child, W>);

impl<C, Child, W, Run> CounterCache<C, Child, W, Run>
where
    C: ShardedColumn,
    W: Clone,
{
    /// The number counted anew, as a query for keys and numbers; see [`CacheRecount`] for the SQL. For
    /// [`verify`](crate::verify()) over some of the parents: it ignores the keys of others.
    pub fn recount(&self) -> CacheRecount<C, Child, W> {
        CacheRecount(self.with_types(self.condition.clone()))
    }

    /// Compares all totals with the rows, and repairs them: [`drifts`](Verify::drifts), [`repair`](Verify::repair).
    ///
    /// Rows and counts are written in one transaction, so they agree in every snapshot: any drift is real.
    pub fn verify(&self) -> Verify<C::Table, C, CacheRecount<C, Child, W>, Run> {
        Verify::of_query(*<C::Table>::TABLE, self.recount())
    }
}

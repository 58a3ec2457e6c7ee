//! The parents that a filter picks, as a derived table of their keys.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};

use crate::backend::ShardedBackend;
use crate::model::ShardedTable;
use crate::query_builder::{push_column, push_each_key};

/// The derived table.
pub(super) const PICKED: &str = "sharded_picked";

/// Unlikely to be the name of a column of the application's, which would be ambiguous.
pub(super) fn picked_key(number: usize) -> String {
    format!("sharded_key_{number}")
}

/// `SELECT parent.key AS sharded_key_0`
pub(super) fn push_select_picked_key<T, DB>(mut out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    out.push_sql("SELECT ");
    push_each_key::<T, DB>(", ", out, |i, name, mut out| {
        push_column::<T, DB>(name, out.reborrow())?;
        out.push_sql(" AS ");
        out.push_identifier(&picked_key(i))
    })
}

/// ` FROM parent WHERE …`
pub(super) fn push_from_parents<'b, T, W, DB>(
    filter: &'b W,
    mut out: AstPass<'_, 'b, DB>,
) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    DB: ShardedBackend,
{
    out.push_sql(" FROM ");
    T::TABLE.walk_ast(out.reborrow())?;
    filter.walk_ast(out)
}

/// `picked.sharded_key_0 = parent.key`, where `picked` is a table of keys
pub(super) fn push_key_is_parents<T, DB>(picked: &str, out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    push_each_key::<T, DB>(" AND ", out, |i, name, mut out| {
        push_picked_key(picked, i, out.reborrow())?;
        out.push_sql(" = ");
        push_column::<T, DB>(name, out)
    })
}

/// `picked.sharded_key_0`
pub(super) fn push_picked_key<DB: ShardedBackend>(
    picked: &str,
    number: usize,
    mut out: AstPass<'_, '_, DB>,
) -> QueryResult<()> {
    out.push_identifier(picked)?;
    out.push_sql(".");
    out.push_identifier(&picked_key(number))
}

//! The parents that a filter picks, as a derived table of their keys.

use std::borrow::Cow;

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};

use crate::backend::ShardedBackend;
use crate::model::ShardedTable;
use crate::query_builder::{push_aliased_column, push_column, push_each_key};

/// The derived table.
pub(super) const PICKED: &str = "sharded_picked";

/// Unlikely to be the name of a column of the application's, which would be ambiguous. Keys of few columns allocate nothing: Diesel
/// walks a statement several times for each count.
fn picked_key(number: usize) -> Cow<'static, str> {
    const NAMES: [&str; 4] = [
        "sharded_key_0",
        "sharded_key_1",
        "sharded_key_2",
        "sharded_key_3",
    ];
    match NAMES.get(number) {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(format!("sharded_key_{number}")),
    }
}

/// `column AS sharded_key_0`, where `push_column` writes a column of the key
pub(super) fn push_key_as_picked<'b, T, DB>(
    out: AstPass<'_, 'b, DB>,
    push_column: impl Fn(&str, AstPass<'_, 'b, DB>) -> QueryResult<()>,
) -> QueryResult<()>
where
    T: ShardedTable,
    DB: ShardedBackend,
{
    push_each_key::<T, DB>(", ", out, |i, name, mut out| {
        push_column(name, out.reborrow())?;
        out.push_sql(" AS ");
        out.push_identifier(&picked_key(i))
    })
}

/// `SELECT parent.key AS sharded_key_0`
pub(super) fn push_select_picked_key<T, DB>(mut out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    out.push_sql("SELECT ");
    push_key_as_picked::<T, DB>(out, push_column::<T, DB>)
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

/// `picked.sharded_key_0 = parent.key`, where `picked` is a table of keys and the shards stand under the parent's name
pub(super) fn push_key_is_parents<T, DB>(picked: &str, out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    push_key_is::<T, DB>(picked, out, push_aliased_column::<T, DB>)
}

/// `picked.sharded_key_0 = column`, where `push_column` writes a column of the key
pub(super) fn push_key_is<'b, T, DB>(
    picked: &str,
    out: AstPass<'_, 'b, DB>,
    push_column: impl Fn(&str, AstPass<'_, 'b, DB>) -> QueryResult<()>,
) -> QueryResult<()>
where
    T: ShardedTable,
    DB: ShardedBackend,
{
    push_each_key::<T, DB>(" AND ", out, |i, name, mut out| {
        push_picked_key(picked, i, out.reborrow())?;
        out.push_sql(" = ");
        push_column(name, out)
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

//! The columns of a table and of its key in SQL.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};

use crate::dialect::ShardedBackend;
use crate::field::ShardedTable;

/// The column of a shards table that numbers a parent's shards.
pub(crate) const SHARD: &str = "shard";

/// `shards.name`
pub(crate) fn push_shards_column<T, DB>(name: &str, mut out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable,
    DB: Backend,
{
    out.push_identifier(T::SHARDS_TABLE)?;
    out.push_sql(".");
    out.push_identifier(name)
}

/// `parent.name`
pub(crate) fn push_column<T, DB>(name: &str, mut out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: Backend,
{
    T::TABLE.walk_ast(out.reborrow())?;
    out.push_sql(".");
    out.push_identifier(name)
}

/// `(key, shard)`
pub(crate) fn push_unique_key<T, DB>(mut out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable,
    DB: ShardedBackend,
{
    out.push_sql("(");
    for column in T::KEY {
        out.push_identifier(column.name)?;
        out.push_sql(", ");
    }
    out.push_identifier(SHARD)?;
    out.push_sql(")");
    Ok(())
}

/// What `push` writes for each column of the key, with `separator` between them. `push` is told the column's number and name.
pub(crate) fn push_each_key<'b, T, DB>(
    separator: &str,
    mut out: AstPass<'_, 'b, DB>,
    push: impl Fn(usize, &'static str, AstPass<'_, 'b, DB>) -> QueryResult<()>,
) -> QueryResult<()>
where
    T: ShardedTable,
    DB: ShardedBackend,
{
    for (i, column) in T::KEY.iter().enumerate() {
        if i > 0 {
            out.push_sql(separator);
        }
        push(i, column.name, out.reborrow())?;
    }
    Ok(())
}

/// `parent.key`, or all columns of a composite key
pub(crate) fn push_key<T, DB>(out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    push_each_key::<T, DB>(", ", out, |_, name, out| push_column::<T, DB>(name, out))
}

/// ` FROM shards WHERE shards.key = parent.key`
pub(crate) fn push_from_shards<T, DB>(mut out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    out.push_sql(" FROM ");
    out.push_identifier(T::SHARDS_TABLE)?;
    out.push_sql(" WHERE ");
    push_each_key::<T, DB>(" AND ", out, |_, name, mut out| {
        push_shards_column::<T, DB>(name, out.reborrow())?;
        out.push_sql(" = ");
        push_column::<T, DB>(name, out)
    })
}

//! Names of columns in SQL.

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

/// `parent.key`, or all columns of a composite key
pub(crate) fn push_key<T, DB>(mut out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    for (i, column) in T::KEY.iter().enumerate() {
        if i > 0 {
            out.push_sql(", ");
        }
        push_column::<T, DB>(column.name, out.reborrow())?;
    }
    Ok(())
}

/// ` FROM shards WHERE shards.key = parent.key`
pub(crate) fn push_from_shards<T, DB>(mut out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    out.push_sql(" FROM ");
    out.push_identifier(T::SHARDS_TABLE)?;
    for (i, column) in T::KEY.iter().enumerate() {
        out.push_sql(if i == 0 { " WHERE " } else { " AND " });
        push_shards_column::<T, DB>(column.name, out.reborrow())?;
        out.push_sql(" = ");
        push_column::<T, DB>(column.name, out.reborrow())?;
    }
    Ok(())
}

//! The columns of a table and of its key in SQL, and the binds of statements.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::query_source::AliasSource;
use diesel::sql_types::Integer;

use crate::backend::{Binds, ShardedBackend};
use crate::model::{ColumnType, SHARD, ShardedTable, ShardsColumn, TableName};

/// The names of a sharded table and of its shards table as values: those of a type, or those that a tool has read from the
/// database.
pub(crate) struct Names<'b, DB: Backend> {
    pub(crate) parent: &'b (dyn QueryFragment<DB> + Sync),
    pub(crate) shards_table: TableName<'b>,
    pub(crate) key: &'b [ShardsColumn],
    pub(crate) fields: &'b [ShardsColumn],
    /// Whether keys are read as texts, whatever their types are.
    pub(crate) keys_as_texts: bool,
}

impl<DB: Backend> Clone for Names<'_, DB> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<DB: Backend> Copy for Names<'_, DB> {}

impl<'b, DB: Backend> Names<'b, DB> {
    pub(crate) fn of<T: ShardedTable + QueryFragment<DB>>() -> Self {
        Names {
            parent: T::TABLE,
            shards_table: T::SHARDS_TABLE,
            key: T::KEY,
            fields: T::FIELDS,
            keys_as_texts: false,
        }
    }

    /// Those of `T` under the alias `S`.
    pub(crate) fn aliased<S: AliasSource + 'static, T: ShardedTable>() -> Self {
        Names {
            parent: AliasName::<S>::THE,
            shards_table: T::SHARDS_TABLE,
            key: T::KEY,
            fields: T::FIELDS,
            keys_as_texts: false,
        }
    }

    /// `parent.name`
    pub(crate) fn push_column(self, name: &str, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.parent.walk_ast(out.reborrow())?;
        out.push_sql(".");
        out.push_identifier(name)
    }

    /// `shards.name`; without the schema, as every clause of a statement finds it.
    pub(crate) fn push_shards_column(
        self,
        name: &str,
        mut out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()> {
        out.push_identifier(self.shards_table.name())?;
        out.push_sql(".");
        out.push_identifier(name)
    }

    /// `shards AS parent`
    pub(crate) fn push_shards_as_parent(self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        DB: ShardedBackend,
    {
        self.shards_table.push(out.reborrow())?;
        out.push_sql(" AS ");
        self.under_alias().parent.walk_ast(out)
    }

    /// `parent.key`, or all columns of a composite key
    pub(crate) fn push_key(self, out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        DB: ShardedBackend,
    {
        push_each_key_of(self.key, ", ", out, |_, name, out| {
            self.push_column(name, out)
        })
    }

    /// `parent.key` for reading it. PostgreSQL pads a `CHAR(n)` that it gives out, and compares it with the text that comes back
    /// as if the padding were part of it; a cast removes the padding.
    pub(crate) fn push_key_to_read(self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        DB: ShardedBackend,
    {
        let dialect = out.backend().dialect();
        for (i, column) in self.key.iter().enumerate() {
            if i > 0 {
                out.push_sql(", ");
            }
            let pads_text = dialect.pads_text() && column.column_type == ColumnType::Text;
            let (before, behind) = match self.keys_as_texts || pads_text {
                true => dialect.key_as_text(column.column_type),
                false => ("", ""),
            };
            out.push_sql(before);
            self.push_column(&column.name, out.reborrow())?;
            out.push_sql(behind);
        }
        Ok(())
    }

    /// `SELECT parent.key FROM parent WHERE … ORDER BY parent.key`; a lock may follow.
    pub(crate) fn push_select_keys(
        self,
        filter: &'b impl QueryFragment<DB>,
        mut out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()>
    where
        DB: ShardedBackend,
    {
        out.push_sql("SELECT ");
        self.push_key_to_read(out.reborrow())?;
        out.push_sql(" FROM ");
        self.parent.walk_ast(out.reborrow())?;
        filter.walk_ast(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        self.push_key(out.reborrow())?;
        out.push_sql(out.backend().dialect().all_rows());
        Ok(())
    }

    /// `SELECT parent.key FROM (SELECT parent.key FROM parent WHERE …) AS parent`: a ` WHERE` on the key may follow, whatever
    /// the filter is.
    pub(crate) fn push_select_keys_as_parent(
        self,
        filter: &'b impl QueryFragment<DB>,
        mut out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()>
    where
        DB: ShardedBackend,
    {
        out.push_sql("SELECT ");
        self.under_alias().push_key_to_read(out.reborrow())?;
        out.push_sql(" FROM (SELECT ");
        self.push_key(out.reborrow())?;
        out.push_sql(" FROM ");
        self.parent.walk_ast(out.reborrow())?;
        filter.walk_ast(out.reborrow())?;
        out.push_sql(") AS ");
        self.under_alias().parent.walk_ast(out)
    }

    /// ` FROM shards WHERE shards.key = parent.key`, and ` AND shards.shard = $n` for one of them
    pub(crate) fn push_from_shards(
        self,
        shard: Option<&'b i32>,
        mut out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()>
    where
        DB: ShardedBackend,
    {
        out.push_sql(" FROM ");
        self.shards_table.push(out.reborrow())?;
        out.push_sql(" WHERE ");
        push_each_key_of(self.key, " AND ", out.reborrow(), |_, name, mut out| {
            self.push_shards_column(name, out.reborrow())?;
            out.push_sql(" = ");
            self.push_column(name, out)
        })?;
        if let Some(shard) = shard {
            out.push_sql(" AND ");
            self.push_shards_column(SHARD, out.reborrow())?;
            out.push_sql(" = ");
            push_bind::<Integer, i32, DB>(shard, out)?;
        }
        Ok(())
    }
}

/// `alias`
struct AliasName<S>(PhantomData<fn() -> S>);

impl<S: 'static> AliasName<S> {
    const THE: &'static Self = &AliasName(PhantomData);
}

impl<S: AliasSource, DB: Backend> QueryFragment<DB> for AliasName<S> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_identifier(S::NAME)
    }
}

/// `$n`
pub(crate) fn push_bind<'b, ST, U, DB>(value: &'b U, out: AstPass<'_, 'b, DB>) -> QueryResult<()>
where
    DB: Binds<ST, U>,
    U: ?Sized,
{
    <DB as Binds<ST, U>>::push(value, out)
}

/// `shards.name`
pub(crate) fn push_shards_column<T, DB>(name: &str, out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: Backend,
{
    Names::of::<T>().push_shards_column(name, out)
}

/// `shards AS parent`
pub(crate) fn push_shards_as_parent<T, DB>(out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    Names::of::<T>().push_shards_as_parent(out)
}

/// `parent.name`
pub(crate) fn push_column<T, DB>(name: &str, out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: Backend,
{
    Names::of::<T>().push_column(name, out)
}

/// `parent.name`, where the shards stand under the parent's name
pub(crate) fn push_aliased_column<T, DB>(name: &str, out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    Names::of::<T>().under_alias().push_column(name, out)
}

/// An expression over the parent, where the shards stand under its name
pub(crate) fn push_under_alias<'b, T, F, DB>(
    expression: &'b F,
    out: AstPass<'_, 'b, DB>,
) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    F: QueryFragment<DB>,
    DB: ShardedBackend,
{
    Names::of::<T>().push_under_alias(expression, out)
}

/// `parent.shard = $n`, where the shards stand under the parent's name
pub(crate) fn push_shard_is<'b, T, DB>(
    shard: &'b i32,
    mut out: AstPass<'_, 'b, DB>,
) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    push_aliased_column::<T, DB>(SHARD, out.reborrow())?;
    out.push_sql(" = ");
    push_bind::<Integer, i32, DB>(shard, out)
}

/// `(key, shard)`
pub(crate) fn push_unique_key<T, DB>(out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable,
    DB: ShardedBackend,
{
    push_unique_key_of(T::KEY, out)
}

/// `(key, shard)`
pub(crate) fn push_unique_key_of<DB: ShardedBackend>(
    key: &[ShardsColumn],
    mut out: AstPass<'_, '_, DB>,
) -> QueryResult<()> {
    out.push_sql("(");
    for column in key {
        out.push_identifier(&column.name)?;
        out.push_sql(", ");
    }
    out.push_identifier(SHARD)?;
    out.push_sql(")");
    Ok(())
}

/// Calls `push` with the number and the name of each column of the key, and writes `separator` between them.
pub(crate) fn push_each_key<'b, T, DB>(
    separator: &str,
    out: AstPass<'_, 'b, DB>,
    push: impl Fn(usize, &str, AstPass<'_, 'b, DB>) -> QueryResult<()>,
) -> QueryResult<()>
where
    T: ShardedTable,
    DB: ShardedBackend,
{
    push_each_key_of(T::KEY, separator, out, push)
}

/// The same for the columns of `key`.
pub(crate) fn push_each_key_of<'b, DB: ShardedBackend>(
    key: &[ShardsColumn],
    separator: &str,
    mut out: AstPass<'_, 'b, DB>,
    push: impl Fn(usize, &str, AstPass<'_, 'b, DB>) -> QueryResult<()>,
) -> QueryResult<()> {
    for (i, column) in key.iter().enumerate() {
        if i > 0 {
            out.push_sql(separator);
        }
        push(i, &column.name, out.reborrow())?;
    }
    Ok(())
}

/// `parent.key`, or all columns of a composite key
pub(crate) fn push_key<T, DB>(out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    Names::of::<T>().push_key(out)
}

/// `"views" = 0, "likes" = 0`
pub(crate) fn push_zeros<'f, DB: ShardedBackend>(
    fields: impl Iterator<Item = &'f ShardsColumn>,
    mut out: AstPass<'_, '_, DB>,
) -> QueryResult<()> {
    for (i, field) in fields.enumerate() {
        if i > 0 {
            out.push_sql(", ");
        }
        out.push_identifier(&field.name)?;
        out.push_sql(" = ");
        out.push_sql(field.merge.nothing());
    }
    Ok(())
}

//! A sharded table and its shards table in SQL.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::query_source::AliasSource;
use diesel::sql_types::{BigInt, Integer};

use super::sql::{Sql, bind, copies, id, on, part, sql, walk};
use super::under_alias::Alias;
use crate::backend::{Dialect, ShardedBackend};
use crate::model::{ColumnType, SHARD, ShardedTable, ShardsColumn, TableName};

/// The names of a sharded table and of its shards table as values. They come from a type, or a tool has read them from the database.
pub struct Names<'b, DB: Backend> {
    /// The parent's name.
    pub parent: &'b (dyn QueryFragment<DB> + Sync),
    /// The shards table's name.
    pub shards_table: TableName<'b>,
    /// The columns of the key.
    pub key: &'b [ShardsColumn],
    /// The sharded fields.
    pub fields: &'b [ShardsColumn],
    /// Whether keys of all types are read as text.
    pub keys_as_texts: bool,
}

copies!([DB: Backend] Names<'_, DB>);

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

    /// The names of `T` under the alias `S`.
    pub(crate) fn of_alias<S: AliasSource + 'static, T: ShardedTable>() -> Self {
        Names {
            parent: const { &Alias(S::NAME) },
            shards_table: T::SHARDS_TABLE,
            key: T::KEY,
            fields: T::FIELDS,
            keys_as_texts: false,
        }
    }

    /// `parent.name`
    pub(crate) fn column(self, name: &str) -> impl Sql<'b, DB> {
        sql! { walk(self.parent), ".", id(name) }
    }

    /// `shards.name`, without the schema: every clause of a statement finds the table that way.
    pub(crate) fn shards_column(self, name: &str) -> impl Sql<'b, DB> {
        sql! { id(self.shards_table.name()), ".", id(name) }
    }
}

impl<'b, DB: ShardedBackend> Names<'b, DB> {
    /// `shards AS parent`
    pub(crate) fn shards_as_parent(self) -> impl Sql<'b, DB> {
        sql! { self.shards_table, " AS ", walk(self.under_alias().parent) }
    }

    /// `parent.key`, or all columns of a composite key
    pub(crate) fn key(self) -> impl Sql<'b, DB> {
        sql! { for column in (self.key, ", ") { self.column(&column.name) } }
    }

    /// `shards.key`, or all columns of a composite key
    pub(crate) fn shards_key(self) -> impl Sql<'b, DB> {
        sql! { for column in (self.key, ", ") { self.shards_column(&column.name) } }
    }

    /// `parent.key` for reading it. PostgreSQL pads a `CHAR(n)` in its answer. When that text comes back in a comparison, PostgreSQL treats
    /// the padding as part of it. A cast removes the padding.
    pub(crate) fn key_to_read(self) -> impl Sql<'b, DB> {
        part(move |out: AstPass<'_, 'b, DB>| {
            let dialect = out.backend().dialect();
            let around = |column: &ShardsColumn| {
                let pads_text = dialect.pads_text() && column.column_type == ColumnType::Text;
                match self.keys_as_texts || pads_text {
                    true => dialect.key_as_text(column.column_type),
                    false => ("", ""),
                }
            };
            sql!(out; for column in (self.key, ", ") {
                around(column).0, self.column(&column.name), around(column).1
            })
        })
    }

    /// `SELECT parent.key FROM (SELECT parent.key FROM parent WHERE …) AS parent`. A ` WHERE` on the key may follow any filter.
    pub(crate) fn select_keys_as_parent(
        self,
        filter: &'b (impl QueryFragment<DB> + ?Sized),
    ) -> impl Sql<'b, DB> {
        sql! {
            "SELECT ", self.under_alias().key_to_read(),
            " FROM (SELECT ", self.key(), " FROM ", walk(self.parent), walk(filter), ") AS ", walk(self.under_alias().parent)
        }
    }

    /// `shards WHERE shards.key = parent.key`, and ` AND shards.shard = $n` for a single shard
    pub(crate) fn shards_of_parent(self, shard: Option<&'b i32>) -> impl Sql<'b, DB> {
        sql! {
            self.shards_table, " WHERE ",
            for column in (self.key, " AND ") { self.shards_column(&column.name), " = ", self.column(&column.name) },
            if let Some(shard) = shard { " AND ", self.shards_column(SHARD), " = ", bind(Integer, shard) }
        }
    }

    /// `parent.shard = $n`, where the shards have the parent's name as their alias
    pub(crate) fn shard_is(self, shard: &'b i32) -> impl Sql<'b, DB> {
        sql! { self.under_alias().column(SHARD), " = ", bind(Integer, shard) }
    }

    /// `SELECT parent.key FROM (SELECT DISTINCT parent.key FROM shards AS parent WHERE …) AS parent ORDER BY parent.key`. A condition, an
    /// order and a limit may be inside. The outer query reads the keys, since a cast may change them. (It has its own `LIMIT` where a
    /// session's setting may cut off rows: the inner limit does not prevent that.)
    pub(crate) fn keys_of_shards(self, condition: impl Sql<'b, DB>) -> impl Sql<'b, DB> {
        let table = self.under_alias();
        sql! {
            "SELECT ", table.key_to_read(),
            " FROM (SELECT DISTINCT ", table.key(), " FROM ", table.shards_as_parent(), " WHERE ", condition,
            ") AS ", walk(table.parent), " ORDER BY ", table.key(), on(Dialect::all_rows)
        }
    }

    /// ` AND parent.key > $n ORDER BY parent.key LIMIT $m`
    pub(crate) fn next_keys(
        self,
        after: Option<&'b impl QueryFragment<DB>>,
        limit: &'b i64,
    ) -> impl Sql<'b, DB> {
        sql! {
            if let Some(after) = after { " AND ", self.aliased(after) },
            " ORDER BY ", self.under_alias().key(), " LIMIT ", bind(BigInt, limit)
        }
    }

    /// `(key, shard)`
    pub(crate) fn unique_key(self) -> impl Sql<'b, DB> {
        sql! { "(", for column in (self.key, ", ") { id(&column.name) }, ", ", id(SHARD), ")" }
    }
}

/// `"views" = 0, "likes" = 0`
pub(crate) fn zeros<'f, 'b, DB: Backend>(
    fields: impl IntoIterator<Item = &'f ShardsColumn>,
) -> impl Sql<'b, DB> {
    sql! { for field in (fields, ", ") { id(&field.name), " = ", field.merge.nothing() } }
}

/// `EXISTS (SELECT 1 FROM name)`
pub(crate) fn has_rows<'b, DB: Backend>(name: &str) -> impl Sql<'b, DB> {
    sql! { "EXISTS (SELECT 1 FROM ", id(name), ")" }
}

/// `(SELECT COUNT(*) FROM name)`
pub(crate) fn number_of_rows<'b, DB: Backend>(name: &str) -> impl Sql<'b, DB> {
    sql! { "(SELECT COUNT(*) FROM ", id(name), ")" }
}

/// `"analytics"."videos_shards"`
impl<DB: Backend> Sql<'_, DB> for TableName<'_> {
    fn push(self, out: AstPass<'_, '_, DB>) -> QueryResult<()> {
        sql!(out; if let Some(schema) = self.schema() { id(schema), "." }, id(self.name()))
    }
}

impl<DB: Backend> QueryFragment<DB> for TableName<'_> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        Sql::push(*self, out)
    }
}

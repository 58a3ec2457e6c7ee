//! Names, quoted for texts of several statements.

use diesel::prelude::*;
use diesel::query_builder::QueryBuilder;

use crate::backend::{Dialect, ShardedBackend};
use crate::model::{ColumnType, SHARD, ShardsColumn};
use crate::query_builder::Names;

/// The names of a sharded table and of its shards table, as the database quotes them.
pub(super) struct Quoted<'a> {
    pub(super) dialect: Dialect,
    pub(super) parent: String,
    pub(super) shards: String,
    pub(super) shard: String,
    pub(super) key: Vec<Column<'a>>,
    pub(super) fields: Vec<Column<'a>>,
    /// The shards table's name as it is.
    pub(super) shards_table: &'a str,
}

/// A column of both tables.
pub(super) struct Column<'a> {
    pub(super) name: String,
    pub(super) column_type: ColumnType,
    pub(super) sql_type: Option<&'a str>,
}

impl<'a> Quoted<'a> {
    pub(super) fn new<DB: ShardedBackend>(names: Names<'a, DB>, backend: &DB) -> QueryResult<Self> {
        let columns = |columns: &'a [ShardsColumn]| -> QueryResult<Vec<Column<'a>>> {
            let column = |column: &'a ShardsColumn| {
                Ok(Column {
                    name: identifier(&column.name, backend)?,
                    column_type: column.column_type,
                    sql_type: column.sql_type.as_deref(),
                })
            };
            columns.iter().map(column).collect()
        };
        let mut parent = backend.query_builder();
        names.parent.to_sql(&mut parent, backend)?;
        Ok(Quoted {
            dialect: backend.dialect(),
            parent: parent.finish(),
            shards: identifier(names.shards_table, backend)?,
            shard: identifier(SHARD, backend)?,
            key: columns(names.key)?,
            fields: columns(names.fields)?,
            shards_table: names.shards_table,
        })
    }

    /// `"id"`, or all columns of a composite key
    pub(super) fn key_names(&self) -> String {
        each(&self.key, ", ", |_, column| column.name.clone())
    }
}

/// The texts that `text` makes of each column and its number, from 1 on.
pub(super) fn each(
    columns: &[Column],
    separator: &str,
    text: impl Fn(usize, &Column) -> String,
) -> String {
    let texts = columns.iter().zip(1..);
    let texts: Vec<_> = texts.map(|(column, i)| text(i, column)).collect();
    texts.join(separator)
}

/// `"name"`
fn identifier<DB: ShardedBackend>(name: &str, backend: &DB) -> QueryResult<String> {
    let mut builder = backend.query_builder();
    builder.push_identifier(name)?;
    Ok(builder.finish())
}

/// `DO $$ BEGIN … END $$`: several statements that PostgreSQL runs as one, inside a transaction and outside.
pub(super) fn as_one(declare: &str, statements: &str) -> String {
    let tags = (0..).map(|n| match n {
        0 => "$diesel_sharded$".to_owned(),
        n => format!("$diesel_sharded_{n}$"),
    });
    let mut free = tags.filter(|tag| !statements.contains(tag.as_str()));
    let tag = free.next().unwrap_or_default(); // no text contains all tags
    format!("DO {tag}\n{declare}BEGIN\n{statements}END\n{tag}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_does_not_end_the_block() {
        let block = as_one("", "    \"$diesel_sharded$\";\n");
        assert_eq!(
            block,
            "DO $diesel_sharded_1$\nBEGIN\n    \"$diesel_sharded$\";\nEND\n$diesel_sharded_1$"
        );
    }
}

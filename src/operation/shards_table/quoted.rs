//! Names, quoted for texts of several statements.

use diesel::prelude::*;
use diesel::query_builder::QueryBuilder;

use crate::backend::{Dialect, ShardedBackend};
use crate::model::{ColumnType, SHARD, ShardsColumn};
use crate::query_builder::{Names, literal};

/// The names of a sharded table and of its shards table, as the database quotes them.
pub(crate) struct Quoted<'a> {
    pub(crate) dialect: Dialect,
    pub(crate) parent: String,
    pub(crate) shards: String,
    pub(crate) shard: String,
    pub(crate) key: Vec<Column<'a>>,
    pub(crate) fields: Vec<Column<'a>>,
    /// The shards table's name as it is.
    pub(crate) shards_table: &'a str,
    /// The name of the function that adds to a shard.
    pub(super) add_function: String,
}

/// A column of both tables.
pub(crate) struct Column<'a> {
    pub(crate) name: String,
    /// The name as it is.
    pub(super) raw: &'a str,
    pub(crate) column_type: ColumnType,
    pub(crate) sql_type: Option<&'a str>,
}

impl<'a> Quoted<'a> {
    pub(crate) fn new<DB: ShardedBackend>(names: Names<'a, DB>, backend: &DB) -> QueryResult<Self> {
        let columns = |columns: &'a [ShardsColumn]| -> QueryResult<Vec<Column<'a>>> {
            let column = |column: &'a ShardsColumn| {
                Ok(Column {
                    name: identifier(&column.name, backend)?,
                    raw: &column.name,
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
            add_function: identifier(&format!("{}_add", names.shards_table), backend)?,
        })
    }

    /// The type of a column of the key.
    pub(super) fn key_type<'c>(&self, column: &'c Column) -> &'c str {
        let own = || self.dialect.key_type(column.column_type);
        column.sql_type.unwrap_or_else(own)
    }

    /// `"id"`, or all columns of a composite key
    pub(crate) fn key_names(&self) -> String {
        each(&self.key, ", ", |_, column| column.name.clone())
    }
}

/// The texts that `text` makes of each column and its number, from 1 on.
pub(crate) fn each(
    columns: &[Column],
    separator: &str,
    text: impl Fn(usize, &Column) -> String,
) -> String {
    let texts = columns.iter().zip(1..);
    let texts: Vec<_> = texts.map(|(column, i)| text(i, column)).collect();
    texts.join(separator)
}

/// `"name"`
pub(crate) fn identifier<DB: ShardedBackend>(name: &str, backend: &DB) -> QueryResult<String> {
    let mut builder = backend.query_builder();
    builder.push_identifier(name)?;
    Ok(builder.finish())
}

/// `DO $$ BEGIN … END $$`: several statements that PostgreSQL runs as one, inside a transaction and outside.
pub(crate) fn as_one(declare: &str, statements: &str) -> String {
    let body = dollar_quoted(&format!("{declare}BEGIN\n{statements}END"));
    format!("DO {body}")
}

/// The body of a block or a function on PostgreSQL, between tags that do not occur in it.
pub(crate) fn dollar_quoted(body: &str) -> String {
    let tags = (0..).map(|n| match n {
        0 => "$diesel_sharded$".to_owned(),
        n => format!("$diesel_sharded_{n}$"),
    });
    let mut free = tags.filter(|tag| !body.contains(tag.as_str()));
    let tag = free.next().unwrap_or_default(); // no text contains all tags
    format!("{tag}\n{body}\n{tag}")
}

/// Lets a function of PostgreSQL find the tables that are found when it is created, inside a block.
pub(crate) fn fix_search_path(function: &str) -> String {
    let alter = literal(
        Dialect::Postgres,
        &format!("ALTER FUNCTION {function} SET search_path = "),
    );
    format!(
        "-- The tables are those that are found now, whatever the path of a session is, and no temporary ones.
EXECUTE {alter} || COALESCE((SELECT string_agg(quote_ident(path.name), ', ' ORDER BY path.place)
    FROM unnest(current_schemas(false)) WITH ORDINALITY AS path(name, place)) || ', ', '') || 'pg_temp';"
    )
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

//! Names, quoted for texts of several statements.

use diesel::prelude::*;
use diesel::query_builder::QueryBuilder;

use crate::backend::{Dialect, ShardedBackend};
use crate::error::Error;
use crate::model::{ColumnType, Merge, SHARD, ShardsColumn, TableName};
use crate::query_builder::{Names, literal};

use super::integrity::Integrity;

/// The names of a sharded table and of its shards table, as the database quotes them.
pub(crate) struct Quoted<'a> {
    pub(crate) dialect: Dialect,
    pub(crate) parent: String,
    pub(crate) shards: String,
    /// Both without their schema.
    pub(crate) bare_parent: String,
    pub(crate) bare_shards: String,
    /// `"analytics".`, or nothing
    pub(crate) schema: String,
    pub(crate) shard: String,
    pub(crate) key: Vec<Column<'a>>,
    pub(crate) fields: Vec<Column<'a>>,
    /// The shards table's name as it is.
    pub(crate) shards_table: TableName<'a>,
    /// The means that keep shards and parents together, or are to keep them.
    pub(super) integrity: Integrity,
    /// The name of the function that adds to a shard.
    pub(super) add_function: String,
    /// The name of the function that adds to all fields of a shard.
    pub(super) add_all_function: String,
}

/// A column of both tables.
pub(crate) struct Column<'a> {
    pub(crate) name: String,
    /// The name as it is.
    pub(super) raw: &'a str,
    pub(crate) column_type: ColumnType,
    pub(crate) merge: Merge,
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
                    merge: column.merge,
                    sql_type: column.sql_type.as_deref(),
                })
            };
            columns.iter().map(column).collect()
        };
        let mut parent = backend.query_builder();
        names.parent.to_sql(&mut parent, backend)?;
        let parent = parent.finish();
        let shards_table = names.shards_table;
        let mut parts = identifiers(&parent);
        let bare_parent = parts.pop().unwrap_or_default();
        if parts.last().map(String::as_str) != shards_table.schema() {
            return Err(Error::OtherSchema {
                table: shards_table.to_string(),
                other: [parts, vec![bare_parent]].concat().join("."),
            }
            .into());
        }
        shards_table.check()?;
        let schema = match shards_table.schema() {
            Some(schema) => identifier(schema, backend)? + ".",
            None => String::new(),
        };
        let in_schema = |name: &str| -> QueryResult<String> {
            Ok(format!("{schema}{}", identifier(name, backend)?))
        };
        let dialect = backend.dialect();
        let function =
            |end: &str| in_schema(&dialect.fitting_name(format!("{}_{end}", shards_table.name())));
        Ok(Quoted {
            dialect,
            shards: in_schema(shards_table.name())?,
            bare_parent: identifier(&bare_parent, backend)?,
            bare_shards: identifier(shards_table.name(), backend)?,
            shard: identifier(SHARD, backend)?,
            key: columns(names.key)?,
            fields: columns(names.fields)?,
            add_function: function("add")?,
            add_all_function: function("add_all")?,
            shards_table,
            parent,
            schema,
            integrity: Integrity::default(),
        })
    }

    pub(super) fn kept_by(self, integrity: Integrity) -> Self {
        Quoted { integrity, ..self }
    }

    /// The name of what belongs to the shards table, neither quoted nor in its schema.
    pub(super) fn name_beside(&self, end: &str) -> String {
        let name = format!("{}_{end}", self.shards_table.name());
        self.dialect.fitting_name(name)
    }

    /// The type of a column of the key.
    pub(super) fn key_type<'c>(&self, column: &'c Column) -> &'c str {
        let own = || self.dialect.key_type(column.column_type);
        column.sql_type.unwrap_or_else(own)
    }

    /// The fields that are counted.
    pub(super) fn sums(&self) -> impl Iterator<Item = &Column<'a>> {
        self.fields.iter().filter(|column| column.is_sum())
    }

    /// `"id"`, or all columns of a composite key
    pub(crate) fn key_names(&self) -> String {
        each(&self.key, ", ", |_, column| column.name.clone())
    }
}

impl Column<'_> {
    /// See [`ShardsColumn::is_sum`].
    pub(super) fn is_sum(&self) -> bool {
        self.merge == Merge::Sum
    }
}

/// The texts that `text` makes of each column and its number, from 1 on.
pub(crate) fn each<'c, 'a: 'c>(
    columns: impl IntoIterator<Item = &'c Column<'a>>,
    separator: &str,
    text: impl Fn(usize, &Column) -> String,
) -> String {
    let texts = columns.into_iter().zip(1..);
    let texts: Vec<_> = texts.map(|(column, i)| text(i, column)).collect();
    texts.join(separator)
}

/// `"name"`
pub(crate) fn identifier<DB: ShardedBackend>(name: &str, backend: &DB) -> QueryResult<String> {
    let mut builder = backend.query_builder();
    builder.push_identifier(name)?;
    Ok(builder.finish())
}

/// The names in a text of quoted names, as they are: `` `comments`.`id`, `comments`.`post_id` ``.
pub(crate) fn identifiers(text: &str) -> Vec<String> {
    let Some(quote) = text.chars().next() else {
        return vec![];
    };
    let mut names = vec![];
    let mut rest = text.chars().peekable();
    while rest.any(|c| c == quote) {
        let mut name = String::new();
        while let Some(c) = rest.next() {
            if c == quote && rest.next_if_eq(&quote).is_none() {
                break;
            }
            name.push(c);
        }
        names.push(name);
    }
    names
}

/// The same, where only the dialect is known.
pub(super) fn quoted_on(dialect: Dialect, name: &str) -> String {
    let quote = match dialect {
        Dialect::Postgres => "\"",
        Dialect::Mysql | Dialect::Sqlite => "`",
    };
    format!("{quote}{}{quote}", name.replace(quote, &quote.repeat(2)))
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
    fn names_are_read_from_their_quotes() {
        assert_eq!(
            identifiers(r##""comments"."id", "comments"."it's ""new"", """"##),
            ["comments", "id", "comments", r#"it's "new", ""#]
        );
        assert_eq!(identifiers("`a``b`.`c`"), ["a`b", "c"]);
        assert_eq!(identifiers(""), [""; 0]);
    }

    #[test]
    fn a_name_does_not_end_the_block() {
        let block = as_one("", "    \"$diesel_sharded$\";\n");
        assert_eq!(
            block,
            "DO $diesel_sharded_1$\nBEGIN\n    \"$diesel_sharded$\";\nEND\n$diesel_sharded_1$"
        );
    }
}

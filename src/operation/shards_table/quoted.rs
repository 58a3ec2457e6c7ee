//! Names, quoted for texts of several statements.

use std::ops::Deref;

use diesel::prelude::*;
use diesel::query_builder::QueryBuilder;

use crate::backend::{Dialect, ShardedBackend};
use crate::error::Error;
use crate::model::{SHARD, ShardsColumn, TableName};
use crate::query_builder::{Names, literal};

/// The means that remove and rename the shards of a row that is deleted or renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Integrity {
    /// A foreign key with `CASCADE`; on SQLite triggers too.
    #[default]
    ForeignKey,
    /// Triggers, on every database.
    Triggers,
    /// The application; on SQLite triggers.
    Application,
}

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
}

/// A column of both tables.
pub(crate) struct Column<'a> {
    /// Its name, quoted.
    pub(crate) name: String,
    pub(crate) of: &'a ShardsColumn,
}

impl Deref for Column<'_> {
    type Target = ShardsColumn;

    fn deref(&self) -> &ShardsColumn {
        self.of
    }
}

impl<'a> Quoted<'a> {
    pub(crate) fn new<DB: ShardedBackend>(
        names: Names<'a, DB>,
        integrity: Integrity,
        backend: &DB,
    ) -> QueryResult<Self> {
        let dialect = backend.dialect();
        let quoted = |name: &str| quoted_on(dialect, name);
        let columns = |columns: &'a [ShardsColumn]| {
            let name = |of: &'a ShardsColumn| Column {
                name: quoted(&of.name),
                of,
            };
            columns.iter().map(name).collect()
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
        let schema = shards_table.schema().map(|schema| quoted(schema) + ".");
        let schema = schema.unwrap_or_default();
        let bare_shards = quoted(shards_table.name());
        Ok(Quoted {
            dialect,
            shards: format!("{schema}{bare_shards}"),
            bare_parent: quoted(&bare_parent),
            bare_shards,
            shard: quoted(SHARD),
            key: columns(names.key),
            fields: columns(names.fields),
            shards_table,
            parent,
            schema,
            integrity,
        })
    }

    /// The name of what belongs to the shards table, neither quoted nor in its schema.
    pub(super) fn name_beside(&self, end: &str) -> String {
        let name = format!("{}_{end}", self.shards_table.name());
        self.dialect.fitting_name(name)
    }

    /// The same, quoted. PostgreSQL's triggers are in no schema of their own.
    pub(super) fn bare_beside(&self, end: &str) -> String {
        quoted_on(self.dialect, &self.name_beside(end))
    }

    /// The same, in its schema.
    pub(super) fn beside(&self, end: &str) -> String {
        self.schema.clone() + &self.bare_beside(end)
    }

    /// The type of a column of the key.
    pub(super) fn key_type<'c>(&self, column: &'c Column) -> &'c str {
        let own = || self.dialect.key_type(column.column_type);
        column.of.sql_type.as_deref().unwrap_or_else(own)
    }

    /// The fields that are counted.
    pub(super) fn sums(&self) -> impl Iterator<Item = &Column<'a>> {
        self.fields.iter().filter(|column| column.is_sum())
    }

    /// `"id"`, or all columns of a composite key
    pub(crate) fn key_names(&self) -> String {
        each(&self.key, ", ", |_, column| column.name.clone())
    }

    /// `table."id"`
    pub(crate) fn key_of(&self, table: &str) -> String {
        each(&self.key, ", ", |_, c| format!("{table}.{}", c.name))
    }

    /// `table."id" = other."id"`
    pub(crate) fn key_is(&self, table: &str, other: &str) -> String {
        let is = |_, c: &Column| format!("{table}.{0} = {other}.{0}", c.name);
        each(&self.key, " AND ", is)
    }

    /// `table."id" = value1`, where `value` and a number from 1 on are a value of the key
    pub(crate) fn key_is_numbered(&self, table: &str, value: &str) -> String {
        let is = |i, c: &Column| format!("{table}.{} = {value}{i}", c.name);
        each(&self.key, " AND ", is)
    }

    /// `INSERT INTO shards ("id", "shard", "views")`, of `fields`; [`or_add`](Self::or_add) ends the statement.
    pub(crate) fn insert_into(&self, shards: &str, fields: &str) -> String {
        let (key, shard) = (self.key_names(), &self.shard);
        format!("INSERT INTO {shards} ({key}, {shard}, {fields})")
    }

    /// Adds to a shard that is there already: to each of the fields what was to be inserted, written once more.
    ///
    /// `ON CONFLICT ("id", "shard") DO UPDATE SET "views" = shards."views" + excluded."views"`, or MySQL's
    /// ``ON DUPLICATE KEY UPDATE `views` = shards.`views` + n``
    pub(crate) fn or_add(&self, shards: &str, fields: &[(&str, String)]) -> String {
        let by_target = self.dialect.names_conflict_target();
        let sums = fields.iter().map(|(field, n)| match by_target {
            true => format!("{field} = {shards}.{field} + excluded.{field}"),
            false => format!("{field} = {shards}.{field} + {n}"),
        });
        let sums = sums.collect::<Vec<_>>().join(", ");
        match by_target {
            true => format!(
                "ON CONFLICT ({}, {}) DO UPDATE SET {sums}",
                self.key_names(),
                self.shard
            ),
            false => format!("ON DUPLICATE KEY UPDATE {sums}"),
        }
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

/// `"name"`
pub(crate) fn quoted_on(dialect: Dialect, name: &str) -> String {
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

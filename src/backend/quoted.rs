//! Names and texts between quotes, and a sharded table with its shards table in texts of several statements.

use std::fmt;
use std::ops::Deref;

use diesel::result::QueryResult;

use super::dialect::Dialect;
use crate::error::Error;
use crate::model::{SHARD, ShardsColumn, TableName};

/// What removes and renames the shards of a row that is deleted or renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Integrity {
    /// A foreign key with `CASCADE`; on SQLite triggers too.
    #[default]
    ForeignKey,
    /// Triggers, on every database.
    Triggers,
    /// The application; on SQLite triggers.
    Application,
}

/// The names of a sharded table and of its shards table, as the database quotes them.
#[derive(Debug)]
pub struct Quoted<'a> {
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
    /// What keeps shards and parents together, or is meant to.
    pub(crate) integrity: Integrity,
}

/// A column of both tables. It is shown as its name, quoted.
#[derive(Debug)]
pub(crate) struct Column<'a> {
    quoted: String,
    of: &'a ShardsColumn,
}

impl fmt::Display for Column<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.quoted)
    }
}

impl Deref for Column<'_> {
    type Target = ShardsColumn;

    fn deref(&self) -> &ShardsColumn {
        self.of
    }
}

impl<'a> Quoted<'a> {
    /// `parent` is the text of the sharded table's name.
    pub(crate) fn of(
        dialect: Dialect,
        parent: String,
        shards_table: TableName<'a>,
        [key, fields]: [&'a [ShardsColumn]; 2],
        integrity: Integrity,
    ) -> QueryResult<Self> {
        let quoted = |name: &str| quoted_on(dialect, name);
        let column = |of: &'a ShardsColumn| Column {
            quoted: quoted(&of.name),
            of,
        };
        let mut parts = identifiers(&parent);
        let bare_parent = parts.pop().unwrap_or_default();
        if parts.last().map(String::as_str) != shards_table.schema() {
            return Err(Error::OtherSchema {
                table: shards_table.to_string(),
                other: [parts, vec![bare_parent]].concat().join("."),
            }
            .into());
        }
        let schema = shards_table.schema().map(|schema| quoted(schema) + ".");
        let schema = schema.unwrap_or_default();
        let bare_shards = quoted(shards_table.name());
        Ok(Quoted {
            dialect,
            shards: format!("{schema}{bare_shards}"),
            bare_parent: quoted(&bare_parent),
            bare_shards,
            shard: quoted(SHARD),
            key: key.iter().map(column).collect(),
            fields: fields.iter().map(column).collect(),
            shards_table,
            parent,
            schema,
            integrity,
        })
    }

    /// The name of what belongs to the shards table, neither quoted nor in its schema.
    pub(crate) fn name_beside(&self, end: &str) -> String {
        let name = format!("{}_{end}", self.shards_table.name());
        self.dialect.fitting_name(name)
    }

    /// The same, quoted. PostgreSQL's triggers are in no schema of their own.
    pub(crate) fn bare_beside(&self, end: &str) -> String {
        quoted_on(self.dialect, &self.name_beside(end))
    }

    /// The same, in its schema.
    pub(crate) fn beside(&self, end: &str) -> String {
        self.schema.clone() + &self.bare_beside(end)
    }

    /// The tables as triggers name them. SQLite's triggers reach no other database.
    pub(crate) fn in_triggers(&self) -> (&str, &str) {
        match self.dialect.names_bare_in_triggers() {
            true => (&self.bare_parent, &self.bare_shards),
            false => (&self.parent, &self.shards),
        }
    }

    /// A text as a literal that begins with the shards table's name.
    pub(crate) fn says(&self, text: &str) -> String {
        literal(self.dialect, &format!("{}{text}", self.shards_table))
    }

    /// The type of a column of the key.
    pub(crate) fn key_type<'c>(&self, column: &'c Column) -> &'c str {
        let own = || self.dialect.key_type(column.column_type);
        column.of.sql_type.as_deref().unwrap_or_else(own)
    }

    /// The fields that are counted.
    pub(crate) fn sums(&self) -> impl Iterator<Item = &Column<'a>> {
        self.fields.iter().filter(|column| column.is_sum())
    }

    /// `"id"`, or all columns of a composite key
    pub(crate) fn key_names(&self) -> String {
        each(&self.key, ", ", |_, c| c.to_string())
    }

    /// `table."id"`
    pub(crate) fn key_of(&self, table: &str) -> String {
        each(&self.key, ", ", |_, c| format!("{table}.{c}"))
    }

    /// `table."id" = other."id"`
    pub(crate) fn key_is(&self, table: &str, other: &str) -> String {
        let is = |_, c: &Column| format!("{table}.{c} = {other}.{c}");
        each(&self.key, " AND ", is)
    }

    /// `table."id" = value1`, where `value` and a number from 1 on are a value of the key
    pub(crate) fn key_is_numbered(&self, table: &str, value: &str) -> String {
        let is = |i, c: &Column| format!("{table}.{c} = {value}{i}");
        each(&self.key, " AND ", is)
    }

    /// `"id" = NEW."id"`, which gives shards a new key
    pub(crate) fn renamed(&self) -> String {
        each(&self.key, ", ", |_, c| format!("{c} = NEW.{c}"))
    }

    /// `INSERT INTO shards ("id", "shard", "views")`, of `fields`
    pub(crate) fn insert_into(&self, shards: &str, fields: &str) -> String {
        let (key, shard) = (self.key_names(), &self.shard);
        format!("INSERT INTO {shards} ({key}, {shard}, {fields})")
    }

    /// Adds amounts to fields of shards. `select` gives the key, the number of the shard and the amounts; the amounts appear again beside
    /// the fields, for MySQL.
    ///
    /// ```sql
    /// INSERT INTO shards ("id", "shard", "views") select
    /// ON CONFLICT ("id", "shard") DO UPDATE SET "views" = shards."views" + excluded."views"
    /// -- MySQL: ON DUPLICATE KEY UPDATE `views` = shards.`views` + n
    /// ```
    pub(crate) fn upsert(
        &self,
        shards: &str,
        fields: &[(String, String)],
        select: &str,
        indent: &str,
    ) -> String {
        let by_target = self.dialect.names_conflict_target();
        let names = joined(fields.iter().map(|(field, _)| field.clone()), ", ");
        let insert = self.insert_into(shards, &names);
        let sums = fields.iter().map(|(field, n)| match by_target {
            true => format!("{field} = {shards}.{field} + excluded.{field}"),
            false => format!("{field} = {shards}.{field} + {n}"),
        });
        let sums = joined(sums, ", ");
        let there = match by_target {
            true => format!(
                "CONFLICT ({}, {}) DO UPDATE SET",
                self.key_names(),
                self.shard
            ),
            false => "DUPLICATE KEY UPDATE".to_owned(),
        };
        format!("{insert}\n{indent}{select}\n{indent}ON {there} {sums}")
    }

    /// Statements as one text: on SQLite, a program that continues after an error leaves all of them undone.
    pub(crate) fn in_savepoint(&self, statements: &[String]) -> String {
        let [before, behind] = self.dialect.makes_one();
        format!("{before}{}{behind}", statements.join(";\n"))
    }
}

/// The texts that `text` makes of each column and its number, from 1 on.
pub(crate) fn each<'c, 'a: 'c>(
    columns: impl IntoIterator<Item = &'c Column<'a>>,
    separator: &str,
    text: impl Fn(usize, &Column) -> String,
) -> String {
    let columns = columns.into_iter().zip(1..);
    joined(columns.map(|(column, i)| text(i, column)), separator)
}

pub(crate) fn joined(texts: impl Iterator<Item = String>, separator: &str) -> String {
    texts.collect::<Vec<_>>().join(separator)
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

/// A name between quotes.
pub fn quoted_on(dialect: Dialect, name: &str) -> String {
    let quote = dialect.quote();
    format!("{quote}{}{quote}", name.replace(quote, &quote.repeat(2)))
}

/// The length of the piece that this SQL begins with and that is copied whole: a text or name between quotes, or one character.
pub(crate) fn word(sql: &str, dialect: Dialect) -> usize {
    let mut chars = sql.chars().peekable();
    let quote = chars.next().unwrap_or_default();
    let mut length = quote.len_utf8();
    if !matches!(quote, '"' | '`' | '\'') {
        return length;
    }
    let escapes = quote != '`' && dialect.backslash_escapes();
    while let Some(c) = chars.next() {
        length += c.len_utf8();
        if c == quote && chars.peek() != Some(&quote) {
            break;
        }
        // A doubled quote ends nothing.
        if c == quote || escapes && c == '\\' {
            length += chars.next().map_or(0, char::len_utf8);
        }
    }
    length
}

/// `'text'`, in every mode of the database.
pub(crate) fn literal(dialect: Dialect, text: &str) -> String {
    match text.contains('\\') {
        true => dialect.literal_with_backslash(text),
        false => plain_literal(text),
    }
}

/// The same where a backslash is a character like any other.
pub(super) fn plain_literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
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
    fn literals_are_the_same_in_every_mode() {
        assert_eq!(literal(Dialect::Postgres, "it's"), "'it''s'");
        assert_eq!(literal(Dialect::Postgres, r"it\'s"), r"E'it\\''s'");
        assert_eq!(literal(Dialect::Mysql, "it's"), "'it''s'");
        assert_eq!(literal(Dialect::Mysql, r"a\"), "_utf8mb4 x'615C'");
        assert_eq!(literal(Dialect::Sqlite, r"it\'s"), r"'it\''s'");
    }
}

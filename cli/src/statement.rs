//! Statements over tables that are known at run time: names are quoted as the database has it, values are bound.

use diesel::connection::LoadConnection;
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::Error as DieselError;
use diesel::row::Field;
use diesel::sql_types::{BigInt, Binary, Text, Untyped};
use diesel_sharded::backend::Dialect;
use diesel_sharded::model::TableName;

use crate::connection::{AnyConnection, Backend};

/// A statement, put together from the left to the right.
#[derive(Debug, Default)]
#[must_use]
pub struct Statement(Vec<Part>);

#[derive(Debug)]
enum Part {
    Sql(String),
    Name(String),
    Bind(Value),
}

/// A value to bind.
#[derive(Debug, Clone)]
pub enum Value {
    Integer(i64),
    Text(String),
    Bytes(Vec<u8>),
}

impl Statement {
    /// Text of the tool's own, or the trusted SQL of whoever runs it.
    pub fn sql(mut self, sql: &str) -> Self {
        self.0.push(Part::Sql(sql.to_owned()));
        self
    }

    /// `"name"`
    pub fn name(mut self, name: &str) -> Self {
        self.0.push(Part::Name(name.to_owned()));
        self
    }

    /// `"table"`, or `"schema"."table"`
    pub fn table(self, table: TableName<'_>) -> Self {
        let schema = table.schema().into_iter();
        self.each(".", schema.chain([table.name()]), Self::name)
    }

    /// `"table"."column"`
    pub fn column(self, table: TableName<'_>, column: &str) -> Self {
        self.table(table).sql(".").name(column)
    }

    /// `$n`
    pub fn bind(mut self, value: Value) -> Self {
        self.0.push(Part::Bind(value));
        self
    }

    /// Goes on with another one.
    pub fn then(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Adds what `push` adds for each of `items`, with `separator` in between.
    pub fn each<T>(
        self,
        separator: &str,
        items: impl IntoIterator<Item = T>,
        push: impl Fn(Self, T) -> Self,
    ) -> Self {
        let mut statement = self;
        for (i, item) in items.into_iter().enumerate() {
            if i > 0 {
                statement = statement.sql(separator);
            }
            statement = push(statement, item);
        }
        statement
    }

    /// Runs it, and reads its rows.
    pub fn rows(self, conn: &mut AnyConnection) -> QueryResult<Vec<Row>> {
        conn.load(self)?
            .map(|row| Row::build_from_row(&row?).map_err(DieselError::DeserializationError))
            .collect()
    }
}

impl QueryFragment<Backend> for Statement {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Backend>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared(); // a text of its own for each table
        for part in &self.0 {
            match part {
                Part::Sql(sql) => out.push_sql(sql),
                Part::Name(name) => out.push_identifier(name)?,
                Part::Bind(Value::Integer(n)) => out.push_bind_param::<BigInt, i64>(n)?,
                Part::Bind(Value::Text(text)) => {
                    out.push_bind_param::<Text, str>(text.as_str())?;
                }
                Part::Bind(Value::Bytes(bytes)) => {
                    out.push_bind_param::<Binary, [u8]>(bytes.as_slice())?;
                }
            }
        }
        Ok(())
    }
}

impl Query for Statement {
    type SqlType = Untyped;
}

impl QueryId for Statement {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl AnyConnection {
    /// The rows that the tool's own text reads, with a `?` for each of the texts to bind.
    pub fn rows(&mut self, sql: &str, texts: &[&str]) -> QueryResult<Vec<Row>> {
        let mut parts = sql.split('?');
        let first = Statement::default().sql(parts.next().unwrap_or_default());
        let bound = parts.zip(texts).fold(first, |statement, (sql, text)| {
            statement.bind(Value::Text((*text).to_owned())).sql(sql)
        });
        bound.rows(self)
    }

    /// The texts in the first column of such rows, without NULLs.
    pub fn texts(&mut self, sql: &str, texts: &[&str]) -> QueryResult<Vec<String>> {
        let rows = self.rows(sql, texts)?;
        let first = rows.iter().filter_map(|row| row.get(0));
        Ok(first.map(str::to_owned).collect())
    }

    /// The text in the first column of the first of such rows.
    pub fn text(&mut self, sql: &str, texts: &[&str]) -> QueryResult<Option<String>> {
        Ok(self.texts(sql, texts)?.into_iter().next())
    }
}

/// A row of texts; the statements cast whatever they select.
#[derive(Debug)]
pub struct Row(Vec<Option<String>>);

impl Row {
    pub fn columns(&self) -> usize {
        self.0.len()
    }

    pub fn get(&self, column: usize) -> Option<&str> {
        self.0.get(column)?.as_deref()
    }

    /// A value that is not NULL.
    pub fn text(&self, column: usize) -> QueryResult<&str> {
        self.get(column).ok_or_else(|| {
            let message = format!("column {} of a row is NULL or missing", column + 1);
            DieselError::DeserializationError(message.into())
        })
    }

    /// A value that is not NULL, read as a number or the like.
    pub fn parse<T: std::str::FromStr>(&self, column: usize) -> QueryResult<T> {
        let text = self.text(column)?;
        text.parse().map_err(|_| {
            let message = format!("`{text}` is not what column {} should hold", column + 1);
            DieselError::DeserializationError(message.into())
        })
    }
}

impl FromSqlRow<Untyped, Backend> for Row {
    fn build_from_row<'a>(row: &impl diesel::row::Row<'a, Backend>) -> deserialize::Result<Self> {
        (0..row.field_count())
            .map(|i| {
                let field = row.get(i).ok_or("a row is shorter than it says")?;
                let text = <String as FromSql<Text, Backend>>::from_nullable_sql(field.value());
                match field.is_null() {
                    true => Ok(None),
                    false => text.map(Some),
                }
            })
            .collect::<deserialize::Result<_>>()
            .map(Row)
    }
}

/// A name between quotes, for SQL that is shown or sent as a text.
pub fn quoted(dialect: Dialect, name: &str) -> String {
    match dialect {
        Dialect::Mysql => format!("`{}`", name.replace('`', "``")),
        _ => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// A table's name between quotes, behind its schema's.
pub fn quoted_table(dialect: Dialect, table: TableName<'_>) -> String {
    let names = table.schema().into_iter().chain([table.name()]);
    let names: Vec<_> = names.map(|name| quoted(dialect, name)).collect();
    names.join(".")
}

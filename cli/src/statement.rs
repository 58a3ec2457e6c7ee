//! Statements about tables that are known only at run time. Names are quoted as the database requires, and values are bound. Also the
//! tokens of statements that others wrote.

use std::str::FromStr;

use diesel::connection::LoadConnection;
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::Error as DieselError;
use diesel::row::Field;
use diesel::sql_types::{BigInt, Binary, Text, Untyped};
use diesel_sharded::backend::Dialect;
pub use diesel_sharded::described::quoted;
use diesel_sharded::model::TableName;

use crate::connection::{AnyConnection, Backend};
use crate::output::joined;

/// A statement or a piece of one, put together by `sql!`.
#[derive(Debug, Default)]
#[must_use]
pub struct Statement(Vec<Part>);

#[derive(Debug)]
pub enum Part {
    /// The tool's own text with quoted names, or the trusted SQL of its user.
    Sql(String),
    Integer(i64),
    Text(String),
    Bytes(Vec<u8>),
}

impl Part {
    pub fn text(text: &str) -> Self {
        Part::Text(text.to_owned())
    }
}

/// A statement made of texts, values to bind and other statements, some of which may be absent.
macro_rules! sql {
    ($($part:expr),+ $(,)?) => {
        $crate::statement::Statement::joined("", [$($crate::statement::Statement::from($part)),+])
    };
}

pub(crate) use sql;

impl Statement {
    /// Joins statements with `separator` in between.
    pub fn joined(separator: &str, statements: impl IntoIterator<Item = Self>) -> Self {
        let mut joined = vec![];
        for (i, statement) in statements.into_iter().enumerate() {
            if i > 0 {
                joined.push(Part::Sql(separator.to_owned()));
            }
            joined.extend(statement.0);
        }
        Statement(joined)
    }

    /// Runs the statement and reads its rows.
    pub fn rows(self, conn: &mut AnyConnection) -> QueryResult<Vec<Row>> {
        conn.load(self)?
            .map(|row| Row::build_from_row(&row?).map_err(DieselError::DeserializationError))
            .collect()
    }

    /// Runs the statement and reads its only row.
    pub fn row(self, conn: &mut AnyConnection) -> QueryResult<Row> {
        self.rows(conn)?.pop().ok_or(DieselError::NotFound)
    }

    /// Runs the statement and reads the number in the first column of its only row.
    pub fn number(self, conn: &mut AnyConnection) -> QueryResult<u64> {
        self.row(conn)?.parse(0)
    }
}

impl From<Part> for Statement {
    fn from(part: Part) -> Self {
        Statement(vec![part])
    }
}

impl From<String> for Statement {
    fn from(sql: String) -> Self {
        Part::Sql(sql).into()
    }
}

impl From<&str> for Statement {
    fn from(sql: &str) -> Self {
        sql.to_owned().into()
    }
}

impl<P: Into<Statement>> From<Option<P>> for Statement {
    fn from(part: Option<P>) -> Self {
        part.map(P::into).unwrap_or_default()
    }
}

impl QueryFragment<Backend> for Statement {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Backend>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared(); // each table has another text
        for part in &self.0 {
            match part {
                Part::Sql(sql) => out.push_sql(sql),
                Part::Integer(n) => out.push_bind_param::<BigInt, i64>(n)?,
                Part::Text(text) => out.push_bind_param::<Text, str>(text.as_str())?,
                Part::Bytes(bytes) => out.push_bind_param::<Binary, [u8]>(bytes.as_slice())?,
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
    /// Runs the tool's own SQL, with a `?` for each of the texts to bind, and reads its rows.
    pub fn rows(&mut self, sql: &str, texts: &[&str]) -> QueryResult<Vec<Row>> {
        let mut parts = sql.split('?');
        let first = parts.next().unwrap_or_default();
        let bound = parts
            .zip(texts)
            .map(|(sql, text)| sql!(Part::text(text), sql));
        sql!(first, Statement::joined("", bound)).rows(self)
    }

    /// Like [`rows`](Self::rows), but reads the texts in the first column, without NULLs.
    pub fn texts(&mut self, sql: &str, texts: &[&str]) -> QueryResult<Vec<String>> {
        let rows = self.rows(sql, texts)?;
        let first = rows.iter().filter_map(|row| row.get(0));
        Ok(first.map(str::to_owned).collect())
    }

    /// MySQL's database of this session, or an empty text.
    pub fn database(&mut self) -> QueryResult<String> {
        let database = self.text("SELECT CAST(DATABASE() AS CHAR)", &[])?;
        Ok(database.unwrap_or_default())
    }

    /// Like [`rows`](Self::rows), but reads the first text in the first column.
    pub fn text(&mut self, sql: &str, texts: &[&str]) -> QueryResult<Option<String>> {
        Ok(self.texts(sql, texts)?.into_iter().next())
    }
}

/// A row of texts: the statements cast everything that they select.
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
        let value = self.get(column);
        value
            .ok_or_else(|| unreadable(format!("column {} of a row is NULL or missing", column + 1)))
    }

    /// A value that is not NULL, parsed from its text.
    pub fn parse<T: FromStr>(&self, column: usize) -> QueryResult<T> {
        let text = self.text(column)?;
        let parsed = text.parse();
        parsed.map_err(|_| {
            unreadable(format!(
                "`{text}` is not what column {} should hold",
                column + 1
            ))
        })
    }
}

pub fn unreadable(message: String) -> DieselError {
    DieselError::DeserializationError(message.into())
}

impl FromSqlRow<Untyped, Backend> for Row {
    fn build_from_row<'a>(row: &impl diesel::row::Row<'a, Backend>) -> deserialize::Result<Self> {
        let fields = (0..row.field_count()).map(|i| {
            let field = row.get(i).ok_or("a row is shorter than it says")?;
            match field.is_null() {
                true => Ok(None),
                false => {
                    <String as FromSql<Text, Backend>>::from_nullable_sql(field.value()).map(Some)
                }
            }
        });
        fields.collect::<deserialize::Result<_>>().map(Row)
    }
}

/// A table's quoted name, with its schema.
pub fn quoted_table(dialect: Dialect, table: TableName<'_>) -> String {
    let names = table.schema().into_iter().chain([table.name()]);
    joined(".", names.map(|name| quoted(dialect, name)))
}

/// A word, a sign or a quoted text of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    pub quoted: bool,
}

impl Token {
    pub fn is(&self, word: &str) -> bool {
        !self.quoted && self.text.eq_ignore_ascii_case(word)
    }

    pub fn is_any(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.is(word))
    }

    pub fn names(&self, columns: &[&str]) -> bool {
        let mut columns = columns.iter();
        columns.any(|column| self.text.eq_ignore_ascii_case(column))
    }
}

pub fn tokens(sql: &str) -> Vec<Token> {
    let mut tokens = vec![];
    let mut rest = sql.chars().peekable();
    while let Some(c) = rest.next() {
        let mut text = String::new();
        let end = match c {
            '[' => Some(']'),
            '"' | '`' | '\'' => Some(c),
            _ => None,
        };
        if let Some(end) = end {
            while let Some(c) = rest.next() {
                match (c == end, rest.peek() == Some(&end) && end != ']') {
                    (true, false) => break,
                    (true, true) => text.extend(rest.next()),
                    _ => text.push(c),
                }
            }
        } else if c == '-' && rest.peek() == Some(&'-') {
            rest.by_ref().find(|c| *c == '\n');
            continue;
        } else if c == '/' && rest.peek() == Some(&'*') {
            let mut last = ' ';
            rest.next();
            rest.by_ref()
                .find(|c| std::mem::replace(&mut last, *c) == '*' && *c == '/');
            continue;
        } else if c.is_whitespace() {
            continue;
        } else {
            let in_word = |c: &char| c.is_alphanumeric() || *c == '_' || *c == '$';
            text.push(c);
            while in_word(&c) && rest.peek().is_some_and(in_word) {
                text.extend(rest.next());
            }
        }
        tokens.push(Token {
            text,
            quoted: end.is_some(),
        });
    }
    tokens
}

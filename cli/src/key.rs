//! Keys of rows, of any type: read, bound, shown, and parsed from the command line.

use std::fmt;

use diesel::deserialize::{self, FromSqlRow};
use diesel::prelude::*;
use diesel::sql_types::Untyped;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{Names, Parents, declared_type};
use diesel_sharded::model::{ColumnType, ShardsColumn};
use serde::Serialize;
use serde_json::Value as JsonValue;

use crate::connection::{AnyConnection, Backend, within};
use crate::error::Error;
use crate::live::is_integer;
use crate::output::joined;
use crate::sharded::{COUNTERS, Sharded};
use crate::shell;
use crate::statement::{Part, Row, Statement, quoted, quoted_table, sql};

/// The key of a row: a text for each of its columns. Bytes are hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(Vec<String>);

impl Key {
    /// Reads the key from the first `columns` of a row that [`Sharded::key_as_texts`] selects.
    pub fn read(columns: usize, row: &Row) -> QueryResult<Self> {
        let texts = (0..columns).map(|i| row.text(i).map(str::to_owned));
        texts.collect::<QueryResult<_>>().map(Key)
    }

    /// Parses a key in the form of [`shown`](Self::shown), one argument for each column.
    pub fn parse(sharded: &Sharded, arguments: &[String]) -> Result<Self, Error> {
        if arguments.len() != sharded.key.len() {
            let (table, columns) = (sharded.table(), sharded.key.len());
            return Err(Error::Refused(format!(
                "the key of `{table}` has {columns} columns: give --after {columns} times, in their order"
            )));
        }
        let columns = sharded.key.iter().zip(arguments);
        let texts = columns.map(|(column, argument)| {
            let is_value = match column.column_type() {
                ColumnType::Binary if is_utf8(sharded) => return Ok(hex(argument.as_bytes())),
                ColumnType::Binary => bytes_of_hex(argument).is_some(),
                ColumnType::UnsignedBigInt => argument.parse::<u64>().is_ok(),
                of => !is_integer(of) || argument.parse::<i64>().is_ok(),
            };
            is_value.then(|| argument.clone()).ok_or_else(|| {
                Error::Refused(format!(
                    "`{argument}` is no key of the type of `{}` (bytes are written in hexadecimal)",
                    column.name()
                ))
            })
        });
        texts.collect::<Result<_, _>>().map(Key)
    }

    /// Each column's value as text.
    pub fn shown(&self, sharded: &Sharded) -> Vec<String> {
        let columns = sharded.key.iter().zip(&self.0);
        columns
            .map(|(column, text)| match column.column_type() {
                ColumnType::Binary if is_utf8(sharded) => {
                    String::from_utf8_lossy(&bytes_of_hex(text).unwrap_or_default()).into_owned()
                }
                ColumnType::Binary => text.to_lowercase(),
                _ => text.clone(),
            })
            .collect()
    }

    /// Each column's value for reports, integers as numbers.
    pub fn values(&self, sharded: &Sharded) -> KeyValues {
        let columns = sharded.key.iter().zip(self.shown(sharded));
        let values = columns.map(|(column, text)| {
            let is_number = is_integer(column.column_type());
            match (is_number, text.parse::<i64>(), text.parse::<u64>()) {
                (true, Ok(n), _) => n.into(),
                (true, _, Ok(n)) => n.into(),
                _ => text.into(),
            }
        });
        KeyValues(values.collect())
    }

    /// The error of a key that the query for the next keys has returned again.
    pub fn no_way_behind(&self, sharded: &Sharded) -> Error {
        Error::Refused(format!(
            "the key {} of `{}` does not come back as it is read: its value is of another type than its column, so that no row behind it can \
             be found",
            self.values(sharded),
            sharded.table()
        ))
    }

    /// The options that continue after this key: `--after=7`.
    pub fn after_arguments(&self, sharded: &Sharded) -> String {
        let options = self.shown(sharded).into_iter();
        let options = options.map(|value| format!("--after={}", shell::quoted(&value)));
        joined(" ", options)
    }
}

/// A key in a report, as JSON or as text: `7`, or `1, 2026-01-01` for a composite key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyValues(Vec<JsonValue>);

impl fmt::Display for KeyValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = self.0.iter().map(|value| match value {
            JsonValue::String(text) => text.clone(),
            number => number.to_string(),
        });
        f.write_str(&joined(", ", texts))
    }
}

impl FromSqlRow<Untyped, Backend> for Key {
    fn build_from_row<'a>(row: &impl diesel::row::Row<'a, Backend>) -> deserialize::Result<Self> {
        let row = Row::build_from_row(row)?;
        Ok(Key::read(row.columns(), &row)?)
    }
}

/// Whether the key's bytes are shown as text: the names of counters are.
fn is_utf8(sharded: &Sharded) -> bool {
    sharded.table().as_str() == COUNTERS
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes that databases and the command line write as `00ff`.
pub fn bytes_of_hex(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        let digits = pair.len() == 2 && pair.chars().all(|c| c.is_ascii_hexdigit());
        digits.then(|| u8::from_str_radix(pair, 16).ok())?
    });
    pairs.collect()
}

/// The expression cast to text.
pub fn as_text(dialect: Dialect, expression: &str) -> String {
    match dialect {
        Dialect::Mysql => format!("CAST({expression} AS CHAR)"),
        _ => format!("CAST({expression} AS TEXT)"),
    }
}

/// A sharded table in the tool's statements: its quoted names and its keys.
impl Sharded {
    /// `"videos"`
    pub fn parent(&self) -> String {
        quoted_table(self.dialect, self.table())
    }

    /// `"videos_shards"`
    pub fn shards(&self) -> String {
        quoted_table(self.dialect, self.shards_table())
    }

    /// `"analytics"."by_views"`, another object of its schema
    pub fn beside(&self, name: &str) -> String {
        quoted_table(self.dialect, self.named(&self.live.full(name)))
    }

    /// `"videos"."views"`
    pub fn column(&self, table: &str, name: &str) -> String {
        format!("{table}.{}", quoted(self.dialect, name))
    }

    fn each_key(&self, separator: &str, push: impl Fn(&ShardsColumn) -> String) -> String {
        joined(separator, self.key.iter().map(push))
    }

    /// `"videos"."id"`, or all columns of a composite key
    pub fn key_of(&self, table: &str) -> String {
        self.each_key(", ", |column| self.column(table, column.name()))
    }

    /// The key of a table's rows as text.
    pub fn key_as_texts(&self, table: &str) -> String {
        self.each_key(", ", |column| {
            let (before, behind) = self.dialect.key_as_text(column.column_type());
            format!("{before}{}{behind}", self.column(table, column.name()))
        })
    }

    /// `"videos_shards"."id" = "videos"."id"`
    pub fn same_key(&self, one: &str, other: &str) -> String {
        self.each_key(" AND ", |column| {
            let of = |table| self.column(table, column.name());
            format!("{} = {}", of(one), of(other))
        })
    }

    /// `("videos"."id" > $1)`, in the key's order. With the `order` `<=` it is the end of a range.
    ///
    /// For two columns `"a" >= $1 AND (("a" > $2) OR ("a" = $3 AND "b" > $4))`. PostgreSQL and SQLite use the index for the first
    /// condition, and not for the second.
    pub fn is_beyond(&self, table: &str, order: &str, key: &Key) -> Statement {
        let strictly = order.trim_end_matches('=');
        let columns: Vec<_> = self.key.iter().zip(&key.0).collect();
        let compared = |at: usize, order: &str| self.compared(table, order, columns[at]);
        let alternatives = (0..columns.len()).map(|at| {
            let is_last = at + 1 == columns.len();
            let order = if is_last { order } else { strictly };
            let same = (0..at).map(|before| compared(before, "="));
            let all = Statement::joined(" AND ", same.chain([compared(at, order)]));
            sql!("(", all, ")")
        });
        let or_equal = format!("{strictly}=");
        let first = (columns.len() > 1).then(|| sql!(compared(0, &or_equal), " AND "));
        sql!(first, "(", Statement::joined(" OR ", alternatives), ")")
    }

    /// `"videos"."id" < $1`, of a column and its value
    fn compared(&self, table: &str, order: &str, of: (&ShardsColumn, &String)) -> Statement {
        let (column, value) = of;
        let name = self.column(table, column.name());
        sql!(format!("{name} {order} "), self.bind(column, value))
    }

    /// `"videos"."id" > $1`
    pub fn is_behind(&self, table: &str, key: &Key) -> Statement {
        self.is_beyond(table, ">", key)
    }

    /// Binds the value of the key's first column, if both are integers: SQLite's columns accept other values too. A cast tells SQLite that
    /// it is an integer, so that it is compared with text in the same way as the key's column.
    pub fn first_integer(&self, key: &Key) -> Option<Statement> {
        let (column, value) = self.key.first().zip(key.0.first())?;
        column.column_type().range()?;
        value.parse::<i128>().ok()?;
        let value = self.bind(column, value);
        Some(match self.dialect {
            Dialect::Sqlite => sql!("CAST(", value, " AS INTEGER)"),
            _ => value,
        })
    }

    fn bind(&self, column: &ShardsColumn, text: &str) -> Statement {
        let as_text = Part::text(text);
        match (column.column_type(), self.dialect) {
            (ColumnType::Binary, _) => Part::Bytes(bytes_of_hex(text).unwrap_or_default()).into(),
            (ColumnType::Text, _) => as_text.into(),
            (of, Dialect::Postgres) if !is_integer(of) => {
                sql!(
                    "CAST(",
                    as_text,
                    format!(" AS {})", declared_type(self.dialect, column))
                )
            }
            (ColumnType::Date, Dialect::Mysql) => sql!("CAST(", as_text, " AS DATE)"),
            (ColumnType::Timestamp, Dialect::Mysql) => sql!("CAST(", as_text, " AS DATETIME(6))"),
            (ColumnType::Date | ColumnType::Timestamp | ColumnType::Timestamptz, _) => {
                as_text.into()
            }
            (_, dialect) => match text.parse() {
                Ok(n) => Part::Integer(n).into(),
                // MySQL 9 treats the parameter of a cast to an integer as signed, and cuts it off.
                Err(_) if dialect == Dialect::Mysql => {
                    sql!("CAST(CAST(", as_text, " AS CHAR) AS UNSIGNED)")
                }
                Err(_) => as_text.into(), // SQLite's columns accept values that are not integers
            },
        }
    }

    /// Does `work` while plain names refer to the table's schema, if the table was named with its schema.
    pub fn within<T>(
        &self,
        conn: &mut AnyConnection,
        work: impl FnOnce(&mut AnyConnection) -> QueryResult<T>,
    ) -> QueryResult<T> {
        within(self.live.schema(), conn, work)
    }
}

impl Parents<Backend> for &Sharded {
    type Key = Key;
    type KeySql = Untyped;
    type KeyIs = Statement;
    type KeyAfter = Statement;

    fn names(&self) -> Names<'_, Backend> {
        Sharded::names(self)
    }

    fn is(&self, key: &Key) -> Statement {
        let columns = self.key.iter().zip(&key.0);
        let same = columns.map(|of| self.compared(&self.parent(), "=", of));
        sql!("(", Statement::joined(" AND ", same), ")")
    }

    fn is_after(&self, key: &Key) -> Statement {
        self.is_behind(&self.parent(), key)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use diesel_sharded::described::column;

    use super::*;

    #[test]
    fn keys_come_back_from_the_command_line() {
        let of_types = |types: &[(&str, ColumnType)]| {
            let columns = types.iter();
            let columns = columns.map(|(name, of)| column((*name).to_owned(), *of, None));
            columns.collect()
        };
        let (big, binary) = (ColumnType::BigInt, ColumnType::Binary);
        let key = of_types(&[("a", big), ("b", binary), ("c", ColumnType::Text)]);
        let fields = of_types(&[("n", big)]);
        let sqlite = (Dialect::Sqlite, &Arc::default());
        let sharded = Sharded::new(sqlite, ["t", "t_shards"], key, fields);
        let arguments = ["-7", "00ff", "it's, so"].map(str::to_owned);
        let key = Key::parse(&sharded, &arguments).unwrap();
        assert_eq!(key.shown(&sharded), arguments);
        assert_eq!(
            key.after_arguments(&sharded),
            r"--after=-7 --after=00ff --after='it'\''s, so'"
        );
        assert_eq!(
            key.values(&sharded).0,
            [JsonValue::from(-7), "00ff".into(), "it's, so".into()]
        );
        assert!(Key::parse(&sharded, &arguments[..2]).is_err());
        let no_hex = ["1", "0", ""].map(str::to_owned);
        assert!(Key::parse(&sharded, &no_hex).is_err());
    }
}

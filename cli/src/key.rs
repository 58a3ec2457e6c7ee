//! Keys of rows, whatever their types: read, bound, shown and given on the command line.

use std::fmt::Write as _;

use diesel::deserialize::{self, FromSqlRow};
use diesel::prelude::*;
use diesel::sql_types::Untyped;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{DescribedKeys, DescribedTable, key_as_text};
use diesel_sharded::model::{ColumnType, ShardsColumn, TableName};
use serde_json::Value as JsonValue;

use crate::connection::Backend;
use crate::error::Error;
use crate::sharded::{COUNTERS, is_integer};
use crate::shell;
use crate::statement::{Row, Statement, Value};

/// The key of a row: a text for each of its columns, bytes in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(Vec<String>);

impl Key {
    /// From the first `columns` of a row that [`Keyed::select_key`] selects.
    pub fn read(columns: usize, row: &Row) -> QueryResult<Self> {
        let texts = (0..columns).map(|i| row.text(i).map(str::to_owned));
        texts.collect::<QueryResult<_>>().map(Key)
    }

    /// As [`shown`](Self::shown) on the command line, one argument for each column.
    pub fn parse(sharded: &DescribedTable, arguments: &[String]) -> Result<Self, Error> {
        if arguments.len() != sharded.key().len() {
            let (table, columns) = (sharded.table(), sharded.key().len());
            return Err(Error::Refused(format!(
                "the key of `{table}` has {columns} columns: give --after {columns} times, in their order"
            )));
        }
        let columns = sharded.key().iter().zip(arguments);
        let texts = columns.map(|(column, argument)| {
            let is_value = match column.column_type() {
                ColumnType::Binary if is_utf8(sharded) => return Ok(hex(argument.as_bytes())),
                ColumnType::Binary => bytes_of_hex(argument).is_some(),
                ColumnType::Text | ColumnType::Date | ColumnType::Uuid => true,
                ColumnType::UnsignedBigInt => argument.parse::<u64>().is_ok(),
                _ => argument.parse::<i64>().is_ok(),
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
    pub fn shown(&self, sharded: &DescribedTable) -> Vec<String> {
        let columns = sharded.key().iter().zip(&self.0);
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

    /// Each column's value as JSON: integers as numbers.
    pub fn json(&self, sharded: &DescribedTable) -> Vec<JsonValue> {
        let columns = sharded.key().iter().zip(self.shown(sharded));
        let values = columns.map(|(column, text)| {
            let is_number = is_integer(column.column_type());
            match (is_number, text.parse::<i64>(), text.parse::<u64>()) {
                (true, Ok(n), _) => n.into(),
                (true, _, Ok(n)) => n.into(),
                _ => text.into(),
            }
        });
        values.collect()
    }

    /// `7`, or `1, 2026-01-01` of a composite key.
    pub fn display(&self, sharded: &DescribedTable) -> String {
        self.shown(sharded).join(", ")
    }

    /// The error of a key after which the same one comes again.
    pub fn no_way_behind(&self, sharded: &DescribedTable) -> Error {
        Error::Refused(format!(
            "the key {} of `{}` does not come back as it is read: its value is of another type than its column, so that no row behind it can \
             be found",
            self.display(sharded),
            sharded.table()
        ))
    }

    /// The arguments that go on after this key: ` --after 7`.
    pub fn after_arguments(&self, sharded: &DescribedTable) -> String {
        let shown = self.shown(sharded);
        shown.iter().fold(String::new(), |arguments, value| {
            arguments + " " + &shell::option("after", value)
        })
    }
}

impl FromSqlRow<Untyped, Backend> for Key {
    fn build_from_row<'a>(row: &impl diesel::row::Row<'a, Backend>) -> deserialize::Result<Self> {
        let row = Row::build_from_row(row)?;
        Ok(Key::read(row.columns(), &row)?)
    }
}

/// The names of counters are bytes that are shown as text.
fn is_utf8(sharded: &DescribedTable) -> bool {
    sharded.table().as_str() == COUNTERS
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}"); // to a String it cannot fail
        hex
    })
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

/// ` AS TEXT)`, which ends a cast to text.
pub fn as_text(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Mysql => " AS CHAR)",
        _ => " AS TEXT)",
    }
}

/// How the tool's statements name the keys of one sharded table.
#[derive(Clone, Copy)]
pub struct Keyed<'a> {
    pub sharded: &'a DescribedTable,
    pub dialect: Dialect,
}

impl Keyed<'_> {
    /// The key of `table`'s rows, as texts.
    pub fn select_key(self, statement: Statement, table: TableName<'_>) -> Statement {
        statement.each(", ", self.sharded.key(), |statement, column| {
            let (before, behind) = key_as_text(self.dialect, column.column_type());
            statement
                .sql(before)
                .column(table, column.name())
                .sql(behind)
        })
    }

    /// `"videos"."id"`, or all columns of a composite key
    pub fn key(self, statement: Statement, table: TableName<'_>) -> Statement {
        statement.each(", ", self.sharded.key(), |statement, column| {
            statement.column(table, column.name())
        })
    }

    /// `"videos"."id" > $1`, in the key's order; `or_equal` for the last of a range, with `order` `<`
    ///
    /// For two columns `"a" >= $1 AND (("a" > $2) OR ("a" = $3 AND "b" > $4))`. PostgreSQL and SQLite find the first condition in
    /// the index, and not the second.
    pub fn is_beyond(
        self,
        statement: Statement,
        table: TableName<'_>,
        order: &str,
        or_equal: bool,
        key: &Key,
    ) -> Statement {
        let columns: Vec<_> = self.sharded.key().iter().zip(&key.0).collect();
        let last = columns.len();
        let statement = match columns[..] {
            [(column, value), _, ..] => {
                let statement = statement.column(table, column.name()).sql(order).sql("= ");
                self.bind(statement, column, value).sql(" AND ")
            }
            _ => statement,
        };
        statement
            .sql("(")
            .each(" OR ", 0..last, |statement, at| {
                let statement = statement.sql("(");
                statement
                    .each(" AND ", 0..=at, |statement, i| {
                        let (column, value) = columns[i];
                        let statement = statement.column(table, column.name()).sql(match i == at {
                            true => order,
                            false => "=",
                        });
                        let statement = match i == at && or_equal && at + 1 == last {
                            true => statement.sql("= "),
                            false => statement.sql(" "),
                        };
                        self.bind(statement, column, value)
                    })
                    .sql(")")
            })
            .sql(")")
    }

    /// The value of the key's first column, bound, if it is an integer: SQLite's columns take what is none. To SQLite a cast says that
    /// it is one, so that it is compared with a text as the column of the key is.
    pub fn first_integer(self, key: &Key) -> Option<Statement> {
        let (column, value) = self.sharded.key().first().zip(key.0.first())?;
        value.parse::<i128>().ok()?;
        Some(match self.dialect {
            Dialect::Sqlite => {
                let cast = Statement::default().sql("CAST(");
                self.bind(cast, column, value).sql(" AS INTEGER)")
            }
            _ => self.bind(Statement::default(), column, value),
        })
    }

    fn bind(self, statement: Statement, column: &ShardsColumn, text: &str) -> Statement {
        let as_text = Value::Text(text.to_owned());
        match (column.column_type(), self.dialect) {
            (ColumnType::Binary, _) => {
                statement.bind(Value::Bytes(bytes_of_hex(text).unwrap_or_default()))
            }
            (ColumnType::Uuid, Dialect::Postgres) => {
                statement.sql("CAST(").bind(as_text).sql(" AS UUID)")
            }
            (ColumnType::Date, Dialect::Postgres | Dialect::Mysql) => {
                statement.sql("CAST(").bind(as_text).sql(" AS DATE)")
            }
            (ColumnType::Text | ColumnType::Date | ColumnType::Uuid, _) => statement.bind(as_text),
            (_, dialect) => match text.parse() {
                Ok(n) => statement.bind(Value::Integer(n)),
                // MySQL 9 takes the parameter of a cast to an integer for a signed one, and cuts it.
                Err(_) if dialect == Dialect::Mysql => statement
                    .sql("CAST(CAST(")
                    .bind(as_text)
                    .sql(" AS CHAR) AS UNSIGNED)"),
                Err(_) => statement.bind(as_text), // SQLite's columns take what is no integer
            },
        }
    }
}

impl DescribedKeys<Backend> for Keyed<'_> {
    type Key = Key;
    type Condition = Statement;

    fn table(&self) -> &DescribedTable {
        self.sharded
    }

    fn is(&self, key: &Key) -> Statement {
        let columns = self.sharded.key().iter().zip(&key.0);
        Statement::default()
            .sql("(")
            .each(" AND ", columns, |statement, (column, text)| {
                let statement = statement.column(self.sharded.table(), column.name());
                self.bind(statement.sql(" = "), column, text)
            })
            .sql(")")
    }

    fn is_after(&self, key: &Key) -> Statement {
        self.is_beyond(Statement::default(), self.sharded.table(), ">", false, key)
    }
}

#[cfg(test)]
mod tests {
    use diesel_sharded::described::column;

    use super::*;

    #[test]
    fn keys_come_back_from_the_command_line() {
        let sharded = DescribedTable::new(
            None,
            "t",
            "t_shards",
            vec![
                column("a".into(), ColumnType::BigInt, None),
                column("b".into(), ColumnType::Binary, None),
                column("c".into(), ColumnType::Text, None),
            ],
            vec![column("n".into(), ColumnType::BigInt, None)],
        );
        let arguments = ["-7", "00ff", "it's, so"].map(str::to_owned);
        let key = Key::parse(&sharded, &arguments).unwrap();
        assert_eq!(key.shown(&sharded), arguments);
        assert_eq!(
            key.after_arguments(&sharded),
            r" --after=-7 --after=00ff --after='it'\''s, so'"
        );
        assert_eq!(
            key.json(&sharded),
            [JsonValue::from(-7), "00ff".into(), "it's, so".into()]
        );
        assert!(Key::parse(&sharded, &arguments[..2]).is_err());
        let no_hex = ["1", "0", ""].map(str::to_owned);
        assert!(Key::parse(&sharded, &no_hex).is_err());
    }
}

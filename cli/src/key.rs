//! Keys of rows, whatever their types: read, bound, shown and given on the command line.

use std::fmt::Write as _;

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::backend::Dialect;
use diesel_sharded::model::ColumnType;

use crate::error::Error;
use crate::sharded::{KeyColumn, Sharded};
use crate::statement::{Row, Statement, Value};

/// The key of a row: a value for each of its columns.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Vec<KeyValue>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum KeyValue {
    Integer(i128),
    Text(String),
    Bytes(Vec<u8>),
}

impl Key {
    /// From the first columns of a row that [`Keyed::select_key`] selects.
    pub fn read(sharded: &Sharded, row: &Row) -> QueryResult<Self> {
        let columns = sharded.key.iter().enumerate();
        let values = columns.map(|(i, column)| {
            let text = row.text(i)?;
            KeyValue::read(column, text).ok_or_else(|| {
                let message = format!("`{text}` is no key of the type of `{}`", column.name);
                DieselError::DeserializationError(message.into())
            })
        });
        values.collect::<QueryResult<_>>().map(Key)
    }

    /// As [`shown`](Self::shown) on the command line, one argument for each column.
    pub fn parse(sharded: &Sharded, arguments: &[String]) -> Result<Self, Error> {
        if arguments.len() != sharded.key.len() {
            return Err(Error::AfterColumns {
                table: sharded.table.to_owned(),
                columns: sharded.key.len(),
            });
        }
        let values = sharded.key.iter().zip(arguments).map(|(column, argument)| {
            let value = match column.utf8 {
                true => Some(KeyValue::Bytes(argument.as_bytes().to_vec())),
                false => KeyValue::read(column, argument),
            };
            value.ok_or_else(|| Error::KeyValue {
                value: argument.clone(),
                column: column.name.to_owned(),
            })
        });
        values.collect::<Result<_, _>>().map(Key)
    }

    /// Each column's value as text.
    pub fn shown(&self, sharded: &Sharded) -> Vec<String> {
        let columns = sharded.key.iter().zip(&self.0);
        columns
            .map(|(column, value)| match value {
                KeyValue::Integer(n) => n.to_string(),
                KeyValue::Text(text) => text.clone(),
                KeyValue::Bytes(bytes) if column.utf8 => {
                    String::from_utf8_lossy(bytes).into_owned()
                }
                KeyValue::Bytes(bytes) => bytes.iter().fold(String::new(), |mut hex, byte| {
                    let _ = write!(hex, "{byte:02x}"); // to a String it cannot fail
                    hex
                }),
            })
            .collect()
    }

    /// `7`, or `1, 2026-01-01` of a composite key.
    pub fn display(&self, sharded: &Sharded) -> String {
        self.shown(sharded).join(", ")
    }

    /// The arguments that go on after this key: ` --after 7`.
    pub fn after_arguments(&self, sharded: &Sharded) -> String {
        let shown = self.shown(sharded);
        shown.iter().fold(String::new(), |arguments, value| {
            arguments + " --after=" + &quoted_for_a_shell(value)
        })
    }
}

fn quoted_for_a_shell(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@".contains(c);
    match !value.is_empty() && value.chars().all(plain) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\'', r"'\''")),
    }
}

impl KeyValue {
    fn read(column: &KeyColumn, text: &str) -> Option<Self> {
        match column.column_type {
            ColumnType::Binary => bytes_of_hex(text).map(KeyValue::Bytes),
            ColumnType::Text | ColumnType::Date | ColumnType::Uuid => {
                Some(KeyValue::Text(text.to_owned()))
            }
            ColumnType::UnsignedBigInt => {
                let n: u64 = text.parse().ok()?;
                Some(KeyValue::Integer(n.into()))
            }
            _ => {
                let n: i64 = text.parse().ok()?;
                Some(KeyValue::Integer(n.into()))
            }
        }
    }
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

/// A column of a key, as a text that [`Key::read`] reads.
fn key_as_text(
    statement: Statement,
    dialect: Dialect,
    table: &'static str,
    column: &KeyColumn,
) -> Statement {
    match (dialect, column.column_type) {
        (Dialect::Postgres, ColumnType::Binary) => statement
            .sql("encode(")
            .column(table, column.name)
            .sql(", 'hex')"),
        (_, ColumnType::Binary) => statement.sql("HEX(").column(table, column.name).sql(")"),
        _ => statement
            .sql("CAST(")
            .column(table, column.name)
            .sql(as_text(dialect)),
    }
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
    pub sharded: &'a Sharded,
    pub dialect: Dialect,
}

impl Keyed<'_> {
    /// The key of `table`'s rows, as texts.
    pub fn select_key(self, statement: Statement, table: &'static str) -> Statement {
        statement.each(", ", &self.sharded.key, |statement, column| {
            key_as_text(statement, self.dialect, table, column)
        })
    }

    /// `"videos"."id"`, or all columns of a composite key
    pub fn key(self, statement: Statement, table: &'static str) -> Statement {
        statement.each(", ", &self.sharded.key, |statement, column| {
            statement.column(table, column.name)
        })
    }

    /// `"videos_shards"."id" = "videos"."id"`
    pub fn is_parents(self, statement: Statement) -> Statement {
        statement.each(" AND ", &self.sharded.key, |statement, column| {
            statement
                .column(self.sharded.shards_table, column.name)
                .sql(" = ")
                .column(self.sharded.table, column.name)
        })
    }

    /// `("videos"."id" = $1 OR "videos"."id" = $2)`
    pub fn is_one_of(self, statement: Statement, table: &'static str, keys: &[Key]) -> Statement {
        statement
            .sql("(")
            .each(" OR ", keys, |statement, key| {
                let columns = self.sharded.key.iter().zip(&key.0);
                statement
                    .sql("(")
                    .each(" AND ", columns, |statement, (column, value)| {
                        let statement = statement.column(table, column.name).sql(" = ");
                        self.bind(statement, column, value)
                    })
                    .sql(")")
            })
            .sql(")")
    }

    /// `"videos"."id" > $1`, in the key's order; `or_equal` for the last of a range, with `order` `<`
    pub fn is_beyond(
        self,
        statement: Statement,
        table: &'static str,
        order: &str,
        or_equal: bool,
        key: &Key,
    ) -> Statement {
        let columns: Vec<_> = self.sharded.key.iter().zip(&key.0).collect();
        let last = columns.len();
        statement
            .sql("(")
            .each(" OR ", 0..last, |statement, at| {
                let statement = statement.sql("(");
                statement
                    .each(" AND ", 0..=at, |statement, i| {
                        let (column, value) = columns[i];
                        let statement = statement.column(table, column.name).sql(match i == at {
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

    /// The value of the key's first column, which is an integer, bound. To SQLite a cast says that it is one, so that it is
    /// compared with a text as the column of the key is.
    pub fn bind_first_integer(self, statement: Statement, key: &Key) -> Statement {
        let (Some(column), Some(value)) = (self.sharded.key.first(), key.0.first()) else {
            return statement; // no key is empty
        };
        match self.dialect {
            Dialect::Sqlite => {
                let statement = self.bind(statement.sql("CAST("), column, value);
                statement.sql(" AS INTEGER)")
            }
            _ => self.bind(statement, column, value),
        }
    }

    fn bind(self, statement: Statement, column: &KeyColumn, value: &KeyValue) -> Statement {
        match (value, column.column_type, self.dialect) {
            (KeyValue::Integer(n), ..) => match i64::try_from(*n) {
                Ok(n) => statement.bind(Value::Integer(n)),
                Err(_) => statement
                    .sql("CAST(")
                    .bind(Value::Text(n.to_string()))
                    .sql(" AS UNSIGNED)"),
            },
            (KeyValue::Text(text), ColumnType::Uuid, Dialect::Postgres) => statement
                .sql("CAST(")
                .bind(Value::Text(text.clone()))
                .sql(" AS UUID)"),
            (KeyValue::Text(text), ColumnType::Date, Dialect::Postgres | Dialect::Mysql) => {
                statement
                    .sql("CAST(")
                    .bind(Value::Text(text.clone()))
                    .sql(" AS DATE)")
            }
            (KeyValue::Text(text), ..) => statement.bind(Value::Text(text.clone())),
            (KeyValue::Bytes(bytes), ..) => statement.bind(Value::Bytes(bytes.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_from_the_command_line() {
        let sharded = Sharded::describe(
            "t",
            "t_shards",
            vec![
                ("a".into(), ColumnType::BigInt, None),
                ("b".into(), ColumnType::Binary, None),
                ("c".into(), ColumnType::Text, None),
            ],
            vec![("n".into(), ColumnType::BigInt, None)],
        );
        let arguments = ["-7", "00ff", "it's, so"].map(str::to_owned);
        let key = Key::parse(&sharded, &arguments).unwrap();
        assert_eq!(key.shown(&sharded), arguments);
        assert_eq!(
            key.after_arguments(&sharded),
            r" --after=-7 --after=00ff --after='it'\''s, so'"
        );
        assert!(Key::parse(&sharded, &arguments[..2]).is_err());
        let no_hex = ["1", "0", ""].map(str::to_owned);
        assert!(Key::parse(&sharded, &no_hex).is_err());
    }
}

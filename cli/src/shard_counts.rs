//! The numbers of shards that `resize` has set, in the library's own table.

use std::collections::HashMap;

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::backend::Dialect;

use crate::connection::AnyConnection;
use crate::key::{as_text, bytes_of_hex};
use crate::live::LiveTables;
use crate::sharded::{COUNTERS, Sharded};
use crate::statement::{Statement, Value};

const TABLE: &str = "diesel_sharded_shard_numbers";

/// What writers of named counters choose from where nobody has set a number.
const COUNTERS_DEFAULT: u16 = 128;

/// The numbers of a table's fields that were set, by field; those of named counters, by their names behind a zero.
pub fn of_table(
    conn: &mut AnyConnection,
    live: &LiveTables,
    sharded: &Sharded,
) -> QueryResult<HashMap<Vec<u8>, u16>> {
    if !live.tables.contains_key(TABLE) {
        return Ok(HashMap::new());
    }
    let (hex, end) = match conn.dialect() {
        Dialect::Postgres => ("encode(", ", 'hex')"),
        _ => ("HEX(", ")"),
    };
    let numbers = Statement::default().sql("SELECT ").sql(hex).name("counter");
    let numbers = numbers.sql(end).sql(", CAST(").name("shards");
    let numbers = numbers.sql(as_text(conn.dialect()));
    let numbers = numbers
        .sql(" FROM ")
        .name(TABLE)
        .sql(" WHERE ")
        .name("shards_table");
    let numbers = numbers
        .sql(" = ")
        .bind(Value::Bytes(sharded.shards_table.into()));
    let rows = numbers.rows(conn)?;
    rows.iter()
        .map(|row| {
            let counter = bytes_of_hex(row.text(0)?).ok_or_else(|| {
                DieselError::DeserializationError("a counter's name is not hexadecimal".into())
            })?;
            let number: i32 = row.parse(1)?;
            Ok((counter, number.clamp(1, 4096) as u16))
        })
        .collect()
}

/// The number from which on empty shards are removed: the largest that was set, if one was set for every field. The
/// application's own, in its derive, are not known here, so that without these every shard is kept.
pub fn wished(numbers: &HashMap<Vec<u8>, u16>, sharded: &Sharded) -> Option<u16> {
    let largest = numbers.values().copied().max();
    if sharded.table == COUNTERS {
        return Some(largest.unwrap_or(0).max(COUNTERS_DEFAULT));
    }
    let mut fields = sharded.fields.iter();
    let all_set = fields.all(|field| numbers.contains_key(field.name.as_bytes()));
    largest.filter(|_| all_set)
}

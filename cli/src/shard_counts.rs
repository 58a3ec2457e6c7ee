//! The numbers of shards that `resize` has set, in the library's own table.

use std::collections::HashMap;

use diesel::prelude::*;
use diesel_sharded::described::{DescribedTable, SHARD_NUMBERS};
use diesel_sharded::model::TableName;

use crate::connection::AnyConnection;
use crate::live::LiveTables;
use crate::privilege::Need;

/// The numbers of a table's fields that were set, by field; those of named counters, by their names behind a zero.
pub fn of_table(
    conn: &mut AnyConnection,
    live: &LiveTables,
    sharded: &DescribedTable,
) -> QueryResult<HashMap<Vec<u8>, u16>> {
    match live.has_numbers {
        true => sharded.shard_numbers(conn),
        false => Ok(HashMap::new()),
    }
}

/// The privileges to read them.
pub fn needs() -> [Need<'static>; 1] {
    [Need::of("SELECT", TableName::new(SHARD_NUMBERS))]
}

/// The privileges to set one.
pub fn needs_to_set() -> [Need<'static>; 3] {
    ["SELECT", "INSERT", "UPDATE"]
        .map(|privilege| Need::of(privilege, TableName::new(SHARD_NUMBERS)))
}

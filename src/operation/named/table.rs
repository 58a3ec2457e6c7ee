//! The table of named counters.

use crate::ShardedField;

diesel::table! {
    /// The named counters: a sharded table like any other, for [`fold`](crate::fold()), [`verify`](crate::verify()) and
    /// queries with `value.total()`. Names are UTF-8, as bytes.
    #[sql_name = "diesel_sharded_counters"]
    counters (name) {
        /// The name, in UTF-8.
        name -> Binary,
        /// The base.
        value -> BigInt,
    }
}

#[derive(ShardedField)]
#[diesel(table_name = counters, primary_key(name))]
#[sharded(table_name = diesel_sharded_counter_shards, shards = 128)]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct NamedCounter {
    name: Vec<u8>,
    #[sharded]
    value: i64,
}

//! The table whose rows come and go.

use diesel::prelude::*;
use diesel_sharded::ShardedField;

diesel::table! {
    chaos_lives (id) {
        id -> BigInt,
        /// The number of the row's life, which no other row has.
        life -> BigInt,
        views -> BigInt,
    }
}

#[derive(Identifiable, ShardedField)]
#[diesel(table_name = chaos_lives)]
#[sharded(shards = 4)]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct Row {
    id: i64,
    #[sharded]
    views: i64,
}

//! The table whose rows are deleted, inserted again and renamed.

use diesel::prelude::*;
use diesel_sharded::ShardedField;

diesel::table! {
    chaos_lives (id) {
        id -> BigInt,
        /// The unique number of the row's life.
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

//! The tables of the clients.

use diesel::prelude::*;
use diesel_sharded::ShardedField;

diesel::table! {
    chaos_rows (id) {
        id -> BigInt,
        team -> Nullable<BigInt>,
        views -> BigInt,
        likes -> Integer,
    }
}

diesel::table! {
    /// A row for each transaction that happened.
    chaos_tokens (token) {
        token -> Text,
    }
}

diesel::table! {
    /// The library's table of idempotency keys.
    #[sql_name = "diesel_sharded_idempotency_keys"]
    idempotency_keys (key) {
        key -> Binary,
    }
}

#[derive(Identifiable, ShardedField)]
#[diesel(table_name = chaos_rows)]
#[sharded(shards = 16)]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct Row {
    id: i64,
    #[sharded]
    views: i64,
    #[sharded]
    likes: i32,
}

//! The table of videos that small benchmarks count on.

use diesel_sharded::ShardedField;

diesel::table! {
    videos (id) {
        id -> BigInt,
        views -> BigInt,
    }
}

#[derive(ShardedField)]
#[diesel(table_name = videos)]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct Video {
    id: i64,
    #[sharded]
    views: i64,
}

pub use self::videos::*;

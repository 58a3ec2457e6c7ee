use diesel::prelude::*;
use diesel_sharded::ShardedField;

diesel::table! {
    videos (id) {
        id -> BigInt,
        views -> BigInt,
    }
}

#[derive(ShardedField, AsChangeset)]
struct Video {
    id: i64,
    #[sharded]
    views: i64,
}

fn main() {}

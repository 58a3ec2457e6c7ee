use diesel::prelude::*;
use diesel_sharded::prelude::*;

diesel::table! {
    videos (id) {
        id -> BigInt,
        views -> BigInt,
    }
}

#[derive(ShardedSelectable, ShardedField, Identifiable, AsChangeset)]
struct Video {
    id: i64,
    #[sharded]
    views: i64,
}

fn main() {}

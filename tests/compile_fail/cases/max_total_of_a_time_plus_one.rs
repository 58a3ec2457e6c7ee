#![allow(unused_imports)]
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::update;

diesel::table! {
    videos (id) {
        id -> BigInt,
        title -> Text,
        views -> BigInt,
        best -> Nullable<Integer>,
        created -> BigInt,
        last_viewed_at -> Timestamp,
    }
}

#[derive(diesel_sharded::ShardedField)]
struct Video {
    id: i64,
    #[sharded]
    views: i64,
    #[sharded(max)]
    best: Option<i32>,
    #[sharded(max)]
    last_viewed_at: std::time::SystemTime,
    #[sharded(min)]
    created: i64,
}

fn main() {
    use self::videos::dsl::*;
    let _ = last_viewed_at.total() + 1;
}

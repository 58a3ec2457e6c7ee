use diesel::prelude::*;
use diesel_sharded::prelude::*;

diesel::table! {
    videos (id) {
        id -> BigInt,
        views -> BigInt,
    }
}

#[derive(Queryable, ShardedSelectable, ShardedField)]
struct Video {
    id: i64,
    #[sharded]
    views: i64,
}

fn main() {}

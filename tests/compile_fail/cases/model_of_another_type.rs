use diesel_sharded::prelude::*;

diesel::table! {
    videos (id) {
        id -> BigInt,
        views -> BigInt,
    }
}

#[derive(ShardedSelectable, ShardedField)]
struct Video {
    id: i64,
    #[sharded]
    views: i64,
}

#[derive(ShardedSelectable)]
#[diesel(table_name = videos, check_for_backend(diesel::sqlite::Sqlite))]
struct Small {
    #[sharded]
    views: i32,
}

fn main() {}

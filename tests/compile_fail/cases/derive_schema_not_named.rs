//! The `table!` is inside a schema that the derive does not name.

diesel::table! {
    analytics.videos (id) {
        id -> BigInt,
        views -> BigInt,
    }
}

#[derive(diesel_sharded::ShardedField)]
struct Video {
    id: i64,
    #[sharded]
    views: i64,
}

fn main() {}

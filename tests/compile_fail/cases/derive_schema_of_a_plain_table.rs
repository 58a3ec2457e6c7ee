//! The derive names a schema, and the `table!` does not.

diesel::table! {
    videos (id) {
        id -> BigInt,
        views -> BigInt,
    }
}

#[derive(diesel_sharded::ShardedField)]
#[sharded(schema = analytics, table_name = videos_shards)]
struct Video {
    id: i64,
    #[sharded]
    views: i64,
}

fn main() {}

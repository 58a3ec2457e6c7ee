diesel::table! {
    videos (id) {
        id -> BigInt,
        views -> BigInt,
    }
}

#[derive(diesel_sharded::ShardedField)]
struct Video {
    id: i64,
    #[sharded]
    views: i32,
}

fn main() {}

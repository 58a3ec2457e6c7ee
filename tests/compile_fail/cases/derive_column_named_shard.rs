diesel::table! {
    videos (id) {
        id -> BigInt,
        title -> Text,
        views -> BigInt,
        likes -> Integer,
        rating -> Nullable<BigInt>,
    }
}

diesel::table! {
    pages (id) {
        id -> BigInt,
        shard -> BigInt,
    }
}

#[derive(diesel_sharded::ShardedField)]
struct Page {
    id: i64,
    #[sharded]
    shard: i64,
}

fn main() {}

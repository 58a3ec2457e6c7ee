diesel::table! {
    videos (id) {
        id -> BigInt,
        title -> Text,
        views -> BigInt,
        likes -> Integer,
        rating -> Nullable<BigInt>,
    }
}

#[derive(diesel_sharded::ShardedField)]
struct Video {
    #[sharded]
    id: i64,
}

fn main() {}

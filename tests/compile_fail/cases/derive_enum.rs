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
enum Video {
    Short,
}

fn main() {}

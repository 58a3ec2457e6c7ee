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
    id: i64,
    #[sharded(sql_type = "TEXT")]
    title: String,
    #[sharded]
    views: i64,
}

fn main() {}

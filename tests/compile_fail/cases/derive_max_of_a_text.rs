diesel::table! {
    videos (id) {
        id -> BigInt,
        title -> Text,
        views -> BigInt,
    }
}

#[derive(diesel_sharded::ShardedField)]
struct Video {
    id: i64,
    #[sharded(max)]
    title: String,
}

fn main() {}

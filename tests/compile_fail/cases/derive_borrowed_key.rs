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
#[diesel(primary_key(title))]
struct Video<'a> {
    title: &'a str,
    #[sharded]
    views: i64,
}

fn main() {}

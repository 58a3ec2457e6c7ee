use diesel::prelude::*;
use diesel_sharded::prelude::*;

diesel::table! {
    videos (id) {
        id -> BigInt,
        views -> BigInt,
        likes -> BigInt,
    }
}

#[derive(ShardedSelectable, ShardedField)]
struct Video {
    id: i64,
    #[sharded]
    views: i64,
}

#[derive(ShardedSelectable)]
#[diesel(table_name = videos)]
struct Likes {
    #[sharded]
    likes: i64,
}

fn main() {
    let _ = videos::table.select(Likes::as_select());
}

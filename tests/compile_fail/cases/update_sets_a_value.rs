#![allow(unused_imports)]
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::update;

diesel::table! {
    videos (id) {
        id -> BigInt,
        title -> Text,
        views -> BigInt,
        likes -> Integer,
        rating -> Nullable<BigInt>,
    }
}

#[derive(diesel_sharded::ShardedSelectable, diesel::Identifiable, diesel_sharded::ShardedField)]
struct Video {
    id: i64,
    #[sharded]
    views: i64,
    #[sharded]
    likes: i32,
}

fn main() {
    use self::videos::dsl::*;
    let conn = &mut SqliteConnection::establish(":memory:").unwrap();
    let _ = update(videos.find(7)).set(views.eq(5)).execute(conn);
}

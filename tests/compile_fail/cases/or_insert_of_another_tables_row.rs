use diesel::prelude::*;
use diesel_sharded::update;

mod schema {
    diesel::table! {
        videos (id) {
            id -> BigInt,
            views -> BigInt,
        }
    }
    diesel::table! {
        comments (id) {
            id -> BigInt,
        }
    }
}
use schema::{comments, videos};

#[derive(diesel_sharded::ShardedField)]
struct Video {
    id: i64,
    #[sharded]
    views: i64,
}

fn main() {
    let _ = update(videos::table.find(7))
        .set(videos::views.eq(videos::views + 1))
        .or_insert(comments::id.eq(7));
}

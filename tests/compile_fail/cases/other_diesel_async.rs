//! A connection of diesel-async 0.8, where the library is built with 0.9.

use diesel::prelude::*;
use diesel_async_0_8::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_sharded::asynchronous::update;

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
    views: i64,
}

async fn count(conn: &mut SyncConnectionWrapper<SqliteConnection>) {
    use self::videos::dsl::*;
    let _ = update(videos.find(7)).set(views.eq(views + 1)).execute(conn).await;
}

fn main() {}

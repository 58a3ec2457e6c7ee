//! An update of `diesel_sharded::update` on a connection of diesel-async.

use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use diesel_sharded::update;

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

async fn count(conn: &mut AsyncPgConnection) {
    use self::videos::dsl::*;
    let _ = update(videos.find(7)).set(views.eq(views + 1)).execute(conn).await;
}

async fn count_and_read(conn: &mut AsyncPgConnection) {
    use self::videos::dsl::*;
    let counted = update(videos.find(7)).set(views.eq(views + 1)).returning(views);
    let _ = counted.get_result::<i64>(conn).await;
}

fn main() {}

use diesel::prelude::*;
use diesel_sharded::verify;

mod schema {
    diesel::table! {
        videos (id) {
            id -> BigInt,
            title -> Text,
            views -> BigInt,
        }
    }
}
use schema::videos;

#[derive(diesel_sharded::ShardedField)]
struct Video {
    id: i64,
    #[sharded]
    views: i64,
}

fn main() {
    let conn = &mut SqliteConnection::establish(":memory:").unwrap();
    let titles = videos::table.select((videos::id, videos::title));
    let _ = verify(videos::table, videos::views, titles).drifts(conn);
}

use diesel::dsl::count_star;
use diesel::prelude::*;
use diesel_sharded::verify;

mod schema {
    diesel::table! {
        videos (id) {
            id -> BigInt,
            comments -> BigInt,
        }
    }
    diesel::table! {
        comments (id) {
            id -> BigInt,
            video_id -> Nullable<BigInt>,
        }
    }
}
use schema::{comments, videos};

#[derive(diesel_sharded::ShardedField)]
struct Video {
    id: i64,
    #[sharded]
    comments: i64,
}

fn main() {
    let conn = &mut SqliteConnection::establish(":memory:").unwrap();
    let recount = comments::table
        .group_by(comments::video_id)
        .select((comments::video_id, count_star()));
    let _ = verify(videos::table, videos::comments, recount).drifts(conn);
}

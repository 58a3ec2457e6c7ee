use diesel_sharded::verify;

mod schema {
    diesel::table! {
        videos (id) {
            id -> BigInt,
            views -> BigInt,
            rating -> BigInt,
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
    let _ = verify(videos::table, (videos::views, videos::rating), ());
}

use diesel_sharded::set_total;

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
    let _ = set_total(videos::table, videos::rating, 5);
}

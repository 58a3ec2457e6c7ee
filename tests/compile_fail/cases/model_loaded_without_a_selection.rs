use diesel::prelude::*;
use diesel_sharded::prelude::*;

diesel::table! {
    videos (id) {
        id -> BigInt,
        title -> Text,
        views -> BigInt,
    }
}

#[derive(ShardedSelectable, Identifiable, ShardedField)]
struct Video {
    id: i64,
    title: String,
    #[sharded]
    views: i64,
}

fn main() {
    let conn = &mut SqliteConnection::establish(":memory:").unwrap();
    let _ = videos::table.load::<Video>(conn);
}

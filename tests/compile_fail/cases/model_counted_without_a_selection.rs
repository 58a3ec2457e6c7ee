use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::update;

diesel::table! {
    videos (id) {
        id -> BigInt,
        views -> BigInt,
    }
}

#[derive(ShardedSelectable, ShardedField)]
struct Video {
    id: i64,
    #[sharded]
    views: i64,
}

fn main() {
    use self::videos::dsl::*;
    let conn = &mut SqliteConnection::establish(":memory:").unwrap();
    let _ = update(videos.find(7)).set(views.eq(views + 1)).get_result::<Video>(conn);
}

//! Models of totals that are read without a selection, or select what is no total.

use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::update;

diesel::table! {
    videos (id) {
        id -> BigInt,
        title -> Text,
        views -> BigInt,
        likes -> BigInt,
    }
}

#[derive(ShardedSelectable, Identifiable, ShardedField)]
struct Video {
    id: i64,
    title: String,
    #[sharded]
    views: i64,
}

#[derive(ShardedSelectable)]
#[diesel(table_name = videos)]
struct Likes {
    #[sharded]
    likes: i64,
}

#[derive(ShardedSelectable)]
#[diesel(table_name = videos, check_for_backend(diesel::sqlite::Sqlite))]
struct Small {
    #[sharded]
    views: i32,
}

#[derive(ShardedSelectable, Identifiable, AsChangeset)]
#[diesel(table_name = videos)]
struct Titled {
    id: i64,
    title: String,
    #[sharded]
    #[diesel(skip_update)]
    views: i64,
}

fn save(titled: &Titled, conn: &mut SqliteConnection) {
    let _ = titled.save_changes::<Titled>(conn);
}

fn main() {
    use self::videos::dsl::*;
    let conn = &mut SqliteConnection::establish(":memory:").unwrap();
    let _ = videos.load::<Video>(conn);
    let _ = update(videos.find(7)).set(views.eq(views + 1)).get_result::<Video>(conn);
    let _ = videos.select(Likes::as_select());
}

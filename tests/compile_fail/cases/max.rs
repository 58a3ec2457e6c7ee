//! Fields that keep their greatest or least value.

use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::{RowCounter, update};

diesel::table! {
    videos (id) {
        id -> BigInt,
        title -> Text,
        views -> BigInt,
        best -> Nullable<Integer>,
        created -> BigInt,
        last_viewed_at -> Timestamp,
    }
}

#[derive(diesel_sharded::ShardedField)]
struct Video {
    id: i64,
    #[sharded]
    views: i64,
    #[sharded(max)]
    best: Option<i32>,
    #[sharded(max)]
    last_viewed_at: std::time::SystemTime,
    #[sharded(min)]
    created: i64,
}

fn main() {
    use self::videos::dsl::*;
    let conn = &mut SqliteConnection::establish(":memory:").unwrap();

    // Set by `eq`.
    let _ = update(videos.find(7)).set(best.eq(5)).execute(conn);

    // The value of a column.
    let _ = update(videos.find(7)).set(created.lower_to(views)).execute(conn);

    // A counted field, one that keeps its least value, and one that is not sharded.
    let _ = update(videos.find(7)).set(views.raise_to(5)).execute(conn);
    let _ = update(videos.find(7)).set(created.raise_to(5)).execute(conn);
    let _ = title.raise_to("a");

    // No value at all.
    let _ = best.raise_to(Some(5));

    // Counts on it.
    let _ = RowCounter::of(best, 7).add(1, conn);
    let _ = last_viewed_at.total() + 1;
}

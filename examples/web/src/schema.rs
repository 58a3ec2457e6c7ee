//! The tables, and their migrations.

use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};
use diesel_sharded::{CounterCache, ShardsTable};

use crate::Result;
use crate::connection::AnyConnection;

diesel::table! {
    videos (id) {
        id -> BigInt,
        title -> Text,
        channel -> Text,
        seconds -> Integer,
        views -> BigInt,
        likes -> Integer,
        hot -> Double,
        last_watched_at -> Nullable<Timestamp>,
    }
}

// Only to draw the shards: an application reads `views.total()` and needs no such table.
diesel::table! {
    videos_shards (id, shard) {
        id -> BigInt,
        shard -> Integer,
        views -> BigInt,
    }
}

diesel::table! {
    video_likes (video_id, visitor) {
        video_id -> BigInt,
        visitor -> Text,
    }
}

diesel::table! {
    video_days (video_id, day) {
        video_id -> BigInt,
        day -> Date,
        views -> BigInt,
    }
}

diesel::allow_tables_to_appear_in_same_query!(videos, videos_shards);

const MIGRATIONS: EmbeddedMigrations = embed_migrations!();

/// Runs the migrations that are pending: the site's tables with its videos, the library's own, the shards of the former, and the triggers
/// that count likes.
pub fn migrate(conn: &mut AnyConnection) -> Result<()> {
    let shards = ShardsTable::of(videos::table).migration("20260101000001");
    let days = ShardsTable::of(video_days::table).migration("20260102000001");
    let likes = CounterCache::of(videos::likes).counts(video_likes::video_id);
    conn.run_pending_migrations(MIGRATIONS)?; // first, since they fail where another application has such tables
    conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
    conn.run_pending_migrations(shards)?;
    conn.run_pending_migrations(days)?;
    conn.run_pending_migrations(likes.migration("20260101000002"))?;
    Ok(())
}

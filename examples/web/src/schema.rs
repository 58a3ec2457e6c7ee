//! The tables, and their migrations.

use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};
use diesel_sharded::{CounterCache, ShardsTable};

use crate::Result;
use crate::database::AnyConnection;

diesel::table! {
    videos (id) {
        id -> BigInt,
        title -> Text,
        channel -> Text,
        seconds -> Integer,
        views -> BigInt,
        likes -> Integer,
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
    views_by_hour (video_id, hour) {
        video_id -> BigInt,
        hour -> BigInt,
        number -> Integer,
    }
}

diesel::allow_tables_to_appear_in_same_query!(videos, videos_shards);

const MIGRATIONS: EmbeddedMigrations = embed_migrations!();

/// Runs the migrations that are pending: the site's tables with its videos, the library's own, the shards of these, the triggers that
/// count likes, and the shards of views by hour.
pub fn migrate(conn: &mut AnyConnection) -> Result<()> {
    let shards = ShardsTable::of(videos::table).migration("20260101000001");
    conn.run_pending_migrations(MIGRATIONS)?; // first, since they fail where another application has such tables
    conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
    conn.run_pending_migrations(shards)?;
    let likes = CounterCache::of(videos::likes).counts(video_likes::video_id);
    conn.run_pending_migrations(likes.migration("20260101000002"))?;
    conn.run_pending_migrations(ShardsTable::of(views_by_hour::table).migration("20260101000004"))?;
    Ok(())
}

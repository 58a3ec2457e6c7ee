//! Eight threads watch one video 500 times each, and not one view is lost.
//!
//! ```sh
//! cargo run --example video_views
//! DATABASE_URL=postgres://user@localhost/database cargo run --example video_views --features postgres
//! DATABASE_URL=mysql://user@127.0.0.1/database cargo run --example video_views --features mysql
//! ```
//!
//! Without `DATABASE_URL` it runs on a SQLite file in the temporary folder. The code is the same on all three: `support` has
//! the enum of connections.

mod support;

use std::process::ExitCode;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::{ShardsTable, update};
use support::{AnyConnection, Result, connect, join};

const THREADS: i64 = 8;
const VIEWS: i64 = 500;

mod schema {
    diesel::table! {
        demo_videos (id) {
            id -> BigInt,
            title -> Text,
            views -> BigInt,
        }
    }

    // Only to draw the shards: an application reads `views.total()` and needs no such table.
    diesel::table! {
        demo_videos_shards (id, shard) {
            id -> BigInt,
            shard -> Integer,
            views -> BigInt,
        }
    }
}

use schema::demo_videos::dsl::{demo_videos as videos, views};
use schema::{demo_videos, demo_videos_shards};

#[derive(ShardedSelectable, Identifiable, ShardedField)]
#[diesel(table_name = demo_videos)]
#[sharded(shards = 8)]
struct Video {
    id: i64,
    title: String,
    #[sharded]
    views: i64,
}

fn main() -> Result<ExitCode> {
    let tables = ["demo_videos_shards", "demo_videos"];
    support::run("video_views", &tables, count_views)
}

fn count_views(url: &str, conn: &mut AnyConnection) -> Result<bool> {
    let video = create(conn)?;

    // SQLite has one writer at a time, and would use one shard: this one draws more on each database.
    ShardChoice::Striped.set_global();

    println!(
        "{THREADS} threads watch “{}” {VIEWS} times each",
        video.title
    );
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(|| watch(url, video.id)))
            .collect();
        threads.into_iter().try_for_each(join)
    })?;

    draw_shards(conn, video.id)?;
    let video: Video = videos
        .find(video.id)
        .select(Video::as_select())
        .first(conn)?;
    let expected = THREADS * VIEWS;
    println!("total {} of {expected}", video.views);
    Ok(video.views == expected)
}

/// The application's own code: nothing in it names a database.
fn watch(url: &str, video: i64) -> Result<()> {
    let conn = &mut connect(url)?;
    for _ in 0..VIEWS {
        update(videos.find(video))
            .set(views.eq(views + 1))
            .execute(conn)?;
    }
    Ok(())
}

/// The parent's table, as an application has it already, with one video; and its shards table.
fn create(conn: &mut AnyConnection) -> Result<Video> {
    conn.batch_execute(
        "CREATE TABLE demo_videos (id BIGINT PRIMARY KEY, title VARCHAR(100) NOT NULL, views BIGINT NOT NULL DEFAULT 0)",
    )?;
    ShardsTable::of(demo_videos::table).create(conn)?;
    let video = (
        demo_videos::id.eq(7),
        demo_videos::title.eq("Me at the zoo"),
    );
    diesel::insert_into(videos).values(video).execute(conn)?;
    Ok(videos.find(7).select(Video::as_select()).first(conn)?)
}

fn draw_shards(conn: &mut AnyConnection, video: i64) -> QueryResult<()> {
    let shards: Vec<(i32, i64)> = demo_videos_shards::table
        .filter(demo_videos_shards::id.eq(video))
        .select((demo_videos_shards::shard, demo_videos_shards::views))
        .order(demo_videos_shards::shard)
        .load(conn)?;
    let greatest = shards
        .iter()
        .map(|(_, count)| *count)
        .max()
        .unwrap_or(1)
        .max(1);
    for (shard, count) in shards {
        let bar = "█".repeat((count * 40 / greatest) as usize);
        println!("shard {shard}  {bar} {count}");
    }
    Ok(())
}

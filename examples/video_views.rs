//! Eight threads watch one video 500 times each, first one by one and then [combined](diesel_sharded::combine), and not one view is lost.
//!
//! ```sh
//! cargo run --example video_views
//! DATABASE_URL=postgres://user@localhost/database cargo run --example video_views --features postgres
//! DATABASE_URL=mysql://user@127.0.0.1/database cargo run --example video_views --features mysql
//! ```
//!
//! Without `DATABASE_URL` it runs on a SQLite file in the temporary folder. The code is the same on all three: `support` has
//! the enum of connections. (A debug build is slower than a release build would be.)

mod support;

use std::process::ExitCode;
use std::time::Instant;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::combine::Combiner;
use diesel_sharded::prelude::*;
use diesel_sharded::{ShardsTable, update};
use support::{Result, connect, in_threads};

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
}

use schema::demo_videos::dsl::{demo_videos as videos, id, title, views};

#[derive(ShardedSelectable, Identifiable, ShardedField)]
#[diesel(table_name = schema::demo_videos)]
struct Video {
    id: i64,
    title: String,
    #[sharded]
    views: i64,
}

fn main() -> Result<ExitCode> {
    let tables = ["demo_videos_shards", "demo_videos"];
    support::run("video_views", &tables, |url, conn| {
        // An application has this table already. The shards are all that is new.
        conn.batch_execute(
            "CREATE TABLE demo_videos (id BIGINT PRIMARY KEY, title VARCHAR(100) NOT NULL, views BIGINT NOT NULL DEFAULT 0)",
        )?;
        ShardsTable::of(videos).create(conn)?;
        diesel::insert_into(videos)
            .values((id.eq(7), title.eq("Me at the zoo")))
            .execute(conn)?;

        println!("{THREADS} threads watch one video {VIEWS} times each");
        let combiner = Combiner::new();
        for (how, combiner) in [("one by one", None), ("combined", Some(&combiner))] {
            let start = Instant::now();
            in_threads(THREADS, |_| watch(url, 7, combiner))?;
            let speed = (THREADS * VIEWS) as f64 / start.elapsed().as_secs_f64();
            println!("  {how:<12} {speed:>8.0} views a second");
        }

        let video = videos.find(7).select(Video::as_select()).first(conn)?;
        let expected = 2 * THREADS * VIEWS;
        println!(
            "video {}, “{}”: {} of {expected} views",
            video.id, video.title, video.views
        );
        Ok(video.views == expected)
    })
}

/// The application's own code: nothing in it names a database.
fn watch(url: &str, video: i64, combiner: Option<&Combiner>) -> Result<()> {
    let conn = &mut connect(url)?;
    for _ in 0..VIEWS {
        let count = update(videos.find(video)).set(views.eq(views + 1));
        match combiner {
            None => count.execute(conn)?,
            Some(combiner) => count.combine(combiner).execute(conn)?,
        };
    }
    Ok(())
}

//! A hot video: 64 threads count its views, each with a commit of its own, and then combined: each waits for its commit.
//!
//! ```sh
//! cargo run --example combining
//! DATABASE_URL=postgres://user@localhost/database cargo run --example combining --features postgres
//! DATABASE_URL=mysql://user@127.0.0.1/database cargo run --example combining --features mysql
//! ```
//!
//! Without `DATABASE_URL` it runs on a SQLite file in the temporary folder. (In a debug build both are slower than they
//! would be.) It drops its own tables at the end.

mod support;

use std::process::ExitCode;
use std::time::Instant;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::combine::Combiner;
use diesel_sharded::{RowCounter, ShardedField, ShardsTable, update};
use support::{AnyConnection, Result, connect, in_threads};

const THREADS: i64 = 64;
const VIEWS: i64 = 50;

mod schema {
    diesel::table! {
        demo_hot_videos (id) {
            id -> BigInt,
            views -> BigInt,
        }
    }
}

use schema::demo_hot_videos::dsl::{demo_hot_videos as videos, id, views};

#[derive(ShardedField)]
#[diesel(table_name = schema::demo_hot_videos)]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct Video {
    id: i64,
    #[sharded]
    views: i64,
}

fn main() -> Result<ExitCode> {
    let tables = ["demo_hot_videos_shards", "demo_hot_videos"];
    support::run("combining", &tables, |url, conn| {
        conn.batch_execute(
            "CREATE TABLE demo_hot_videos (id BIGINT PRIMARY KEY, views BIGINT NOT NULL DEFAULT 0)",
        )?;
        diesel::insert_into(videos).values(id.eq(7)).execute(conn)?;
        ShardsTable::of(videos).create(conn)?;
        count(url, conn)
    })
}

fn count(url: &str, conn: &mut AnyConnection) -> Result<bool> {
    println!("{THREADS} threads count {VIEWS} views of one video each, and wait for every commit");
    by_all("one by one", || {
        let conn = &mut connect(url)?;
        for _ in 0..VIEWS {
            update(videos.find(7))
                .set(views.eq(views + 1))
                .execute(conn)?;
        }
        Ok(())
    })?;

    let combiner = Combiner::new();
    by_all("combined", || {
        let conn = &mut connect(url)?;
        for _ in 0..VIEWS {
            update(videos.find(7))
                .set(views.eq(views + 1))
                .combine(&combiner)
                .execute(conn)?;
        }
        Ok(())
    })?;
    Ok(RowCounter::of(views, 7).get(conn)? == Some(2 * THREADS * VIEWS))
}

/// Prints how fast all threads do `work` at once.
fn by_all(how: &str, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    let start = Instant::now();
    in_threads(THREADS, |_| work())?;
    let speed = (THREADS * VIEWS) as f64 / start.elapsed().as_secs_f64();
    println!("  {how:<12} {speed:>8.0} views a second");
    Ok(())
}

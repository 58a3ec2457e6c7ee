//! A whole table is folded, in batches, while four threads go on counting in it and one watches that no total goes back.
//!
//! ```sh
//! cargo run --example fold
//! DATABASE_URL=postgres://user@localhost/database cargo run --example fold --features postgres
//! DATABASE_URL=mysql://user@127.0.0.1/database cargo run --example fold --features mysql
//! ```
//!
//! Without `DATABASE_URL` it runs on a SQLite file in the temporary folder. A fold moves shards into the plain column, so
//! that its index, and readers who know nothing of shards, are nearly fresh.

mod support;

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::{ShardsTable, fold, update};
use support::{AnyConnection, Result, connect, in_threads};

const VIDEOS: i64 = 50;
const THREADS: i64 = 4;

mod schema {
    diesel::table! {
        demo_folded_videos (id) {
            id -> BigInt,
            views -> BigInt,
        }
    }
}

use schema::demo_folded_videos::dsl::{demo_folded_videos as videos, id, views};

#[derive(ShardedField)]
#[diesel(table_name = schema::demo_folded_videos)]
#[sharded(shards = 8)]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct Video {
    id: i64,
    #[sharded]
    views: i64,
}

fn main() -> Result<ExitCode> {
    let tables = ["demo_folded_videos_shards", "demo_folded_videos"];
    support::run("fold", &tables, |url, conn| {
        let backlog = create(conn)?;
        println!(
            "{THREADS} threads count views of {VIDEOS} videos, one watches the totals, one folds"
        );
        let (counted, is_folded) = (AtomicI64::new(backlog), AtomicBool::new(false));
        in_threads(THREADS + 2, |thread| match thread {
            0 => {
                let folded = fold_all(&mut connect(url)?);
                is_folded.store(true, Ordering::Relaxed);
                folded
            }
            1 => watch(url, &is_folded),
            _ => count(url, &counted, &is_folded),
        })?;
        let totals: Vec<i64> = videos.select(views.total()).load(conn)?;
        let (total, counted) = (totals.iter().sum::<i64>(), counted.into_inner());
        println!("total {total} of {counted}");
        Ok(total == counted)
    })
}

/// Folds five videos at a time, and 50 a second at most.
fn fold_all(conn: &mut AnyConnection) -> Result<()> {
    let folding = fold(videos).batch(5).at_most_per_second(50);
    folding.run_with(conn, |folded| {
        let (done, moved) = (folded.parents, folded.moved(views));
        println!("  {done} videos folded, {moved} views moved");
        ControlFlow::Continue(())
    })?;
    Ok(())
}

/// The application's own code: it knows nothing of a fold.
fn count(url: &str, counted: &AtomicI64, is_folded: &AtomicBool) -> Result<()> {
    let conn = &mut connect(url)?;
    while !is_folded.load(Ordering::Relaxed) {
        let video = 1 + counted.fetch_add(1, Ordering::Relaxed) % VIDEOS;
        update(videos.find(video))
            .set(views.eq(views + 1))
            .execute(conn)?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Reads all totals again and again.
fn watch(url: &str, is_folded: &AtomicBool) -> Result<()> {
    let conn = &mut connect(url)?;
    let mut before = vec![0; VIDEOS as usize];
    while !is_folded.load(Ordering::Relaxed) {
        let now: Vec<i64> = videos.select(views.total()).order(id).load(conn)?;
        if now.iter().zip(&before).any(|(now, before)| now < before) {
            return Err(format!("a total went back: {before:?}, then {now:?}").into());
        }
        before = now;
    }
    Ok(())
}

/// The parent's table, as an application has it already, and its shards table. Returns how many views were counted on shards before the
/// fold.
fn create(conn: &mut AnyConnection) -> Result<i64> {
    conn.batch_execute(
        "CREATE TABLE demo_folded_videos (id BIGINT PRIMARY KEY, views BIGINT NOT NULL DEFAULT 0)",
    )?;
    ShardsTable::of(videos).create(conn)?;
    for video in 1..=VIDEOS {
        diesel::insert_into(videos)
            .values(id.eq(video))
            .execute(conn)?;
        update(videos.find(video))
            .set(views.eq(views + 100))
            .execute(conn)?;
    }
    Ok(100 * VIDEOS)
}

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

use std::io::{Write, stdout};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::operation::Folded;
use diesel_sharded::prelude::*;
use diesel_sharded::{ShardsTable, fold, update};
use support::{AnyConnection, Result, connect, join};

const VIDEOS: i64 = 50;
const THREADS: i64 = 4;
const BATCH: usize = 5;

mod schema {
    diesel::table! {
        demo_folded_videos (id) {
            id -> BigInt,
            views -> BigInt,
        }
    }
}

use schema::demo_folded_videos;
use schema::demo_folded_videos::dsl::{demo_folded_videos as videos, id, views};

#[derive(ShardedSelectable, ShardedField)]
#[diesel(table_name = demo_folded_videos)]
#[sharded(shards = 8)]
struct Video {
    id: i64,
    #[diesel(column_name = views)]
    base: i64,
    #[sharded]
    views: i64,
}

fn main() -> Result<ExitCode> {
    let tables = ["demo_folded_videos_shards", "demo_folded_videos"];
    support::run("fold", &tables, count_and_fold)
}

fn count_and_fold(url: &str, conn: &mut AnyConnection) -> Result<bool> {
    let backlog = create(conn)?;
    println!("{THREADS} threads count views of {VIDEOS} videos, one watches the totals, one folds");
    let stop = &AtomicBool::new(false);
    let (counted, looks) = std::thread::scope(|scope| {
        let counting: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || count(url, thread, stop)))
            .collect();
        let watching = scope.spawn(move || watch(url, stop));
        let folded = fold_all(conn);
        stop.store(true, Ordering::Relaxed);
        let counted = counting.into_iter().map(join).sum::<Result<i64>>();
        let looks = join(watching)?;
        folded?;
        Ok::<_, support::Error>((counted?, looks))
    })?;

    println!("top 5 by the plain column");
    let top = videos
        .select(Video::as_select())
        .order(views.desc())
        .limit(5);
    for video in top.load(conn)? {
        let (n, base, total) = (video.id, video.base, video.views);
        println!("  video {n}: base {base}, total {total}");
    }
    let totals: Vec<i64> = videos.select(views.total()).load(conn)?;
    let total: i64 = totals.iter().sum();
    let counted = backlog + counted;
    println!("total {total} of {counted}; no total went back in {looks} looks");
    Ok(total == counted)
}

/// Folds two batches, is interrupted, and goes on behind them.
fn fold_all(conn: &mut AnyConnection) -> QueryResult<()> {
    let begun = fold(videos)
        .batch(BATCH)
        .at_most_per_second(50)
        .run_with(conn, |folded| {
            draw(folded.parents, folded);
            match folded.parents < 2 * BATCH as u64 {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
    println!("; interrupted");
    let rest = fold(videos)
        .batch(BATCH)
        .at_most_per_second(50)
        .after(begun.last);
    rest.run_with(conn, |folded| {
        draw(begun.parents + folded.parents, folded);
        ControlFlow::Continue(())
    })?;
    println!("; finished");
    Ok(())
}

fn draw(done: u64, folded: &Folded<demo_folded_videos::table>) {
    let filled = "█".repeat((done * 40 / VIDEOS as u64) as usize);
    let moved = folded.moved(views);
    print!("\r{filled:░<40} {done} of {VIDEOS}, {moved} views moved");
    let _ = stdout().flush(); // a bar that is not seen harms nobody
}

/// The application's own code: it knows nothing of a fold. Returns how many views it counted.
fn count(url: &str, thread: i64, stop: &AtomicBool) -> Result<i64> {
    let conn = &mut connect(url)?;
    let mut counted = 0;
    while !stop.load(Ordering::Relaxed) {
        let video = 1 + (counted + 13 * thread) % VIDEOS;
        update(videos.find(video))
            .set(views.eq(views + 1))
            .execute(conn)?;
        counted += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(counted)
}

/// Reads all totals again and again; returns how often.
fn watch(url: &str, stop: &AtomicBool) -> Result<u32> {
    let conn = &mut connect(url)?;
    let mut looks = 0;
    let mut before = vec![0; VIDEOS as usize];
    while !stop.load(Ordering::Relaxed) {
        let now: Vec<i64> = videos.select(views.total()).order(id).load(conn)?;
        if now.iter().zip(&before).any(|(now, before)| now < before) {
            return Err(format!("a total went back: {before:?}, then {now:?}").into());
        }
        before = now;
        looks += 1;
    }
    Ok(looks)
}

/// The parent's table, as an application has it already, and its shards table; returns how many views were counted on shards
/// before the fold.
fn create(conn: &mut AnyConnection) -> Result<i64> {
    conn.batch_execute(
        "CREATE TABLE demo_folded_videos (id BIGINT PRIMARY KEY, views BIGINT NOT NULL DEFAULT 0)",
    )?;
    ShardsTable::of(demo_folded_videos::table).create(conn)?;
    let mut backlog = 0;
    for video in 1..=VIDEOS {
        diesel::insert_into(videos)
            .values(id.eq(video))
            .execute(conn)?;
        let seen = 5000 / video; // the first are the most popular
        update(videos.find(video))
            .set(views.eq(views + seen))
            .execute(conn)?;
        backlog += seen;
    }
    Ok(backlog)
}

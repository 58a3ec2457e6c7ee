//! A hot video: 64 threads count its views, one by one and then through a coalescer, and each waits for its commit.
//!
//! ```sh
//! cargo run --example coalescer
//! DATABASE_URL=postgres://user@localhost/database cargo run --example coalescer --features postgres
//! DATABASE_URL=mysql://user@127.0.0.1/database cargo run --example coalescer --features mysql
//! ```
//!
//! Without `DATABASE_URL` it runs on a SQLite file in the temporary folder. (In a debug build both are slower than they
//! would be.) It drops its own tables at the end, and the library's too if it created them.

#[path = "support/library_tables.rs"]
mod library_tables;
mod support;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool};
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::{Counter, RowCounter, ShardedField, ShardsTable, update};
use library_tables::with_library_tables;
use support::{AnyConnection, Result, connect, join};

const THREADS: usize = 64;
const VIEWS: usize = 50;

mod schema {
    diesel::table! {
        demo_hot_videos (id) {
            id -> BigInt,
            views -> BigInt,
        }
    }
}

use schema::demo_hot_videos;
use schema::demo_hot_videos::dsl::{demo_hot_videos as videos, id, views};

#[derive(ShardedField)]
#[diesel(table_name = demo_hot_videos)]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct Video {
    id: i64,
    #[sharded]
    views: i64,
}

fn main() -> Result<ExitCode> {
    let tables = ["demo_hot_videos_shards", "demo_hot_videos"];
    support::run("coalescer", &tables, |url, conn| {
        conn.batch_execute(
            "CREATE TABLE demo_hot_videos (id BIGINT PRIMARY KEY, views BIGINT NOT NULL DEFAULT 0)",
        )?;
        diesel::insert_into(videos).values(id.eq(7)).execute(conn)?;
        ShardsTable::of(videos).create(conn)?;
        with_library_tables(conn, |conn| count(url, conn))
    })
}

fn count(url: &str, conn: &mut AnyConnection) -> Result<bool> {
    println!("{THREADS} threads count {VIEWS} views of one video each, and wait for every commit");
    let one_by_one = by_all(|| {
        let conn = &mut connect(url)?;
        for _ in 0..VIEWS {
            update(videos.find(7))
                .set(views.eq(views + 1))
                .execute(conn)?;
        }
        Ok(())
    })?;
    print_speed("one by one", one_by_one);

    let pool = Pool::builder()
        .max_size(2)
        .connection_customizer(Box::new(Settings))
        .build(ConnectionManager::<AnyConnection>::new(url))?;
    let coalescer = Coalescer::new(pool)?;
    let together = by_all(|| {
        let views_of_7 = RowCounter::of(views, 7);
        for _ in 0..VIEWS {
            coalescer.add(&views_of_7, 1)?;
            coalescer.add_later(&Counter::named("demo visits"), 1)?; // nobody waits for this one
        }
        Ok(())
    })?;
    print_speed("coalesced", together);
    coalescer.flush()?;
    let stats = coalescer.stats();
    println!(
        "{} transactions were enough for the {} counts of the second round",
        stats.flushes, stats.flushed_callers
    );
    coalescer.close()?;

    let total = RowCounter::of(views, 7).get(conn)?;
    let visits = Counter::named("demo visits");
    let all_right = total == Some((2 * THREADS * VIEWS) as i64)
        && visits.get(conn)? == (THREADS * VIEWS) as i64;
    visits.delete(conn)?;
    if all_right {
        println!("nothing was lost");
    }
    Ok(all_right)
}

/// How long all threads take to do `work` at once.
fn by_all(work: impl Fn() -> Result<()> + Sync) -> Result<Duration> {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(&work)).collect();
        threads.into_iter().try_for_each(join)
    })?;
    Ok(start.elapsed())
}

fn print_speed(how: &str, time: Duration) {
    let speed = (THREADS * VIEWS) as f64 / time.as_secs_f64();
    println!("  {how:<12} {speed:>8.0} views a second");
}

/// The settings that `support::connect` makes on SQLite, for the pool's connections.
#[derive(Debug)]
struct Settings;

impl CustomizeConnection<AnyConnection, diesel::r2d2::Error> for Settings {
    fn on_acquire(&self, conn: &mut AnyConnection) -> std::result::Result<(), diesel::r2d2::Error> {
        support::set_up(conn).map_err(diesel::r2d2::Error::QueryError)
    }
}

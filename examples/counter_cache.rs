//! Eight threads write, move and delete comments, and the database keeps each post's number of comments and their words.
//!
//! ```sh
//! cargo run --example counter_cache
//! DATABASE_URL=postgres://user@localhost/database cargo run --example counter_cache --features postgres
//! DATABASE_URL=mysql://user@127.0.0.1/database cargo run --example counter_cache --features mysql
//! ```
//!
//! Without `DATABASE_URL` it runs on a SQLite file in the temporary folder. No line of the application counts.

mod support;

use std::process::ExitCode;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::{CounterCache, ShardsTable};
use support::{AnyConnection, Result, connect, join};

const THREADS: i64 = 8;
const COMMENTS: i64 = 60;
const POSTS: [i64; 2] = [1, 2];

mod schema {
    diesel::table! {
        demo_posts (id) {
            id -> BigInt,
            comments_count -> BigInt,
            words -> BigInt,
        }
    }

    diesel::table! {
        demo_comments (id) {
            id -> BigInt,
            post_id -> BigInt,
            words -> Integer,
        }
    }
}

use schema::{demo_comments as comments, demo_posts as posts};

#[derive(ShardedField)]
#[diesel(table_name = posts)]
#[sharded(table_name = demo_posts_shards)]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct Post {
    id: i64,
    #[sharded]
    comments_count: i64,
    #[sharded]
    words: i64,
}

fn comments_count() -> CounterCache<posts::comments_count, comments::table> {
    CounterCache::of(posts::comments_count).counts(comments::post_id)
}

fn words() -> CounterCache<posts::words, comments::table> {
    CounterCache::of(posts::words)
        .counts(comments::post_id)
        .sums(comments::words)
}

fn main() -> Result<ExitCode> {
    let tables = ["demo_comments", "demo_posts_shards", "demo_posts"];
    support::run("counter_cache", &tables, count_comments)
}

fn count_comments(url: &str, conn: &mut AnyConnection) -> Result<bool> {
    create_tables(conn)?;
    comments_count().create(conn)?;
    words().create(conn)?;

    println!("{THREADS} threads write {COMMENTS} comments each, move and delete some of them");
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| scope.spawn(move || write(url, number)))
            .collect();
        threads.into_iter().try_for_each(join)
    })?;

    let totals = posts::table.select((
        posts::id,
        posts::comments_count.total(),
        posts::words.total(),
    ));
    for (id, number, words) in totals.order(posts::id).load::<(i64, i64, i64)>(conn)? {
        println!("post {id}: {number} comments of {words} words");
    }
    let drifts =
        comments_count().verify().drifts(conn)?.len() + words().verify().drifts(conn)?.len();
    println!("{drifts} totals differ from a recount");
    comments_count().drop(conn)?;
    words().drop(conn)?;
    Ok(drifts == 0)
}

/// The application's own code.
fn write(url: &str, number: i64) -> Result<()> {
    let conn = &mut connect(url)?;
    for round in 0..COMMENTS {
        let id = number * COMMENTS + round;
        // Two threads may write on both posts in different orders, and one of them starts again.
        retry::transaction(conn, RetryPolicy::new(), |conn| {
            let comment = (
                comments::id.eq(id),
                comments::post_id.eq(POSTS[(id % 2) as usize]),
                comments::words.eq((round % 10) as i32),
            );
            diesel::insert_into(comments::table)
                .values(comment)
                .execute(conn)?;
            match round % 5 {
                0 => diesel::update(comments::table.find(id))
                    .set(comments::post_id.eq(POSTS[0]))
                    .execute(conn),
                1 => diesel::delete(comments::table.find(id)).execute(conn),
                _ => Ok(0),
            }
        })?;
    }
    Ok(())
}

/// The tables, as an application has them already; and the shards table.
fn create_tables(conn: &mut AnyConnection) -> Result<()> {
    conn.batch_execute(
        "CREATE TABLE demo_posts (id BIGINT PRIMARY KEY, comments_count BIGINT NOT NULL DEFAULT 0, words BIGINT NOT NULL DEFAULT 0)",
    )?;
    conn.batch_execute(
        "CREATE TABLE demo_comments (id BIGINT PRIMARY KEY, post_id BIGINT NOT NULL REFERENCES demo_posts (id), words INTEGER NOT NULL)",
    )?;
    for id in POSTS {
        diesel::insert_into(posts::table)
            .values(posts::id.eq(id))
            .execute(conn)?;
    }
    Ok(ShardsTable::of(posts::table).create(conn)?)
}

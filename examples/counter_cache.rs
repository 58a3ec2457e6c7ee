//! Eight threads write, move and delete comments, and the database keeps each post's number of comments.
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
use support::{AnyConnection, Result, connect, in_threads};

const THREADS: i64 = 8;
const COMMENTS: i64 = 60;
const POSTS: [i64; 2] = [1, 2];

mod schema {
    diesel::table! {
        demo_posts (id) {
            id -> BigInt,
            comments_count -> BigInt,
        }
    }

    diesel::table! {
        demo_comments (id) {
            id -> BigInt,
            post_id -> BigInt,
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
}

fn main() -> Result<ExitCode> {
    let tables = ["demo_comments", "demo_posts_shards", "demo_posts"];
    support::run("counter_cache", &tables, |url, conn| {
        create_tables(conn)?;
        let cache = CounterCache::of(posts::comments_count).counts(comments::post_id);
        cache.create(conn)?;

        println!("{THREADS} threads write {COMMENTS} comments each, move and delete some of them");
        in_threads(THREADS, |number| write(url, number))?;

        let totals = posts::table.select((posts::id, posts::comments_count.total()));
        for (id, number) in totals.order(posts::id).load::<(i64, i64)>(conn)? {
            println!("post {id}: {number} comments");
        }
        let drifts = cache.verify().drifts(conn)?.len();
        println!("{drifts} totals differ from a recount");
        cache.drop(conn)?;
        Ok(drifts == 0)
    })
}

/// The application's own code.
fn write(url: &str, number: i64) -> Result<()> {
    let conn = &mut connect(url)?;
    for round in 0..COMMENTS {
        let id = number * COMMENTS + round;
        // Two threads may write on both posts in different orders, and one of them starts again.
        retry::transaction(conn, RetryPolicy::new(), |conn| {
            let post = POSTS[(id % 2) as usize];
            diesel::insert_into(comments::table)
                .values((comments::id.eq(id), comments::post_id.eq(post)))
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
        "CREATE TABLE demo_posts (id BIGINT PRIMARY KEY, comments_count BIGINT NOT NULL DEFAULT 0)",
    )?;
    conn.batch_execute(
        "CREATE TABLE demo_comments (id BIGINT PRIMARY KEY, post_id BIGINT NOT NULL REFERENCES demo_posts (id))",
    )?;
    for id in POSTS {
        diesel::insert_into(posts::table)
            .values(posts::id.eq(id))
            .execute(conn)?;
    }
    Ok(ShardsTable::of(posts::table).create(conn)?)
}

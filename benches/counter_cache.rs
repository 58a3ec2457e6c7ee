//! The cost of a counter cache's triggers on one connection: rows inserted at once and one by one, deleted at once, and updated in
//! other columns, in a table with a cache beside one without. Both refer to their parents by a foreign key.
//!
//!     cargo bench -p diesel_sharded_benches --bench counter_cache

use std::cell::RefCell;
use std::time::Instant;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::{CounterCache, ShardsTable};
use diesel_sharded_benches::measured::Measured;
use diesel_sharded_benches::{in_turns, median};
use diesel_sharded_tests::TestConnection;

diesel::table! {
    posts (id) {
        id -> BigInt,
        comments_count -> BigInt,
    }
}

diesel::table! {
    counted (id) {
        id -> BigInt,
        post_id -> BigInt,
    }
}

#[derive(ShardedField)]
#[diesel(table_name = posts)]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct Post {
    id: i64,
    #[sharded]
    comments_count: i64,
}

const ROWS: usize = 10_000;
const PARENTS: usize = 1000;
const SINGLE: usize = 300;

macro_rules! measure {
    ($connection:ty, $analyze:literal) => {{
        let database = <$connection>::database();
        let conn = RefCell::new(<$connection>::connect(&database));
        let run = |sql: &str| conn.borrow_mut().batch_execute(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
        run("CREATE TABLE posts (id BIGINT PRIMARY KEY, comments_count BIGINT NOT NULL DEFAULT 0)");
        for table in ["counted", "plain"] {
            run(&format!(
                "CREATE TABLE {table} (id BIGINT PRIMARY KEY, post_id BIGINT NOT NULL, title VARCHAR(100) NOT NULL, \
                 FOREIGN KEY (post_id) REFERENCES posts (id))"
            ));
        }
        run(&format!("INSERT INTO posts (id) SELECT n FROM ({}) AS numbers", <$connection>::numbers(PARENTS as i64)));
        ShardsTable::of(posts::table).create(&mut *conn.borrow_mut()).unwrap();
        let cache = CounterCache::of(posts::comments_count).counts(counted::post_id);
        cache.create(&mut *conn.borrow_mut()).unwrap();
        run($analyze);
        let insert = |table: &str| {
            run(&format!(
                "INSERT INTO {table} SELECT n, 1 + n % {PARENTS}, 'a comment' FROM ({}) AS numbers",
                <$connection>::numbers(ROWS as i64)
            ));
        };
        let delete = |table: &str| run(&format!("DELETE FROM {table}"));
        let update = |table: &str| run(&format!("UPDATE {table} SET title = 'another comment'"));
        let single = |table: &str| {
            for n in 0..SINGLE {
                run(&format!("INSERT INTO {table} VALUES ({}, {}, 'a comment')", ROWS + n + 1, 1 + n % PARENTS));
            }
        };
        let compare = |label: &str, rows: usize, work: &dyn Fn(&str), after: &dyn Fn(&str)| {
            let tables = ["counted", "plain"];
            let times = in_turns(11, 2, |_, which| {
                let started = Instant::now();
                work(tables[which]);
                let time = started.elapsed().as_secs_f64();
                after(tables[which]);
                time
            });
            let times = times.into_iter().map(|times| median(times).expect("rounds") * 1e6 / rows as f64);
            let [counted, plain] = times.collect::<Vec<_>>()[..] else {
                unreachable!("two tables")
            };
            println!(
                "{:<11}{label:<30}{counted:>8.2} µs a row, {plain:>8.2} without the cache: {:.2}",
                <$connection>::NAME,
                counted / plain
            );
        };
        let nothing = |_: &str| {};
        compare("10,000 rows inserted at once", ROWS, &insert, &delete);
        compare("300 rows inserted singly", SINGLE, &single, &delete);
        insert("counted");
        insert("plain");
        compare("10,000 rows updated", ROWS, &update, &nothing);
    }};
}

fn main() {
    measure!(PgConnection, "ANALYZE");
    measure!(MysqlConnection, "ANALYZE TABLE posts");
    measure!(SqliteConnection, "ANALYZE");
}

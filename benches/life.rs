//! The cost of a counter's operations on one connection: a plain count, a named counter and a bounded one, a total from the
//! database and from the cache, and a fold and a verification of a whole table.
//!
//!     cargo bench -p diesel_sharded_benches --bench life

use std::cell::RefCell;
use std::time::Instant;

use diesel::connection::SimpleConnection;
use diesel::dsl::count_star;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::cached::{Cached, MokaCache};
use diesel_sharded::{Counter, MIGRATIONS, RowCounter, fold, update, verify};
use diesel_sharded_benches::{series, side_by_side};
use diesel_sharded_tests::schema::comments;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{TestConnection, schema};

const OPERATIONS: u32 = 1000;
const PARENTS: usize = 20_000;
const SHARDS: usize = 8;

macro_rules! measure {
    ($name:literal, $connection:ty, $analyze:literal, $numbers:expr) => {{
        let database = <$connection>::database();
        let conn = RefCell::new(<$connection>::connect(&database));
        schema::create(&mut *conn.borrow_mut());
        conn.borrow_mut().run_pending_migrations(MIGRATIONS).unwrap();
        let named = Counter::named("hot");
        let stock = RowCounter::of(views, 2).never_below(0).never_above(1_000_000_000);
        let cached = Cached::new(MokaCache::new(1000));
        let of_video_1 = RowCounter::of(views, 1);
        let repeat = |mut operation: Box<dyn FnMut(&mut $connection) + '_>| {
            for _ in 0..OPERATIONS {
                operation(&mut conn.borrow_mut());
            }
        };
        let times = side_by_side(
            11,
            [
                &mut || repeat(Box::new(|conn| assert_eq!(update(videos.find(1)).set(views.eq(views + 1)).execute(conn), Ok(1)))),
                &mut || repeat(Box::new(|conn| named.increment(conn).unwrap())),
                &mut || repeat(Box::new(|conn| assert!(stock.add(1, conn).unwrap()))),
                &mut || repeat(Box::new(|conn| assert!(of_video_1.get(conn).is_ok()))),
                &mut || repeat(Box::new(|conn| assert!(cached.get(&of_video_1, conn).is_ok()))),
            ],
        );
        let labels = ["count", "named counter", "bounded counter", "total", "cached total"];
        for (label, time) in labels.iter().zip(times) {
            let micros = (time / OPERATIONS).as_nanos() as f64 / 1000.0;
            println!("{:<11}{label:<17}{micros:>8.1} µs", $name);
        }
        let conn = &mut *conn.borrow_mut();
        for statement in [
            "DELETE FROM videos".to_owned(),
            format!("INSERT INTO videos (id, slug, title, views) SELECT n, n, 'x', 0 FROM ({}) AS numbers", $numbers(PARENTS)),
            format!(
                "INSERT INTO videos_shards (id, shard, views) SELECT v.id, s.n, 1 FROM videos v, ({}) AS s",
                $numbers(SHARDS)
            ),
            $analyze.to_owned(),
        ] {
            conn.batch_execute(&statement).unwrap_or_else(|e| panic!("{statement}: {e}"));
        }
        let started = Instant::now();
        let folded = fold(videos).keep_shards(100).run(conn).unwrap();
        let seconds = started.elapsed().as_secs_f64();
        println!("{:<11}fold             {:>8.0} parents with {SHARDS} shards a second", $name, folded.parents as f64 / seconds);
        let recount = comments::table.group_by(comments::video_id).select((comments::video_id, count_star()));
        let started = Instant::now();
        let drifts = verify(videos, likes, recount).drifts(conn).unwrap();
        let seconds = started.elapsed().as_secs_f64();
        println!("{:<11}verify           {:>8.0} parents a second, {} drifted", $name, PARENTS as f64 / seconds, drifts.len());
    }};
}

fn main() {
    measure!("PostgreSQL", PgConnection, "ANALYZE", series::on_postgres);
    measure!(
        "MariaDB",
        MysqlConnection,
        "ANALYZE TABLE videos, videos_shards",
        series::on_mariadb
    );
    measure!("SQLite", SqliteConnection, "ANALYZE", series::on_sqlite);
}

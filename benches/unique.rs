//! Unique counts on one row: the time of a first view and of a repeat, beside `update`, and the size of the table of visitors.
//!
//!     cargo bench -p diesel_sharded_benches --bench unique [-- --visitors 1000000] [-- --database sqlite]
//!
//! One connection counts each visitor once, and then as many visitors as a repeat, in another order. Commits do not wait for the disk.

use std::time::{Duration, Instant};

use clap::Parser;
use diesel::prelude::*;
use diesel_sharded::unique::Unique;
use diesel_sharded::update;
use diesel_sharded_benches::measured::Measured;
use diesel_sharded_tests::schema;
use diesel_sharded_tests::schema::videos::dsl::*;

/// Measures unique counts.
#[derive(Parser)]
struct Options {
    /// The visitors of a day
    #[arg(long, default_value_t = 1_000_000)]
    visitors: u64,
    /// One database
    #[arg(long, value_parser = ["postgres", "mysql", "sqlite"])]
    database: Option<String>,
    /// Cargo adds it.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Has no factor in common with a number of visitors that is written in round figures.
const STRIDE: u64 = 10_000_618_033;

/// The longest window, so that no run meets its end.
const WINDOW: Duration = Duration::from_secs(3_155_760_000);

macro_rules! measure {
    ($conn:ty, $visitors:expr) => {{
        let (_database, mut conn) = schema::database_with_counters::<$conn>();
        let visitors: u64 = $visitors;
        let count = || update(videos.find(1)).set(views.eq(views + 1));
        let visit = |visitor: u64, conn: &mut $conn| {
            let visit = count().once_per(visitor.to_be_bytes(), WINDOW);
            visit.count(conn).expect("an answer")
        };
        let mut measured = |name: &str, work: &mut dyn FnMut(u64, &mut $conn)| {
            let begin = Instant::now();
            (0..visitors).for_each(|visitor| work(visitor, &mut conn));
            let time = begin.elapsed().as_secs_f64() / visitors as f64;
            println!("| {} | {name} | {:.1} µs |", <$conn>::NAME, time * 1e6);
        };
        measured("`update`", &mut |_, conn| {
            assert_eq!(count().execute(conn), Ok(1))
        });
        measured("a first view", &mut |visitor, conn| {
            assert_eq!(visit(visitor, conn), Unique::Counted);
        });
        measured("a repeat", &mut |visitor, conn| {
            let scattered =
                (u128::from(visitor) * u128::from(STRIDE) % u128::from(visitors)) as u64;
            assert_eq!(visit(scattered, conn), Unique::Repeat);
        });
        conn.analyze_table("diesel_sharded_idempotency_keys");
        let bytes = conn.size_of("diesel_sharded_idempotency_keys") as f64;
        let (of_all, of_each) = (bytes / 1e6, bytes / visitors as f64);
        println!(
            "| {} | the table | {of_all:.1} MB, {of_each:.0} bytes a visitor |",
            <$conn>::NAME
        );
    }};
}

fn main() {
    let options = Options::parse();
    let has = |database| {
        options
            .database
            .as_deref()
            .is_none_or(|only| only == database)
    };
    println!(
        "| database | {} visitors | |\n|---|---|---|",
        options.visitors
    );
    if has("postgres") {
        measure!(PgConnection, options.visitors);
    }
    if has("mysql") {
        measure!(MysqlConnection, options.visitors);
    }
    if has("sqlite") {
        measure!(SqliteConnection, options.visitors);
    }
}

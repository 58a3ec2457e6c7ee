//! Unique counts on one row: the time of a first view and of a repeat, beside `update`, and the size of the table of visitors.
//!
//!     cargo bench -p diesel_sharded_benches --bench unique [-- --visitors 100000] [-- --database sqlite] [-- --publish]
//!
//! One connection counts each visitor once, and then a tenth of them as a repeat, in another order. Commits do not wait for the disk.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use diesel::prelude::*;
use diesel_sharded::unique::Unique;
use diesel_sharded::update;
use diesel_sharded_benches::machine;
use diesel_sharded_benches::measured::Measured;
use diesel_sharded_benches::names::{UNIQUE, VISITOR};
use diesel_sharded_benches::report::{Pace, Part, Reading, Report, tenths};
use diesel_sharded_tests::schema;
use diesel_sharded_tests::schema::videos::dsl::*;

/// Measures unique counts.
#[derive(Parser)]
struct Options {
    /// The visitors of a day
    #[arg(long, default_value_t = 100_000)]
    visitors: u64,
    /// One database
    #[arg(long, value_parser = ["postgres", "mysql", "sqlite"])]
    database: Option<String>,
    /// Replaces this section in the report that is published
    #[arg(long)]
    publish: bool,
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
        let mut measured = |form: &str, times: u64, work: &mut dyn FnMut(u64, &mut $conn)| {
            let begin = Instant::now();
            (0..times).for_each(|time| work(time, &mut conn));
            let us = tenths(begin.elapsed().as_secs_f64() * 1e6 / times as f64);
            println!("{}, {form}: {us} µs", <$conn>::NAME);
            Reading {
                read: VISITOR.into(),
                form: form.into(),
                us,
            }
        };
        let readings = vec![
            measured("update", visitors / 10, &mut |_, conn| {
                assert_eq!(count().execute(conn), Ok(1))
            }),
            measured("a first view", visitors, &mut |visitor, conn| {
                assert_eq!(visit(visitor, conn), Unique::Counted);
            }),
            measured("a repeat", visitors / 10, &mut |time, conn| {
                let scattered = u128::from(time) * u128::from(STRIDE) % u128::from(visitors);
                assert_eq!(visit(scattered as u64, conn), Unique::Repeat);
            }),
        ];
        conn.analyze_table("diesel_sharded_idempotency_keys");
        let bytes = conn.size_of("diesel_sharded_idempotency_keys") as f64 / visitors as f64;
        println!("{}: {bytes:.0} bytes a visitor", <$conn>::NAME);
        let pace = Pace {
            quick: visitors < 100_000,
            rounds: 1,
            slice_ms: 0,
        };
        Part {
            readings,
            bytes_per_row: Some(bytes.round()),
            ..Part::new(UNIQUE, <$conn>::NAME, machine::with::<$conn>(), pace)
        }
    }};
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(code) = machine::with_binary_log() {
        return code;
    }
    let has = |name| options.database.as_deref().is_none_or(|only| only == name);
    let mut parts = vec![];
    if has("postgres") {
        parts.push(measure!(PgConnection, options.visitors));
    }
    if has("mysql") {
        parts.push(measure!(MysqlConnection, options.visitors));
    }
    if has("sqlite") {
        parts.push(measure!(SqliteConnection, options.visitors));
    }
    if options.publish {
        Report::publish(parts);
    }
    ExitCode::SUCCESS
}

//! The cost of one operation on one connection, compared with Diesel's own update of the same row: an increment, with an idempotency key,
//! within bounds and by name; and a total from the database and from the cache.
//!
//!     cargo bench -p diesel_sharded_benches --bench cost
//!
//! The private servers do not wait for the disk, so that the client's share of the time is as large as it can be.

use std::cell::RefCell;
use std::time::Duration;

use diesel::prelude::*;
use diesel_sharded::cached::{Cached, MokaCache};
use diesel_sharded::{Counter, RowCounter, update};
use diesel_sharded_benches::side_by_side;
use diesel_sharded_tests::schema;
use diesel_sharded_tests::schema::videos::dsl::*;

const OPERATIONS: u32 = 1000;
const ROUNDS: usize = 31;

/// An operation, which returns whether it did what it should.
type Operation<'a, Conn> = (&'static str, Box<dyn FnMut(&mut Conn) -> bool + 'a>);

fn operation<'a, Conn>(
    name: &'static str,
    operation: impl FnMut(&mut Conn) -> bool + 'a,
) -> Operation<'a, Conn> {
    (name, Box::new(operation))
}

macro_rules! wall_time {
    ($name:literal, $connection:ty) => {
        let (_database, conn) = schema::database_with_counters();
        let mut request = 0_u64;
        let named = Counter::named("hot");
        let row = RowCounter::of(views, 1);
        let stock = RowCounter::of(views, 2)
            .never_below(0)
            .never_above(1_000_000_000);
        let cached = Cached::new(MokaCache::new(1000));
        let operations: Vec<Operation<'_, $connection>> = vec![
            operation("`diesel::update`", |conn| {
                let count = diesel::update(videos.find(1)).set(views.eq(views + 1));
                count.execute(conn) == Ok(1)
            }),
            operation("`update`", |conn| {
                let count = update(videos.find(1)).set(views.eq(views + 1));
                count.execute(conn) == Ok(1)
            }),
            operation("with `.idempotency_key(..)`", |conn| {
                request += 1;
                let count = update(videos.find(1)).set(views.eq(views + 1));
                count.idempotency_key(request.to_be_bytes()).execute(conn) == Ok(1)
            }),
            operation("within bounds", |conn| stock.add(1, conn) == Ok(true)),
            operation("by name", |conn| named.increment(conn).is_ok()),
            operation("a total", |conn| row.get(conn).is_ok()),
            operation("a cached total", |conn| cached.get(&row, conn).is_ok()),
        ];
        tell($name, conn, operations);
    };
}

/// Measures the operations in turn, and prints a row for each.
fn tell<Conn>(database: &str, conn: Conn, operations: Vec<Operation<'_, Conn>>) {
    let conn = &RefCell::new(conn);
    let (names, operations): (Vec<_>, Vec<_>) = operations.into_iter().unzip();
    let works = operations.into_iter().map(|mut operation| {
        move || (0..OPERATIONS).for_each(|_| assert!(operation(&mut conn.borrow_mut())))
    });
    let times = side_by_side(ROUNDS, &mut works.collect::<Vec<_>>());
    for (name, time) in names.iter().zip(&times) {
        println!(
            "| {database} | {name} | {:?} | {:.2} |",
            *time / OPERATIONS,
            ratio(*time, times[0])
        );
    }
}

fn ratio(time: Duration, other: Duration) -> f64 {
    time.as_secs_f64() / other.as_secs_f64()
}

fn main() {
    println!("One operation on one connection, median of {ROUNDS} × {OPERATIONS}\n");
    println!("| database | operation | time | to the plain update |\n|---|---|---|---|");
    wall_time!("PostgreSQL", PgConnection);
    wall_time!("MySQL/MariaDB", MysqlConnection);
    wall_time!("SQLite", SqliteConnection);
}

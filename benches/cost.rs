//! The cost of one operation on one connection, compared with Diesel's own update of the same row: a count, with an idempotency key,
//! within bounds and by name; a total from the database and from the cache; and an awaited count beside `diesel_async`'s.
//!
//!     cargo bench -p diesel_sharded_benches --bench cost
//!
//! The private servers do not wait for the disk, so that the client's share of the time is as large as it can be. Overhead shows the most
//! on SQLite in memory: `-- memory` measures a count there and, if valgrind is installed, its instructions. The difference between two
//! builds is the cost of the features `tracing` and `metrics` when nobody listens:
//!
//!     cargo bench -p diesel_sharded_benches --bench cost -- memory
//!     cargo bench -p diesel_sharded_benches --bench cost --features observability -- memory

use std::cell::RefCell;
use std::process::Command;
use std::time::Duration;

use diesel::prelude::*;
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_async::{AsyncConnection, AsyncMysqlConnection, AsyncPgConnection};
use diesel_migrations::MigrationHarness;
use diesel_sharded::cached::{Cached, MokaCache};
use diesel_sharded::{Counter, MIGRATIONS, RowCounter, asynchronous, update};
use diesel_sharded_benches::{all_side_by_side, side_by_side};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{Database, TestConnection, schema};
use tokio::runtime::Builder;

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
        let database = <$connection>::database();
        let mut conn = <$connection>::connect(&database);
        schema::create(&mut conn);
        conn.run_pending_migrations(MIGRATIONS).expect("migrations");
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
    let times = all_side_by_side(ROUNDS, &mut works.collect::<Vec<_>>());
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

macro_rules! wall_time_awaited {
    ($name:literal, $connection:ty, $connect:expr) => {
        let database = <$connection>::database();
        schema::create(&mut <$connection>::connect(&database));
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let [conn, other] = &mut [(), ()].map(|()| runtime.block_on($connect(&database)));
        let [plain, sharded] = side_by_side(
            ROUNDS,
            [
                &mut || {
                    runtime.block_on(async {
                        for _ in 0..OPERATIONS {
                            let update = diesel::update(videos.find(1)).set(views.eq(views + 1));
                            let counted = diesel_async::RunQueryDsl::execute(update, conn);
                            assert_eq!(counted.await, Ok(1));
                        }
                    })
                },
                &mut || {
                    runtime.block_on(async {
                        for _ in 0..OPERATIONS {
                            let update =
                                asynchronous::update(videos.find(1)).set(views.eq(views + 1));
                            assert_eq!(update.execute(other).await, Ok(1));
                        }
                    })
                },
            ],
        );
        println!(
            "| {} | {:?} | {:?} | {:.2} |",
            $name,
            plain / OPERATIONS,
            sharded / OPERATIONS,
            ratio(sharded, plain),
        );
    };
}

async fn awaited<Conn: AsyncConnection>(database: &Database) -> Conn {
    Conn::establish(database.url()).await.expect("a connection")
}

fn main() {
    let arguments: Vec<String> = std::env::args().filter(|a| a != "--bench").collect();
    match arguments.as_slice() {
        [_, memory, kind, number] if memory == MEMORY => {
            let counts = number.parse().expect("a number");
            return count(&mut in_memory(), kind, counts);
        }
        [_, memory] if memory == MEMORY => return tell_memory(),
        _ => {}
    }
    println!("One operation on one connection, median of {ROUNDS} × {OPERATIONS}\n");
    println!("| database | operation | time | to `diesel::update` |\n|---|---|---|---|");
    wall_time!("PostgreSQL", PgConnection);
    wall_time!("MySQL/MariaDB", MysqlConnection);
    wall_time!("SQLite", SqliteConnection);
    println!(
        "\nAwaited\n\n| database | `diesel_async`'s | `asynchronous::update` | ratio |\n|---|---|---|---|"
    );
    wall_time_awaited!("PostgreSQL", PgConnection, awaited::<AsyncPgConnection>);
    wall_time_awaited!(
        "MySQL/MariaDB",
        MysqlConnection,
        awaited::<AsyncMysqlConnection>
    );
    wall_time_awaited!("SQLite", SqliteConnection, async |database| {
        SyncConnectionWrapper::<SqliteConnection>::new(SqliteConnection::connect(database))
    });
}

/// The argument that measures SQLite in memory.
const MEMORY: &str = "memory";
const PLAIN: &str = "plain";
const SHARDED: &str = "sharded";

fn in_memory() -> SqliteConnection {
    let mut conn = SqliteConnection::establish(":memory:").expect("a connection");
    schema::create(&mut conn);
    conn
}

/// Counts so often, in one of two ways.
fn count(conn: &mut SqliteConnection, kind: &str, counts: u32) {
    for _ in 0..counts {
        let change = views.eq(views + 1);
        let counted = match kind {
            PLAIN => diesel::update(videos.find(1)).set(change).execute(conn),
            _ => update(videos.find(1)).set(change).execute(conn),
        };
        assert_eq!(counted, Ok(1));
    }
}

fn tell_memory() {
    let conn = &mut in_memory();
    let [time] = side_by_side(101, [&mut || count(conn, SHARDED, OPERATIONS)]);
    println!("One count on SQLite in memory: {:?}", time / OPERATIONS);
    match [PLAIN, SHARDED].map(instructions) {
        [Some(plain), Some(sharded)] => println!(
            "Its instructions (callgrind): {sharded}, by `diesel::update` {plain}: {:.2}",
            sharded as f64 / plain as f64
        ),
        _ => println!("Its instructions were not counted: install valgrind"),
    }
}

/// Returns the instructions of one count: the difference between many and few, divided by their number.
fn instructions(kind: &str) -> Option<u64> {
    let watched = |number: &str| {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(std::env::current_exe().ok()?)
            .args([MEMORY, kind, number])
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let (_, collected) = text.split_once("Collected : ")?;
        collected.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some((watched("1100")? - watched("100")?) / 1000)
}

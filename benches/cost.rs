//! The cost of a counting update on one connection, compared with Diesel's own update of the same row: blocking, with an
//! idempotency key, and awaited beside `diesel_async`'s.
//!
//!     cargo bench -p diesel_sharded_benches --bench cost
//!
//! The difference between two builds shows the cost of the features `tracing` and `metrics` when nobody listens:
//!
//!     cargo bench -p diesel_sharded_benches --bench cost -- memory
//!     cargo bench -p diesel_sharded_benches --bench cost --features observability -- memory
//!
//! Prints the wall time on every database and, if valgrind is installed, the client's instructions on PostgreSQL. The private
//! servers do not wait for the disk, so that the client's share of the time is as large as it can be.

use std::process::Command;
use std::time::Duration;

use diesel::prelude::*;
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_async::{AsyncConnection, AsyncMysqlConnection, AsyncPgConnection};
use diesel_migrations::MigrationHarness;
use diesel_sharded::{MIGRATIONS, asynchronous, update};
use diesel_sharded_benches::side_by_side;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{Database, TestConnection, schema};
use tokio::runtime::Builder;

const UPDATES: usize = 1000;

macro_rules! wall_time {
    ($name:literal, $connection:ty) => {
        let database = <$connection>::database();
        let [conn, other, third] = &mut [(), (), ()].map(|()| <$connection>::connect(&database));
        schema::create(conn);
        conn.run_pending_migrations(MIGRATIONS).expect("migrations");
        let mut request = 0_u64;
        let [plain, sharded, keyed] = side_by_side(
            31,
            [
                &mut || {
                    times(UPDATES, || {
                        diesel::update(videos.find(1))
                            .set(views.eq(views + 1))
                            .execute(conn)
                    })
                },
                &mut || {
                    times(UPDATES, || {
                        update(videos.find(1))
                            .set(views.eq(views + 1))
                            .execute(other)
                    })
                },
                &mut || {
                    times(UPDATES, || {
                        request += 1;
                        update(videos.find(1))
                            .set(views.eq(views + 1))
                            .idempotency_key(request.to_be_bytes())
                            .execute(third)
                    })
                },
            ],
        );
        let ratio = |time: Duration| time.as_secs_f64() / plain.as_secs_f64();
        println!(
            "| {} | {:?} | {:?} | {:.2} | {:?} | {:.2} |",
            $name,
            plain / UPDATES as u32,
            sharded / UPDATES as u32,
            ratio(sharded),
            keyed / UPDATES as u32,
            ratio(keyed),
        );
    };
}

macro_rules! wall_time_awaited {
    ($name:literal, $connection:ty, $connect:expr) => {
        let database = <$connection>::database();
        schema::create(&mut <$connection>::connect(&database));
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let [conn, other] = &mut [(), ()].map(|()| runtime.block_on($connect(&database)));
        let [plain, sharded] = side_by_side(
            31,
            [
                &mut || {
                    runtime.block_on(async {
                        for _ in 0..UPDATES {
                            let update = diesel::update(videos.find(1)).set(views.eq(views + 1));
                            let counted = diesel_async::RunQueryDsl::execute(update, conn);
                            assert_eq!(counted.await, Ok(1));
                        }
                    })
                },
                &mut || {
                    runtime.block_on(async {
                        for _ in 0..UPDATES {
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
            plain / UPDATES as u32,
            sharded / UPDATES as u32,
            sharded.as_secs_f64() / plain.as_secs_f64(),
        );
    };
}

async fn awaited<Conn: AsyncConnection>(database: &Database) -> Conn {
    Conn::establish(database.url()).await.expect("a connection")
}

fn times(n: usize, work: impl FnMut() -> QueryResult<usize>) {
    let mut work = work;
    for _ in 0..n {
        assert_eq!(work(), Ok(1));
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().filter(|a| a != "--bench").collect();
    match arguments.as_slice() {
        [_, url, kind, number] => return run(url, kind, number.parse().expect("a number")),
        [_, memory] if memory == MEMORY => return in_memory(),
        _ => {}
    }
    println!("One update of one row, one connection, median of 31 × {UPDATES}\n");
    println!(
        "| database | `diesel::update` | `diesel_sharded::update` | ratio | with `.idempotency_key(..)` | ratio |\n|---|---|---|---|---|---|"
    );
    wall_time!("PostgreSQL", PgConnection);
    wall_time!("MySQL/MariaDB", MysqlConnection);
    wall_time!("SQLite", SqliteConnection);
    println!(
        "\nThe same, awaited\n\n| database | `diesel_async`'s | `asynchronous::update` | ratio |\n|---|---|---|---|"
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
    instructions();
}

/// The argument that measures only SQLite in memory. It also stands for the address of that database in [`run`].
const MEMORY: &str = "memory";

/// Runs `$number` updates of one kind.
macro_rules! count {
    ($conn:expr, $kind:expr, $number:expr) => {{
        let conn = $conn;
        match $kind {
            "plain" => times($number, || {
                diesel::update(videos.find(1))
                    .set(views.eq(views + 1))
                    .execute(conn)
            }),
            _ => times($number, || {
                update(videos.find(1))
                    .set(views.eq(views + 1))
                    .execute(conn)
            }),
        }
    }};
}

/// The process that callgrind observes.
fn run(url: &str, kind: &str, number: usize) {
    match url {
        MEMORY => {
            let conn = &mut SqliteConnection::establish(":memory:").expect("a connection");
            schema::create(conn);
            count!(conn, kind, number);
        }
        _ => {
            let conn = &mut PgConnection::establish(url).expect("a connection");
            count!(conn, kind, number);
        }
    }
}

/// Returns the instructions of one update: the difference between many updates and few, divided by their number.
fn instructions_of_one(url: &str, kind: &str) -> Option<u64> {
    let watched = |number: usize| {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(std::env::current_exe().ok()?)
            .args([url, kind, &number.to_string()])
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let (_, collected) = text.split_once("Collected : ")?;
        collected.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some((watched(1100)? - watched(100)?) / 1000)
}

fn instructions() {
    let database = PgConnection::database();
    schema::create(&mut PgConnection::connect(&database));
    run(database.url(), "sharded", 200); // creates all shards
    tell_instructions("PostgreSQL", database.url());
}

fn tell_instructions(name: &str, url: &str) {
    match (
        instructions_of_one(url, "plain"),
        instructions_of_one(url, "sharded"),
    ) {
        (Some(plain), Some(sharded)) => {
            let ratio = sharded as f64 / plain as f64;
            println!(
                "\nClient instructions of one update on {name} (callgrind): {plain} / {sharded} = {ratio:.2}"
            );
        }
        _ => println!("\nClient instructions were not counted: install valgrind"),
    }
}

/// Measures one update on SQLite in memory, the fastest database: overhead shows the most there.
fn in_memory() {
    let conn = &mut SqliteConnection::establish(":memory:").expect("a connection");
    schema::create(conn);
    let [time] = side_by_side(
        101,
        [&mut || {
            times(UPDATES, || {
                update(videos.find(1))
                    .set(views.eq(views + 1))
                    .execute(conn)
            })
        }],
    );
    println!(
        "One update on SQLite in memory: {:?}",
        time / UPDATES as u32
    );
    tell_instructions("SQLite", MEMORY);
}

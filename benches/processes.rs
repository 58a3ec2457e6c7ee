//! Counts on one row from several processes, by each choice of shards. Commits wait for the disk.
//!
//!     cargo bench -p diesel_sharded_benches --bench processes [-- --publish]
//!
//! 8 processes of 8 threads each begin at the same time, and end after each slice. A process does not know the counts of the others.
//! `--publish` replaces this section in `docs/benchmarks/report.json`. The run fails if a count is lost or doubled.

use std::io::Read;
use std::thread;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::{ShardsTable, update};
use diesel_sharded_benches::machine;
use diesel_sharded_benches::measured::Measured;
use diesel_sharded_benches::names::{
    DEFAULT, LOCAL_DISK, ONE_ROW, POSTGRESQL, PROCESSES, RANDOM, STRIPED,
};
use diesel_sharded_benches::program::{Process, READY};
use diesel_sharded_benches::report::{Cell, Pace, Part, Report};
use diesel_sharded_benches::videos::dsl::views;
use diesel_sharded_benches::videos::table as table_of_videos;

const PROCESSES_OF_A_RUN: usize = 8;
const THREADS: usize = 8;
const ROUNDS: usize = 5;
const WARM_UP: Duration = Duration::from_millis(500);
const SLICE: Duration = Duration::from_millis(2000);
const VIDEO: i64 = 1;

/// The first argument of a process that counts.
const COUNT: &str = "count";
const WAYS: [&str; 4] = [ONE_ROW, RANDOM, STRIPED, DEFAULT];

/// A connection type that counts.
trait Counts: Measured {
    fn create_shards(&mut self);

    fn count(&mut self, way: &str) -> QueryResult<usize>;

    fn total(&mut self) -> QueryResult<i64>;
}

macro_rules! counts {
    ($($connection:ty)+) => {$(
        impl Counts for $connection {
            fn create_shards(&mut self) {
                ShardsTable::of(table_of_videos).create(self).expect("a table of shards");
            }

            fn count(&mut self, way: &str) -> QueryResult<usize> {
                let choice = match way {
                    ONE_ROW => {
                        let one_row = diesel::update(table_of_videos.find(VIDEO));
                        return one_row.set(views.eq(views + 1)).execute(self);
                    }
                    RANDOM => ShardChoice::Random,
                    STRIPED => ShardChoice::Striped,
                    _ => ShardChoice::Adaptive,
                };
                update(table_of_videos.find(VIDEO))
                    .set(views.eq(views + 1))
                    .shard_choice(choice)
                    .execute(self)
            }

            fn total(&mut self) -> QueryResult<i64> {
                table_of_videos.find(VIDEO).select(views.total()).first(self)
            }
        }
    )+};
}

counts!(PgConnection MysqlConnection);

/// Counts in this process until the time is over, once the parent says so, and prints how often: in the slice, and in all.
fn count<Conn: Counts>(url: &str, way: &str) {
    let mut conns: Vec<Conn> = (0..THREADS)
        .map(|_| Conn::establish(url).expect("a connection"))
        .collect();
    println!("{READY}");
    let _ = std::io::stdin()
        .read(&mut [0])
        .expect("the signal to begin");
    let begin = Instant::now() + WARM_UP;
    let counts: Vec<(u64, u64)> = thread::scope(|scope| {
        let threads = conns.iter_mut().map(|conn| {
            scope.spawn(move || {
                let (mut in_slice, mut all) = (0, 0);
                while begin.elapsed() < SLICE {
                    assert_eq!(conn.count(way), Ok(1));
                    all += 1;
                    in_slice += u64::from(Instant::now() > begin);
                }
                (in_slice, all)
            })
        });
        let threads: Vec<_> = threads.collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|counts| counts.expect("no panic")).collect()
    });
    let sum = |of: fn(&(u64, u64)) -> u64| counts.iter().map(of).sum::<u64>();
    println!(
        "{} {}",
        sum(|(in_slice, _)| *in_slice),
        sum(|(_, all)| *all)
    );
}

/// Returns the counts a second of one way.
fn slice<Conn: Counts>(conn: &mut Conn, url: &str, way: &str) -> f64 {
    let before = conn.total().expect("a total");
    let arguments = [COUNT, Conn::NAME, url, way].map(str::to_owned);
    let mut processes = Process::start(vec![arguments.to_vec(); PROCESSES_OF_A_RUN]);
    for process in &mut processes {
        process.tell("begin");
    }
    let (mut in_slice, mut all) = (0, 0);
    for mut process in processes {
        let (some, whole) = process.numbers();
        in_slice += some;
        all += whole;
        process.end();
    }
    let total = conn.total().expect("a total");
    assert_eq!(total, before + all as i64, "{way}: lost or doubled counts");
    in_slice as f64 / SLICE.as_secs_f64()
}

fn measure<Conn: Counts>() -> Part {
    let database = Conn::NAME;
    let server = Conn::synced_database();
    let conn = &mut Conn::connect(&server);
    let table = "CREATE TABLE videos (id BIGINT PRIMARY KEY, views BIGINT NOT NULL)";
    conn.batch_execute(table).expect("a table");
    let row = format!("INSERT INTO videos (id, views) VALUES ({VIDEO}, 0)");
    conn.batch_execute(&row).expect("a row");
    conn.create_shards();
    let mut rates = WAYS.map(|_| vec![]);
    for _ in 0..ROUNDS {
        for (way, rates) in WAYS.iter().zip(&mut rates) {
            rates.push(slice(conn, server.url(), way));
        }
    }
    let cells = WAYS.iter().zip(rates).map(|(way, rates)| {
        println!("{database}, {way}: {rates:?}");
        Cell::hot(LOCAL_DISK, PROCESSES_OF_A_RUN * THREADS, way, rates)
    });
    let pace = Pace {
        quick: false,
        rounds: ROUNDS,
        slice_ms: SLICE.as_millis() as u64,
    };
    Part {
        cells: cells.collect(),
        ..Part::new(PROCESSES, database, machine::with::<Conn>(), pace)
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [COUNT, POSTGRESQL, url, way] => return count::<PgConnection>(url, way),
        [COUNT, _, url, way] => return count::<MysqlConnection>(url, way),
        _ => {}
    }
    let parts = [measure::<PgConnection>(), measure::<MysqlConnection>()];
    if arguments.contains(&"--publish") {
        Report::publish(parts);
    }
}

//! Increments on one row from several processes, by each choice of shards.
//!
//!     cargo bench -p diesel_sharded_benches --bench processes [-- --publish] # PostgreSQL, then MariaDB
//!
//! 8 processes of 8 threads each begin at the same time, and commits wait for the disk. New processes make each slice, so none knows
//! anything of others. `--publish` replaces this section in `docs/benchmarks/report.json`. The run fails if an increment is lost or doubled.

use std::io::Read;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use diesel::connection::{LoadConnection, SimpleConnection};
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::backend::BackendOf;
use diesel_sharded::combine::Combiner;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::{MIGRATIONS, ShardsTable, update};
use diesel_sharded_benches::measured::Measured;
use diesel_sharded_benches::names::{
    COMBINED, DEFAULT, LOCAL_DISK, MARIADB, ONE_ROW, PROCESSES, RANDOM, STRIPED,
};
use diesel_sharded_benches::report::{Cell, Pace, Part, Report};
use diesel_sharded_benches::videos::dsl::*;
use diesel_sharded_benches::{in_turns, machine};
use diesel_sharded_tests::Database;

const PROCESSES_OF_A_RUN: usize = 8;
const THREADS: usize = 8;
const WARM_UP: Duration = Duration::from_millis(500);

/// The contenders: the choice of shards, or none on the row itself. Each counts on the row of its number.
const CONTENDERS: [(&str, Option<ShardChoice>); 5] = [
    (ONE_ROW, None),
    (RANDOM, Some(ShardChoice::Random)),
    (STRIPED, Some(ShardChoice::Striped)),
    (DEFAULT, Some(ShardChoice::Adaptive)),
    (COMBINED, Some(ShardChoice::Adaptive)),
];

/// A connection type that counts.
trait Counts: Measured + LoadConnection<Backend: BackendOf<Self>> + Send + 'static {
    fn count(&mut self, choice: Option<ShardChoice>, row: i64) -> QueryResult<usize>;

    /// Creates the tables with a row for each contender.
    fn create(&mut self);

    /// The sum of all totals.
    fn total(&mut self) -> i64;
}

macro_rules! counts {
    ($($connection:ty)+) => {$(
        impl Counts for $connection {
            fn count(&mut self, choice: Option<ShardChoice>, row: i64) -> QueryResult<usize> {
                let Some(choice) = choice else {
                    return diesel::update(videos.find(row)).set(views.eq(views + 1)).execute(self);
                };
                let count = update(videos.find(row)).set(views.eq(views + 1));
                count.shard_choice(choice).execute(self)
            }

            fn create(&mut self) {
                self.batch_execute("CREATE TABLE videos (id BIGINT PRIMARY KEY, views BIGINT NOT NULL)")
                    .expect("a table");
                let rows: Vec<_> = (0..CONTENDERS.len() as i64).map(|row| (id.eq(row), views.eq(0))).collect();
                diesel::insert_into(videos).values(rows).execute(self).expect("rows");
                self.run_pending_migrations(MIGRATIONS).expect("the library's own tables");
                ShardsTable::of(videos).create(self).expect("a table of shards");
            }

            fn total(&mut self) -> i64 {
                let totals: Vec<i64> = videos.select(views.total()).load(self).expect("totals");
                totals.iter().sum()
            }
        }
    )+};
}

counts!(PgConnection MysqlConnection);

const ROUNDS: usize = 5;
const SLICE: Duration = Duration::from_millis(2000);

/// The increments a second in one slice of one contender.
fn slice_of<Conn: Counts>(server: &Database, number: usize) -> f64 {
    let before = Conn::connect(server).total();
    let program = std::env::current_exe().expect("this program");
    let start = |_| {
        let mut command = Command::new(&program);
        command.args([COUNT, Conn::NAME, server.url(), &number.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().expect("this program again")
    };
    let mut processes: Vec<Child> = (0..PROCESSES_OF_A_RUN).map(start).collect();
    for process in &mut processes {
        let output = process.stdout.as_mut().expect("a piped output");
        let is_ready = output.read_exact(&mut [0; READY.len()]);
        is_ready.expect("a process that has connected");
    }
    for process in &mut processes {
        drop(process.stdin.take()); // the signal to begin
    }
    let (mut in_slice, mut all) = (0, 0);
    for process in processes {
        let ended = process.wait_with_output().expect("its end");
        assert!(ended.status.success());
        let said = String::from_utf8_lossy(&ended.stdout);
        let mut numbers = said.split_whitespace().map(|number| number.parse::<u64>());
        let mut number = || numbers.next().expect("two numbers").expect("a number");
        in_slice += number();
        all += number();
    }
    let rose_by = Conn::connect(server).total() - before;
    let name = CONTENDERS[number].0;
    assert_eq!(rose_by, all as i64, "{name}: lost or doubled counts");
    in_slice as f64 / SLICE.as_secs_f64()
}

/// The first argument of a process that counts.
const COUNT: &str = "count";

/// With this line such a process says that it has connected.
const READY: &str = "ready\n";

/// Counts in this process, once its input ends, until the time is over. Prints how often: in the slice, and in all.
fn count<Conn: Counts>(url: &str, number: &str) {
    let number: usize = number.parse().expect("a number");
    // One row may need more than the defaults allow.
    RetryPolicy::new()
        .with_attempts(u32::MAX)
        .with_deadline(Duration::from_secs(600))
        .set_global();
    let combiner = (CONTENDERS[number].0 == COMBINED).then(Combiner::new);
    let connect = |_| {
        let mut conn = Conn::establish(url).expect("a connection");
        if let Some(combiner) = &combiner {
            combiner.admit(&mut conn).expect("an admission");
        }
        conn
    };
    let mut conns: Vec<Conn> = (0..THREADS).map(connect).collect();
    print!("{READY}");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).expect("the signal to begin");
    let begin = Instant::now() + WARM_UP;
    let counts: Vec<(u64, u64)> = thread::scope(|scope| {
        let threads = conns.iter_mut().map(|conn| {
            scope.spawn(move || {
                let (mut in_slice, mut all) = (0, 0);
                while begin.elapsed() < SLICE {
                    assert_eq!(conn.count(CONTENDERS[number].1, number as i64), Ok(1));
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

/// Measures all contenders in turn; the order rotates.
fn measure<Conn: Counts>() -> Part {
    let server = Conn::synced_database();
    Conn::connect(&server).create();
    let slices = in_turns(ROUNDS, CONTENDERS.len(), |_, number| {
        slice_of::<Conn>(&server, number)
    });
    let cells = CONTENDERS.iter().zip(slices).map(|((name, _), rates)| {
        println!("{}, {name}: {rates:?}", Conn::NAME);
        Cell::hot(LOCAL_DISK, PROCESSES_OF_A_RUN * THREADS, name, rates)
    });
    let pace = Pace {
        quick: false,
        rounds: ROUNDS,
        slice_ms: SLICE.as_millis() as u64,
    };
    Part {
        cells: cells.collect(),
        ..Part::new(PROCESSES, Conn::NAME, machine::with::<Conn>(), pace)
    }
}

/// Measures increments on one row from several processes.
#[derive(Parser)]
struct Options {
    /// Replaces this section in the report that is published
    #[arg(long)]
    publish: bool,
    /// Cargo adds it.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, count_it, database, url, number] = &arguments[..]
        && count_it == COUNT
    {
        match database.as_str() {
            MARIADB => count::<MysqlConnection>(url, number),
            _ => count::<PgConnection>(url, number),
        }
        return ExitCode::SUCCESS;
    }
    let options = Options::parse();
    if let Some(code) = machine::with_binary_log() {
        return code;
    }
    let parts = [measure::<PgConnection>(), measure::<MysqlConnection>()];
    if options.publish {
        Report::publish(parts);
    }
    ExitCode::SUCCESS
}

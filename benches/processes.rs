//! Counts on one row from several processes: by each choice of shards on one server, and on a cluster of three nodes that all take writes.
//!
//!     cargo bench -p diesel_sharded_benches --bench processes [-- --publish]      # PostgreSQL, then MariaDB
//!     cargo bench -p diesel_sharded_benches --bench processes -- --cluster galera # MariaDB Galera
//!     cargo bench -p diesel_sharded_benches --bench processes -- --cluster group  # MySQL Group Replication, in containers
//!
//! On one server 8 processes of 8 threads each begin at the same time, and commits wait for the disk. On a cluster each node has one such
//! process, all share one machine, and no commit waits for a disk. New processes make each slice, so none knows anything of others.
//! `--publish` replaces this section in `docs/benchmarks/report.json`. The run fails if a count is lost or doubled.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use diesel::connection::{LoadConnection, SimpleConnection};
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::combine::Combiner;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::shard_choice::{ShardChoice, Stripe};
use diesel_sharded::{MIGRATIONS, ShardsTable, update};
use diesel_sharded_benches::measured::Measured;
use diesel_sharded_benches::names::{
    DEFAULT, LOCAL_DISK, MARIADB, ONE_ROW, PROCESSES, RANDOM, STRIPED,
};
use diesel_sharded_benches::program::{Process, READY};
use diesel_sharded_benches::report::{Cell, Pace, Part, Report};
use diesel_sharded_benches::videos::dsl::*;
use diesel_sharded_benches::{in_turns, machine, median};
use diesel_sharded_tests::cluster::{Cluster, NODES};
use diesel_sharded_tests::galera::Galera;
use diesel_sharded_tests::group_replication::GroupReplication;

const PROCESSES_OF_A_RUN: usize = 8;
const THREADS: usize = 8;
const WARM_UP: Duration = Duration::from_millis(500);

/// How a thread counts.
#[derive(Clone, Copy)]
enum Way {
    /// On the row itself, tried again at once after a conflict.
    OneRow,
    /// On the row itself in `retry::transaction`, with its pauses.
    InTransaction,
    Sharded(ShardChoice),
    /// With the other threads of the process.
    Combined,
    /// On a row of the thread's own: the most that can be committed, if each count is a commit.
    OwnRow,
}

struct Contender {
    name: &'static str,
    way: Way,
    /// Whether each process keeps to a stripe.
    is_striped: bool,
}

const fn contender(name: &'static str, way: Way) -> Contender {
    let is_striped = false;
    Contender {
        name,
        way,
        is_striped,
    }
}

const fn striped(name: &'static str, way: Way) -> Contender {
    let is_striped = true;
    Contender {
        name,
        way,
        is_striped,
    }
}

/// The contenders on one server.
const ON_A_SERVER: [Contender; 4] = [
    contender(ONE_ROW, Way::OneRow),
    contender(RANDOM, Way::Sharded(ShardChoice::Random)),
    contender(STRIPED, Way::Sharded(ShardChoice::Striped)),
    contender(DEFAULT, Way::Sharded(ShardChoice::Adaptive)),
];

/// The contenders on a cluster. The first counts on one row.
const ON_A_CLUSTER: [Contender; 8] = [
    contender(
        "one row, `diesel::update`, tried again at once",
        Way::OneRow,
    ),
    contender(
        "one row, `diesel::update` in `retry::transaction`, with its pauses",
        Way::InTransaction,
    ),
    contender(
        "`diesel_sharded::update`",
        Way::Sharded(ShardChoice::Adaptive),
    ),
    striped(
        "`diesel_sharded::update`, a stripe for each process",
        Way::Sharded(ShardChoice::Adaptive),
    ),
    // Does not learn which shards other writers use.
    contender("`ShardChoice::Random`", Way::Sharded(ShardChoice::Random)),
    striped(
        "`ShardChoice::Random`, a stripe for each process",
        Way::Sharded(ShardChoice::Random),
    ),
    striped("combined, a stripe for each process", Way::Combined),
    contender(
        "no hot row: `diesel::update` of a row of each writer's own",
        Way::OwnRow,
    ),
];

/// The first row that is a single thread's.
const OWN_ROWS: i64 = 1_000;

/// The conflicts that the threads of this process met.
static CONFLICTS: AtomicU64 = AtomicU64::new(0);

/// The default policy with a long deadline and no limit of attempts: one row may need more than the defaults allow.
fn patient() -> RetryPolicy {
    RetryPolicy::new()
        .with_attempts(u32::MAX)
        .with_deadline(Duration::from_secs(600))
        .with_notify(|_| {
            CONFLICTS.fetch_add(1, Ordering::Relaxed);
        })
}

/// 1213 of Galera and of a node by itself; 3101 of Group Replication, and 1180 with InnoDB's 149.
fn is_conflict(error: &diesel::result::Error) -> bool {
    let text = error.to_string();
    let texts = ["Deadlock found", "Plugin instructed", "Got error 149 "];
    texts.iter().any(|begin| text.starts_with(begin))
}

/// A connection type that counts.
trait Counts: Measured + LoadConnection + Send + 'static {
    fn count(&mut self, way: Way, row: i64, combiner: &Combiner) -> QueryResult<usize>;

    /// Creates the tables with these rows.
    fn create(&mut self, rows: &[i64], has_foreign_keys: bool);

    /// The sum of all totals.
    fn total(&mut self) -> i64;
}

macro_rules! counts {
    ($($connection:ty)+) => {$(
        impl Counts for $connection {
            fn count(&mut self, way: Way, row: i64, combiner: &Combiner) -> QueryResult<usize> {
                let on_one_row = |conn: &mut Self| {
                    diesel::update(videos.find(row)).set(views.eq(views + 1)).execute(conn)
                };
                match way {
                    Way::OneRow | Way::OwnRow => loop {
                        match on_one_row(self) {
                            Err(error) if is_conflict(&error) => {
                                CONFLICTS.fetch_add(1, Ordering::Relaxed);
                            }
                            other => return other,
                        }
                    },
                    Way::InTransaction => retry::transaction(self, patient(), on_one_row),
                    Way::Sharded(choice) => {
                        let count = update(videos.find(row)).set(views.eq(views + 1));
                        count.shard_choice(choice).execute(self)
                    }
                    Way::Combined => {
                        let count = update(videos.find(row)).set(views.eq(views + 1));
                        count.combine(combiner).execute(self)
                    }
                }
            }

            fn create(&mut self, rows: &[i64], has_foreign_keys: bool) {
                self.batch_execute("CREATE TABLE videos (id BIGINT PRIMARY KEY, views BIGINT NOT NULL)")
                    .expect("a table");
                let rows: Vec<_> = rows.iter().map(|row| (id.eq(*row), views.eq(0))).collect();
                diesel::insert_into(videos).values(rows).execute(self).expect("rows");
                let shards = ShardsTable::of(videos);
                let created = match has_foreign_keys {
                    true => (self.run_pending_migrations(MIGRATIONS).map(drop), shards.create(self)),
                    false => (
                        self.run_pending_migrations(MIGRATIONS.without_foreign_key()).map(drop),
                        shards.without_foreign_key().create(self),
                    ),
                };
                created.0.expect("the library's own tables");
                created.1.expect("a table of shards");
            }

            fn total(&mut self) -> i64 {
                let totals: Vec<i64> = videos.select(views.total()).load(self).expect("totals");
                totals.iter().sum()
            }
        }
    )+};
}

counts!(PgConnection MysqlConnection);

/// The servers of a measurement, and its extent.
struct Place<'p, Conn> {
    contenders: &'static [Contender],
    /// The address at which each process counts.
    urls: Vec<String>,
    rounds: usize,
    slice: Duration,
    /// Connects to a node that has all commits of the others.
    up_to_date: Box<dyn Fn(usize) -> Conn + 'p>,
    nodes: usize,
    /// The transactions that the nodes have aborted.
    aborted: Box<dyn Fn() -> u64 + 'p>,
}

/// One slice of one contender.
#[derive(Clone, Copy)]
struct Slice {
    per_second: f64,
    /// The share of transactions that the nodes aborted.
    aborted: f64,
    /// The share of counts that met a conflict.
    conflicts: f64,
}

/// The rows of the contenders, and those of the threads' own.
fn rows(processes: usize) -> Vec<i64> {
    let own_rows = OWN_ROWS..OWN_ROWS + (processes * THREADS) as i64;
    (0..ON_A_CLUSTER.len() as i64).chain(own_rows).collect()
}

impl<Conn: Counts> Place<'_, Conn> {
    /// Measures all contenders in turn; the order rotates.
    fn measure(&self) -> Vec<Vec<Slice>> {
        let all = self.contenders.len();
        in_turns(self.rounds, all, |_, number| self.slice_of(number))
    }

    fn slice_of(&self, number: usize) -> Slice {
        let contender = &self.contenders[number];
        let totals = || (0..self.nodes).map(|node| (self.up_to_date)(node).total());
        let (before, aborted) = (totals().next(), (self.aborted)());
        let arguments = self.urls.iter().enumerate().map(|(process, url)| {
            let (slice, all) = (self.slice.as_millis(), self.urls.len());
            let numbers = format!("{} {number} {process} {all} {slice}", self.contenders.len());
            vec![COUNT.into(), Conn::NAME.into(), url.clone(), numbers]
        });
        let mut processes = Process::start(arguments);
        processes
            .iter_mut()
            .for_each(|process| process.tell("begin"));
        let mut sums = [0; 3];
        for mut process in processes {
            let numbers = process.numbers();
            sums.iter_mut()
                .zip(numbers)
                .for_each(|(sum, more)| *sum += more);
            process.end();
        }
        let [in_slice, all, conflicts] = sums;
        for total in totals() {
            let rose_by = total - before.expect("a node");
            assert_eq!(
                rose_by, all as i64,
                "{}: lost or doubled counts",
                contender.name
            );
        }
        let share = |failed: u64| failed as f64 / (failed + all).max(1) as f64;
        Slice {
            per_second: in_slice as f64 / self.slice.as_secs_f64(),
            aborted: share((self.aborted)() - aborted),
            conflicts: share(conflicts),
        }
    }
}

/// The first argument of a process that counts.
const COUNT: &str = "count";

/// Counts in this process, once the parent says so, until the time is over. Prints how often: in the slice, and in all; and the conflicts.
fn count<Conn: Counts>(url: &str, numbers: &str) {
    let numbers: Vec<usize> = numbers
        .split(' ')
        .map(|n| n.parse().expect("a number"))
        .collect();
    let [contenders, number, process, processes, slice] = numbers[..] else {
        panic!("five numbers");
    };
    let all = [&ON_A_SERVER[..], &ON_A_CLUSTER];
    let all = all.into_iter().find(|all| all.len() == contenders);
    let Contender {
        way, is_striped, ..
    } = all.expect("contenders")[number];
    patient().set_global();
    if is_striped {
        let stripe = Stripe::new(process as u16, processes as u16);
        stripe.expect("one of the processes").set_global();
    }
    let combiner = Combiner::new();
    let connect = |_| Conn::establish(url).expect("a connection");
    let mut conns: Vec<Conn> = (0..THREADS).map(connect).collect();
    println!("{READY}");
    let mut signal = String::new();
    std::io::stdin()
        .read_line(&mut signal)
        .expect("the signal to begin");
    let begin = Instant::now() + WARM_UP;
    let slice = Duration::from_millis(slice as u64);
    let counts: Vec<(u64, u64)> = thread::scope(|scope| {
        let threads = conns.iter_mut().enumerate().map(|(thread, conn)| {
            let combiner = &combiner;
            let row = match way {
                Way::OwnRow => OWN_ROWS + (process * THREADS + thread) as i64,
                _ => number as i64,
            };
            scope.spawn(move || {
                let (mut in_slice, mut all) = (0, 0);
                while begin.elapsed() < slice {
                    assert_eq!(conn.count(way, row, combiner), Ok(1));
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
    let (in_slice, all) = (sum(|(in_slice, _)| *in_slice), sum(|(_, all)| *all));
    println!("{in_slice} {all} {}", CONFLICTS.load(Ordering::Relaxed));
}

/// Measures on one server.
fn on_a_server<Conn: Counts>() -> Part {
    let server = Conn::synced_database();
    Conn::connect(&server).create(&rows(PROCESSES_OF_A_RUN), true);
    let place = Place {
        contenders: &ON_A_SERVER,
        urls: vec![server.url().to_owned(); PROCESSES_OF_A_RUN],
        rounds: 5,
        slice: Duration::from_millis(2000),
        up_to_date: Box::new(|_| Conn::connect(&server)),
        nodes: 1,
        aborted: Box::new(|| 0),
    };
    let cells = place.contenders.iter().zip(place.measure());
    let cells = cells.map(|(Contender { name, .. }, slices)| {
        let rates: Vec<_> = slices.iter().map(|slice| slice.per_second).collect();
        println!("{}, {name}: {rates:?}", Conn::NAME);
        Cell::hot(LOCAL_DISK, PROCESSES_OF_A_RUN * THREADS, name, rates)
    });
    let pace = Pace {
        quick: false,
        rounds: place.rounds,
        slice_ms: place.slice.as_millis() as u64,
    };
    Part {
        cells: cells.collect(),
        ..Part::new(PROCESSES, Conn::NAME, machine::with::<Conn>(), pace)
    }
}

/// Measures on a cluster, and prints a table.
fn on_a_cluster<C: Cluster>(cluster: &C) {
    cluster.connect(0).create(&rows(NODES), C::HAS_FOREIGN_KEYS);
    for node in 1..NODES {
        let conn = &mut cluster.up_to_date(node);
        // A query looks for its tables before it waits for the commits of other nodes.
        while conn.batch_execute("SELECT 1 FROM videos_shards").is_err() {
            thread::sleep(Duration::from_millis(50));
        }
    }
    let place = Place {
        contenders: &ON_A_CLUSTER,
        urls: (0..NODES).map(|node| cluster.url(node)).collect(),
        rounds: 7,
        slice: Duration::from_millis(1500),
        up_to_date: Box::new(|node| cluster.up_to_date(node)),
        nodes: NODES,
        aborted: Box::new(|| cluster.conflicts()),
    };
    let slices = place.measure();
    println!(
        "\n{NODES} nodes × {THREADS} writers on one hot row, medians of {} interleaved slices of {:?}\n",
        place.rounds, place.slice
    );
    println!(
        "| | counts per second | to one row | aborted by the nodes | conflicts that writers met |\n|---|---|---|---|---|"
    );
    let median_of = |slices: &[Slice], value: fn(&Slice) -> f64| {
        median(slices.iter().map(value).collect()).expect("a round")
    };
    let one_row = median_of(&slices[0], |slice| slice.per_second);
    for (contender, slices) in place.contenders.iter().zip(&slices) {
        let rate = median_of(slices, |slice| slice.per_second);
        println!(
            "| {} | {rate:.0} | {:.1} | {:.1} % | {:.1} % |",
            contender.name,
            rate / one_row,
            100.0 * median_of(slices, |slice| slice.aborted),
            100.0 * median_of(slices, |slice| slice.conflicts),
        );
    }
}

/// Measures counts on one row from several processes.
#[derive(Parser)]
struct Options {
    /// A cluster instead of single servers
    #[arg(long, value_parser = ["galera", "group"])]
    cluster: Option<String>,
    /// Replaces this section in the report that is published
    #[arg(long)]
    publish: bool,
    /// Cargo adds it.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, count_it, database, url, numbers] = &arguments[..]
        && count_it == COUNT
    {
        return match database.as_str() {
            MARIADB => count::<MysqlConnection>(url, numbers),
            _ => count::<PgConnection>(url, numbers),
        };
    }
    let options = Options::parse();
    match options.cluster.as_deref() {
        Some("galera") => return on_a_cluster(&Galera::start()),
        Some(_) => return on_a_cluster(&GroupReplication::start()),
        None => {}
    }
    let parts = [
        on_a_server::<PgConnection>(),
        on_a_server::<MysqlConnection>(),
    ];
    if options.publish {
        Report::publish(parts);
    }
}

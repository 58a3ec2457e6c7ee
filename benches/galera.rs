//! One row and its shards on a cluster of three nodes that all take writes, each with a process of eight writers.
//!
//!     cargo bench -p diesel_sharded_benches --bench galera               # MariaDB Galera
//!     cargo bench -p diesel_sharded_benches --bench galera -- group      # MySQL Group Replication, in containers
//!
//! It takes about two minutes. The nodes and the writers share one machine, and no commit waits for a disk.

use std::io::stdin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::result::Error;
use diesel_migrations::MigrationHarness;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::shard_choice::{ShardChoice, Stripe};
use diesel_sharded::{MIGRATIONS, RowCounter, ShardsTable, update};
use diesel_sharded_benches::program::{Process, READY};
use diesel_sharded_benches::{median, videos};
use diesel_sharded_tests::cluster::{Cluster, NODES};
use diesel_sharded_tests::galera::Galera;
use diesel_sharded_tests::group_replication::GroupReplication;

const WRITERS: usize = 8;
/// The first argument of a process with the writers of one node.
const WRITERS_OF: &str = "--writers";
const ROUNDS: usize = 7;
const SLICE: Duration = Duration::from_millis(1500);
const WARM_UP: Duration = Duration::from_millis(500);

diesel::table! {
    striped (id) {
        id -> BigInt,
        views -> BigInt,
    }
}

#[derive(ShardedField)]
#[diesel(table_name = striped)]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct StripedVideo {
    id: i64,
    #[sharded]
    views: i64,
}

/// A way to count, each on a row of its own.
struct Contender {
    name: &'static str,
    /// Whether each process keeps to a stripe. These count on a table of their own, since a process learns about a whole table.
    is_striped: bool,
    /// Counts once on a row, with as many attempts as it takes.
    count: fn(i64, &mut Writer) -> QueryResult<usize>,
}

macro_rules! sharded {
    ($table:ident $(, $choice:expr)?) => {
        |row, writer| {
            let count = update($table::table.find(row)).set($table::views.eq($table::views + 1));
            count$(.shard_choice($choice))?.execute(&mut writer.conn)
        }
    };
}

/// The first counts on one row. The number of each is that of its row.
const CONTENDERS: [Contender; 8] = [
    Contender {
        name: "one row, `diesel::update`, tried again at once",
        is_striped: false,
        count: |row, writer| loop {
            match on_one_row(row, &mut writer.conn) {
                Err(error) if is_conflict(&error) => {
                    CONFLICTS.fetch_add(1, Ordering::Relaxed);
                }
                other => return other,
            }
        },
    },
    Contender {
        name: "one row, `diesel::update` in `retry::transaction`, with its pauses",
        is_striped: false,
        count: |row, writer| {
            retry::transaction(&mut writer.conn, patient(), |conn| on_one_row(row, conn))
        },
    },
    Contender {
        name: "`diesel_sharded::update`",
        is_striped: false,
        count: sharded!(videos),
    },
    Contender {
        name: "`diesel_sharded::update`, a stripe for each process",
        is_striped: true,
        count: sharded!(striped),
    },
    // Does not learn which shards other writers use.
    Contender {
        name: "`ShardChoice::Random`",
        is_striped: false,
        count: sharded!(videos, ShardChoice::Random),
    },
    Contender {
        name: "`ShardChoice::Random`, a stripe for each process",
        is_striped: true,
        count: sharded!(striped, ShardChoice::Random),
    },
    // One coalescer for the writers of a process.
    Contender {
        name: "`Coalescer::add`, a stripe for each process",
        is_striped: true,
        count: |row, writer| {
            Ok(writer
                .coalescer
                .add(&RowCounter::of(striped::views, row), 1)?)
        },
    },
    // The most that the cluster can commit, if each count is a commit.
    Contender {
        name: "no hot row: `diesel::update` of a row of each writer's own",
        is_striped: false,
        count: |_, writer| on_one_row(writer.own_row, &mut writer.conn),
    },
];

/// The total of a contender.
fn total(number: usize, conn: &mut MysqlConnection) -> i64 {
    if number == CONTENDERS.len() - 1 {
        let own_rows = videos::table.filter(videos::id.ge(OWN_ROWS));
        let all: Vec<i64> = own_rows.select(videos::views).load(conn).expect("rows");
        return all.iter().sum();
    }
    let row = number as i64;
    let total = match CONTENDERS[number].is_striped {
        true => {
            let row = striped::table.find(row);
            row.select(striped::views.total()).first(conn)
        }
        false => {
            let row = videos::table.find(row);
            row.select(videos::views.total()).first(conn)
        }
    };
    total.expect("a total")
}

/// One of the writers of a node.
struct Writer {
    conn: MysqlConnection,
    own_row: i64,
    coalescer: Coalescer<MysqlConnection>,
}

/// The first row that is a single writer's.
const OWN_ROWS: i64 = 1_000;

fn on_one_row(row: i64, conn: &mut MysqlConnection) -> QueryResult<usize> {
    diesel::update(videos::table.find(row))
        .set(videos::views.eq(videos::views + 1))
        .execute(conn)
}

/// 1213 of Galera and of a node by itself; 3101 of Group Replication, and 1180 with InnoDB's 149.
fn is_conflict(error: &Error) -> bool {
    let text = error.to_string();
    let texts = ["Deadlock found", "Plugin instructed", "Got error 149 "];
    texts.iter().any(|begin| text.starts_with(begin))
}

/// The conflicts that the writers of this process met.
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

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.as_slice() {
        [_, writers, url, node] if writers == WRITERS_OF => {
            write(url, node.parse().expect("a number"));
        }
        [_, rest @ ..] if rest.iter().any(|argument| argument == "group") => {
            measure(&GroupReplication::start());
        }
        _ => measure(&Galera::start()),
    }
}

/// Runs the writers of one node.
///
/// Each line of input names a contender and a number of milliseconds. The writers count for that long, and the process prints
/// the number of counts and of conflicts.
fn write(url: &str, node: u16) {
    patient().set_global();
    let pool = Pool::builder()
        .max_size(1)
        .build(ConnectionManager::new(url))
        .expect("a connection");
    let coalescer = Coalescer::builder(pool).retry(patient()).build();
    let coalescer = coalescer.expect("the library's own tables");
    let mut writers: Vec<_> = (0..WRITERS)
        .map(|number| Writer {
            conn: MysqlConnection::establish(url).expect("a connection"),
            own_row: own_row(usize::from(node), number),
            coalescer: coalescer.clone(),
        })
        .collect();
    println!("{READY}");
    for line in stdin().lines() {
        let line = line.expect("a line");
        let (contender, millis) = line.split_once(' ').expect("two numbers");
        let row: i64 = contender.parse().expect("a contender");
        let contender = &CONTENDERS[row as usize];
        let slice = Duration::from_millis(millis.parse().expect("milliseconds"));
        let stripe = match contender.is_striped {
            true => Stripe::new(node, NODES as u16).expect("one of the nodes"),
            false => Stripe::ALL,
        };
        stripe.set_global();
        CONFLICTS.store(0, Ordering::Relaxed);
        let (begin, counted) = (Barrier::new(WRITERS), AtomicU64::new(0));
        thread::scope(|scope| {
            for writer in &mut writers {
                scope.spawn(|| {
                    begin.wait();
                    let began = Instant::now();
                    while began.elapsed() < slice {
                        assert_eq!((contender.count)(row, writer), Ok(1));
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let conflicts = CONFLICTS.load(Ordering::Relaxed);
        println!("{} {conflicts}", counted.into_inner());
    }
}

fn own_row(node: usize, writer: usize) -> i64 {
    OWN_ROWS + (node * WRITERS + writer) as i64
}

/// One slice of one contender.
#[derive(Debug, Clone, Copy)]
struct Cell {
    counts_per_second: f64,
    /// The share of transactions that the nodes aborted.
    aborted: f64,
    /// The share of counts that met a conflict.
    conflicts: f64,
}

fn measure<C: Cluster>(cluster: &C) {
    create(cluster);
    let arguments = |node| vec![WRITERS_OF.into(), cluster.url(node), node.to_string()];
    let mut processes = Process::start((0..NODES).map(arguments));
    let mut counted = [0; CONTENDERS.len()];
    let mut cells = vec![vec![]; CONTENDERS.len()];
    for round in 0..=ROUNDS {
        for turn in 0..CONTENDERS.len() {
            let number = (round + turn) % CONTENDERS.len();
            let slice = if round == 0 { WARM_UP } else { SLICE };
            let (cell, counts) = slice_of(cluster, &mut processes, number, slice);
            counted[number] += counts;
            if round > 0 {
                cells[number].push(cell);
            }
        }
    }
    for (number, (contender, counted)) in CONTENDERS.iter().zip(counted).enumerate() {
        for node in 0..NODES {
            let total = total(number, &mut cluster.up_to_date(node)) as u64;
            assert_eq!(total, counted, "{} on node {node}", contender.name);
        }
    }
    report(&cells);
}

fn create<C: Cluster>(cluster: &C) {
    let conn = &mut cluster.connect(0);
    for table in ["videos", "striped"] {
        conn.batch_execute(&format!(
            "CREATE TABLE {table} (id BIGINT PRIMARY KEY, views BIGINT NOT NULL);
             INSERT INTO {table} VALUES (0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0)"
        ))
        .expect("a table");
    }
    let own_rows = (0..NODES).flat_map(|node| (0..WRITERS).map(move |n| own_row(node, n)));
    let own_rows: Vec<_> = own_rows
        .map(|row| (videos::id.eq(row), videos::views.eq(0)))
        .collect();
    diesel::insert_into(videos::table)
        .values(own_rows)
        .execute(conn)
        .expect("rows");
    let (videos, striped) = (
        ShardsTable::of(videos::table),
        ShardsTable::of(striped::table),
    );
    let migrated = match C::HAS_FOREIGN_KEYS {
        true => conn.run_pending_migrations(MIGRATIONS).map(drop),
        false => conn
            .run_pending_migrations(MIGRATIONS.without_foreign_key())
            .map(drop),
    };
    migrated.expect("the library's own tables");
    let created = match C::HAS_FOREIGN_KEYS {
        true => [videos.create(conn), striped.create(conn)],
        false => [
            videos.without_foreign_key().create(conn),
            striped.without_foreign_key().create(conn),
        ],
    };
    created
        .into_iter()
        .for_each(|created| created.expect("a shards table"));
    for node in 1..NODES {
        let conn = &mut cluster.up_to_date(node);
        // A query looks for its tables before it waits for the commits of other nodes.
        while conn.batch_execute("SELECT 1 FROM striped_shards").is_err() {
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn slice_of(
    cluster: &impl Cluster,
    processes: &mut [Process],
    contender: usize,
    slice: Duration,
) -> (Cell, u64) {
    let before = cluster.conflicts();
    let began = Instant::now();
    for process in processes.iter_mut() {
        process.tell(format_args!("{contender} {}", slice.as_millis()));
    }
    let (mut counted, mut conflicts) = (0, 0);
    for process in processes {
        let (counts, met) = process.numbers();
        counted += counts;
        conflicts += met;
    }
    let time = began.elapsed();
    let aborted = cluster.conflicts() - before;
    let share = |failed: u64| failed as f64 / (failed + counted).max(1) as f64;
    let cell = Cell {
        counts_per_second: counted as f64 / time.as_secs_f64(),
        aborted: share(aborted),
        conflicts: share(conflicts),
    };
    (cell, counted)
}

fn report(cells: &[Vec<Cell>]) {
    println!(
        "\n{NODES} nodes × {WRITERS} writers on one hot row, medians of {ROUNDS} interleaved slices of {SLICE:?}\n"
    );
    println!(
        "| | counts per second | to one row | aborted by the nodes | conflicts that writers met |\n|---|---|---|---|---|"
    );
    let one_row = median_of(&cells[0], |cell| cell.counts_per_second);
    for (contender, cells) in CONTENDERS.iter().zip(cells) {
        let rate = median_of(cells, |cell| cell.counts_per_second);
        println!(
            "| {} | {rate:.0} | {:.1} | {:.1} % | {:.1} % |",
            contender.name,
            rate / one_row,
            100.0 * median_of(cells, |cell| cell.aborted),
            100.0 * median_of(cells, |cell| cell.conflicts),
        );
    }
}

fn median_of(cells: &[Cell], value: impl Fn(&Cell) -> f64) -> f64 {
    median(cells.iter().map(value).collect()).expect("a round")
}

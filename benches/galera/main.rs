//! One row and its shards on a cluster of three nodes that all take writes, each with a process of eight writers.
//!
//!     cargo bench -p diesel_sharded_benches --bench galera               # MariaDB Galera
//!     cargo bench -p diesel_sharded_benches --bench galera -- group      # MySQL Group Replication, in containers
//!
//! It takes about two minutes. The nodes and the writers share one machine, and no commit waits for a disk.

mod contender;

use std::io::stdin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::shard_choice::Stripe;
use diesel_sharded::{MIGRATIONS, ShardsTable};
use diesel_sharded_benches::median;
use diesel_sharded_benches::program::{Process, READY};
use diesel_sharded_tests::cluster::{Cluster, NODES};
use diesel_sharded_tests::galera::Galera;
use diesel_sharded_tests::group_replication::GroupReplication;

use self::contender::{CONFLICTS, Contender, OWN_ROWS, Writer, patient, striped, videos};

const WRITERS: usize = 8;
/// The first argument of a process with the writers of one node.
const WRITERS_OF: &str = "--writers";
const ROUNDS: usize = 7;
const SLICE: Duration = Duration::from_millis(1500);
const WARM_UP: Duration = Duration::from_millis(500);

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
        let contender = Contender::ALL[contender.parse::<usize>().expect("a contender")];
        let slice = Duration::from_millis(millis.parse().expect("milliseconds"));
        let stripe = match contender.is_striped() {
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
                        contender.count(writer);
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
    let mut counted = [0; Contender::ALL.len()];
    let mut cells = vec![vec![]; Contender::ALL.len()];
    for round in 0..=ROUNDS {
        for turn in 0..Contender::ALL.len() {
            let number = (round + turn) % Contender::ALL.len();
            let slice = if round == 0 { WARM_UP } else { SLICE };
            let (cell, counts) = slice_of(cluster, &mut processes, Contender::ALL[number], slice);
            counted[number] += counts;
            if round > 0 {
                cells[number].push(cell);
            }
        }
    }
    for contender in Contender::ALL {
        for node in 0..NODES {
            let conn = &mut cluster.up_to_date(node);
            let total = contender.total(conn) as u64;
            let counted = counted[contender as usize];
            assert_eq!(total, counted, "{contender:?} on node {node}");
        }
    }
    report(&cells);
}

fn create<C: Cluster>(cluster: &C) {
    let conn = &mut cluster.connect(0);
    for table in ["videos", "striped"] {
        conn.batch_execute(&format!(
            "CREATE TABLE {table} (id BIGINT PRIMARY KEY, views BIGINT NOT NULL);
             INSERT INTO {table} VALUES (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0), (7, 0)"
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
        false => {
            let migrated = conn.run_pending_migrations(MIGRATIONS.without_foreign_key());
            migrated.map(drop)
        }
    };
    migrated.expect("the library's own tables");
    let created = match C::HAS_FOREIGN_KEYS {
        true => videos.create(conn).and_then(|()| striped.create(conn)),
        false => {
            let created = videos.without_foreign_key().create(conn);
            created.and_then(|()| striped.without_foreign_key().create(conn))
        }
    };
    created.expect("shards tables");
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
    contender: Contender,
    slice: Duration,
) -> (Cell, u64) {
    let before = cluster.conflicts();
    let began = Instant::now();
    for process in processes.iter_mut() {
        process.tell(format_args!("{} {}", contender as usize, slice.as_millis()));
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
    for (contender, cells) in Contender::ALL.iter().zip(cells) {
        let rate = median_of(cells, |cell| cell.counts_per_second);
        println!(
            "| {} | {rate:.0} | {:.1} | {:.1} % | {:.1} % |",
            contender.name(),
            rate / one_row,
            100.0 * median_of(cells, |cell| cell.aborted),
            100.0 * median_of(cells, |cell| cell.conflicts),
        );
    }
}

fn median_of(cells: &[Cell], value: impl Fn(&Cell) -> f64) -> f64 {
    median(cells.iter().map(value).collect()).expect("a round")
}

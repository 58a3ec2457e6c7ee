//! Soaks the web example: it runs on a private server whose commits wait for the disk, and clients send it requests for a long
//! time, through sockets on 127.0.0.1.
//!
//!     cargo bench -p diesel_sharded_benches --bench soak [-- OPTION …]
//!
//! `--help` lists the options. Of the requests 90 % watch one video, 5 % watch others, and 5 % read: lists, top lists, and a video
//! without a view. The site folds what was watched every 10 s. The run fails if the totals rise by anything but the views that the site
//! acknowledged.

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::{Parser, value_parser};
use diesel::dsl::{select, sql};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_sharded_benches::measured::Measured;
use diesel_sharded_benches::names::SOAK;
use diesel_sharded_benches::report::{Pace, Part, Report, Sample, Soak, tenths};
use diesel_sharded_benches::{machine, percentiles};
use diesel_sharded_web::{Config, Site};
use rand::RngExt;
use reqwest::{Client, StatusCode};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// The clients, each of which waits for an answer before it sends the next request.
const CLIENTS: usize = 64;
const HOT: i64 = 7;
const VIDEOS: i64 = 24;
/// The time of a sample.
const INTERVAL: Duration = Duration::from_secs(10);
const FOLD_EVERY: Duration = Duration::from_secs(10);

/// The path of a request, and the views that it counts.
fn request() -> (String, u64) {
    let mut random = rand::rng();
    let other = (HOT + random.random_range(1..VIDEOS) - 1) % VIDEOS + 1;
    match random.random_range(0..100) {
        0..90 => (format!("/watch/{HOT}"), 1),
        90..95 => (format!("/watch/{other}"), 1),
        95..98 => (format!("/watch/{other}?from=like"), 0),
        98 => ("/".into(), 0),
        _ => ("/top".into(), 0),
    }
}

/// The outcomes since the last sample, and the sums of all.
#[derive(Default)]
struct Outcomes {
    latencies: Vec<Duration>,
    requests: u64,
    acknowledged: u64,
    failed: u64,
}

/// The shards table at one moment.
#[derive(QueryableByName)]
struct Table {
    #[diesel(sql_type = BigInt)]
    shards: i64,
    #[diesel(sql_type = BigInt)]
    bytes: i64,
}

/// A connection type whose server is soaked.
trait Soaked: Measured {
    fn table(&mut self) -> Table;

    /// The sum of all totals.
    fn views(&mut self) -> i64;
}

macro_rules! soaked {
    ($connection:ty, integer: $integer:literal, table: $table:literal) => {
        impl Soaked for $connection {
            fn table(&mut self) -> Table {
                let table = diesel::sql_query($table).get_result(self);
                table.expect("the state of the table")
            }

            fn views(&mut self) -> i64 {
                let sum = "(SELECT SUM(views) FROM videos) + COALESCE((SELECT SUM(views) FROM videos_shards), 0)";
                let sum = sql::<BigInt>(&format!("CAST({sum} AS {})", $integer));
                select(sum).get_result(self).expect("a sum")
            }
        }
    };
}

soaked!(
    PgConnection,
    integer: "bigint",
    table: "SELECT (SELECT COUNT(*) FROM videos_shards) AS shards, pg_total_relation_size('videos_shards') AS bytes"
);
soaked!(
    MysqlConnection,
    integer: "SIGNED",
    table: "SELECT (SELECT COUNT(*) FROM videos_shards) AS shards, CAST(FILE_SIZE AS SIGNED) AS bytes \
            FROM information_schema.INNODB_SYS_TABLESPACES WHERE NAME = CONCAT(DATABASE(), '/videos_shards')"
);

/// Soaks the site on one database.
///
/// # Panics
/// If a view is lost or doubled, or the site does not start.
fn soak<Conn: Soaked>(minutes: u64) -> Soak {
    let database = Conn::synced_database();
    let config = Config {
        database_url: Some(database.url().to_owned()),
        addr: Ipv4Addr::LOCALHOST.into(),
        port: 0,
        fold_every: FOLD_EVERY.as_secs(),
    };
    let runtime = Runtime::new().expect("a runtime");
    let site = runtime.block_on(Site::start(&config)).expect("a site");
    let url = format!("http://{}", site.address());
    let mut conn = Conn::connect(&database);
    let before = conn.views();
    let outcomes = Arc::new(Mutex::new(Outcomes::default()));
    let start = Instant::now();
    let end = start + Duration::from_secs(60 * minutes);
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let work = requests(Client::new(), url.clone(), end, Arc::clone(&outcomes));
        clients.spawn_on(work, runtime.handle());
    }
    let mut samples: Vec<Sample> = vec![];
    let mut last = start;
    while last < end {
        std::thread::sleep((last + INTERVAL).saturating_duration_since(Instant::now()));
        let now = Instant::now();
        let latencies = std::mem::take(&mut outcomes.lock().expect("no panic").latencies);
        let sample = sample(now - start, now - last, latencies, &conn.table());
        println!("{sample:?}");
        samples.push(sample);
        last = now;
    }
    runtime.block_on(clients.join_all());
    runtime.block_on(site.stop()).expect("it stops");
    let outcomes = outcomes.lock().expect("no panic");
    let (acknowledged, failed) = (outcomes.acknowledged, outcomes.failed);
    let rose_by = u64::try_from(conn.views() - before).expect("totals that rise");
    // A request that failed may have counted, or not.
    assert!(
        (acknowledged..=acknowledged + failed).contains(&rose_by),
        "lost or doubled views: {acknowledged} acknowledged, {failed} requests failed, and the totals rose by {rose_by}"
    );
    Soak {
        minutes,
        clients: CLIENTS,
        requests: outcomes.requests,
        failed,
        acknowledged,
        rose_by,
        samples,
    }
}

async fn requests(client: Client, url: String, end: Instant, outcomes: Arc<Mutex<Outcomes>>) {
    while Instant::now() < end {
        let (path, views) = request();
        let begun = Instant::now();
        let served = serve(&client, format!("{url}{path}")).await;
        let latency = begun.elapsed();
        let mut outcomes = outcomes.lock().expect("no panic");
        outcomes.requests += 1;
        match served {
            Ok(StatusCode::OK) => {
                outcomes.latencies.push(latency);
                outcomes.acknowledged += views;
            }
            other => {
                eprintln!("{path}: {other:?}");
                outcomes.failed += 1;
            }
        }
    }
}

async fn serve(client: &Client, url: String) -> reqwest::Result<StatusCode> {
    let response = client.get(url).send().await?;
    let status = response.status();
    response.bytes().await?; // a browser reads the page
    Ok(status)
}

fn sample(at: Duration, time: Duration, latencies: Vec<Duration>, table: &Table) -> Sample {
    let per_second = tenths(latencies.len() as f64 / time.as_secs_f64());
    let [_, p99] = percentiles(latencies);
    Sample {
        at: tenths(at.as_secs_f64()),
        per_second,
        p99_us: tenths(p99.map_or(0.0, |latency| latency.as_nanos() as f64 / 1000.0)),
        shards: table.shards,
        table_bytes: table.bytes,
    }
}

/// Soaks the web example on a private server.
#[derive(Parser)]
struct Options {
    #[arg(long, default_value_t = 30, value_parser = value_parser!(u64).range(1..))]
    minutes: u64,
    #[arg(long, default_value = "postgres", value_parser = ["postgres", "mysql"])]
    database: String,
    /// Replaces the soak of this database in the report that is published
    #[arg(long)]
    publish: bool,
    /// Cargo adds it.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(code) = machine::with_binary_log() {
        return code;
    }
    match options.database.as_str() {
        "postgres" => measure::<PgConnection>(&options),
        _ => measure::<MysqlConnection>(&options),
    }
    ExitCode::SUCCESS
}

fn measure<Conn: Soaked>(options: &Options) {
    let soak = soak::<Conn>(options.minutes);
    println!(
        "{} requests, {} failed; {} views acknowledged, and the totals rose by {}",
        soak.requests, soak.failed, soak.acknowledged, soak.rose_by
    );
    if options.publish {
        let pace = Pace {
            quick: options.minutes < 30,
            rounds: 1,
            slice_ms: INTERVAL.as_millis() as u64,
        };
        Report::publish([Part {
            soak: Some(soak),
            ..Part::new(SOAK, Conn::NAME, machine::with::<Conn>(), pace)
        }]);
    }
}

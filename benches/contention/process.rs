//! The cost of buffering inside the process: adds per second, and the memory that each key keeps after it was counted once.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel::r2d2::Pool;
use diesel_sharded::RowCounter;
use diesel_sharded::coalescer::Coalescer;

use crate::arena::{Arena, Disk, Stage};
use crate::contender::total_of_shards;
use crate::schema::{ROWS, buffered};

const THREADS: i64 = 2;
/// The number of adds between two readings of the clock.
const CHUNK: i64 = 1000;

/// With the arguments `--idle-keys N` this program counts once on each of N keys and prints the bytes that each key keeps.
pub const IDLE_KEYS: &str = "--idle-keys";

#[derive(Debug)]
pub struct InProcess {
    pub hot_adds: f64,
    pub uniform_adds: f64,
    pub bytes_of_idle_key: f64,
}

pub fn measure(duration: Duration, keys: i64) -> InProcess {
    InProcess {
        hot_adds: adds_a_second(duration, 1),
        uniform_adds: adds_a_second(duration, ROWS),
        bytes_of_idle_key: bytes_in_a_process_of_its_own(keys),
    }
}

fn coalescer(stage: &Stage<SqliteConnection>) -> Coalescer<SqliteConnection> {
    let pool = Pool::builder()
        .max_size(1)
        .build(stage.clone())
        .expect("a connection");
    Coalescer::new(pool).expect("a coalescer")
}

fn adds_a_second(duration: Duration, keys: i64) -> f64 {
    let stage = Stage::new(Disk::Free);
    let coalescer = coalescer(&stage);
    let start = Instant::now();
    let added: i64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let mut added = 0;
                    while start.elapsed() < duration {
                        for i in 0..CHUNK {
                            let counter = RowCounter::of(buffered::views, i % keys + 1);
                            coalescer.add_later(&counter, 1).expect("room in the queue");
                        }
                        added += CHUNK;
                    }
                    added
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .sum()
    });
    let rate = added as f64 / start.elapsed().as_secs_f64();
    coalescer
        .close()
        .expect("all that was added can be committed");
    let total = stage.connect().integer(&total_of_shards("buffered"));
    assert_eq!(total, added, "lost or doubled counts");
    rate
}

/// Runs in a process of its own: memory that earlier measurements freed would hide the growth.
fn bytes_in_a_process_of_its_own(keys: i64) -> f64 {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program)
        .args([IDLE_KEYS, &keys.to_string()])
        .output();
    let output = output.expect("this program again");
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().unwrap_or_else(|_| {
        panic!(
            "no number: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

/// Returns the memory that each of `keys` keys keeps once all counts on them are committed.
pub fn bytes_of_idle_key(keys: i64) -> f64 {
    let stage = Stage::<SqliteConnection>::new(Disk::Free);
    stage.connect().run(&format!(
        "INSERT INTO buffered SELECT n + {ROWS}, 0 FROM ({}) AS numbers",
        SqliteConnection::numbers(keys)
    ));
    let coalescer = coalescer(&stage);
    let add = |first: i64, last: i64| {
        for key in first..=last {
            coalescer
                .add_later(&RowCounter::of(buffered::views, key), 1)
                .expect("room in the queue");
        }
        coalescer
            .flush()
            .expect("all that was added can be committed");
    };
    add(1, ROWS); // fills SQLite's cache and the coalescer's buffers
    let before = resident_bytes();
    add(ROWS + 1, ROWS + keys);
    let bytes = (resident_bytes() - before) / keys as f64;
    let total = stage.connect().integer(&total_of_shards("buffered"));
    assert_eq!(total, ROWS + keys, "lost or doubled counts");
    bytes
}

fn resident_bytes() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux tells it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.expect("a number") * 1024.0
}

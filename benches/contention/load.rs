//! Runs the threads of a measurement: in every round each entrant counts for a short slice, in an order that rotates.

use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use diesel_sharded_benches::report::{Cell, tenths};
use diesel_sharded_benches::{median, percentiles};
use indicatif::ProgressBar;
use rand::RngExt;
use rand::distr::weighted::WeightedIndex;

use crate::arena::{Arena, Stage};
use crate::contenders::{Contender, Counting};
use crate::schema::ROWS;

/// Which rows are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    Hot,
    Uniform,
    /// The n-th key is counted in proportion to 1 / n.
    Zipf,
}

impl Keys {
    pub fn name(self) -> &'static str {
        match self {
            Keys::Hot => "one hot key",
            Keys::Uniform => "1000 keys, uniform",
            Keys::Zipf => "1000 keys, Zipf",
        }
    }

    fn sampler(self) -> Box<dyn FnMut() -> i64> {
        let mut random = rand::rng();
        match self {
            Keys::Hot => Box::new(|| 1),
            Keys::Uniform => Box::new(move || random.random_range(1..=ROWS)),
            Keys::Zipf => {
                let weights = (1..=ROWS).map(|key| 1.0 / key as f64);
                let weights = WeightedIndex::new(weights).expect("positive weights");
                Box::new(move || 1 + random.sample(&weights) as i64)
            }
        }
    }
}

/// The number of rounds, and how long each slice of a round lasts.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub rounds: usize,
    pub slice: Duration,
    pub warm_up: Duration,
}

/// The conditions that a group of cells shares.
#[derive(Debug, Clone, Copy)]
pub struct Scene {
    pub keys: Keys,
    /// The name of the update's shape, where shapes are compared.
    pub shape: Option<&'static str>,
    /// The number of threads, or of tasks.
    pub threads: usize,
    /// The increments that all threads together begin in a second, whether earlier ones are done or not; without it each begins the next one when
    /// the last is done.
    pub rate: Option<f64>,
}

impl Scene {
    /// Increments on one row that commit by themselves.
    pub fn hot(threads: usize) -> Self {
        Scene {
            keys: Keys::Hot,
            shape: None,
            threads,
            rate: None,
        }
    }
}

/// The results of one slice.
#[derive(Debug, Default)]
pub struct Slice {
    pub rate: f64,
    pub succeeded: usize,
    pub failed: usize,
    pub latencies: [Option<Duration>; 2],
}

/// One thread's increments in one slice.
struct Counted {
    in_time: usize,
    latencies: Vec<Duration>,
    failures: Vec<String>,
}

/// Measures each of `entrants` in `scene`.
///
/// # Panics
/// If an increment is lost or doubled: the measurement would be worth nothing.
pub fn measure<Conn: Arena>(
    stage: &Stage<Conn>,
    scene: Scene,
    pace: Pace,
    entrants: &[&Contender<Conn>],
    bar: &ProgressBar,
) -> Vec<Cell> {
    let conn = &mut stage.connect();
    for table in ["events", "comments"] {
        conn.run(&format!("{} {table}", Conn::EMPTY));
    }
    let turns: Vec<(usize, Duration)> = (0..=pace.rounds)
        .flat_map(|round| {
            let duration = if round == 0 { pace.warm_up } else { pace.slice };
            let order = (0..entrants.len()).map(move |turn| (round + turn) % entrants.len());
            order.map(move |entrant| (entrant, duration))
        })
        .collect();
    let mut slices: Vec<Vec<Slice>> = entrants.iter().map(|_| vec![]).collect();
    let gate = Barrier::new(scene.threads + 1);
    // All threads share one end. With more threads than cores, a thread that is scheduled late would otherwise also end late.
    let end = Mutex::new(Instant::now());
    let counted = Mutex::new(vec![]);
    thread::scope(|scope| {
        for number in 0..scene.threads {
            let mut conn = stage.connect();
            let every = scene.rate.map(|rate| {
                let every = Duration::from_secs_f64(scene.threads as f64 / rate);
                (every.mul_f64(number as f64 / scene.threads as f64), every)
            });
            let (turns, gate, end, counted) = (&turns, &gate, &end, &counted);
            scope.spawn(move || {
                let mut keys = scene.keys.sampler();
                let ways = entrants.iter().map(|entrant| (entrant.counting)());
                let mut ways: Vec<_> = ways.collect();
                for &(entrant, _) in turns {
                    gate.wait();
                    let end = *end.lock().expect("no panic");
                    let slice = match &mut ways[entrant] {
                        Ok(count) => count_until(end, every, count, &mut conn, &mut keys),
                        Err(error) => panic!("{error}"),
                    };
                    counted.lock().expect("no panic").push(slice);
                    gate.wait();
                }
            });
        }
        for (turn, &(entrant, duration)) in turns.iter().enumerate() {
            let contender = entrants[entrant];
            let name = contender.name;
            let scene_name = scene.shape.unwrap_or(scene.keys.name());
            let (database, threads) = (Conn::NAME, scene.threads);
            bar.set_message(format!(
                "{database}, {scene_name}, {threads} threads: {name}"
            ));
            let before = conn.integer(&contender.total);
            let settle = (contender.begin)();
            let begun = Instant::now();
            *end.lock().expect("no panic") = begun + duration;
            gate.wait();
            gate.wait();
            settle();
            let settled = begun.elapsed();
            let slice = Slice::of(duration, counted.lock().expect("no panic").drain(..));
            let slice = match contender.is_buffered {
                true => slice.within(settled),
                false => slice,
            };
            let rose_by = conn.integer(&contender.total) - before;
            let counted = slice.succeeded as i64 * contender.rows;
            assert_eq!(
                rose_by, counted,
                "lost or doubled counts: {name}, {database}, {scene:?}"
            );
            if turn >= entrants.len() {
                slices[entrant].push(slice); // the first round only warms up
            }
        }
    });
    let cells = entrants.iter().zip(slices);
    let cells = cells.map(|(entrant, slices)| cell(scene, stage, entrant.name, &slices));
    cells.collect()
}

/// Counts until the end; with `(first, every)` at these times. One that begins late, because the one before took long, has waited since
/// the time at which it should have begun.
fn count_until<Conn>(
    end: Instant,
    every: Option<(Duration, Duration)>,
    count: &mut Counting<Conn>,
    conn: &mut Conn,
    keys: &mut dyn FnMut() -> i64,
) -> Counted {
    let mut counted = Counted {
        in_time: 0,
        latencies: vec![],
        failures: vec![],
    };
    let mut begun = Instant::now() + every.map_or(Duration::ZERO, |(first, _)| first);
    while begun < end {
        if every.is_some() {
            thread::sleep(begun.saturating_duration_since(Instant::now()));
        }
        let outcome = count(conn, keys());
        let done = Instant::now();
        match outcome {
            Ok(()) => {
                counted.latencies.push(done - begun);
                counted.in_time += usize::from(done <= end);
            }
            Err(error) => counted.failures.push(error.to_string()),
        }
        begun = every.map_or(done, |(_, every)| begun + every);
    }
    counted
}

impl Slice {
    fn of(duration: Duration, threads: impl Iterator<Item = Counted>) -> Self {
        let mut slice = Slice::default();
        let (mut in_time, mut latencies) = (0, vec![]);
        for thread in threads {
            in_time += thread.in_time;
            slice.failed += thread.failures.len();
            latencies.extend(thread.latencies);
        }
        slice.succeeded = latencies.len();
        slice.rate = in_time as f64 / duration.as_secs_f64();
        slice.latencies = percentiles(latencies);
        slice
    }

    /// The rate of all increments of the slice, over the time until all of them were in the database.
    fn within(self, settled: Duration) -> Self {
        Slice {
            rate: self.succeeded as f64 / settled.as_secs_f64(),
            ..self
        }
    }
}

/// The medians of one entrant's slices.
pub fn cell<Conn: Arena>(
    scene: Scene,
    stage: &Stage<Conn>,
    entrant: &str,
    slices: &[Slice],
) -> Cell {
    let rates: Vec<f64> = slices.iter().map(|slice| slice.rate).collect();
    let [p50, p99] = [0, 1].map(|percentile| {
        let known = slices.iter().map(|slice| slice.latencies[percentile]);
        let known = known.map(|latency| Some(latency?.as_secs_f64() * 1e6));
        let known: Option<Vec<_>> = known.collect();
        known.and_then(median).map(tenths)
    });
    Cell {
        keys: scene.keys.name().to_owned(),
        shape: scene.shape.map(str::to_owned),
        p50_us: p50,
        p99_us: p99,
        failed: slices.iter().map(|slice| slice.failed).sum(),
        ..Cell::hot(stage.disk.name(), scene.threads, entrant, rates)
    }
}

//! Runs the threads of a measurement: in every round each entrant counts for a short slice, in an order that rotates.

use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use diesel_sharded_benches::median;
use indicatif::ProgressBar;
use rand::RngExt;
use rand_distr::{Distribution, Zipf};

use crate::arena::{Arena, Disk, Stage};
use crate::contender::{Contender, Counting};
use crate::schema::ROWS;

/// Which rows are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    Hot,
    Uniform,
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
                let zipf = Zipf::new(ROWS as f64, 1.0).expect("a distribution");
                Box::new(move || zipf.sample(&mut random) as i64)
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
    pub section: &'static str,
    pub keys: Keys,
    pub in_transaction: bool,
    /// The name of the update's shape, where shapes are compared.
    pub shape: Option<&'static str>,
    /// The number of threads, or of tasks.
    pub threads: usize,
}

impl Scene {
    /// Counts on one row that commit by themselves.
    pub fn hot(section: &'static str, threads: usize) -> Self {
        Scene {
            section,
            keys: Keys::Hot,
            in_transaction: false,
            shape: None,
            threads,
        }
    }
}

/// One entrant's results in one scene, as medians of the rounds.
#[derive(Debug)]
pub struct Cell {
    pub scene: Scene,
    pub disk: Disk,
    pub database: &'static str,
    pub entrant: &'static str,
    /// Counts per second.
    pub rate: f64,
    /// Counts per second in each round.
    pub rates: Vec<f64>,
    /// The 50th, 95th and 99th percentiles of the time of one count, if they were measured.
    pub latencies: [Option<Duration>; 3],
    /// Failed counts in all rounds.
    pub failed: usize,
}

pub const PERCENTILES: [f64; 3] = [0.50, 0.95, 0.99];

/// A program that counts without this process, and so shows the database's limit.
pub trait Limit: Sync {
    fn name(&self) -> &'static str;

    /// The SQL expression of the total so far; `None` if the program writes to no counter.
    fn total(&self) -> Option<String>;

    /// Counts on that many connections for that long.
    fn run(&self, connections: usize, duration: Duration) -> Slice;
}

/// The results of one slice.
#[derive(Debug, Default)]
pub struct Slice {
    pub rate: f64,
    pub succeeded: usize,
    pub failed: usize,
    pub latencies: [Option<Duration>; 3],
}

/// A participant in a scene.
pub enum Entrant<'a, Conn> {
    Contender(&'a dyn Contender<Conn>),
    Limit(&'a dyn Limit),
}

impl<Conn> Entrant<'_, Conn> {
    fn name(&self) -> &'static str {
        match self {
            Entrant::Contender(contender) => contender.name(),
            Entrant::Limit(limit) => limit.name(),
        }
    }

    fn total(&self) -> Option<String> {
        match self {
            Entrant::Contender(contender) => contender.total(),
            Entrant::Limit(limit) => limit.total(),
        }
    }

    fn rows(&self) -> i64 {
        match self {
            Entrant::Contender(contender) => contender.rows(),
            Entrant::Limit(_) => 1,
        }
    }
}

/// One thread's counts in one slice.
struct Counted {
    in_time: usize,
    latencies: Vec<Duration>,
    failures: Vec<String>,
}

/// Measures each of `entrants` in `scene`.
///
/// # Panics
/// If a count is lost or doubled: the measurement would be worth nothing.
pub fn measure<Conn: Arena>(
    stage: &Stage<Conn>,
    scene: Scene,
    pace: Pace,
    entrants: &[Entrant<'_, Conn>],
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
        for _ in 0..scene.threads {
            let mut conn = stage.connect();
            let (turns, gate, end, counted) = (&turns, &gate, &end, &counted);
            scope.spawn(move || {
                let mut keys = scene.keys.sampler();
                let mut ways: Vec<_> = entrants
                    .iter()
                    .map(|entrant| match entrant {
                        Entrant::Contender(contender) => Some(contender.counting()),
                        Entrant::Limit(_) => None,
                    })
                    .collect();
                for &(entrant, _) in turns {
                    gate.wait();
                    let end = *end.lock().expect("no panic");
                    let slice = match &mut ways[entrant] {
                        Some(Ok(count)) => count_until(end, count, &mut conn, &mut keys),
                        Some(Err(error)) => Counted::nothing(error.to_string()),
                        None => Counted::nothing("it counts by itself".into()),
                    };
                    counted.lock().expect("no panic").push(slice);
                    gate.wait();
                }
            });
        }
        for (turn, &(entrant, duration)) in turns.iter().enumerate() {
            let (name, total) = (entrants[entrant].name(), entrants[entrant].total());
            let mut counted_so_far = || total.as_ref().map(|total| conn.integer(total));
            bar.set_message(format!(
                "{}, {}, {} threads: {name}",
                scene.shape.unwrap_or(scene.section),
                Conn::NAME,
                scene.threads
            ));
            let before = counted_so_far();
            let slice = match &entrants[entrant] {
                Entrant::Contender(contender) => {
                    contender.begin();
                    let begun = Instant::now();
                    *end.lock().expect("no panic") = begun + duration;
                    gate.wait();
                    gate.wait();
                    contender.settle();
                    let settled = begun.elapsed();
                    let mut counted = counted.lock().expect("no panic");
                    let slice = Slice::of(duration, counted.drain(..));
                    match contender.is_buffered() {
                        true => slice.within(settled),
                        false => slice,
                    }
                }
                Entrant::Limit(limit) => {
                    let is_warm_up = turn < entrants.len();
                    let slice = match is_warm_up {
                        true => Slice::default(), // the program runs for whole seconds and warms up by itself
                        false => limit.run(scene.threads, duration),
                    };
                    gate.wait();
                    gate.wait();
                    counted.lock().expect("no panic").clear();
                    slice
                }
            };
            if let (Some(before), Some(after)) = (before, counted_so_far()) {
                let counted = slice.succeeded as i64 * entrants[entrant].rows();
                assert_eq!(
                    after - before,
                    counted,
                    "lost or doubled counts: {name}, {}, {scene:?}",
                    Conn::NAME
                );
            }
            if turn >= entrants.len() {
                slices[entrant].push(slice); // the first round only warms up
            }
        }
    });
    let cells = entrants.iter().zip(slices);
    cells
        .map(|(entrant, slices)| Cell::of(scene, stage, entrant.name(), &slices))
        .collect()
}

fn count_until<Conn>(
    end: Instant,
    count: &mut Counting<'_, Conn>,
    conn: &mut Conn,
    keys: &mut dyn FnMut() -> i64,
) -> Counted {
    let mut counted = Counted {
        in_time: 0,
        latencies: vec![],
        failures: vec![],
    };
    let mut begun = Instant::now();
    while begun < end {
        let outcome = count(conn, keys());
        let done = Instant::now();
        match outcome {
            Ok(()) => {
                counted.latencies.push(done - begun);
                counted.in_time += usize::from(done <= end);
            }
            Err(error) => counted.failures.push(error.to_string()),
        }
        begun = done;
    }
    counted
}

impl Counted {
    fn nothing(why: String) -> Self {
        Counted {
            in_time: 0,
            latencies: vec![],
            failures: vec![why],
        }
    }
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

    /// The rate of all counts of the slice, over the time until all of them were in the database.
    fn within(self, settled: Duration) -> Self {
        Slice {
            rate: self.succeeded as f64 / settled.as_secs_f64(),
            ..self
        }
    }
}

pub fn percentiles(mut latencies: Vec<Duration>) -> [Option<Duration>; 3] {
    latencies.sort_unstable();
    PERCENTILES.map(|percentile| {
        let last = latencies.len().checked_sub(1)?;
        Some(latencies[(last as f64 * percentile) as usize])
    })
}

impl Cell {
    pub fn of<Conn: Arena>(
        scene: Scene,
        stage: &Stage<Conn>,
        entrant: &'static str,
        slices: &[Slice],
    ) -> Self {
        let rates: Vec<f64> = slices.iter().map(|slice| slice.rate).collect();
        let latency = |percentile: usize| {
            let known: Option<Vec<f64>> = slices
                .iter()
                .map(|slice| Some(slice.latencies[percentile]?.as_secs_f64()))
                .collect();
            known.and_then(median).map(Duration::from_secs_f64)
        };
        Cell {
            scene,
            disk: stage.disk,
            database: Conn::NAME,
            entrant,
            rate: median(rates.clone()).unwrap_or(f64::NAN),
            rates,
            latencies: [latency(0), latency(1), latency(2)],
            failed: slices.iter().map(|slice| slice.failed).sum(),
        }
    }
}

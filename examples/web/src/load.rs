//! The built-in load: many writers on one video for some seconds, each waiting for its commits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::{RowCounter, update};
use tokio::task::spawn_blocking;

use crate::Result;
use crate::database::{AnyConnection, Database};
use crate::models::Shards;
use crate::schema::videos::dsl::{videos, views};

/// How views are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    OneRow,
    Sharded,
    Coalesced,
}

impl Mode {
    pub const ALL: [Mode; 3] = [Mode::OneRow, Mode::Sharded, Mode::Coalesced];

    /// Its name in a form.
    pub fn name(self) -> &'static str {
        match self {
            Mode::OneRow => "one-row",
            Mode::Sharded => "sharded",
            Mode::Coalesced => "coalesced",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Mode::OneRow => "One row",
            Mode::Sharded => "Sharded",
            Mode::Coalesced => "Coalesced",
        }
    }

    /// The call that a writer makes.
    pub fn code(self) -> &'static str {
        match self {
            Mode::OneRow => "diesel::update(…)",
            Mode::Sharded => "diesel_sharded::update(…)",
            Mode::Coalesced => "coalescer.add(…)",
        }
    }
}

/// The load that a visitor asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// One after the other.
    pub modes: Vec<Mode>,
    pub video: i64,
    pub writers: u16,
    pub time: Duration,
}

/// The mode that is running.
#[derive(Debug)]
struct Run {
    mode: Mode,
    video: i64,
    before: Shards,
    started: Instant,
    time: Duration,
    counted: AtomicU64,
}

/// How long a writer waits for one count, its commit included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waits {
    pub p50: Duration,
    pub p99: Duration,
}

impl Waits {
    /// Of all counts, in microseconds.
    fn of(mut micros: Vec<u32>) -> Option<Self> {
        micros.sort_unstable();
        let at = |percent: usize| {
            let place = (micros.len() * percent).div_ceil(100).max(1) - 1;
            let micros = micros.get(place).copied();
            micros.map(|micros| Duration::from_micros(micros.into()))
        };
        let (p50, p99) = (at(50)?, at(99)?);
        Some(Waits { p50, p99 })
    }
}

/// The result of one mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub writers: u16,
    pub took: Duration,
    pub counted: u64,
    /// `None` if nothing was counted.
    pub waits: Option<Waits>,
    /// How much the video's total rose meanwhile: by the same amount, unless visitors watched it too.
    pub rose_by: i64,
    /// The error that ended a writer. Nothing retries it, just as in an application with Diesel alone.
    pub failed: Option<String>,
}

pub fn per_second(counted: u64, took: Duration) -> f64 {
    counted as f64 / took.as_secs_f64().max(0.001)
}

/// The mode that is running, as the page shows it.
#[derive(Debug, Clone)]
pub struct Running {
    pub mode: Mode,
    pub counted: u64,
    pub since: Duration,
    pub left: Duration,
}

/// The load at work, and its results.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Stage {
    #[default]
    NotRunYet,
    Connecting(Plan),
    Running(Plan, Mode),
    Finished(Plan),
    /// Why it did not run.
    Failed(String),
}

/// The progress that the page shows.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    pub stage: Stage,
    pub running: Option<Running>,
    /// In the order of [`Mode::ALL`].
    pub outcomes: [Option<Outcome>; 3],
    /// The video that the coalescer counted on last, and the shard there.
    pub coalescer: Option<(i64, i32)>,
    /// The video that the coalescer counts on now, as it was before.
    coalescing: Option<(i64, Shards)>,
}

impl Progress {
    /// The shard of a video on which the coalescer counts, or did: the one that grew most under its load.
    pub fn shard_of_coalescer(&self, video: i64, now: &Shards) -> Option<i32> {
        let of_this = |(of, _): &&(i64, _)| *of == video;
        let counts = self.coalescing.as_ref().filter(|(of, _)| *of == video);
        let counted = self.coalescer.as_ref().filter(of_this);
        let counts = counts.and_then(|(_, before)| before.grew_most(now));
        counts.or(counted.map(|(_, shard)| *shard))
    }
}

#[derive(Default)]
pub struct Load {
    state: Mutex<State>,
    /// One load at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct State {
    stage: Stage,
    running: Option<Arc<Run>>,
    /// Ends the load that is running.
    stop: Arc<AtomicBool>,
    outcomes: [Option<Outcome>; 3],
    coalescer: Option<(i64, i32)>,
}

/// A load is running, which another one would disturb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtWork;

impl Load {
    /// Starts a load, unless one is running.
    pub fn start(
        self: &Arc<Self>,
        plan: Plan,
        database: Database,
        coalescer: Coalescer<AnyConnection>,
    ) -> std::result::Result<(), AtWork> {
        let turn = Arc::clone(&self.turn)
            .try_lock_owned()
            .map_err(|_| AtWork)?;
        let stop = Arc::new(AtomicBool::new(false));
        {
            let mut state = self.state();
            state.stage = Stage::Connecting(plan.clone());
            state.stop = Arc::clone(&stop);
            for mode in &plan.modes {
                state.outcomes[*mode as usize] = None;
            }
        }
        let load = Arc::clone(self);
        tokio::spawn(async move {
            let at_work = Arc::clone(&load);
            let running = plan.clone();
            let ran =
                spawn_blocking(move || at_work.run(&running, &stop, &database, &coalescer)).await;
            let mut state = load.state();
            state.running = None;
            state.stage = match ran {
                Ok(Ok(())) => Stage::Finished(plan),
                Ok(Err(error)) => Stage::Failed(error.to_string()),
                Err(panicked) => Stage::Failed(panicked.to_string()),
            };
            drop(turn); // the next one begins after that is written
        });
        Ok(())
    }

    /// Ends the load that is running, if there is one, and waits for its end.
    pub async fn stop(&self) {
        self.state().stop.store(true, Ordering::Relaxed);
        drop(self.turn.lock().await);
    }

    pub fn progress(&self) -> Progress {
        let state = self.state();
        let run = state.running.as_ref();
        let running = run.map(|run| {
            let since = run.started.elapsed();
            Running {
                mode: run.mode,
                counted: run.counted.load(Ordering::Relaxed),
                since,
                left: run.time.saturating_sub(since),
            }
        });
        let coalescing = run.filter(|run| run.mode == Mode::Coalesced);
        Progress {
            stage: state.stage.clone(),
            running,
            outcomes: state.outcomes.clone(),
            coalescer: state.coalescer,
            coalescing: coalescing.map(|run| (run.video, run.before.clone())),
        }
    }

    fn run(
        &self,
        plan: &Plan,
        stop: &AtomicBool,
        database: &Database,
        coalescer: &Coalescer<AnyConnection>,
    ) -> Result<()> {
        let mut watching = database.connect()?;
        let connections = (0..plan.writers).map(|_| database.connect());
        let mut connections: Vec<_> = connections.collect::<Result<_>>()?;
        for mode in &plan.modes {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let before = Shards::of(plan.video, &mut watching)?;
            let run = Arc::new(Run {
                mode: *mode,
                video: plan.video,
                before,
                started: Instant::now(),
                time: plan.time,
                counted: AtomicU64::new(0),
            });
            {
                let mut state = self.state();
                state.running = Some(Arc::clone(&run));
                state.stage = Stage::Running(plan.clone(), *mode);
            }
            let (failed, micros) = std::thread::scope(|scope| {
                let write = |conn| {
                    let run = &run;
                    scope.spawn(move || write(run, plan.video, stop, conn, coalescer))
                };
                let writers: Vec<_> = connections.iter_mut().map(write).collect();
                let ended = writers.into_iter().map(join);
                ended.fold((None, vec![]), |(failed, mut all), (error, micros)| {
                    all.extend(micros);
                    (failed.or(error), all)
                })
            });
            let took = run.started.elapsed();
            let after = Shards::of(plan.video, &mut watching)?;
            let mut state = self.state();
            state.running = None;
            if *mode == Mode::Coalesced {
                let shard = run.before.grew_most(&after);
                state.coalescer = shard.map(|shard| (plan.video, shard)).or(state.coalescer);
            }
            state.outcomes[*mode as usize] = Some(Outcome {
                writers: plan.writers,
                took,
                counted: run.counted.load(Ordering::Relaxed),
                waits: Waits::of(micros),
                rose_by: after.total() - run.before.total(),
                failed,
            });
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error that ended a writer, and the microseconds of each of its counts.
type Ended = (Option<String>, Vec<u32>);

/// Counts until the time is over, or an error comes.
fn write(
    run: &Run,
    video: i64,
    stop: &AtomicBool,
    conn: &mut AnyConnection,
    coalescer: &Coalescer<AnyConnection>,
) -> Ended {
    let mut micros = vec![];
    let views_of_video = RowCounter::of(views, video);
    while run.started.elapsed() < run.time && !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let counted = match run.mode {
            Mode::OneRow => diesel::update(videos.find(video))
                .set(views.eq(views + 1))
                .execute(conn)
                .map_err(diesel_sharded::Error::from),
            Mode::Sharded => update(videos.find(video))
                .set(views.eq(views + 1))
                .execute(conn)
                .map_err(diesel_sharded::Error::from),
            Mode::Coalesced => coalescer.add(&views_of_video, 1),
        };
        match counted {
            Ok(rows) => run.counted.fetch_add(rows as u64, Ordering::Relaxed),
            Err(error) => return (Some(error.to_string()), micros),
        };
        micros.push(u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    (None, micros)
}

fn join(writer: ScopedJoinHandle<'_, Ended>) -> Ended {
    writer
        .join()
        .unwrap_or_else(|_| (Some("a writer panicked".to_owned()), vec![]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let waits = |micros: Vec<u32>| {
            let waits = Waits::of(micros)?;
            Some([waits.p50, waits.p99].map(|wait| wait.as_micros()))
        };
        assert_eq!(waits(vec![]), None);
        assert_eq!(waits(vec![7]), Some([7, 7]));
        assert_eq!(waits((1..=200).rev().collect()), Some([100, 198]));
    }
}

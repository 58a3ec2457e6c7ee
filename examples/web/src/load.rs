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
use crate::models::Totals;
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
#[derive(Debug, Clone)]
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
    started: Instant,
    time: Duration,
    counted: AtomicU64,
}

/// The result of one mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub writers: u16,
    pub took: Duration,
    pub counted: u64,
    /// How much the video's total rose meanwhile: by the same amount, unless visitors watched it too.
    pub rose_by: i64,
    /// The error that ended a writer. Nothing retries it, just as in an application with Diesel alone.
    pub failed: Option<String>,
}

impl Outcome {
    pub fn per_second(&self) -> f64 {
        self.counted as f64 / self.took.as_secs_f64().max(0.001)
    }
}

/// The progress that the page shows.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// The mode that is running, how much it has counted so far, and the seconds that are left.
    pub running: Option<(Mode, u64, u64)>,
    /// In the order of [`Mode::ALL`].
    pub outcomes: [Option<Outcome>; 3],
    /// Why the last load did not run.
    pub failed: Option<String>,
}

#[derive(Default)]
pub struct Load {
    state: Mutex<State>,
    /// One load at a time.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    running: Option<Arc<Run>>,
    /// Ends the load that was requested last.
    stop: Arc<AtomicBool>,
    outcomes: [Option<Outcome>; 3],
    failed: Option<String>,
}

impl Load {
    /// Ends the load that is running, and starts another.
    pub fn start(
        self: &Arc<Self>,
        plan: Plan,
        database: Database,
        coalescer: Coalescer<AnyConnection>,
    ) {
        let stop = Arc::new(AtomicBool::new(false));
        std::mem::replace(&mut self.state().stop, Arc::clone(&stop)).store(true, Ordering::Relaxed);
        let load = Arc::clone(self);
        tokio::spawn(async move {
            let _turn = load.turn.lock().await;
            let at_work = Arc::clone(&load);
            let ran =
                spawn_blocking(move || at_work.run(&plan, &stop, &database, &coalescer)).await;
            let mut state = load.state();
            state.running = None;
            state.failed = match ran {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(panicked) => Some(panicked.to_string()),
            };
        });
    }

    /// Ends the load that is running, if there is one, and waits for its end.
    pub async fn stop(&self) {
        self.state().stop.store(true, Ordering::Relaxed);
        drop(self.turn.lock().await);
    }

    pub fn progress(&self) -> Progress {
        let state = self.state();
        let running = state.running.as_ref().map(|run| {
            let left = run.time.saturating_sub(run.started.elapsed());
            let counted = run.counted.load(Ordering::Relaxed);
            (run.mode, counted, left.as_secs_f64().ceil() as u64)
        });
        Progress {
            running,
            outcomes: state.outcomes.clone(),
            failed: state.failed.clone(),
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
            let before = Totals::of(plan.video, &mut watching)?;
            let run = Arc::new(Run {
                mode: *mode,
                started: Instant::now(),
                time: plan.time,
                counted: AtomicU64::new(0),
            });
            self.state().running = Some(Arc::clone(&run));
            let failed = std::thread::scope(|scope| {
                let write = |conn| {
                    let run = &run;
                    scope.spawn(move || write(run, plan.video, stop, conn, coalescer))
                };
                let writers: Vec<_> = connections.iter_mut().map(write).collect();
                writers.into_iter().map(join).fold(None, Option::or)
            });
            let took = run.started.elapsed();
            let after = Totals::of(plan.video, &mut watching)?;
            let mut state = self.state();
            state.running = None;
            state.outcomes[*mode as usize] = Some(Outcome {
                writers: plan.writers,
                took,
                counted: run.counted.load(Ordering::Relaxed),
                rose_by: after.views - before.views,
                failed,
            });
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts until the time is over; returns the error that ended it earlier.
fn write(
    run: &Run,
    video: i64,
    stop: &AtomicBool,
    conn: &mut AnyConnection,
    coalescer: &Coalescer<AnyConnection>,
) -> Option<String> {
    let views_of_video = RowCounter::of(views, video);
    while run.started.elapsed() < run.time && !stop.load(Ordering::Relaxed) {
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
            Err(error) => return Some(error.to_string()),
        };
    }
    None
}

fn join(writer: ScopedJoinHandle<'_, Option<String>>) -> Option<String> {
    writer
        .join()
        .unwrap_or_else(|_| Some("a writer panicked".to_owned()))
}

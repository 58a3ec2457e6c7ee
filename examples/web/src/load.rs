//! The built-in load: many writers on one video for some seconds, each waiting for its commits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::{Error, RowCounter, update};
use tokio::task::spawn_blocking;

use crate::Result;
use crate::database::{AnyConnection, Database};
use crate::models::Shards;
use crate::schema::videos::dsl::{videos, views};

type Count =
    fn(i64, &mut AnyConnection, &Coalescer<AnyConnection>) -> std::result::Result<usize, Error>;

/// A way to count views.
#[derive(Debug)]
pub struct Mode {
    /// In a form.
    pub name: &'static str,
    pub title: &'static str,
    /// The call that a writer makes.
    pub code: &'static str,
    count: Count,
}

pub static MODES: [Mode; 3] = [
    Mode {
        name: "one-row",
        title: "One row",
        code: "diesel::update(…)",
        count: |video, conn, _| {
            let count = diesel::update(videos.find(video)).set(views.eq(views + 1));
            Ok(count.execute(conn)?)
        },
    },
    Mode {
        name: "sharded",
        title: "Sharded",
        code: "diesel_sharded::update(…)",
        count: |video, conn, _| {
            let count = update(videos.find(video)).set(views.eq(views + 1));
            Ok(count.execute(conn)?)
        },
    },
    Mode {
        name: COALESCED,
        title: "Coalesced",
        code: "coalescer.add(…)",
        count: |video, _, coalescer| coalescer.add(&RowCounter::of(views, video), 1),
    },
];

const COALESCED: &str = "coalesced";

/// The load that a visitor asks for.
#[derive(Debug, Clone)]
pub struct Plan {
    /// One after the other.
    pub modes: &'static [Mode],
    pub video: i64,
    pub writers: u16,
    pub time: Duration,
}

/// The mode that is running.
#[derive(Debug, Clone)]
pub struct Run {
    pub mode: &'static Mode,
    before: Shards,
    started: Instant,
    time: Duration,
    counted: Arc<AtomicU64>,
}

impl Run {
    pub fn counted(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    pub fn per_second(&self) -> f64 {
        per_second(self.counted(), self.started.elapsed())
    }

    pub fn left(&self) -> Duration {
        self.time.saturating_sub(self.started.elapsed())
    }
}

/// The result of one mode.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub took: Duration,
    pub counted: u64,
    /// How long a writer waited for one count, its commit included: p50 and p99; `None` if nothing was counted.
    pub waits: Option<[Duration; 2]>,
    /// How much the video's total rose meanwhile: by the same amount, unless visitors watched it too.
    pub rose_by: i64,
    pub writers: u16,
    /// The error that ended a writer. Nothing retries it, just as in an application with Diesel alone.
    pub failed: Option<String>,
}

impl Outcome {
    pub fn per_second(&self) -> f64 {
        per_second(self.counted, self.took)
    }
}

fn per_second(counted: u64, took: Duration) -> f64 {
    counted as f64 / took.as_secs_f64().max(0.001)
}

/// p50 and p99.
fn percentiles(mut waits: Vec<Duration>) -> Option<[Duration; 2]> {
    waits.sort_unstable();
    let last = waits.len().checked_sub(1)?;
    Some(
        [50, 99]
            .map(|percent| waits[(waits.len() * percent).div_ceil(100).max(1).min(last + 1) - 1]),
    )
}

/// The load at work, and its results.
#[derive(Debug, Clone, Default)]
pub enum Stage {
    #[default]
    NotRunYet,
    Connecting(Plan),
    Running(Plan, Run),
    Finished(Plan),
    /// Why it did not run.
    Failed(String),
}

/// The progress that the page shows.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    pub stage: Stage,
    /// By the name of the mode.
    pub outcomes: BTreeMap<&'static str, Outcome>,
    /// The video that the coalescer counted on last, and the shard there.
    coalescer: Option<(i64, i32)>,
}

impl Progress {
    pub fn running(&self) -> Option<&Run> {
        match &self.stage {
            Stage::Running(_, run) => Some(run),
            _ => None,
        }
    }

    /// The shard of a video on which the coalescer counts, or did: the one that grew most under its load.
    pub fn shard_of_coalescer(&self, video: i64, now: &Shards) -> Option<i32> {
        let counts = match &self.stage {
            Stage::Running(plan, run) if plan.video == video && run.mode.name == COALESCED => {
                run.before.grew_most(now)
            }
            _ => None,
        };
        let counted = self.coalescer.filter(|(of, _)| *of == video);
        counts.or(counted.map(|(_, shard)| shard))
    }
}

#[derive(Default)]
pub struct Load {
    progress: Mutex<Progress>,
    /// Ends the load that is running.
    stop: AtomicBool,
    /// One load at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Load {
    /// Starts a load, and returns whether it did: not if one is running, which another one would disturb.
    pub fn start(
        self: &Arc<Self>,
        plan: Plan,
        database: Database,
        coalescer: Coalescer<AnyConnection>,
    ) -> bool {
        let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() else {
            return false;
        };
        self.stop.store(false, Ordering::Relaxed);
        let mut progress = self.state();
        progress.stage = Stage::Connecting(plan.clone());
        for mode in plan.modes {
            progress.outcomes.remove(mode.name);
        }
        drop(progress);
        let load = Arc::clone(self);
        tokio::spawn(async move {
            let (at_work, running) = (Arc::clone(&load), plan.clone());
            let run = move || at_work.run(&running, &database, &coalescer);
            load.state().stage = match spawn_blocking(run).await {
                Ok(Ok(())) => Stage::Finished(plan),
                Ok(Err(error)) => Stage::Failed(error.to_string()),
                Err(panicked) => Stage::Failed(panicked.to_string()),
            };
            drop(turn); // the next one begins after that is written
        });
        true
    }

    /// Ends the load that is running, if there is one, and waits for its end.
    pub async fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.turn.lock().await);
    }

    pub fn progress(&self) -> Progress {
        self.state().clone()
    }

    fn run(
        &self,
        plan: &Plan,
        database: &Database,
        coalescer: &Coalescer<AnyConnection>,
    ) -> Result<()> {
        let mut watching = database.connect()?;
        let connections = (0..plan.writers).map(|_| database.connect());
        let mut connections: Vec<_> = connections.collect::<Result<_>>()?;
        for mode in plan.modes {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let run = Run {
                mode,
                before: Shards::of(plan.video, &mut watching)?,
                started: Instant::now(),
                time: plan.time,
                counted: Arc::default(),
            };
            self.state().stage = Stage::Running(plan.clone(), run.clone());
            let (mut failed, mut waits) = (None, vec![]);
            std::thread::scope(|scope| {
                let write = |conn| scope.spawn(|| self.write(&run, plan.video, conn, coalescer));
                let writers: Vec<_> = connections.iter_mut().map(write).collect();
                for writer in writers {
                    let panicked = |_| (Some("a writer panicked".to_owned()), vec![]);
                    let (error, of_writer) = writer.join().unwrap_or_else(panicked);
                    failed = failed.take().or(error);
                    waits.extend(of_writer);
                }
            });
            let took = run.started.elapsed();
            let after = Shards::of(plan.video, &mut watching)?;
            let mut progress = self.state();
            if mode.name == COALESCED
                && let Some(shard) = run.before.grew_most(&after)
            {
                progress.coalescer = Some((plan.video, shard));
            }
            let outcome = Outcome {
                took,
                counted: run.counted(),
                waits: percentiles(waits),
                rose_by: after.total() - run.before.total(),
                writers: plan.writers,
                failed,
            };
            progress.outcomes.insert(mode.name, outcome);
        }
        Ok(())
    }

    /// Counts until the time is over, or an error comes. Returns that, and how long each count took.
    fn write(
        &self,
        run: &Run,
        video: i64,
        conn: &mut AnyConnection,
        coalescer: &Coalescer<AnyConnection>,
    ) -> (Option<String>, Vec<Duration>) {
        let mut waits = vec![];
        while run.started.elapsed() < run.time && !self.stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            match (run.mode.count)(video, conn, coalescer) {
                Ok(rows) => run.counted.fetch_add(rows as u64, Ordering::Relaxed),
                Err(error) => return (Some(error.to_string()), waits),
            };
            waits.push(began.elapsed());
        }
        (None, waits)
    }

    fn state(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let of =
            |micros: Vec<u64>| percentiles(micros.into_iter().map(Duration::from_micros).collect());
        assert_eq!(of(vec![]), None);
        assert_eq!(of(vec![7]), Some([7, 7].map(Duration::from_micros)));
        let all = (1..=200).rev().collect();
        assert_eq!(of(all), Some([100, 198].map(Duration::from_micros)));
    }
}

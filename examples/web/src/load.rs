//! The built-in load: many writers on one video for some seconds, each waiting for its commits.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_sharded::combine::Combiner;
use diesel_sharded::update;

use crate::Result;
use crate::connection::AnyConnection;
use crate::database::Database;
use crate::models::Totals;
use crate::schema::videos::dsl::{videos, views};

type Count = fn(i64, &mut AnyConnection, &Combiner) -> QueryResult<usize>;

/// A way to count views.
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
            count.execute(conn)
        },
    },
    Mode {
        name: "sharded",
        title: "Sharded",
        code: "diesel_sharded::update(…)",
        count: |video, conn, _| {
            let count = update(videos.find(video)).set(views.eq(views + 1));
            count.execute(conn)
        },
    },
    Mode {
        name: "combined",
        title: "Combined",
        code: "update(…).combine(…)",
        count: |video, conn, combiner| {
            let count = update(videos.find(video)).set(views.eq(views + 1));
            count.combine(combiner).execute(conn)
        },
    },
];

/// The load that a visitor asks for.
pub struct Plan {
    /// One after the other.
    pub modes: &'static [Mode],
    pub video: i64,
    pub writers: u16,
    pub time: Duration,
}

/// The result of one mode.
#[derive(Clone)]
pub struct Outcome {
    pub per_second: f64,
    pub counted: u64,
    /// How long a writer waited for one increment, its commit included: p50 and p99.
    pub waits: [Duration; 2],
    /// How much the video's total rose meanwhile: by the same amount, unless visitors watched it too.
    pub rose_by: i64,
    /// The error that ended a writer. Nothing retries it, just as in an application with Diesel alone.
    pub failed: Option<String>,
}

/// What the page shows.
#[derive(Clone, Default)]
pub struct Progress {
    /// Empty before the first load.
    pub status: String,
    /// By the name of the mode.
    pub outcomes: BTreeMap<&'static str, Outcome>,
}

#[derive(Default)]
pub struct Load {
    progress: Mutex<Progress>,
    /// Held by the load that is running: another one would disturb it.
    turn: Mutex<()>,
    /// For the writers, whose connections are all the same.
    combiner: Combiner,
}

impl Load {
    pub fn progress(&self) -> Progress {
        self.state().clone()
    }

    /// Runs a load, and returns whether it did: not while another one runs.
    pub fn run(&self, plan: &Plan, database: &Database) -> Result<bool> {
        let Ok(_turn) = self.turn.try_lock() else {
            return Ok(false);
        };
        let mut watching = database.connect()?;
        let connections = (0..plan.writers).map(|_| database.connect());
        let mut connections: Vec<_> = connections.collect::<Result<_>>()?;
        for mode in plan.modes {
            self.state().status = format!("At work: {}.", mode.title);
            let before = Totals::of(plan.video, &mut watching)?;
            let started = Instant::now();
            let (mut failed, mut waits) = (None, vec![]);
            std::thread::scope(|scope| {
                let write = |conn| scope.spawn(|| write(mode, plan, started, conn, &self.combiner));
                let writers: Vec<_> = connections.iter_mut().map(write).collect();
                for writer in writers {
                    let panicked = |_| (Some("a writer panicked".to_owned()), vec![]);
                    let (error, of_writer) = writer.join().unwrap_or_else(panicked);
                    failed = failed.take().or(error);
                    waits.extend(of_writer);
                }
            });
            let outcome = Outcome {
                per_second: waits.len() as f64 / started.elapsed().as_secs_f64(),
                counted: waits.len() as u64,
                waits: percentiles(waits),
                rose_by: Totals::of(plan.video, &mut watching)?.views - before.views,
                failed,
            };
            self.state().outcomes.insert(mode.name, outcome);
        }
        self.state().status = "Finished.".to_owned();
        Ok(true)
    }

    fn state(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts until the time is over, or an error comes. Returns that, and how long each increment took.
fn write(
    mode: &Mode,
    plan: &Plan,
    started: Instant,
    conn: &mut AnyConnection,
    combiner: &Combiner,
) -> (Option<String>, Vec<Duration>) {
    let mut waits = vec![];
    while started.elapsed() < plan.time {
        let began = Instant::now();
        if let Err(error) = (mode.count)(plan.video, conn, combiner) {
            return (Some(error.to_string()), waits);
        }
        waits.push(began.elapsed());
    }
    (None, waits)
}

/// p50 and p99.
fn percentiles(mut waits: Vec<Duration>) -> [Duration; 2] {
    waits.sort_unstable();
    [50, 99].map(|percent| {
        let rank = (waits.len() * percent).div_ceil(100);
        let wait = waits.get(rank.saturating_sub(1));
        wait.copied().unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let of =
            |micros: Vec<u64>| percentiles(micros.into_iter().map(Duration::from_micros).collect());
        assert_eq!(of(vec![]), [0, 0].map(Duration::from_micros));
        assert_eq!(of(vec![7]), [7, 7].map(Duration::from_micros));
        let all = (1..=200).rev().collect();
        assert_eq!(of(all), [100, 198].map(Duration::from_micros));
    }
}

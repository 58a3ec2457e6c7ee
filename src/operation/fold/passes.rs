//! The passes of a folder: their outcomes and numbers.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::backend::ShardedBackend;
use crate::engine::Parents;
use crate::observe;
use crate::per_process::random_bits;

use super::folded::Folded;
use super::schedule::Schedule;

/// An error of a pass, as it is reported.
pub(super) type PassError = Box<dyn StdError + Send + Sync>;

/// Receives the errors of passes.
pub(super) type OnError = Box<dyn Fn(&(dyn StdError + Send + Sync + 'static)) + Send + Sync>;

/// The work of a [`Folder`](super::folder::Folder) since it was started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FolderStats {
    /// Passes that have ended.
    pub passes: u64,
    /// Passes that ended in an error.
    pub failed_passes: u64,
    /// Rows that had something to move, each once a pass.
    pub parents: u64,
    /// Empty shards that were removed.
    pub shards_removed: u64,
    /// Rows that were left for the next pass, because others had locked their shards.
    pub busy: u64,
    /// Rows whose base does not accept the values of their shards, each once a pass.
    pub unfit: u64,
    /// The time that the last pass took.
    pub last_pass: Duration,
    /// The time that the longest pass took.
    pub longest_pass: Duration,
    /// The last error that was reported.
    pub last_error: Option<String>,
}

/// The amounts that a pass moved and left, without the type of its keys.
pub(super) struct PassOutcome {
    parents: u64,
    shards_removed: u64,
    busy: u64,
    unfit: Vec<PassError>,
}

impl PassOutcome {
    pub(super) fn of<P, DB, T>(of: P, folded: Folded<T, P::Key>) -> Self
    where
        P: Parents<DB>,
        DB: ShardedBackend,
    {
        let unfit = folded.unfit.into_iter();
        PassOutcome {
            parents: folded.parents,
            shards_removed: folded.shards_removed,
            busy: folded.busy.len() as u64,
            unfit: unfit
                .map(|(key, reason)| of.unfit(&key, reason).into())
                .collect(),
        }
    }
}

/// The state that a folder and its passes share.
#[derive(Debug, Default)]
pub(super) struct FolderState {
    stopping: AtomicBool,
    stats: Mutex<FolderStats>,
}

impl FolderState {
    pub(super) fn stats(&self) -> MutexGuard<'_, FolderStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pass that is under way ends after its batch.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// The series of passes: it decides when the next begins, and keeps the numbers.
pub(super) struct Passes {
    pub(super) state: Arc<FolderState>,
    pub(super) table: &'static str,
    pub(super) schedule: Schedule,
    pub(super) on_error: Option<OnError>,
}

impl Passes {
    /// The pause before the first pass.
    pub(super) fn first(&self) -> Duration {
        self.schedule.first(random_part())
    }

    /// A pass that began then has ended. The pause before the next one.
    pub(super) fn ended(
        &mut self,
        began: Instant,
        outcome: Result<Result<PassOutcome, PassError>, Box<dyn Any + Send>>,
    ) -> Duration {
        let took = began.elapsed();
        let outcome = outcome.unwrap_or_else(|_| Err("the pass panicked".into()));
        observe::folder_passed(self.table, took, outcome.is_ok());
        {
            let mut stats = self.state.stats();
            stats.passes += 1;
            stats.last_pass = took;
            stats.longest_pass = stats.longest_pass.max(took);
            match &outcome {
                Ok(outcome) => {
                    stats.parents += outcome.parents;
                    stats.shards_removed += outcome.shards_removed;
                    stats.busy += outcome.busy;
                    stats.unfit += outcome.unfit.len() as u64;
                }
                Err(_) => stats.failed_passes += 1,
            }
        }
        match outcome {
            Ok(outcome) => {
                self.schedule.failures = 0;
                for error in &outcome.unfit {
                    self.report(error);
                }
            }
            Err(error) => {
                self.schedule.failures = self.schedule.failures.saturating_add(1);
                self.report(&error);
            }
        }
        self.schedule.next(random_part())
    }

    fn report(&self, error: &PassError) {
        self.state.stats().last_error = Some(error.to_string());
        if let Some(on_error) = &self.on_error {
            // A panic there is no reason to fold no more.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| on_error(&**error)));
        }
    }
}

/// From 0 to 1.
fn random_part() -> f64 {
    random_bits() as f64 / u64::MAX as f64
}

impl fmt::Debug for Passes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passes")
            .field("table", &self.table)
            .field("schedule", &self.schedule)
            .finish_non_exhaustive()
    }
}

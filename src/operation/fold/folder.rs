//! Folds that run by themselves, as applications hold them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::background::Background;
use crate::per_process::MadeIn;

use super::passes::{FolderState, FolderStats};
#[cfg(doc)]
use crate::error::Error;

/// How long dropping the folder waits for a pass that is under way.
const LAST_BATCH: Duration = Duration::from_secs(5);

/// Folds at an interval until it is dropped; made by [`every`](crate::operation::Fold::every).
///
/// Dropping it stops it. Dropping waits up to 5 s for a thread to finish its batch. A task is cancelled at once, which rolls its
/// batch back.
#[must_use = "dropping it stops folding"]
pub struct Folder {
    made_in: MadeIn,
    state: Arc<FolderState>,
    worker: Worker,
}

/// Where the passes run.
pub(super) enum Worker {
    Thread(Background),
    #[cfg(feature = "async")]
    Task(tokio::task::AbortHandle),
}

impl Folder {
    pub(super) fn of(state: Arc<FolderState>, worker: Worker) -> Self {
        Folder {
            made_in: MadeIn::this_process(),
            state,
            worker,
        }
    }

    /// Its work so far. In a child of the process that it folds in, [`last_error`](FolderStats::last_error) is
    /// [`MadeBeforeFork`](Error::MadeBeforeFork).
    pub fn stats(&self) -> FolderStats {
        match self.made_in.check("folder") {
            Ok(()) => self.state.stats().clone(),
            Err(error) => FolderStats {
                last_error: Some(error.to_string()),
                ..FolderStats::default()
            },
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.made_in.is_this_process() {
            return; // it folds on in the parent
        }
        self.state.stop();
        match &mut self.worker {
            Worker::Thread(thread) => thread.stop(LAST_BATCH),
            #[cfg(feature = "async")]
            Worker::Task(task) => task.abort(),
        }
    }
}

impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folder")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

//! Folds that run by themselves, as applications hold them.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use crate::background::Background;

use super::passes::{FolderState, FolderStats};

/// How long a pass that is under way is waited for when the folder is dropped.
const LAST_BATCH: Duration = Duration::from_secs(5);

/// Folds at an interval until it is dropped; made by [`every`](crate::operation::Fold::every).
///
/// Dropping it stops it. Dropping waits up to 5 s for a thread to finish its batch. A task is cancelled at once, which rolls its
/// batch back.
#[must_use = "dropping it stops folding"]
pub struct Folder {
    state: Arc<FolderState>,
    worker: Worker,
}

/// Where the passes run.
pub(super) enum Worker {
    Thread {
        /// `None` tells the thread to end within its sleep.
        stop: Option<Sender<()>>,
        thread: Background,
    },
    #[cfg(feature = "async")]
    Task(tokio::task::AbortHandle),
}

impl Folder {
    pub(super) fn of(state: Arc<FolderState>, worker: Worker) -> Self {
        Folder { state, worker }
    }

    /// Its work so far.
    pub fn stats(&self) -> FolderStats {
        self.state.stats().clone()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.state.stop();
        match &mut self.worker {
            Worker::Thread { stop, thread } => {
                *stop = None;
                thread.ends_within(LAST_BATCH);
            }
            #[cfg(feature = "async")]
            Worker::Task(task) => task.abort(),
        }
    }
}

impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folder")
            .field("stats", &*self.state.stats())
            .finish_non_exhaustive()
    }
}

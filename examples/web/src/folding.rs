//! The folder of the site: folds all videos that were watched, at an interval, and knows what its last pass did.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{NaiveTime, SubsecRound, Utc};
use diesel_sharded::fold;
use diesel_sharded::operation::{Folder, FolderStats};

use crate::Result;
use crate::database::Connections;
use crate::schema::videos::dsl::videos;

/// Folds until it is stopped, or never.
pub struct Folding {
    /// `None` where nothing folds by itself.
    pub every: Option<Duration>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `None` before it is started, once it is stopped, and where nothing folds by itself.
    folder: Option<Folder>,
    /// When the last pass began, and the numbers of all passes before it.
    last: Option<(NaiveTime, FolderStats)>,
}

/// The numbers of the folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folded {
    pub last: Option<LastPass>,
    pub since_start: FolderStats,
}

/// The pass that began last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastPass {
    /// UTC.
    pub began: NaiveTime,
    /// `None` while it is under way.
    pub outcome: Option<Pass>,
}

/// The result of one pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    pub failed: bool,
    pub videos: u64,
    pub shards_removed: u64,
    pub busy: u64,
    pub unfit: u64,
    pub took: Duration,
}

impl Folding {
    pub fn start(every: Option<Duration>, connections: Connections) -> Result<Arc<Self>> {
        let folding = Arc::new(Folding {
            every,
            state: Mutex::default(),
        });
        let Some(every) = every else {
            return Ok(folding);
        };
        let noting = Arc::clone(&folding);
        let folder = fold(videos)
            .every(every)
            .on_error(|error| eprintln!("a fold: {error}"))
            .start(move || {
                noting.note_pass(); // a pass begins with its connection
                connections.get()
            })?;
        folding.state().folder = Some(folder);
        Ok(folding)
    }

    fn note_pass(&self) {
        let mut state = self.state();
        let before = state.folder.as_ref().map(Folder::stats);
        state.last = Some((
            Utc::now().time().trunc_subsecs(0),
            before.unwrap_or_default(),
        ));
    }

    /// The work of the folder so far.
    pub fn so_far(&self) -> Folded {
        let state = self.state();
        let now = state.folder.as_ref().map(Folder::stats).unwrap_or_default();
        let last = state.last.as_ref().map(|(began, before)| LastPass {
            began: *began,
            outcome: (now.passes > before.passes).then(|| Pass {
                failed: now.failed_passes > before.failed_passes,
                videos: now.parents.saturating_sub(before.parents),
                shards_removed: now.shards_removed.saturating_sub(before.shards_removed),
                busy: now.busy.saturating_sub(before.busy),
                unfit: now.unfit.saturating_sub(before.unfit),
                took: now.last_pass,
            }),
        });
        Folded {
            last,
            since_start: now,
        }
    }

    /// May wait for the batch that is under way.
    pub fn stop(&self) {
        let folder = self.state().folder.take();
        drop(folder); // not under the lock, for which the pass may wait
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

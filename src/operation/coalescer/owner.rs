//! What all clones of a coalescer share: its state and its worker.

use std::sync::Arc;
use std::time::Instant;

use diesel::connection::LoadConnection;

use crate::background::Background;
use crate::error::Error;

use super::handoff::Urgency;
use super::shared::CoalescerState;
use super::stats::Stats;
use super::worker::LONGEST_LEAVE;

/// Closes the queue with the last clone.
pub(super) struct Owner<Conn: LoadConnection + 'static> {
    pub(super) shared: Arc<CoalescerState<Conn>>,
    pub(super) worker: Background,
}

impl<Conn: LoadConnection + 'static> Owner<Conn> {
    /// The state, in the process that made it: its worker is there.
    pub(super) fn checked(&self) -> Result<&CoalescerState<Conn>, Error> {
        self.worker.check("coalescer")?;
        Ok(&self.shared)
    }

    /// The work so far.
    pub(super) fn noted(&self) -> Stats {
        match self.checked() {
            Ok(shared) => shared.stats().clone(),
            Err(error) => Stats {
                last_error: Some(error.to_string()),
                ..Stats::default()
            },
        }
    }

    pub(super) fn close(&self) -> Result<(), Error> {
        self.checked()?; // the parent's is not to be closed, nor waited for
        let began = Instant::now();
        // Before the worker knows: when it does, it ends as soon as it finds nothing.
        self.shared.close();
        let at = began + self.shared.limits.deadline;
        let at = *self.shared.gives_up_at.get_or_init(|| at);
        let before = self.shared.stats().losses;
        self.shared.bell.ring(Urgency::Now);
        let patience = at.saturating_duration_since(began) + LONGEST_LEAVE;
        if !self.worker.ends_within(patience) {
            return Err(self.shared.flush_pending(began));
        }
        let stats = self.shared.stats();
        match stats.losses - before {
            0 => Ok(()),
            lost => Err(Error::NotFlushed {
                lost,
                reason: stats.last_error.clone().unwrap_or_default(),
            }),
        }
    }
}

impl<Conn: LoadConnection + 'static> Drop for Owner<Conn> {
    fn drop(&mut self) {
        if self.shared.gives_up_at().is_none() {
            let _ = self.close(); // the losses went to `on_loss`
        }
    }
}

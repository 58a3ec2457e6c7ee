//! Waits for another caller of this process.

use std::task::{Context, Poll};
use std::time::Duration;

/// A wait for another caller, by a thread or by a task.
pub trait Waiting {
    /// How it ends.
    type Turn: Send;

    /// Blocks until it ends; after `patience` it tries to [`lead`](Self::lead).
    fn block(self, patience: Duration) -> Self::Turn;

    /// Ends, or wakes the task when it does.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Self::Turn>;

    /// Does itself what it has waited for so long, or leaves, if it may.
    fn lead(&mut self, waited: Duration) -> Option<Self::Turn>;
}

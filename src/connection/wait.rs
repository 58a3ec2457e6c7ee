//! Waits for another caller of this process.

use std::task::{Context, Poll};
use std::time::Duration;

/// A wait for another caller, by a thread or by a task.
pub trait Waiting {
    /// How it ends.
    type Turn: Send;

    /// Blocks until it ends, but no longer than `patience`.
    fn block(&mut self, patience: Duration) -> Option<Self::Turn>;

    /// Ends, or wakes the task when it does.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Self::Turn>;
}

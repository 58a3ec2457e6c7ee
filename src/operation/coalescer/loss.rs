//! Additions that are lost.

use std::sync::Arc;

use crate::error::Error;

/// An addition that nobody waits for and that will not be counted; see [`on_loss`](super::CoalescerBuilder::on_loss).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Loss {
    /// The field and the key of the row, or the counter's name.
    pub counter: String,
    /// The amount that is lost, or may be lost if the outcome is unknown: the sum of all additions.
    pub amount: i128,
    /// Why.
    pub error: Arc<Error>,
}

/// Is called with each loss.
pub(super) type OnLoss = Box<dyn Fn(&Loss) + Send + Sync>;

//! How an update is retried, and how it chooses its shard.

use crate::placement::ShardChoice;
use crate::policy::RetryPolicy;

/// Settings of an update, independent of its rows and values.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    pub(super) retry: Option<RetryPolicy>,
    pub(super) shard_choice: Option<ShardChoice>,
    /// Replaces the number of shards that the table's writers choose from.
    pub(super) shards: Option<u16>,
}

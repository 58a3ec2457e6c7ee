//! The operations that applications call.

pub mod bounded;
pub mod cached;
#[cfg(feature = "r2d2")]
pub mod coalescer;
pub mod described;
pub mod fold;
pub mod idempotency;
pub mod migrations;
pub mod named;
#[cfg(feature = "async")]
pub mod named_asynchronous;
pub mod retry;
pub mod row_counter;
pub mod set_total;
pub mod shard_choice;
pub mod shard_counts;
pub mod shards_table;
pub mod update;
pub mod verify;

//! Upkeep: what moves a total's parts, sets it, checks it, or changes how many shards it has.

pub(crate) mod fold;
pub(crate) mod set_total;
pub mod shard_counts;
pub(crate) mod verify;

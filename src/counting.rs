//! Counting: what adds to a total, and what repeats, joins or delays such an addition.

pub mod bounded;
#[cfg(feature = "r2d2")]
pub mod coalescer;
pub mod combine;
pub(crate) mod count_many;
pub(crate) mod counter;
pub mod idempotency;
pub mod retry;
pub(crate) mod row_counter;
pub mod shard_choice;
pub mod trending;
pub mod unique;
pub(crate) mod update;

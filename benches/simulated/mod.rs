//! Counts on one hot row, simulated: how throughput and wait follow from writers, shards and processes on servers that nobody here has.
//!
//! A count takes a core for its first half, then the lock of its shard, a core for a quarter, the next flush, and a core for the last
//! quarter. A flush takes all counts along that are ready when it begins, and the next one begins when the count that began this one has
//! ended. Waiting counts take cores and locks in the order in which they came. [`Server`] has the times of these steps, from the
//! [published measurements](crate::report); [`check`] compares other measurements with the simulation.
//!
//! Nothing else is simulated: no network, no checkpoints, no bloat, no cost of switching between threads.

mod actor;
mod check;
mod choice;
mod engine;
mod outcome;
mod random;
mod server;

pub use self::check::{Checked, check, error_at_median, greatest_error};
pub use self::choice::{Choice, Load};
pub use self::engine::simulate;
pub use self::outcome::{Bottleneck, Outcome};
pub use self::server::Server;

/// The cores of a server that nobody measured.
pub const LARGE_CORES: usize = 32;

#[cfg(test)]
mod tests;

//! Counters with bounds: seats that cannot be sold twice, stock that never falls below zero.
//!
//! A bound is a property of the total, and a shard knows only itself. So the room up to each bound is handed out: a shard
//! with an even number holds a part of what may still be taken, one with an odd number a part of what may still be added,
//! as a negative number, and the base holds the rest. Then
//!
//! - taking `n` from an even shard that holds `n` or more cannot bring the total below its lower bound,
//! - adding `n` to an odd shard that holds `-n` or less cannot bring it above its upper bound,
//!
//! whatever happens on the other shards: the bound holds by arithmetic and not by a lock, as in O'Neil's
//! [escrow method](https://doi.org/10.1145/7239.7265). If a shard does not have enough, the total is read, and most counts that
//! must be refused are refused then. Only a count that seems possible locks the row, decides on the exact total, and hands the
//! room out anew. That is rare while there is room, but close to the bound every count does it.
//!
//! The total stays base + sum of shards, and a fold is safe at any time: it moves the room back into the base, and the next count
//! hands it out again.

mod bounds;
mod counter;
mod statements;
mod within;

pub use self::counter::Bounded;
pub(crate) use self::within::{Within, count_and_total, count_once};

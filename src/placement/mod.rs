//! Which shard a count adds to; see [`shard_choice`](crate::shard_choice).

mod choice;
mod claims;
mod marks;
mod stripe;
mod threads;
mod waits;
mod warnings;

pub(crate) use self::choice::{Choice, Process, Subject, hash_of};
pub use self::choice::{ShardChoice, ShardChoiceStats};
pub use self::stripe::Stripe;

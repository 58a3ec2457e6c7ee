//! Which shard a count adds to; see [`shard_choice`](crate::shard_choice).

mod choice;
mod claims;
mod heat;
mod key_hash;
mod later;
mod process;
mod shard_choice;
mod stats;
mod stripe;
mod sync;
mod threads;
mod waits;
mod warnings;

pub(crate) use self::choice::{Choice, Subject};
pub(crate) use self::key_hash::hash_of;
pub(crate) use self::process::Process;
pub use self::shard_choice::ShardChoice;
pub use self::stats::ShardChoiceStats;
pub use self::stripe::Stripe;
pub(crate) use self::waits::CountKind;

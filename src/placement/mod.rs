//! Which shard a count adds to; see [`shard_choice`](crate::shard_choice).

mod choice;
mod claims;
mod contention;
mod process;
mod shard_choice;
mod stripe;

/// The claims' locks. `tests/interleavings` compiles the same claims over the model checker's locks.
mod sync {
    pub(super) use std::sync::{Mutex, MutexGuard, PoisonError};
}

pub(crate) use self::choice::{Choice, Subject, hash_of};
pub(crate) use self::contention::CountKind;
pub(crate) use self::process::Process;
pub use self::shard_choice::{ShardChoice, ShardChoiceStats};
pub use self::stripe::Stripe;

//! Which shard an increment goes to; see [`shard_choice`](crate::shard_choice).

mod choice;
mod contention;
mod keys;
mod process;
mod reservations;
mod shard_choice;
mod stripe;

/// The model checker compiles `reservations.rs` and `keys.rs` over locks of its own.
mod sync {
    pub(super) use std::sync::{Mutex, MutexGuard, PoisonError};
}

pub(crate) use self::choice::{Choice, Subject, hash_of};
pub(crate) use self::contention::CountKind;
pub(crate) use self::process::Process;
pub use self::shard_choice::{ShardChoice, ShardChoiceStats};
pub use self::stripe::Stripe;

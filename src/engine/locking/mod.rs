//! Parents that are held: locked together with their shards, so that no total of theirs can change but by the holder.
//!
//! The parent's row lock comes first and is the mutex: while it is held, nobody else holds the parent, and no shard can be
//! created, since that locks the parent for the foreign key. Then the shards are locked, in the order in which counts lock
//! them. Counts on these shards wait until the holder's transaction ends; nothing is lost or comes in between.

mod lock;
mod locked;
mod orphans;
mod peaks;
mod states;
mod write;

pub(crate) use self::lock::{
    LockedParents, Shards, TRIES_TO_LOCK, locking, locking_options, shards_of,
};
pub(crate) use self::orphans::remove_orphans;
pub(crate) use self::states::{States, field, zeros};
pub(crate) use self::write::Moved;
pub(crate) use crate::query_builder::Sums;

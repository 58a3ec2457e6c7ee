//! Statements about parents that are held, and about their shards.

mod lock;
mod read;
mod rows;
#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests;
mod write;

pub(crate) use self::lock::{FindPolicy, LockParents, LockShards, NotLocked, SelectShards};
pub(crate) use self::read::{Fields, FindHot, ReadPeaks, ReadStates, Sums};
pub(crate) use self::rows::{RowKind, StatementRows};
pub(crate) use self::write::{
    AddShardsToBases, BaseValues, EmptyShards, RemoveOrphans, RemoveShards, Write, WriteValues,
};

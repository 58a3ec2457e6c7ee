//! Statements about parents that are held, and about their shards.

mod hot;
mod lock;
mod orphans;
mod peaks;
mod policy;
mod rows;
mod states;
#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests;
mod write;

pub(crate) use self::hot::FindHot;
pub(crate) use self::lock::{LockParents, LockShards, NotLocked, SelectShards};
pub(crate) use self::orphans::RemoveOrphans;
pub(crate) use self::peaks::ReadPeaks;
pub(crate) use self::policy::FindPolicy;
pub(crate) use self::rows::{HeldRows, RowKind};
pub(crate) use self::states::{Fields, ReadStates, Sums};
pub(crate) use self::write::{
    AddShardsToBases, BaseValues, EmptyShards, RemoveShards, Write, WriteValues,
};

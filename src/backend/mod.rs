//! The one place in which databases differ.

mod dialect;
pub(crate) mod isolation;
mod multi_connection;
mod postgres_messages;
mod rows;

#[cfg(feature = "r2d2")]
pub(crate) use self::dialect::AtOnce;
pub use self::dialect::{BackendOf, Dialect, ShardedBackend};
pub(crate) use self::dialect::{
    Guard, KeepsAndLocks, Strength, SurvivalCheck, TAKEN_FOR_ANOTHER, TotalForm,
};
pub(crate) use self::isolation::Isolation;
pub(crate) use self::rows::{Binds, OwnRows, Reads};

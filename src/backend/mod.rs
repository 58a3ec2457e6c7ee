//! The one place in which databases differ: SQL text, and the meaning of their errors.

mod classify;
mod ddl;
mod dialect;
mod fitting_names;
pub(crate) mod isolation;
mod locks;
mod multi_connection;
mod prepared;
mod range_checks;
mod rows;
mod sharded_backend;
mod statements;
mod top;
mod transactions;
mod triggers;
mod values;

pub(crate) use self::classify::{INTERRUPTED_UNHEARD, SHARD_REMOVED, TAKEN_FOR_ANOTHER};
pub use self::dialect::Dialect;
pub(crate) use self::fitting_names::shortened;
pub(crate) use self::isolation::Isolation;
pub(crate) use self::locks::{KeepsAndLocks, Strength};
pub use self::prepared::keep_queries_on_mysql;
pub(crate) use self::rows::{Binds, OwnRows, Reads};
pub use self::sharded_backend::{BackendOf, ShardedBackend};
#[cfg(feature = "r2d2")]
pub(crate) use self::statements::AtOnce;
pub(crate) use self::statements::OnceForm;
pub(crate) use self::top::SumsForm;
pub(crate) use self::transactions::{Guard, SurvivalCheck};
pub(crate) use self::triggers::SESSION_SHARDS;
pub(crate) use self::values::TotalForm;

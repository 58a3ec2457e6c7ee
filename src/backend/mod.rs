//! The one place in which databases differ: SQL text, and the meaning of their errors.
//!
//! Each database has a file that states what it can do (`postgres.rs`), and one with the texts of its errors (`postgres.txt`).

mod capabilities;
mod columns;
mod detached;
mod dialect;
mod errors;
mod fitting_names;
pub(crate) mod isolation;
mod multi_connection;
mod mysql;
mod mysql_client;
mod postgres;
mod sharded_backend;
mod sqlite;

pub(crate) use self::capabilities::{
    AsksPrimary, Guard, KeepsAndLocks, OnceForm, OpenQuestion, SESSION_SHARDS, Strength, SumsForm,
    SurvivalCheck, TotalForm,
};
pub use self::detached::Detached;
pub use self::dialect::{Dialect, keep_queries_on_mysql};
pub(crate) use self::errors::Meaning;
pub(crate) use self::fitting_names::shortened;
pub(crate) use self::isolation::Isolation;
pub(crate) use self::mysql::INTERRUPTED_UNHEARD;
pub(crate) use self::postgres::{SHARD_REMOVED, TAKEN_FOR_ANOTHER};
pub use self::sharded_backend::{BackendOf, ShardedBackend};
pub(crate) use self::sharded_backend::{Binds, Hashed, Reads};

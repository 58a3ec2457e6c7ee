//! The one place in which databases differ: SQL text, and the classes of their errors.
//!
//! Each database has a file that states what it can do (`postgres.rs`), one with its triggers (`postgres/ddl.rs`), and one with the texts of
//! its errors (`postgres.txt`). Imports run one way: from here to the databases, to the capabilities, to the dialect.

mod capabilities;
mod columns;
mod detached;
mod dialect;
mod errors;
mod fitting_names;
pub(crate) mod isolation;
mod kept_statements;
mod multi_connection;
mod mysql;
mod postgres;
pub(crate) mod quoted;
mod sharded_backend;
mod sqlite;

pub(crate) use self::capabilities::{
    AsksPrimary, DropForm, Guard, KeepsAndLocks, OnceForm, OpenQuestion, Routine, SESSION_SHARDS,
    Strength, SumsForm, SurvivalCheck, TotalForm, Trigger, words,
};
pub use self::detached::Detached;
pub use self::dialect::Dialect;
pub(crate) use self::errors::ErrorDetail;
pub(crate) use self::fitting_names::shortened;
pub(crate) use self::isolation::Isolation;
pub use self::kept_statements::keep_queries_on_mysql;
pub(crate) use self::mysql::INTERRUPTED_UNHEARD;
pub(crate) use self::mysql::ddl::{CLEAN_UP_DROP, UNLOCK_CACHES};
pub(crate) use self::postgres::ddl::{as_one, dollar_quoted, fix_search_path, trigger_function};
pub(crate) use self::postgres::{SHARD_REMOVED, TAKEN_FOR_ANOTHER};
pub(crate) use self::quoted::{
    Column, Integrity, Quoted, each, identifiers, joined, literal, quoted_on, word,
};
pub use self::sharded_backend::{BackendOf, ShardedBackend};
pub(crate) use self::sharded_backend::{Binds, Hashed, Reads};

impl Dialect {
    #[inline]
    pub(crate) const fn capabilities(self) -> &'static capabilities::Capabilities {
        match self {
            Dialect::Postgres => &postgres::CAPABILITIES,
            Dialect::Mysql => &mysql::CAPABILITIES,
            Dialect::Sqlite => &sqlite::CAPABILITIES,
        }
    }
}

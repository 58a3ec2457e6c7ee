//! x
#![allow(missing_docs)]
extern crate self as diesel_sharded;
mod attempt;
mod boxed;
mod conflict;
pub mod counting_update;
mod dialect;
pub mod dsl;
mod error;
mod field;
mod multi_connection;
pub mod retry;
mod returning;
mod runner;
mod shards_table;
mod sql;
mod statement;
mod total;
mod update;

pub use self::conflict::Conflict;
pub use self::counting_update::CountingUpdate;
pub use self::dialect::{BackendOf, ColumnType, Dialect, ShardedBackend};
pub use self::error::Error;
pub use self::field::{FieldType, KeyType, ShardedColumn, ShardedTable, ShardsColumn};
pub use self::shards_table::{ShardsMigration, ShardsTable};
pub use self::total::{ShardedExpressionMethods, Total};
pub use self::update::{UpdateSource, UpdateStatement, update};
pub use diesel_sharded_derive::ShardedField;
pub mod prelude {
    pub use crate::ShardedExpressionMethods as _;
    pub use crate::ShardedField;
}
#[doc(hidden)]
pub use diesel as __diesel;

//! The tables and fields that [`#[derive(ShardedField)]`](derive@crate::ShardedField) declares, for bounds and for impls by
//! hand.

pub(crate) mod amount;
mod column;
#[doc(hidden)]
pub mod counting_update;
pub(crate) mod field;

pub(crate) use self::amount::Amount;
pub use self::column::ColumnType;
pub(crate) use self::column::{MAX_SHARDS, SHARD};
#[doc(inline)]
pub use self::counting_update::CountingUpdate;
pub(crate) use self::counting_update::are_distinct;
pub(crate) use self::field::Value;
pub use self::field::{FieldType, KeyType, ShardedColumn, ShardedTable, ShardsColumn};

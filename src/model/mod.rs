//! Tables and fields that are counted on shards, as the derive declares them.

mod amount;
mod column;
pub mod counting_update;
mod field;

pub use self::amount::Amount;
pub use self::column::ColumnType;
pub(crate) use self::column::{MAX_SHARDS, SHARD, are_equal};
pub use self::counting_update::CountingUpdate;
pub(crate) use self::counting_update::are_distinct;
pub use self::field::{FieldType, KeyType, ShardedColumn, ShardedTable, ShardsColumn};

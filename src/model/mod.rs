//! The tables and fields that [`#[derive(ShardedField)]`](derive@crate::ShardedField) declares, and the rows that
//! [`#[derive(ShardedSelectable)]`](derive@crate::ShardedSelectable) reads, for bounds and for impls by hand.

pub(crate) mod amount;
mod column;
#[doc(hidden)]
pub mod counting_update;
pub(crate) mod field;
#[doc(hidden)]
pub mod reads_totals;

pub(crate) use self::amount::Amount;
pub use self::column::ColumnType;
pub(crate) use self::column::{MAX_SHARDS, SHARD};
#[doc(inline)]
pub use self::counting_update::CountingUpdate;
pub(crate) use self::counting_update::are_distinct;
pub(crate) use self::field::Value;
pub use self::field::{FieldType, KeyType, ShardedColumn, ShardedTable, ShardsColumn};
#[doc(inline)]
pub use self::reads_totals::{FromTotal, ReadsTotals, TotalOf};

//! The tables and fields that [`#[derive(ShardedField)]`](derive@crate::ShardedField) declares, and the rows that
//! [`#[derive(ShardedSelectable)]`](derive@crate::ShardedSelectable) reads, for bounds and for impls by hand.

pub(crate) mod amount;
mod column;
#[doc(hidden)]
pub mod counting_update;
pub(crate) mod field;
mod field_value;
#[doc(hidden)]
pub mod reads_totals;
#[doc(hidden)]
pub mod saves_totals;
mod shown;
mod table_name;

pub(crate) use self::amount::Amount;
pub use self::column::ColumnType;
pub(crate) use self::column::{MAX_SHARDS, Merge, SHARD};
#[doc(inline)]
pub use self::counting_update::CountingUpdate;
pub(crate) use self::counting_update::{Term, Terms, are_distinct};
#[doc(hidden)]
pub use self::field::{AnyKey, DeclaredKey, ValueOf, Whole, assert_value};
pub use self::field::{
    FieldType, IntegerFields, KeyType, MaxColumn, MinColumn, PeakType, PeakValue, ShardedColumn,
    ShardedTable, ShardsColumn, TotalColumn,
};
pub(crate) use self::field::{TotalValue, Value, has_sums};
pub(crate) use self::field_value::{DOUBLE, FieldValue, FieldValues};
#[doc(inline)]
pub use self::reads_totals::{FromTotal, ReadsTotals, TotalOf};
pub(crate) use self::shown::shows;
#[doc(hidden)]
pub use self::shown::{shows_key, type_id};
pub use self::table_name::TableName;
#[doc(hidden)]
pub use self::table_name::{SUFFIX, TableForm, assert_schema, own_name, with_suffix};

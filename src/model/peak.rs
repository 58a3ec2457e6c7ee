//! Fields that keep a greatest or a least value: which columns, of which types.

use diesel::expression::Expression;
use diesel::sql_types::{Nullable, SingleValue, SqlType, is_nullable};

use super::column::ColumnType;
use super::field::{Sealed, ShardsColumn, TotalColumn};
use super::merge::Merge;

/// A column whose greatest value is kept on shards. Implemented by [`#[derive(ShardedField)]`](derive@crate::ShardedField).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `#[sharded(max)]` field",
    note = "`.max(value)` keeps the greatest value of a field that has `#[sharded(max)]` in the model that derives \
            `diesel_sharded::ShardedField`",
    note = "a field with `#[sharded]` is counted: `column.eq(column + n)`; one with `#[sharded(min)]` takes `.min(value)`"
)]
pub trait MaxColumn: TotalColumn<SqlType: PeakType> {}

/// A column whose least value is kept on shards. Implemented by [`#[derive(ShardedField)]`](derive@crate::ShardedField).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `#[sharded(min)]` field",
    note = "`.min(value)` keeps the least value of a field that has `#[sharded(min)]` in the model that derives \
            `diesel_sharded::ShardedField`",
    note = "a field with `#[sharded]` is counted: `column.eq(column + n)`; one with `#[sharded(max)]` takes `.max(value)`"
)]
pub trait MinColumn: TotalColumn<SqlType: PeakType> {}

/// The SQL types that a `#[sharded(max)]` or `#[sharded(min)]` field may have. No others can be added: a
/// [`Dialect`](crate::backend::Dialect) has to know each.
#[diagnostic::on_unimplemented(
    message = "a column of type `{Self}` cannot be a `#[sharded(max)]` or `#[sharded(min)]` field",
    note = "such a field is a column of type `TinyInt`, `SmallInt`, `Integer`, `BigInt`, `Float`, `Double`, `Numeric` (feature \
            `numeric`), `Date`, `Timestamp`, `Timestamptz` (PostgreSQL), `TimestamptzSqlite`, MySQL's `Datetime` or `Unsigned<..>`; \
            it may be nullable"
)]
pub trait PeakType: SqlType + Sealed {
    /// The type of a value: the same without `Nullable`.
    type Value: SqlType<IsNull = is_nullable::NotNull> + SingleValue;
    /// The type in a shards table.
    const COLUMN: ColumnType;
}

/// The SQL type of a value of the column `C`, which is never `NULL`.
pub type PeakValue<C> = <<C as Expression>::SqlType as PeakType>::Value;

impl<ST> PeakType for Nullable<ST>
where
    ST: PeakType + SqlType<IsNull = is_nullable::NotNull> + SingleValue,
{
    type Value = ST;
    const COLUMN: ColumnType = ST::COLUMN;
}

impl ShardsColumn {
    /// A field that keeps the greatest value.
    pub const fn max<C: MaxColumn>() -> Self {
        Self::new(C::NAME, <C::SqlType as PeakType>::COLUMN, Merge::Max)
    }

    /// A field that keeps the least value.
    pub const fn min<C: MinColumn>() -> Self {
        Self::new(C::NAME, <C::SqlType as PeakType>::COLUMN, Merge::Min)
    }
}

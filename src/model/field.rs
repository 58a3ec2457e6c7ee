//! Sharded fields: the columns of a table that are counted on shards.

use std::any::TypeId;
use std::borrow::Cow;
use std::marker::PhantomData;
use std::mem;

#[cfg(feature = "numeric")]
use bigdecimal::BigDecimal;
use diesel::associations::HasTable;
use diesel::expression::{AsExpression, Expression, TypedExpressionType};
use diesel::prelude::*;
#[cfg(feature = "mysql_backend")]
use diesel::sql_types::Unsigned;
use diesel::sql_types::{self, Nullable, SingleValue, SqlType, is_nullable};

use super::amount::Amount;
use super::column::{ColumnType, Merge, SHARD, are_equal};
use super::table_name::TableName;

/// A table with sharded fields. Implemented by [`#[derive(ShardedField)]`](derive@crate::ShardedField).
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no sharded fields",
    note = "derive `diesel_sharded::ShardedField` for the model of that table, with `#[sharded]` on the fields to count",
    note = "`diesel::update` writes to any table"
)]
pub trait ShardedTable: Table + HasTable<Table = Self> + Copy + Send + Sync + 'static {
    /// The Rust type of the primary key: one type, or a tuple for a composite key.
    type Key: Clone + Send + Sync + 'static;

    /// The predicate that [`key_after`](Self::key_after) returns.
    type KeyAfter: Send + Sync;

    /// The values of a key as expressions: one, or a tuple.
    type KeyValues;

    /// The table itself.
    const TABLE: &'static Self;

    /// The name of its shards table, in the same schema.
    const SHARDS_TABLE: TableName<'static>;

    /// The number of shards that a writer chooses from, from 1 to 4096. Readers add up the rows that exist.
    const SHARDS: u16;

    /// The columns of the primary key. The shards table has them too.
    const KEY: &'static [ShardsColumn];

    /// The sharded fields. The shards table has them too.
    const FIELDS: &'static [ShardsColumn];

    /// The predicate that a row's key comes after `key` in key order.
    fn key_after(key: &Self::Key) -> Self::KeyAfter;

    /// The values of `key` as expressions.
    fn key_values(key: &Self::Key) -> Self::KeyValues;

    /// Whether a `WHERE` clause with this query id only compares the whole key with values.
    fn is_key_filter(where_clause: TypeId) -> bool;

    /// Whether a `WHERE` clause of this type only compares the whole key with values, and their `Debug` shows the values that the database
    /// gets.
    fn shows_key_filter(_where_clause: TypeId) -> bool {
        false
    }

    /// Whether the `Debug` of a [`Key`](Self::Key) shows the values that the database gets.
    fn shows_keys() -> bool {
        false
    }
}

/// A sharded field of any kind, whose total can be read. Implemented by [`#[derive(ShardedField)]`](derive@crate::ShardedField).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a sharded field",
    note = "put `#[sharded]`, `#[sharded(max)]` or `#[sharded(min)]` on its field in the model that derives \
            `diesel_sharded::ShardedField`"
)]
pub trait TotalColumn:
    Column<Table: ShardedTable, SqlType: SqlType> + Copy + Send + Sync + 'static
{
    /// The column in the shards table.
    const FIELD: ShardsColumn;
}

/// A column that is counted on shards. Implemented by [`#[derive(ShardedField)]`](derive@crate::ShardedField).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a sharded field",
    note = "put `#[sharded]` on its field in the model that derives `diesel_sharded::ShardedField`",
    note = "a field with `#[sharded(max)]` or `#[sharded(min)]` is not counted: `update(..).set(column.raise_to(value))` changes it, and \
            `column.total()` reads it"
)]
pub trait ShardedColumn: TotalColumn<SqlType: FieldType> {}

/// A sharded field of integers whose range fits into an `i64`, or a tuple of 2 to 8 such fields of one table. Every such field and
/// tuple implements the trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a sharded field of integers that fit into an `i64`, nor a tuple of such fields of one table",
    note = "fields of type `SmallInt`, `Integer`, `BigInt` and MySQL's `Unsigned<SmallInt>` and `Unsigned<Integer>` are; a tuple has \
            2 to 8 of them",
    note = "count what has fractions in its smallest unit, in a `BigInt`: money in cents"
)]
pub trait IntegerFields {
    /// Their table.
    type ParentTable: ShardedTable;

    /// The amounts to add: an `i64` for a field, an array of them for a tuple.
    type Amounts;

    #[doc(hidden)]
    const NAMES: &'static [&'static str];

    /// An amount for each of [`NAMES`](Self::NAMES).
    #[doc(hidden)]
    fn each(amounts: Self::Amounts) -> impl IntoIterator<Item = i64>;
}

#[diagnostic::do_not_recommend]
impl<C: ShardedColumn> IntegerFields for C
where
    Value<C>: Into<i64>,
{
    type ParentTable = C::Table;
    type Amounts = i64;

    const NAMES: &'static [&'static str] = &[C::NAME];

    fn each(amounts: i64) -> impl IntoIterator<Item = i64> {
        [amounts]
    }
}

macro_rules! tuples_of_integer_fields {
    ($($number:literal: $first:ident $($other:ident)+;)+) => {$(
        #[diagnostic::do_not_recommend]
        impl<$first, $($other),+> IntegerFields for ($first, $($other),+)
        where
            $first: ShardedColumn,
            Value<$first>: Into<i64>,
            $($other: ShardedColumn<Table = $first::Table>, Value<$other>: Into<i64>,)+
        {
            type ParentTable = $first::Table;
            type Amounts = [i64; $number];

            const NAMES: &'static [&'static str] = &[$first::NAME, $($other::NAME),+];

            fn each(amounts: Self::Amounts) -> impl IntoIterator<Item = i64> {
                amounts
            }
        }
    )+};
}

tuples_of_integer_fields! {
    2: A B;
    3: A B C;
    4: A B C D;
    5: A B C D E;
    6: A B C D E F;
    7: A B C D E F G;
    8: A B C D E F G H;
}

/// A column of a shards table. It has the name and type of the parent's column.
#[derive(Debug, Clone)]
pub struct ShardsColumn {
    pub(crate) name: Cow<'static, str>,
    pub(crate) column_type: ColumnType,
    /// The type to declare in `CREATE TABLE`, instead of the one that follows from `column_type`.
    pub(crate) sql_type: Option<Cow<'static, str>>,
    /// How a sharded field's shards merge into its total. Without meaning for a key column.
    pub(crate) merge: Merge,
}

impl ShardsColumn {
    /// A column of the primary key.
    pub const fn key<C: Column>() -> Self
    where
        C::SqlType: KeyType,
    {
        Self::new(C::NAME, <C::SqlType as KeyType>::COLUMN, Merge::Sum)
    }

    /// A column of the primary key with a type of the application's choice in `CREATE TABLE`; `column_type` is that of [`DeclaredKey`].
    #[doc(hidden)]
    pub const fn declared_key<C: Column>(column_type: ColumnType, sql_type: &'static str) -> Self {
        Self::new(C::NAME, column_type, Merge::Sum).sql_type(sql_type)
    }

    /// A sharded field.
    pub const fn field<C: ShardedColumn>() -> Self {
        Self::new(C::NAME, <C::SqlType as FieldType>::COLUMN, Merge::Sum)
    }

    /// A field that keeps the greatest value.
    pub const fn max<C: MaxColumn>() -> Self {
        Self::new(C::NAME, <C::SqlType as PeakType>::COLUMN, Merge::Max)
    }

    /// A field that keeps the least value.
    pub const fn min<C: MinColumn>() -> Self {
        Self::new(C::NAME, <C::SqlType as PeakType>::COLUMN, Merge::Min)
    }

    const fn new(name: &'static str, column_type: ColumnType, merge: Merge) -> Self {
        // The derive has checked the name in Rust. The name in SQL may be another.
        assert!(
            !are_equal(name.as_bytes(), SHARD.as_bytes()),
            "a shards table has its own column `shard`: rename this one"
        );
        ShardsColumn {
            name: Cow::Borrowed(name),
            column_type,
            sql_type: None,
            merge,
        }
    }

    /// Whether the field's total is a sum.
    pub(crate) fn is_sum(&self) -> bool {
        self.merge == Merge::Sum
    }

    /// Whether a base may round when shards are added to it, so that the shards keep the rest. (SQLite's `Numeric` also holds exact
    /// integers.)
    pub(crate) fn leaves_rests(&self) -> bool {
        self.is_sum() && self.column_type == ColumnType::Double
    }

    /// Its name in SQL.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its type.
    pub const fn column_type(&self) -> ColumnType {
        self.column_type
    }

    /// Declares the column with this type in `CREATE TABLE`.
    #[must_use]
    pub const fn sql_type(mut self, sql_type: &'static str) -> Self {
        // An assignment would drop the former type, and a `const fn` cannot drop it.
        let sql_type = Some(Cow::Borrowed(sql_type));
        mem::forget(mem::replace(&mut self.sql_type, sql_type));
        self
    }
}

/// Whether one of the fields is counted.
pub(crate) const fn has_sums(fields: &[ShardsColumn]) -> bool {
    let mut i = 0;
    while i < fields.len() {
        if matches!(fields[i].merge, Merge::Sum) {
            return true;
        }
        i += 1;
    }
    false
}

/// A Rust type whose values a column of the SQL type `ST` accepts.
#[diagnostic::on_unimplemented(
    message = "a field of type `{Self}` does not fit its column of type `{ST}`",
    label = "`table!` declares the column as `{ST}`"
)]
pub trait ValueOf<ST> {}

#[diagnostic::do_not_recommend]
impl<T: AsExpression<ST>, ST: SqlType + TypedExpressionType> ValueOf<ST> for T {}

/// Fails to compile, with one error, if a field does not have its column's type.
#[doc(hidden)]
pub const fn assert_value<C: Column, T: ValueOf<C::SqlType>>() {}

/// The SQL types that a sharded field may have. An application cannot add types: a [`Dialect`](crate::backend::Dialect) has to know each.
#[diagnostic::on_unimplemented(
    message = "a column of type `{Self}` cannot be counted on shards",
    note = "a sharded field is a NOT NULL column of type `SmallInt`, `Integer`, `BigInt`, `Double`, `Numeric` (feature \
            `numeric`) or MySQL's `Unsigned<..>`",
    note = "a date or a time keeps its greatest or least value on shards by `#[sharded(max)]` or `#[sharded(min)]`"
)]
pub trait FieldType: SqlType + Sealed {
    /// The type of the values of such a column: `i64` for `BigInt`.
    type Value: Send + Sync + 'static;
    /// The type in which values and their sums are read: `BigInt` for every type of integers that fit into it.
    type Sum: SqlType;
    /// The type in a shards table.
    const COLUMN: ColumnType;

    /// Whether a total may be set to this value. A NaN or an infinity is refused: no increment could change it back into a number.
    fn is_finite(value: &Self::Value) -> bool;

    /// The value as an [`Amount`].
    fn amount(value: &Self::Value) -> Amount;

    /// The Rust type of a total: `i64` for every type of integers that fit into it.
    #[doc(hidden)]
    type Total;

    /// The class of this type. Types of one class have sums of one kind.
    #[doc(hidden)]
    type Class;

    /// The amount as a total, if it fits.
    #[doc(hidden)]
    fn of_amount(amount: &Amount) -> Option<Self::Total>;
}

/// The class of whole numbers.
#[doc(hidden)]
#[derive(Debug)]
pub struct Whole;

/// The Rust type of the values of column `C`: `i64` for a `BigInt`.
pub type Value<C> = <<C as Expression>::SqlType as FieldType>::Value;

/// A total of the field: `i64` (`i128` of an `Unsigned<BigInt>`), `f64` or `BigDecimal`.
pub(crate) type TotalValue<C> = <<C as Expression>::SqlType as FieldType>::Total;

/// The SQL types that a key column of a sharded table may have. An application cannot add types: a [`Dialect`](crate::backend::Dialect)
/// has to know each. With any of them, a key may have a Rust type of your own.
#[diagnostic::on_unimplemented(
    message = "a column of type `{Self}` cannot be a key column of a sharded table",
    note = "key columns are `SmallInt`, `Integer`, `BigInt`, `Text`, `Binary`, `Bool`, `Date`, `Timestamp`, `Timestamptz` (PostgreSQL), \
            `TimestamptzSqlite`, `Uuid` (PostgreSQL), MySQL's `Datetime` or `Unsigned<..>`",
    note = "for another type, such as a database's enum, name it in SQL: `#[sharded(sql_type = \"mood\")]` on the key's field"
)]
pub trait KeyType: SqlType + Sealed {
    /// The type in a shards table.
    const COLUMN: ColumnType;
}

/// A key column with a declared SQL type. The compiler takes [`COLUMN`](Self::COLUMN) from here if a [`KeyType`] is behind it, and from
/// [`AnyKey`] otherwise.
#[doc(hidden)]
#[derive(Debug)]
pub struct DeclaredKey<C>(PhantomData<C>);

impl<C: Column<SqlType: KeyType>> DeclaredKey<C> {
    /// The type in a shards table.
    pub const COLUMN: ColumnType = <C::SqlType as KeyType>::COLUMN;
}

/// See [`DeclaredKey`].
#[doc(hidden)]
pub trait AnyKey {
    /// The type in a shards table.
    const COLUMN: ColumnType = ColumnType::Other;
}

impl<C: Column<SqlType: SqlType<IsNull = is_nullable::NotNull>>> AnyKey for DeclaredKey<C> {}

/// A column whose greatest value is kept on shards. Implemented by [`#[derive(ShardedField)]`](derive@crate::ShardedField).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `#[sharded(max)]` field",
    note = "`.raise_to(value)` keeps the greatest value of a field that has `#[sharded(max)]` in the model that derives \
            `diesel_sharded::ShardedField`",
    note = "a field with `#[sharded]` is counted: `column.eq(column + n)`; one with `#[sharded(min)]` takes `.lower_to(value)`"
)]
pub trait MaxColumn: TotalColumn<SqlType: PeakType> {}

/// A column whose least value is kept on shards. Implemented by [`#[derive(ShardedField)]`](derive@crate::ShardedField).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `#[sharded(min)]` field",
    note = "`.lower_to(value)` keeps the least value of a field that has `#[sharded(min)]` in the model that derives \
            `diesel_sharded::ShardedField`",
    note = "a field with `#[sharded]` is counted: `column.eq(column + n)`; one with `#[sharded(max)]` takes `.raise_to(value)`"
)]
pub trait MinColumn: TotalColumn<SqlType: PeakType> {}

/// The SQL types that a `#[sharded(max)]` or `#[sharded(min)]` field may have. An application cannot add types: a
/// [`Dialect`](crate::backend::Dialect) has to know each.
#[diagnostic::on_unimplemented(
    message = "a column of type `{Self}` cannot be a `#[sharded(max)]` or `#[sharded(min)]` field",
    note = "such a field is a column of type `TinyInt`, `SmallInt`, `Integer`, `BigInt`, `Float`, `Double`, `Numeric` (feature \
            `numeric`), `Date`, `Timestamp`, `Timestamptz` (PostgreSQL), `TimestamptzSqlite`, MySQL's `Datetime` or `Unsigned<..>`; \
            it may be nullable"
)]
pub trait PeakType: SqlType + Sealed {
    /// The SQL type of a value: this one without `Nullable`.
    type Value: SqlType<IsNull = is_nullable::NotNull> + SingleValue;
    /// The type in a shards table.
    const COLUMN: ColumnType;
}

/// The SQL type of a value of column `C`, without `Nullable`.
pub type PeakValue<C> = <<C as Expression>::SqlType as PeakType>::Value;

impl<ST> PeakType for Nullable<ST>
where
    ST: PeakType + SqlType<IsNull = is_nullable::NotNull> + SingleValue,
{
    type Value = ST;
    const COLUMN: ColumnType = ST::COLUMN;
}

/// Only this crate implements the traits above, so they can grow.
pub trait Sealed {}

impl<ST: Sealed + SqlType> Sealed for Nullable<ST> {}

/// Declares the SQL types that a shards table supports. Each has its [`ColumnType`] and the roles of its columns: key, peak or field.
macro_rules! column_types {
    ($($(#[$cfg:meta])* $sql_type:ty => $column:ident $(, $role:ident $(($($of:tt)*))?)+;)+) => {$(
        $(#[$cfg])*
        const _: () = {
            impl Sealed for $sql_type {}
            $(column_types!(@$role $sql_type, $column $(($($of)*))?);)+
        };
    )+};
    (@key $sql_type:ty, $column:ident) => {
        impl KeyType for $sql_type {
            const COLUMN: ColumnType = ColumnType::$column;
        }
    };
    (@peak $sql_type:ty, $column:ident) => {
        impl PeakType for $sql_type {
            type Value = $sql_type;
            const COLUMN: ColumnType = ColumnType::$column;
        }
    };
    (@field $sql_type:ty, $column:ident
        ($value:ty, $total:ty, $sum:ty, $class:ty, $amount:ident $(, $is_finite:path)?)) => {
        impl FieldType for $sql_type {
            type Value = $value;
            type Sum = $sum;
            type Total = $total;
            type Class = $class;
            const COLUMN: ColumnType = ColumnType::$column;

            fn is_finite(_value: &$value) -> bool {
                true $(&& $is_finite(*_value))?
            }

            fn amount(value: &$value) -> Amount {
                Amount::$amount(value.clone().into())
            }

            fn of_amount(amount: &Amount) -> Option<$total> {
                match amount {
                    Amount::$amount(n) => <$total>::try_from(n.clone()).ok(),
                    _ => None,
                }
            }
        }
    };
}

column_types! {
    sql_types::TinyInt => TinyInt, peak;
    sql_types::SmallInt => SmallInt, key, peak, field(i16, i64, sql_types::BigInt, Whole, Integer);
    sql_types::Integer => Integer, key, peak, field(i32, i64, sql_types::BigInt, Whole, Integer);
    sql_types::BigInt => BigInt, key, peak, field(i64, i64, Self, Whole, Integer);
    sql_types::Float => Float, peak;
    sql_types::Double => Double, peak, field(f64, f64, Self, Self, Double, f64::is_finite);
    #[cfg(feature = "numeric")]
    sql_types::Numeric => Numeric, peak, field(BigDecimal, BigDecimal, Self, Self, Numeric);
    sql_types::Text => Text, key;
    sql_types::Binary => Binary, key;
    #[cfg(all(feature = "uuid", feature = "postgres_backend"))]
    sql_types::Uuid => Uuid, key;
    sql_types::Bool => Bool, key;
    sql_types::Date => Date, key, peak;
    sql_types::Timestamp => Timestamp, key, peak;
    #[cfg(feature = "postgres_backend")]
    sql_types::Timestamptz => Timestamptz, key, peak;
    #[cfg(feature = "sqlite")]
    sql_types::TimestamptzSqlite => Timestamptz, key, peak;
    #[cfg(feature = "mysql_backend")]
    sql_types::Datetime => Timestamp, key, peak;
    #[cfg(feature = "mysql_backend")]
    Unsigned<sql_types::TinyInt> => UnsignedTinyInt, peak;
    #[cfg(feature = "mysql_backend")]
    Unsigned<sql_types::SmallInt> => UnsignedSmallInt, key, peak, field(u16, i64, sql_types::BigInt, Whole, Integer);
    #[cfg(feature = "mysql_backend")]
    Unsigned<sql_types::Integer> => UnsignedInteger, key, peak, field(u32, i64, sql_types::BigInt, Whole, Integer);
    #[cfg(feature = "mysql_backend")]
    Unsigned<sql_types::BigInt> => UnsignedBigInt, key, peak, field(u64, i128, Self, Whole, Integer);
}

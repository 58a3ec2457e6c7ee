//! The numbers that a recount gives.

use diesel::query_builder::AsQuery;
use diesel::sql_types::{self, SqlType};

use crate::model::{Amount, FieldType};

/// An SQL type of numbers that a recount may give.
#[diagnostic::on_unimplemented(
    message = "a recount gives no numbers of the type `{Self}`",
    note = "it gives integers, `Float`, `Double` and, with the feature `numeric`, `Numeric`; each of them may be NULL, as a sum of \
            no rows is",
    note = "Diesel's `sum(..)` of a `BigInt` is a `Numeric`: enable the feature `numeric` of `diesel_sharded`"
)]
pub trait NumberType {
    /// The type that it is read into: `i64` for `BigInt`, `Option<i64>` for `Nullable<BigInt>`.
    type Number;

    /// The number as an amount; 0 for a NULL.
    fn amount(number: Self::Number) -> Amount;
}

// One by one: for an impl over all `FieldType`s the compiler would report that trait instead of this one.
macro_rules! number_types {
    ($($(#[$cfg:meta])* $sql_type:ty;)*) => {$(
        $(#[$cfg])*
        impl NumberType for $sql_type {
            type Number = <Self as FieldType>::Value;

            fn amount(number: Self::Number) -> Amount {
                <Self as FieldType>::amount(&number)
            }
        }
    )*};
}

number_types! {
    sql_types::SmallInt;
    sql_types::Integer;
    sql_types::BigInt;
    sql_types::Double;
    #[cfg(feature = "numeric")]
    sql_types::Numeric;
    #[cfg(feature = "mysql_backend")]
    sql_types::Unsigned<sql_types::SmallInt>;
    #[cfg(feature = "mysql_backend")]
    sql_types::Unsigned<sql_types::Integer>;
    #[cfg(feature = "mysql_backend")]
    sql_types::Unsigned<sql_types::BigInt>;
}

impl NumberType for sql_types::Float {
    type Number = f32;

    fn amount(number: f32) -> Amount {
        Amount::Double(number.into())
    }
}

impl<ST: NumberType> NumberType for sql_types::Nullable<ST> {
    type Number = Option<ST::Number>;

    fn amount(number: Option<ST::Number>) -> Amount {
        number.map_or(Amount::Integer(0), ST::amount)
    }
}

/// The SQL type of a recount's rows: a key and a number.
#[diagnostic::on_unimplemented(
    message = "a recount does not give rows of the type `{Self}`",
    note = "it gives a key and then a number: `.select((likes::video_id, count_star()))`; a key of several columns is a tuple by \
            itself"
)]
pub trait RecountRow<K> {
    /// The type that it is read into.
    type Row;

    /// The key, and the number; `None` for a key that is NULL, which no row has.
    fn amount(row: Self::Row) -> Option<(K, Amount)>;
}

/// Whether an SQL type is nullable, and how a key of it is read.
pub trait NullabilityOfKey {
    /// The type that a key is read into: `i64`, or `Option<i64>`.
    type Read<K>;

    /// The key, if it is one.
    fn key<K>(read: Self::Read<K>) -> Option<K>;
}

impl NullabilityOfKey for sql_types::is_nullable::NotNull {
    type Read<K> = K;

    fn key<K>(read: K) -> Option<K> {
        Some(read)
    }
}

impl NullabilityOfKey for sql_types::is_nullable::IsNullable {
    type Read<K> = Option<K>;

    fn key<K>(read: Option<K>) -> Option<K> {
        read
    }
}

impl<K, KeyType, N: NumberType> RecountRow<K> for (KeyType, N)
where
    KeyType: SqlType<IsNull: NullabilityOfKey>,
{
    type Row = (<KeyType::IsNull as NullabilityOfKey>::Read<K>, N::Number);

    fn amount((key, number): Self::Row) -> Option<(K, Amount)> {
        let key = <KeyType::IsNull as NullabilityOfKey>::key(key)?;
        Some((key, N::amount(number)))
    }
}

/// A query that recounts: it gives keys and numbers. Every query whose rows are a key and a number is one. Rows whose key is NULL are
/// left out.
pub trait RecountQuery<K>: AsQuery {
    /// The type that a row is read into.
    type Row;

    /// The key, and the number; `None` for a key that is NULL.
    fn amount(row: Self::Row) -> Option<(K, Amount)>;
}

#[diagnostic::do_not_recommend]
impl<K, Q> RecountQuery<K> for Q
where
    Q: AsQuery<SqlType: RecountRow<K>>,
{
    type Row = <<Q as AsQuery>::SqlType as RecountRow<K>>::Row;

    fn amount(row: Self::Row) -> Option<(K, Amount)> {
        <<Q as AsQuery>::SqlType as RecountRow<K>>::amount(row)
    }
}

//! The numbers that a recount gives.

use diesel::query_builder::AsQuery;
use diesel::sql_types::{self, SqlType};

use crate::model::Amount;

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

macro_rules! number_types {
    ($($(#[$cfg:meta])* $sql_type:ty => $number:ty, $amount:ident;)*) => {$(
        $(#[$cfg])*
        impl NumberType for $sql_type {
            type Number = $number;

            fn amount(number: $number) -> Amount {
                Amount::$amount(number.into())
            }
        }
    )*};
}

number_types! {
    sql_types::SmallInt => i16, Integer;
    sql_types::Integer => i32, Integer;
    sql_types::BigInt => i64, Integer;
    sql_types::Float => f32, Double;
    sql_types::Double => f64, Double;
    #[cfg(feature = "numeric")]
    sql_types::Numeric => bigdecimal::BigDecimal, Numeric;
    #[cfg(feature = "mysql_backend")]
    sql_types::Unsigned<sql_types::SmallInt> => u16, Integer;
    #[cfg(feature = "mysql_backend")]
    sql_types::Unsigned<sql_types::Integer> => u32, Integer;
    #[cfg(feature = "mysql_backend")]
    sql_types::Unsigned<sql_types::BigInt> => u64, Integer;
}

impl<ST: NumberType> NumberType for sql_types::Nullable<ST> {
    type Number = Option<ST::Number>;

    fn amount(number: Option<ST::Number>) -> Amount {
        number.map_or(Amount::Integer(0), ST::amount)
    }
}

/// The SQL type of a recount's rows: a key and up to 4 numbers.
#[diagnostic::on_unimplemented(
    message = "a recount does not give rows of the type `{Self}`",
    note = "it gives a key and then a number for each field that it is compared with, at most 4: \
            `.select((likes::video_id, count_star()))`; a key of several columns is a tuple by itself"
)]
pub trait RecountRow<K> {
    /// The type that it is read into.
    type Row;

    /// The key, and the numbers.
    fn amounts(row: Self::Row) -> (K, Vec<Amount>);
}

/// Whether an SQL type is nullable, as far as a recount's key may be.
#[diagnostic::on_unimplemented(
    message = "a recount's key may be NULL here, and no row has that key",
    note = "leave such rows out: `.filter(comments::video_id.is_not_null())`, and select `comments::video_id.assume_not_null()`"
)]
pub trait NullabilityOfKey {}

impl NullabilityOfKey for sql_types::is_nullable::NotNull {}

macro_rules! rows {
    ($($($number:ident)+;)+) => {$(
        impl<K, KeyType, $($number: NumberType),+> RecountRow<K> for (KeyType, $($number),+)
        where
            KeyType: SqlType<IsNull: NullabilityOfKey>,
        {
            type Row = (K, $($number::Number),+);

            #[allow(non_snake_case)]
            fn amounts(row: Self::Row) -> (K, Vec<Amount>) {
                let (key, $($number),+) = row;
                (key, vec![$($number::amount($number)),+])
            }
        }
    )+};
}

rows! {
    A;
    A B;
    A B C;
    A B C D;
}

/// A query that recounts: it gives keys and numbers. Every query whose rows are a key and up to 4 numbers is one.
pub trait RecountQuery<K>: AsQuery {
    /// The type that a row is read into.
    type Row;

    /// The key, and the numbers.
    fn amounts(row: Self::Row) -> (K, Vec<Amount>);
}

#[diagnostic::do_not_recommend]
impl<K, Q> RecountQuery<K> for Q
where
    Q: AsQuery<SqlType: RecountRow<K>>,
{
    type Row = <<Q as AsQuery>::SqlType as RecountRow<K>>::Row;

    fn amounts(row: Self::Row) -> (K, Vec<Amount>) {
        <<Q as AsQuery>::SqlType as RecountRow<K>>::amounts(row)
    }
}

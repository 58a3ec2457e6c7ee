//! The fields that are compared, and the numbers that a recount gives.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::AsQuery;
use diesel::result::Error as DieselError;
use diesel::sql_types::{self, SqlType};

use crate::engine::field;
use crate::error::Error;
use crate::model::{Amount, FieldType, ShardedColumn, ShardedTable, ShardsColumn};

/// A sharded field, or a tuple of up to 4 of one table, whose totals are compared with a recount.
///
/// `Kind` keeps impls apart and is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a sharded field, or a tuple of up to 4, that a recount can be compared with",
    note = "fields of type `SmallInt`, `Integer`, `BigInt`, `Double`, `Numeric` and MySQL's `Unsigned<..>` can"
)]
pub trait VerifiedFields<Kind> {
    /// The table of the fields.
    type Table: ShardedTable;

    /// A total: `i64` (`i128` of an `Unsigned<BigInt>`), `f64` or `BigDecimal`; a tuple of these for several fields.
    type Total;

    /// The fields, in their order.
    #[doc(hidden)]
    fn fields() -> QueryResult<Vec<&'static ShardsColumn>>;

    /// The total that these amounts are, in the order of the fields.
    #[doc(hidden)]
    fn from_amounts(amounts: &[Amount]) -> QueryResult<Self::Total>;
}

/// Kinds of fields, for inference.
#[derive(Debug)]
pub struct OneField;
/// See [`OneField`].
#[derive(Debug)]
pub struct SeveralFields<Kinds>(PhantomData<Kinds>);

#[diagnostic::do_not_recommend]
impl<C: ShardedColumn> VerifiedFields<OneField> for C {
    type Table = <C as Column>::Table;
    type Total = <C::SqlType as FieldType>::Total;

    fn fields() -> QueryResult<Vec<&'static ShardsColumn>> {
        Ok(vec![field::<C>()?])
    }

    fn from_amounts(amounts: &[Amount]) -> QueryResult<Self::Total> {
        let total = amounts.first().and_then(C::SqlType::of_amount);
        total.ok_or_else(|| {
            let message = format!("a total of {} out of any range", C::NAME);
            let source = DieselError::SerializationError(message.into());
            Error::Overflow { source }.into()
        })
    }
}

macro_rules! tuples {
    ($($first:ident $first_kind:ident $($field:ident $kind:ident)+;)+) => {$(
        #[diagnostic::do_not_recommend]
        impl<T, $first, $first_kind, $($field, $kind),+> VerifiedFields<SeveralFields<($first_kind, $($kind),+)>>
            for ($first, $($field),+)
        where
            T: ShardedTable,
            $first: VerifiedFields<$first_kind, Table = T>,
            $($field: VerifiedFields<$kind, Table = T>,)+
        {
            type Table = T;
            type Total = ($first::Total, $($field::Total),+);

            fn fields() -> QueryResult<Vec<&'static ShardsColumn>> {
                Ok([$first::fields()?, $($field::fields()?),+].concat())
            }

            fn from_amounts(amounts: &[Amount]) -> QueryResult<Self::Total> {
                let mut amounts = amounts.chunks(1);
                Ok((
                    $first::from_amounts(amounts.next().unwrap_or_default())?,
                    $($field::from_amounts(amounts.next().unwrap_or_default())?),+
                ))
            }
        }
    )+};
}

tuples! {
    A KA B KB;
    A KA B KB C KC;
    A KA B KB C KC D KD;
}

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

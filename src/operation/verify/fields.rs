//! The fields that are compared with a recount.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::result::Error as DieselError;

use crate::engine::field;
use crate::error::Error;
use crate::model::{Amount, ShardedColumn, ShardedTable, ShardsColumn, Value};

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

/// A total as a number of Rust.
pub trait VerifiedNumber {
    /// `i64` for every type of integers that fit into it.
    type Total;

    /// The number that the amount is.
    fn from_amount(amount: &Amount) -> Option<Self::Total>;
}

macro_rules! integers {
    ($($integer:ty => $total:ty),+) => {$(
        impl VerifiedNumber for $integer {
            type Total = $total;

            fn from_amount(amount: &Amount) -> Option<$total> {
                match amount {
                    Amount::Integer(n) => <$total>::try_from(*n).ok(),
                    _ => None,
                }
            }
        }
    )+};
}

integers!(i16 => i64, i32 => i64, i64 => i64, u16 => i64, u32 => i64, u64 => i128);

impl VerifiedNumber for f64 {
    type Total = f64;

    fn from_amount(amount: &Amount) -> Option<f64> {
        match amount {
            Amount::Double(n) => Some(*n),
            _ => None,
        }
    }
}

#[cfg(feature = "numeric")]
impl VerifiedNumber for bigdecimal::BigDecimal {
    type Total = Self;

    fn from_amount(amount: &Amount) -> Option<Self> {
        match amount {
            Amount::Numeric(n) => Some(n.clone()),
            _ => None,
        }
    }
}

/// Kinds of fields, for inference.
#[derive(Debug)]
pub struct OneField;
/// See [`OneField`].
#[derive(Debug)]
pub struct SeveralFields<Kinds>(PhantomData<Kinds>);

#[diagnostic::do_not_recommend]
impl<C> VerifiedFields<OneField> for C
where
    C: ShardedColumn,
    Value<C>: VerifiedNumber,
{
    type Table = <C as Column>::Table;
    type Total = <Value<C> as VerifiedNumber>::Total;

    fn fields() -> QueryResult<Vec<&'static ShardsColumn>> {
        Ok(vec![field::<C>()?])
    }

    fn from_amounts(amounts: &[Amount]) -> QueryResult<Self::Total> {
        let total = amounts
            .first()
            .and_then(<Value<C> as VerifiedNumber>::from_amount);
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

//! The values that are set.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::Error as DieselError;

use crate::backend::{Binds, ShardedBackend};
use crate::error::Error;
use crate::model::{Amount, FieldType, ShardedColumn, ShardedTable, ShardsColumn, Value, has_sums};
use crate::query_builder::{Sql, id, sql, zeros};

/// The assignments that [`SetTotal`](crate::operation::SetTotal) writes to the bases, and the fields that they set.
pub trait Assignment {
    /// The total that this field is set to, if the assignment sets it.
    fn sets(&self, field: &ShardsColumn) -> Option<Amount>;

    /// An error if a total must not be set to this value.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// `"views" = $1`
pub struct ToValue<C: ShardedColumn>(pub(crate) Value<C>);

impl<C: ShardedColumn> Assignment for ToValue<C> {
    fn sets(&self, field: &ShardsColumn) -> Option<Amount> {
        (field.name == C::NAME).then(|| <C::SqlType as FieldType>::amount(&self.0))
    }

    fn check(&self) -> Result<(), Error> {
        if <C::SqlType as FieldType>::is_finite(&self.0) {
            return Ok(());
        }
        let source = DieselError::SerializationError("a total is no finite number".into());
        Err(Error::Overflow { source })
    }
}

impl<C, DB> QueryFragment<DB> for ToValue<C>
where
    C: ShardedColumn,
    DB: ShardedBackend + Binds<C::SqlType, Value<C>>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let value = |out: AstPass<'_, 'b, DB>| <DB as Binds<C::SqlType, _>>::push(&self.0, out);
        sql!(out; id(C::NAME), " = ", value)
    }
}

/// `"views" = 0, "likes" = 0`, of all fields that are counted
#[derive(Debug)]
pub struct ToZero<T>(PhantomData<T>);

impl<T: ShardedTable> ToZero<T> {
    pub(crate) fn new() -> Self {
        const {
            assert!(
                has_sums(T::FIELDS),
                "no field of this table is counted: a greatest or least value has no zero"
            );
        }
        ToZero(PhantomData)
    }
}

impl<T: ShardedTable> Assignment for ToZero<T> {
    fn sets(&self, field: &ShardsColumn) -> Option<Amount> {
        field.is_sum().then(|| Amount::zero(field.column_type))
    }
}

impl<T, DB> QueryFragment<DB> for ToZero<T>
where
    T: ShardedTable,
    DB: ShardedBackend,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        zeros(T::FIELDS.iter().filter(|field| field.is_sum())).push(out)
    }
}

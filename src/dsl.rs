//! The types of this crate's expressions and statements, for signatures; the counterpart of [`diesel::dsl`].

use diesel::dsl;
use diesel::expression::Expression;

use crate::field::FieldType;
use crate::update::{SetNotCalled, UpdateSource, UpdateStatement, Values};

/// The type of [`views.total()`](crate::ShardedExpressionMethods::total).
pub type Total<C> = crate::Total<C>;

/// The type of [`update(source)`](crate::update): `Update<Find<videos, i64>>`.
pub type Update<Source, Kind = crate::update::Rows> =
    UpdateStatement<<Source as UpdateSource<Kind>>::Query, SetNotCalled>;

/// The type of `update(source).set(changes)`, as in the bound of a function that is generic over its connection; see
/// [`update`](crate::update#in-generic-functions).
pub type Count<Source, Changes, Kind = crate::update::Rows> =
    UpdateStatement<<Source as UpdateSource<Kind>>::Query, Values<Changes>>;

/// The type of `column.eq(column + n)`.
pub type Plus<C> = dsl::Eq<C, AddValue<C, C>>;

/// The type of `column.eq(column - n)`.
pub type Minus<C> = dsl::Eq<C, SubValue<C, C>>;

/// What is added to the column `C`.
pub type Value<C> = <<C as Expression>::SqlType as FieldType>::Value;

/// The type of `sum + n`, where `n` is a value for the column `C`.
pub type AddValue<C, Sum> = <Sum as std::ops::Add<Value<C>>>::Output;
/// The type of `sum - n`, where `n` is a value for the column `C`.
pub type SubValue<C, Sum> = <Sum as std::ops::Sub<Value<C>>>::Output;
/// The type of `sum + &n`, where `n` is a value for the column `C`.
pub type AddRef<'a, C, Sum> = <Sum as std::ops::Add<&'a Value<C>>>::Output;
/// The type of `sum - &n`, where `n` is a value for the column `C`.
pub type SubRef<'a, C, Sum> = <Sum as std::ops::Sub<&'a Value<C>>>::Output;

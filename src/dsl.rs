//! The types of this crate's expressions and statements, for signatures; the counterpart of [`diesel::dsl`].

use diesel::dsl;

use crate::counting::update::{SetNotCalled, UpdateSource, UpdateStatement, Values};
use crate::model::PeakValue;
pub use crate::model::field::Value;

/// The type of [`views.total()`](crate::ShardedExpressionMethods::total).
pub type Total<C> = crate::Total<C>;

/// The type of [`update(source)`](crate::update): `Update<Find<videos, i64>>`.
pub type Update<Source, Kind = crate::counting::update::Rows> =
    UpdateStatement<<Source as UpdateSource<Kind>>::Query, SetNotCalled>;

/// The type of `update(source).set(changes)`, for the bounds of a function that is generic over its connection; see
/// [`update`](crate::update#in-generic-functions).
pub type Count<Source, Changes, Kind = crate::counting::update::Rows> =
    UpdateStatement<<Source as UpdateSource<Kind>>::Query, Values<Changes>>;

/// The type of `column.eq(column + n)`.
pub type Plus<C> = dsl::Eq<C, dsl::Add<C, Value<C>>>;

/// The type of [`column.raise_to(value)`](crate::PeakExpressionMethods::raise_to).
pub type RaiseTo<C, V> = crate::NewPeak<C, dsl::AsExprOf<V, PeakValue<C>>>;

/// The type of [`column.lower_to(value)`](crate::PeakExpressionMethods::lower_to).
pub type LowerTo<C, V> = RaiseTo<C, V>;

/// The type of `column.eq(column - n)`.
pub type Minus<C> = dsl::Eq<C, dsl::Sub<C, Value<C>>>;

//! The table whose rows are counted, and its columns.

use diesel::associations::HasTable;
use diesel::dsl::SqlTypeOf;
use diesel::expression::{AppearsOnTable, Expression, NonAggregate};
use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use diesel::sql_types::{self, IntoNullable, Nullable};

use crate::backend::{ShardedBackend, identifiers};
use crate::model::FieldType;
use crate::query_builder::text_of;

/// The columns of a child's table that hold the key of a row of `Parent`: one column, or a tuple for a composite key.
///
/// `Kind` keeps the impls apart and is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name a row of `{Parent}` by its key",
    label = "expected the columns that refer to the key of `{Parent}`",
    note = "give the column that holds the parent's primary key, of the same type as that key (it may be nullable); for a composite \
            key a tuple of columns of one table, in the key's order"
)]
pub trait RefersTo<Parent, Kind> {
    /// The child's table.
    type Child: Table;

    /// The names of the columns, in the order of the parent's key.
    const COLUMNS: &'static [&'static str];
}

/// The kind of [`RefersTo`] that is one column.
#[derive(Debug)]
pub struct One;

#[diagnostic::do_not_recommend]
impl<C, Parent> RefersTo<Parent, One> for C
where
    C: Column,
    Parent: Table,
    SqlTypeOf<Parent::PrimaryKey>: IntoNullable,
    SqlTypeOf<C>:
        IntoNullable<Nullable = <SqlTypeOf<Parent::PrimaryKey> as IntoNullable>::Nullable>,
{
    type Child = C::Table;
    const COLUMNS: &'static [&'static str] = &[C::NAME];
}

macro_rules! tuples {
    ($(($first:ident, $first_key:ident) $(($column:ident, $key:ident))+;)+) => {$(
        #[diagnostic::do_not_recommend]
        impl<Parent, $first, $first_key, $($column, $key),+> RefersTo<Parent, ($first_key, $($key),+)> for ($first, $($column),+)
        where
            Parent: Table,
            Parent::PrimaryKey: Expression<SqlType = ($first_key, $($key),+)>,
            $first: Column,
            $first_key: IntoNullable,
            SqlTypeOf<$first>: IntoNullable<Nullable = $first_key::Nullable>,
            $(
                $column: Column<Table = $first::Table>,
                $key: IntoNullable,
                SqlTypeOf<$column>: IntoNullable<Nullable = $key::Nullable>,
            )+
        {
            type Child = $first::Table;
            const COLUMNS: &'static [&'static str] = &[$first::NAME, $($column::NAME),+];
        }
    )+};
}

tuples! {
    (A, KA) (B, KB);
    (A, KA) (B, KB) (C, KC);
    (A, KA) (B, KB) (C, KC) (D, KD);
    (A, KA) (B, KB) (C, KC) (D, KD) (E, KE);
    (A, KA) (B, KB) (C, KC) (D, KD) (E, KE) (F, KF);
}

/// What a trigger reads of one row of `Child`: an expression on its columns.
#[diagnostic::on_unimplemented(
    message = "a trigger on `{Child}` does not know `{Self}`",
    note = "it knows the columns of its row, and no total: of a sharded field it sums the base, which follows each fold",
    note = "to be exact at once, let the rows of the lower level name this parent too, and count them: see \
            `diesel_sharded::reference::counter_caches`, \"Several levels\""
)]
pub trait ReadFrom<Child>: Expression {}

#[diagnostic::do_not_recommend]
impl<E, Child> ReadFrom<Child> for E where E: AppearsOnTable<Child> + NonAggregate {}

/// The SQL type of a column whose sum a field of type `Field` holds: integers for integers, `Double` for `Double`, `Numeric` for
/// `Numeric`. The column may be nullable; a NULL adds nothing.
#[diagnostic::on_unimplemented(
    message = "a sharded field of type `{Field}` does not hold sums of `{Self}`",
    note = "a field of integers sums integers, a `Double` sums `Double`, a `Numeric` sums `Numeric`"
)]
pub trait SummedInto<Field> {}

#[diagnostic::do_not_recommend]
impl<ST, Field> SummedInto<Field> for ST
where
    ST: Number,
    Field: Number<Class = ST::Class>,
{
}

/// A type of numbers.
pub trait Number {
    /// Numbers whose sums are of the same kind.
    type Class;
}

#[diagnostic::do_not_recommend]
impl<ST: FieldType> Number for ST {
    type Class = ST::Class;
}

impl<ST> Number for Nullable<ST>
where
    ST: Number + sql_types::SqlType,
{
    type Class = ST::Class;
}

/// A table whose names a backend can write. Every `table!` is one; the trait collects the necessary bounds.
#[diagnostic::on_unimplemented(
    message = "the rows of `{Self}` cannot be counted",
    note = "say which rows are counted: `CounterCache::of(posts::comments_count).counts(comments::post_id)`"
)]
pub trait ChildTable<DB: ShardedBackend>: Table {
    /// The names before and of the table, as they are.
    #[doc(hidden)]
    fn names(backend: &DB) -> QueryResult<Vec<String>>;
}

impl<T, DB> ChildTable<DB> for T
where
    T: Table + HasTable<Table = T> + QueryFragment<DB>,
    DB: ShardedBackend,
{
    fn names(backend: &DB) -> QueryResult<Vec<String>> {
        Ok(identifiers(&text_of(&T::table(), backend)?))
    }
}

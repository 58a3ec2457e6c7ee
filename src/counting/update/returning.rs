//! The rows that a counting update returns: selections in which every sharded field is its total.
//!
//! The base alone would be stale right after the update. So a selection is rewritten: a sharded column becomes its total, any other column
//! stays, and tuples and `as_returning()` are rewritten part by part. Any other expression that might contain a base (`views + 1`, an SQL
//! function of it) does not compile.

use std::marker::PhantomData;

use diesel::deserialize::FromSqlRow;
use diesel::dsl::{AsSelect, SqlTypeOf};
use diesel::expression::{Expression, Selectable};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};

use crate::model::{ShardedTable, TotalColumn, TotalOf};
use crate::query_builder::{Names, Sql, Total, TotalInRow, copies, fragments};

/// A selection of `T`'s columns that can be returned with totals: columns, totals, tuples of them, and `Model::as_returning()` /
/// `Model::as_select()` of a model that selects nothing else.
///
/// `Kind` keeps impls apart and is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be selected with totals: it may show a base without its shards",
    note = "select columns, `column.total()`, tuples of them, or `Model::as_returning()` of a model made of them; tuples and models have at \
            most 32 fields, and 64 with the feature `64-column-tables`"
)]
pub trait SelectTotals<T, Kind>: Expression {
    /// The same selection with totals instead of sharded columns.
    type Output: Expression;

    /// Puts the totals in.
    fn with_totals(self) -> Self::Output;
}

/// The row type that a selection is read into. Not `CompatibleType`, since that is private to Diesel.
#[diagnostic::on_unimplemented(
    message = "the counted rows cannot be read as `{U}`",
    note = "a model that derives `ShardedSelectable` is read by `.returning({U}::as_returning())`, after `top(..)` by \
            `.select({U}::as_select())`",
    note = "the types of any other row are those of the selection, in its order; without a selection, those of the table's columns"
)]
pub trait ReadAs<U, DB>: Expression {
    /// The SQL type of the row.
    type Row;
}

/// A column in a selection with totals: its total if it is sharded.
#[derive(Debug, Clone, Copy, QueryId)]
pub struct Fresh<C>(C);

impl<C: Expression> Expression for Fresh<C> {
    type SqlType = C::SqlType;
}

fragments! {
    [C: Column<Table: ShardedTable + QueryFragment<DB>> + QueryFragment<DB>,] Fresh<C>;
    |self, out| {
        match C::Table::FIELDS.iter().find(|field| field.name == C::NAME) {
            Some(field) => Names::of::<C::Table>().total(field, None).push(out),
            None => self.0.walk_ast(out),
        }
    };
}

impl<C, U, DB> ReadAs<U, DB> for Fresh<C>
where
    C: Expression,
    DB: diesel::backend::Backend,
    U: FromSqlRow<C::SqlType, DB>,
{
    type Row = C::SqlType;
}

impl<C, U, DB> ReadAs<U, DB> for Total<C>
where
    C: Expression,
    DB: diesel::backend::Backend,
    U: FromSqlRow<C::SqlType, DB>,
{
    type Row = C::SqlType;
}

impl<C, U, DB> ReadAs<U, DB> for TotalInRow<C>
where
    C: TotalColumn,
    DB: diesel::backend::Backend,
    U: FromSqlRow<TotalOf<C::SqlType>, DB>,
{
    type Row = TotalOf<C::SqlType>;
}

/// Kinds of selections, for inference.
#[derive(Debug)]
pub struct IsColumn;
/// See [`IsColumn`].
#[derive(Debug)]
pub struct IsTotal;
/// See [`IsColumn`].
#[derive(Debug)]
pub struct IsSelectable<U, Kind>(PhantomData<(U, Kind)>);

#[diagnostic::do_not_recommend]
impl<T, C: Column<Table = T>> SelectTotals<T, IsColumn> for C {
    type Output = Fresh<C>;

    fn with_totals(self) -> Fresh<C> {
        Fresh(self)
    }
}

impl<T, C: Column<Table = T>> SelectTotals<T, IsTotal> for Total<C> {
    type Output = Self;

    fn with_totals(self) -> Self {
        self
    }
}

impl<T, C: TotalColumn<Table = T>> SelectTotals<T, IsTotal> for TotalInRow<C> {
    type Output = Self;

    fn with_totals(self) -> Self {
        self
    }
}

/// `Model::as_returning()` with totals.
#[derive(Debug)]
pub struct FreshSelect<U, DB, S> {
    selection: S,
    model: PhantomData<(U, DB)>,
}

copies!([U, DB, S: Copy] FreshSelect<U, DB, S>);

impl<T, U, DB, Kind> SelectTotals<T, IsSelectable<U, Kind>> for AsSelect<U, DB>
where
    DB: diesel::backend::Backend,
    U: Selectable<DB>,
    U::SelectExpression: SelectTotals<T, Kind> + QueryId,
{
    type Output = FreshSelect<U, DB, <U::SelectExpression as SelectTotals<T, Kind>>::Output>;

    fn with_totals(self) -> Self::Output {
        FreshSelect {
            selection: U::construct_selection().with_totals(),
            model: PhantomData,
        }
    }
}

/// Diesel's own type of the model's selection, so that a query that selects it is read into the model.
impl<U, DB, S> Expression for FreshSelect<U, DB, S>
where
    DB: diesel::backend::Backend,
    U: Selectable<DB, SelectExpression: QueryId>,
{
    type SqlType = SqlTypeOf<AsSelect<U, DB>>;
}

impl<U, DB, S: QueryId> QueryId for FreshSelect<U, DB, S> {
    type QueryId = S::QueryId;
    const HAS_STATIC_QUERY_ID: bool = S::HAS_STATIC_QUERY_ID;
}

impl<U, DB, S> QueryFragment<DB> for FreshSelect<U, DB, S>
where
    DB: diesel::backend::Backend,
    S: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.selection.walk_ast(out)
    }
}

impl<U, DB, S> ReadAs<U, DB> for FreshSelect<U, DB, S>
where
    DB: diesel::backend::Backend,
    S: Expression,
    U: FromSqlRow<S::SqlType, DB> + Selectable<DB, SelectExpression: QueryId>,
{
    type Row = S::SqlType;
}

/// All columns of a table, with totals instead of the sharded ones: `.get_result(conn)` reads these.
pub trait AllWithTotals {
    /// The tuple of columns.
    type Output: Expression;

    /// Puts the totals in.
    fn all_with_totals(self) -> Self::Output;

    /// The names of the columns.
    fn names() -> Vec<&'static str>;
}

macro_rules! tuples {
    ($($($T:ident $Kind:ident)+;)+) => {$(
        impl<Table, $($T, $Kind),+> SelectTotals<Table, ($($Kind,)+)> for ($($T,)+)
        where
            $($T: SelectTotals<Table, $Kind>,)+
            ($($T,)+): Expression,
            ($($T::Output,)+): Expression,
        {
            type Output = ($($T::Output,)+);

            #[allow(non_snake_case)]
            fn with_totals(self) -> Self::Output {
                let ($($T,)+) = self;
                ($($T.with_totals(),)+)
            }
        }

        impl<$($T: Column),+> AllWithTotals for ($($T,)+)
        where
            ($(Fresh<$T>,)+): Expression,
        {
            type Output = ($(Fresh<$T>,)+);

            #[allow(non_snake_case)]
            fn all_with_totals(self) -> Self::Output {
                let ($($T,)+) = self;
                ($(Fresh($T),)+)
            }

            fn names() -> Vec<&'static str> {
                vec![$($T::NAME),+]
            }
        }

        #[diagnostic::do_not_recommend] // thirty of them
        impl<$($T: Expression,)+ U, DB> ReadAs<U, DB> for ($($T,)+)
        where
            ($($T,)+): Expression,
            DB: diesel::backend::Backend,
            U: FromSqlRow<($(SqlTypeOf<$T>,)+), DB>,
        {
            type Row = ($(SqlTypeOf<$T>,)+);
        }
    )+};
}

/// Calls `tuples!` once. Each line has one column more than the line before; the first one has those `[before]` and one more.
macro_rules! up_to {
    (@ [$($line:tt)*] [$($before:ident)*]) => { tuples! { $($line)* } };
    (@ [$($line:tt)*] [$($before:ident)*] $T:ident $Kind:ident $($rest:ident)*) => {
        up_to!(@ [$($line)* $($before)* $T $Kind;] [$($before)* $T $Kind] $($rest)*);
    };
    ([$($before:ident)*] $($all:ident)+) => { up_to!(@ [] [$($before)*] $($all)+); };
}

up_to! {
    []
    T0 K0 T1 K1 T2 K2 T3 K3 T4 K4 T5 K5 T6 K6 T7 K7 T8 K8 T9 K9 T10 K10 T11 K11 T12 K12 T13 K13 T14 K14 T15 K15 T16 K16
    T17 K17 T18 K18 T19 K19 T20 K20 T21 K21 T22 K22 T23 K23 T24 K24 T25 K25 T26 K26 T27 K27 T28 K28 T29 K29 T30 K30
    T31 K31
}

#[cfg(feature = "64-column-tables")]
up_to! {
    [
        T0 K0 T1 K1 T2 K2 T3 K3 T4 K4 T5 K5 T6 K6 T7 K7 T8 K8 T9 K9 T10 K10 T11 K11 T12 K12 T13 K13 T14 K14 T15 K15
        T16 K16 T17 K17 T18 K18 T19 K19 T20 K20 T21 K21 T22 K22 T23 K23 T24 K24 T25 K25 T26 K26 T27 K27 T28 K28 T29 K29
        T30 K30 T31 K31
    ]
    T32 K32 T33 K33 T34 K34 T35 K35 T36 K36 T37 K37 T38 K38 T39 K39 T40 K40 T41 K41 T42 K42 T43 K43 T44 K44 T45 K45
    T46 K46 T47 K47 T48 K48 T49 K49 T50 K50 T51 K51 T52 K52 T53 K53 T54 K54 T55 K55 T56 K56 T57 K57 T58 K58 T59 K59
    T60 K60 T61 K61 T62 K62 T63 K63
}

/// The part that is read of the rows that an update returns, or of those in a list.
#[diagnostic::on_unimplemented(
    message = "whole rows of this table cannot be read",
    note = "select columns or a model: `.select((column, other))`, `.select(Model::as_select())`; whole rows have at most 32 columns, and 64 \
            with the feature `64-column-tables`"
)]
pub trait Returning<T> {
    /// The selection, with totals.
    type Selection: Expression;

    /// The selection, with totals.
    fn selection(&self) -> Self::Selection;
}

/// `.returning(..)`, or a list's `.select(..)`, was not called: all columns of the table.
#[derive(Debug, Clone, Copy)]
pub struct NoReturning;

impl<T> Returning<T> for NoReturning
where
    T: Table,
    T::AllColumns: AllWithTotals,
{
    type Selection = <T::AllColumns as AllWithTotals>::Output;

    fn selection(&self) -> Self::Selection {
        T::all_columns().all_with_totals()
    }
}

/// `.returning(..)`, or a list's `.select(..)`, was called.
#[derive(Debug, Clone, Copy)]
pub struct ReturningTotals<S>(pub(crate) S);

impl<T, S: Expression + Copy> Returning<T> for ReturningTotals<S> {
    type Selection = S;

    fn selection(&self) -> S {
        self.0
    }
}

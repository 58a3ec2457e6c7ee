//! The row that an update inserts where none matches.

use diesel::associations::HasTable;
use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{InsertStatement, QueryFragment, QueryId};

/// `.or_insert(..)` was not called.
#[derive(Debug, Clone, Copy)]
pub struct NoInsert;

/// The row that `.or_insert(..)` was given.
#[derive(Debug, Clone, Copy)]
pub struct OrInsert<I>(pub(in crate::operation) I);

/// The insert of an update that finds no row.
pub trait InsertRow<T, DB: Backend> {
    /// The insert.
    type Statement: QueryFragment<DB> + QueryId;

    /// The insert, if there is one.
    fn statement(self) -> Option<Self::Statement>;
}

impl<T, DB: Backend> InsertRow<T, DB> for NoInsert {
    type Statement = ();

    fn statement(self) -> Option<()> {
        None
    }
}

impl<T, DB, I> InsertRow<T, DB> for OrInsert<I>
where
    T: Table + HasTable<Table = T>,
    DB: Backend,
    I: Insertable<T>,
    InsertStatement<T, I::Values>: QueryFragment<DB> + QueryId,
{
    type Statement = InsertStatement<T, I::Values>;

    fn statement(self) -> Option<Self::Statement> {
        Some(diesel::insert_into(T::table()).values(self.0))
    }
}

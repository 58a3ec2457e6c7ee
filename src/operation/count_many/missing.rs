//! Rows for the keys that have none.

use std::fmt;
use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::query_builder::{QueryFragment, QueryId};

use crate::model::ShardedTable;
use crate::operation::update::{InsertRow, NoInsert, OrInsert};

/// The row that `.or_insert(..)` makes for a key that has none.
pub struct OrInsertEach<F, I> {
    row_of: F,
    row: PhantomData<fn() -> I>,
}

impl<F, I> OrInsertEach<F, I> {
    pub(super) fn new(row_of: F) -> Self {
        OrInsertEach {
            row_of,
            row: PhantomData,
        }
    }
}

impl<F, I> fmt::Debug for OrInsertEach<F, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrInsertEach").finish_non_exhaustive()
    }
}

/// The inserts for the keys that have no row.
pub trait InsertMissing<T: ShardedTable, DB: Backend> {
    /// The insert of one row.
    type Statement: QueryFragment<DB> + QueryId;

    /// The insert for a key, if there is one.
    fn insert(&self, key: &T::Key) -> Option<Self::Statement>;
}

impl<T: ShardedTable, DB: Backend> InsertMissing<T, DB> for NoInsert {
    type Statement = ();

    fn insert(&self, _: &T::Key) -> Option<()> {
        None
    }
}

impl<T, DB, F, I> InsertMissing<T, DB> for OrInsertEach<F, I>
where
    T: ShardedTable,
    DB: Backend,
    F: Fn(&T::Key) -> I,
    OrInsert<I>: InsertRow<T, DB>,
{
    type Statement = <OrInsert<I> as InsertRow<T, DB>>::Statement;

    fn insert(&self, key: &T::Key) -> Option<Self::Statement> {
        OrInsert((self.row_of)(key)).statement()
    }
}

//! One sharded field of one row, on connections of `diesel_async`.

use diesel::result::QueryResult;
use diesel_async::AsyncConnection;

use super::{Async, Bounded, BoxFuture};
use crate::dialect::BackendOf;
use crate::field::{ShardedColumn, ShardedTable};
use crate::row_counter::IntegerField;

/// See [`RowCounter`](crate::RowCounter).
#[derive(Clone)]
#[must_use = "a counter does nothing by itself"]
pub struct RowCounter<C: ShardedColumn>(pub(super) crate::RowCounter<C>);

impl<C: ShardedColumn> RowCounter<C> {
    /// The field `column` of the row with this key.
    pub fn of(column: C, key: <C::Table as ShardedTable>::Key) -> Self {
        RowCounter(crate::RowCounter::of(column, key))
    }

    /// Adds `n`; see [`RowCounter::add`](crate::RowCounter::add).
    ///
    /// # Errors
    /// As [`update`](crate::update())'s.
    pub fn add<'c, Conn, DB>(
        &'c self,
        n: i64,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, QueryResult<usize>>
    where
        C: IntegerField<DB> + Send + Sync,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        Box::pin(self.0.count::<Async, _, _>(n, conn))
    }

    /// The exact total; see [`RowCounter::get`](crate::RowCounter::get).
    ///
    /// # Errors
    /// As [`update`](crate::update())'s.
    pub fn get<'c, Conn, DB>(
        &'c self,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, QueryResult<Option<i64>>>
    where
        C: IntegerField<DB> + Send + Sync,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        Box::pin(self.0.total::<Async, _, _>(conn))
    }

    /// Bounds the total from below; see [`bounded`](crate::bounded).
    pub fn never_below(self, least: i64) -> Bounded<C> {
        Bounded(self.0.never_below(least))
    }

    /// Bounds the total from above; see [`bounded`](crate::bounded).
    pub fn never_above(self, most: i64) -> Bounded<C> {
        Bounded(self.0.never_above(most))
    }
}

impl<C: ShardedColumn> From<crate::RowCounter<C>> for RowCounter<C> {
    fn from(counter: crate::RowCounter<C>) -> Self {
        RowCounter(counter)
    }
}

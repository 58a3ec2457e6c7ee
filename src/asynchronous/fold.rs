//! Folds that are awaited.

use std::ops::ControlFlow;

use diesel::expression::Expression;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel_async::AsyncConnection;

use super::{Async, BoxFuture};
use crate::dialect::BackendOf;
use crate::field::ShardedTable;
use crate::fold::{Fold, Folded};
use crate::keyed::KeyedTable;
use crate::update::UpdateSource;

/// Begins a fold on a connection of `diesel_async`; see [`fold`](crate::fold()).
pub fn fold<Source, Kind>(source: Source) -> Fold<Source::Query, Async>
where
    Source: UpdateSource<Kind>,
    Source::Query: IntoUpdateTarget<Table: ShardedTable>,
{
    Fold::of(source)
}

impl<Q, T, W> Fold<Q, Async>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W>,
    T: ShardedTable,
{
    /// Folds to the end.
    ///
    /// # Errors
    /// As [`Fold::run`](crate::Fold::run)'s.
    pub fn run<'c, Conn, DB>(self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<Folded<T>>>
    where
        Q: Send + 'c,
        T: KeyedTable<DB>,
        T::PrimaryKey: Expression,
        W: QueryFragment<DB> + QueryId + Send + Sync + 'c,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        self.run_with(conn, |_| ControlFlow::Continue(()))
    }

    /// Folds to the end, or until `progress` breaks off; it is called after every batch with what was folded so far. A future
    /// that is dropped leaves complete what was told.
    ///
    /// # Errors
    /// As [`run`](Self::run)'s.
    pub fn run_with<'c, Conn, DB>(
        self,
        conn: &'c mut Conn,
        mut progress: impl FnMut(&Folded<T>) -> ControlFlow<()> + Send + 'c,
    ) -> BoxFuture<'c, QueryResult<Folded<T>>>
    where
        Q: Send + 'c,
        T: KeyedTable<DB>,
        T::PrimaryKey: Expression,
        W: QueryFragment<DB> + QueryId + Send + Sync + 'c,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        Box::pin(async move { self.folded::<Async, _, _, _, _>(conn, &mut progress).await })
    }
}

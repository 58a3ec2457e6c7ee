//! Totals beside a recount, awaited.

use std::hash::Hash;

use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel_async::methods::LoadQuery;
use diesel_async::{AsyncConnection, RunQueryDsl};

use super::{Async, BoxFuture};
use crate::dialect::BackendOf;
use crate::field::ShardedColumn;
use crate::keyed::KeyedTable;
use crate::row_counter::IntegerField;
use crate::update::UpdateSource;
use crate::verify::{Drift, Recount, Verify};

/// Compares totals with a recount on a connection of `diesel_async`; see [`verify`](crate::verify()). The
/// recount is a query that borrows nothing.
pub fn verify<Source, Kind, C, Q>(
    source: Source,
    column: C,
    expected: Q,
) -> Verify<Source::Query, C, Q, Async>
where
    Source: UpdateSource<Kind>,
    Source::Query: IntoUpdateTarget<Table = C::Table>,
    C: ShardedColumn,
{
    Verify::of(source, column, expected)
}

impl<Conn, Q, K> Recount<'static, Conn, Q, K> for Async
where
    Conn: AsyncConnection,
    Conn::Backend: BackendOf<Conn>,
    Q: LoadQuery<'static, Conn, (K, i64)> + 'static,
    K: Send + 'static,
{
    fn recount(conn: &mut Conn, query: Q) -> BoxFuture<'_, QueryResult<Vec<(K, i64)>>> {
        Box::pin(query.load(conn))
    }
}

impl<R, C, Q, T, W> Verify<R, C, Q, Async>
where
    R: IntoUpdateTarget<Table = T, WhereClause = W>,
{
    /// The totals that are not as expected; see [`Verify::drifts`](crate::Verify::drifts).
    ///
    /// # Errors
    /// As there.
    pub fn drifts<'c, Conn, DB>(
        self,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, QueryResult<Vec<Drift<T::Key>>>>
    where
        R: Send + 'c,
        C: IntegerField<DB, Table = T> + Send + Sync + 'c,
        Q: LoadQuery<'static, Conn, (T::Key, i64)> + Clone + Send + Sync + 'static,
        T: KeyedTable<DB, Key: Eq + Hash>,
        W: QueryFragment<DB> + QueryId + Send + Sync + 'c,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        Box::pin(self.find_drifts::<Async, _, _, _, _>(conn))
    }

    /// Repairs the totals that are not as expected; see [`Verify::repair`](crate::Verify::repair).
    ///
    /// # Errors
    /// As there.
    pub fn repair<'c, Conn, DB>(
        self,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, QueryResult<Vec<Drift<T::Key>>>>
    where
        R: Clone + Send + 'c,
        C: IntegerField<DB, Table = T> + Send + Sync + 'c,
        Q: LoadQuery<'static, Conn, (T::Key, i64)> + Clone + Send + Sync + 'static,
        T: KeyedTable<DB, Key: Eq + Hash>,
        W: QueryFragment<DB> + QueryId + Send + Sync + 'c,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        Box::pin(self.repair_drifts::<Async, _, _, _, _>(conn))
    }
}

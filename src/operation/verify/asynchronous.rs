//! Totals beside a recount, awaited.

use std::hash::Hash;

use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel_async::AsyncConnection;
use diesel_async::methods::LoadQuery;

use super::builder::Verify;
use super::drift::Drift;
use super::fields::VerifiedFields;
use super::number::RecountQuery;
use crate::backend::BackendOf;
use crate::connection::{Async, BoxFuture, Link};
use crate::engine::KeyedTable;
use crate::operation::update::UpdateSource;

/// Totals that are not as expected.
type Drifts<Key, Total> = QueryResult<Vec<Drift<Key, Total>>>;

/// Compares totals with a recount on a connection of `diesel_async`; see [`verify`](crate::verify()). The
/// recount is a query that borrows nothing.
pub fn verify<Source, Kind, C, Fields, Q>(
    source: Source,
    _fields: C,
    expected: Q,
) -> Verify<Source::Query, C, Q, Async>
where
    Source: UpdateSource<Kind>,
    Source::Query: IntoUpdateTarget<Table = C::Table>,
    C: VerifiedFields<Fields>,
{
    Verify::of(source, expected)
}

impl<R, C, Q, T, W> Verify<R, C, Q, Async>
where
    R: IntoUpdateTarget<Table = T, WhereClause = W>,
{
    /// The totals that are not as expected; see [`Verify::drifts`](crate::operation::Verify::drifts).
    ///
    /// # Errors
    /// As there.
    pub fn drifts<'c, Conn, DB, Fields>(
        self,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, Drifts<T::Key, C::Total>>
    where
        R: Send + 'c,
        C: VerifiedFields<Fields, Table = T, Total: Send> + Send + Sync + 'c,
        Q: RecountQuery<T::Key, Row: Send>
            + LoadQuery<'static, Conn, <Q as RecountQuery<T::Key>>::Row>
            + Clone
            + Send
            + Sync
            + 'static,
        T: KeyedTable<DB, Key: Eq + Hash>,
        W: QueryFragment<DB> + QueryId + Send + Sync + 'c,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        Box::pin(async move {
            self.find_drifts::<Fields, _, _, _, _, _>(&mut Link::awaited(conn))
                .await
        })
    }

    /// Repairs the totals that are not as expected; see [`Verify::repair`](crate::operation::Verify::repair).
    ///
    /// # Errors
    /// As there.
    pub fn repair<'c, Conn, DB, Fields>(
        self,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, Drifts<T::Key, C::Total>>
    where
        R: Clone + Send + 'c,
        C: VerifiedFields<Fields, Table = T, Total: Send> + Send + Sync + 'c,
        Q: RecountQuery<T::Key, Row: Send>
            + LoadQuery<'static, Conn, <Q as RecountQuery<T::Key>>::Row>
            + Clone
            + Send
            + Sync
            + 'static,
        T: KeyedTable<DB, Key: Eq + Hash>,
        W: QueryFragment<DB> + QueryId + Send + Sync + 'c,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        Box::pin(async move {
            self.repair_drifts::<Fields, _, _, _, _, _>(&mut Link::awaited(conn))
                .await
        })
    }
}

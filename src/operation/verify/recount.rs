//! Recounts, and totals beside them.

use std::collections::HashMap;
use std::future::{Ready, ready};
use std::hash::Hash;

use diesel::prelude::*;
use diesel::query_builder::{QueryFragment, QueryId};
use diesel::query_dsl::methods::LoadQuery;
use diesel::result::Error as DieselError;

use crate::backend::{BackendOf, ShardedBackend};
use crate::connection::{Blocking, Io, Link, LoadIo};
use crate::engine::KeyedTable;
use crate::error::Error;
use crate::operation::row_counter::IntegerField;

/// A total that is not what it was expected to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drift<K> {
    /// The row's key.
    pub key: K,
    /// The total that was found.
    pub total: i64,
    /// The total that was expected.
    pub expected: i64,
}

impl<K> Drift<K> {
    /// The difference that has to be added to the total.
    pub(super) fn lacks(&self) -> QueryResult<i64> {
        let lacks = self.expected.checked_sub(self.total);
        lacks.ok_or_else(|| {
            let source = DieselError::SerializationError("a drift beyond any integer".into());
            Error::Overflow { source }.into()
        })
    }
}

/// An [`Io`] that reads the result of an application's recount.
pub trait Recount<'q, Conn, Q, K>: Io<Conn> {
    /// Reads the keys and their numbers.
    fn recount(conn: &mut Conn, query: Q) -> Self::Future<'_, QueryResult<Vec<(K, i64)>>>;
}

impl<'q, Conn, Q, K> Recount<'q, Conn, Q, K> for Blocking
where
    Conn: Connection,
    Conn::Backend: BackendOf<Conn>,
    Q: LoadQuery<'q, Conn, (K, i64)>,
    K: 'static,
{
    fn recount(conn: &mut Conn, query: Q) -> Ready<QueryResult<Vec<(K, i64)>>> {
        ready(query.internal_load(conn).and_then(Iterator::collect))
    }
}

#[cfg(feature = "async")]
impl<Conn, Q, K> Recount<'static, Conn, Q, K> for crate::connection::Async
where
    Conn: diesel_async::AsyncConnection,
    Conn::Backend: BackendOf<Conn>,
    Q: diesel_async::methods::LoadQuery<'static, Conn, (K, i64)> + 'static,
    K: Send + 'static,
{
    fn recount(
        conn: &mut Conn,
        query: Q,
    ) -> crate::connection::BoxFuture<'_, QueryResult<Vec<(K, i64)>>> {
        Box::pin(diesel_async::RunQueryDsl::load(query, conn))
    }
}

/// The recounted numbers.
pub(super) fn by_key<K: Eq + Hash>(recounted: Vec<(K, i64)>) -> QueryResult<HashMap<K, i64>> {
    let mut by_key = HashMap::new();
    for (key, number) in recounted {
        if by_key.insert(key, number).is_some() {
            let message = "a recount gives one number for each key; this one gave two: group it by the key alone";
            return Err(DieselError::DeserializationError(message.into()));
        }
    }
    Ok(by_key)
}

/// The drifts of the rows that `filter` matches.
pub(super) async fn compare<C, T, W, DB, M, Conn>(
    link: &mut Link<'_, M, Conn>,
    column: C,
    filter: &W,
    expected: &HashMap<T::Key, i64>,
) -> QueryResult<Vec<Drift<T::Key>>>
where
    C: IntegerField<DB, Table = T>,
    T: KeyedTable<DB, Key: Eq + Hash>,
    W: QueryFragment<DB> + QueryId,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    let totals = column.load_totals(link, filter).await?;
    let compared = totals.into_iter().map(|(key, total)| Drift {
        expected: expected.get(&key).copied().unwrap_or(0),
        total: total.into(),
        key,
    });
    Ok(compared
        .filter(|drift| drift.total != drift.expected)
        .collect())
}

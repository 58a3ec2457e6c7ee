//! Recounts, and totals beside them.

use std::collections::HashMap;
use std::future::{Ready, ready};
use std::hash::Hash;
use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{QueryFragment, QueryId};
use diesel::query_dsl::methods::LoadQuery;
use diesel::result::Error as DieselError;

use crate::backend::{BackendOf, ShardedBackend};
use crate::connection::{Blocking, Io, Link, LoadIo};
use crate::engine::KeyedTable;
use crate::model::{Amount, ShardsColumn};

use super::drift::Compared;
use super::number::RecountQuery;
use super::totals::ReadTotals;

/// An [`Io`] that reads the result of an application's recount.
pub trait Recount<'q, Conn, Q, K>: Io<Conn> {
    /// Reads the keys and their numbers.
    fn recount(conn: &mut Conn, query: Q) -> Self::Future<'_, QueryResult<Recounted<K>>>;
}

/// Keys and their numbers.
type Recounted<K> = Vec<(K, Vec<Amount>)>;

impl<'q, Conn, Q, K> Recount<'q, Conn, Q, K> for Blocking
where
    Conn: Connection,
    Conn::Backend: BackendOf<Conn>,
    Q: RecountQuery<K> + LoadQuery<'q, Conn, <Q as RecountQuery<K>>::Row>,
    K: 'static,
{
    fn recount(conn: &mut Conn, query: Q) -> Ready<QueryResult<Recounted<K>>> {
        let rows = query.internal_load(conn);
        ready(rows.and_then(|rows| {
            rows.map(|row| row.map(<Q as RecountQuery<K>>::amounts))
                .collect()
        }))
    }
}

#[cfg(feature = "async")]
impl<Conn, Q, K> Recount<'static, Conn, Q, K> for crate::connection::Async
where
    Conn: diesel_async::AsyncConnection,
    Conn::Backend: BackendOf<Conn>,
    Q: RecountQuery<K, Row: Send>
        + diesel_async::methods::LoadQuery<'static, Conn, <Q as RecountQuery<K>>::Row>
        + 'static,
    K: Send + 'static,
{
    fn recount(
        conn: &mut Conn,
        query: Q,
    ) -> crate::connection::BoxFuture<'_, QueryResult<Recounted<K>>> {
        let loading = diesel_async::RunQueryDsl::load(query, conn);
        Box::pin(async move {
            let rows = loading.await?.into_iter();
            Ok(rows.map(<Q as RecountQuery<K>>::amounts).collect())
        })
    }
}

/// The recounted numbers as amounts of the fields.
pub(super) fn by_key<K: Eq + Hash>(
    recounted: Recounted<K>,
    fields: &[&ShardsColumn],
) -> QueryResult<HashMap<K, Vec<Amount>>> {
    let mut by_key = HashMap::new();
    for (key, numbers) in recounted {
        if numbers.len() != fields.len() {
            let (given, needed) = (numbers.len(), fields.len());
            return Err(misread(format!(
                "a recount gives one number for each field; this one gives {given} for {needed}"
            )));
        }
        let amounts = numbers.iter().zip(fields);
        let amounts = amounts.map(|(number, field)| {
            let amount = number.of_type(field.column_type);
            amount.ok_or_else(|| misread(format!("`{}` is never {number}", field.name)))
        });
        if by_key
            .insert(key, amounts.collect::<QueryResult<_>>()?)
            .is_some()
        {
            return Err(misread(
                "a recount gives one number for each key; this one gave two: group it by the key alone",
            ));
        }
    }
    Ok(by_key)
}

fn misread(message: impl Into<String>) -> DieselError {
    let message: String = message.into();
    DieselError::DeserializationError(message.into())
}

/// The rows that `filter` matches, with totals and recounted numbers that differ.
pub(super) async fn compare<T, W, DB, M, Conn>(
    link: &mut Link<'_, M, Conn>,
    fields: &[&'static ShardsColumn],
    filter: &W,
    expected: &HashMap<T::Key, Vec<Amount>>,
) -> QueryResult<Vec<Compared<T::Key>>>
where
    T: KeyedTable<DB, Key: Eq + Hash>,
    W: QueryFragment<DB> + QueryId,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    let read = ReadTotals::<T, W> {
        fields,
        filter,
        table: PhantomData,
    };
    let totals = T::load_texts(link, read).await?;
    let dialect = link.dialect();
    let mut differ = vec![];
    for (key, text) in totals {
        let text = text.unwrap_or_default();
        let mut texts = text.split(' ');
        let mut totals = vec![];
        for field in fields {
            let text = texts.next().unwrap_or_default();
            totals.push(Amount::parse(text, field.column_type)?);
        }
        let zero = |field: &&ShardsColumn| Amount::zero(field.column_type);
        let expected = match expected.get(&key) {
            Some(expected) => expected.clone(),
            None => fields.iter().map(zero).collect(),
        };
        let compared = Compared {
            key,
            totals,
            expected,
        };
        if compared.differs(|field| dialect.rounds_sums(field.column_type), fields) {
            differ.push(compared);
        }
    }
    Ok(differ)
}

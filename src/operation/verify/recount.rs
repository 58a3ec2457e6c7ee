//! Recounts, and totals beside them.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::future::{Ready, ready};
use std::hash::Hash;
use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{QueryFragment, QueryId};
use diesel::query_dsl::methods::LoadQuery;
use diesel::result::Error as DieselError;

use crate::backend::{BackendOf, ShardedBackend};
use crate::connection::{Blocking, Io, Link, LoadIo};
use crate::engine::{KEYS_IN_A_STATEMENT, KeyedTable};
use crate::model::{Amount, ColumnType, ShardsColumn};
use crate::query_builder::PickKeys;

use super::drift::Compared;
use super::number::RecountQuery;
use super::totals::{FindEach, ReadTotals};

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

/// The amounts by the parents' own keys. Where keys are texts the database compares them, since its collation may ignore case, accents or
/// spaces at the end: the numbers of all keys that are the key of one parent are added up.
pub(super) async fn by_parent<T, W, DB, M, Conn>(
    link: &mut Link<'_, M, Conn>,
    filter: &W,
    recounted: HashMap<T::Key, Vec<Amount>>,
) -> QueryResult<HashMap<T::Key, Vec<Amount>>>
where
    T: KeyedTable<DB, Key: Eq + Hash>,
    W: QueryFragment<DB> + QueryId,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    let mut types = T::KEY.iter().map(|column| column.column_type);
    if !types.any(|column| column == ColumnType::Text) {
        return Ok(recounted);
    }
    let pick = PickKeys::<T, W> {
        filter,
        table: PhantomData,
    };
    let parents: HashSet<_> = T::load_keys(link, pick).await?.into_iter().collect();
    let (mut by_parent, others): (HashMap<_, _>, HashMap<_, _>) = recounted
        .into_iter()
        .partition(|(key, _)| parents.contains(key));
    let others: Vec<_> = others.into_iter().collect();
    for others in others.chunks(KEYS_IN_A_STATEMENT) {
        let keys = others.iter().map(|(key, _)| T::key_is(key.clone()));
        let find = FindEach::<T, _> {
            keys: keys.collect(),
            table: PhantomData,
        };
        for (parent, number) in T::load_texts(link, find).await? {
            let number = number.and_then(|number| number.parse().ok());
            let other = number.and_then(|number: usize| others.get(number));
            let Some((_, amounts)) = other.filter(|_| parents.contains(&parent)) else {
                continue;
            };
            match by_parent.entry(parent) {
                Entry::Vacant(entry) => {
                    entry.insert(amounts.clone());
                }
                Entry::Occupied(mut entry) => {
                    let sums = entry.get_mut().iter_mut().zip(amounts);
                    sums.for_each(|(sum, amount)| *sum += amount);
                }
            }
        }
    }
    Ok(by_parent)
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
        if compared.differs(dialect, fields) {
            differ.push(compared);
        }
    }
    Ok(differ)
}

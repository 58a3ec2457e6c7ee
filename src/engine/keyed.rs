//! Parents that are addressed by their keys.

use diesel::dsl::SqlTypeOf;
use diesel::expression_methods::EqAll;
use diesel::prelude::*;
use diesel::query_builder::{Query, QueryFragment, QueryId};
use diesel::sql_types::{Double, Nullable, Text};

use crate::backend::{Reads, ShardedBackend};
use crate::connection::{Link, LoadIo};
use crate::error::Error;
use crate::model::ShardedTable;
use crate::query_builder::{KeysAre, Names, shown_binds};
use crate::unfit::Unfit;

/// An SQL type of rows that `DB` reads into a `U`. As the bound of an associated type it spares operations further bounds.
pub trait ReadInto<DB: ShardedBackend, U> {
    /// Reads the rows of a query.
    fn rows<'s, Q, M>(link: &'s mut Link<'_, M>, query: Q) -> M::Future<'s, QueryResult<Vec<U>>>
    where
        M: LoadIo<Backend = DB>,
        Q: Query<SqlType = Self> + QueryFragment<DB> + QueryId + 's;
}

impl<ST, DB, U> ReadInto<DB, U> for ST
where
    DB: ShardedBackend + Reads<ST, U>,
    U: Send + 'static,
{
    fn rows<'s, Q, M>(link: &'s mut Link<'_, M>, query: Q) -> M::Future<'s, QueryResult<Vec<U>>>
    where
        M: LoadIo<Backend = DB>,
        Q: Query<SqlType = Self> + QueryFragment<DB> + QueryId + 's,
    {
        link.load(query)
    }
}

/// A key with a value of a field: a double, or the digits of any other number.
pub(crate) type KeyAndNumber<Key> = (Key, Option<f64>, Option<String>);

/// A sharded table whose parents can be named by their keys on `DB`. Every sharded table is one; the trait gathers the necessary bounds.
pub trait KeyedTable<DB: ShardedBackend>:
    ShardedTable<KeyAfter: QueryFragment<DB>> + QueryFragment<DB> + QueryId
{
    /// `key = $n`
    type KeyIs: QueryFragment<DB> + QueryId + Send + Sync;

    /// The SQL type of keys.
    type KeySql: ReadInto<DB, Self::Key>;

    /// The SQL type of keys, each with a number.
    type KeyAndNumberSql: ReadInto<DB, KeyAndNumber<Self::Key>>;

    /// `key = $n`
    fn key_is(key: Self::Key) -> Self::KeyIs;
}

impl<T, DB> KeyedTable<DB> for T
where
    DB: ShardedBackend
        + Reads<SqlTypeOf<T::PrimaryKey>, T::Key>
        + Reads<(SqlTypeOf<T::PrimaryKey>, Nullable<Double>, Nullable<Text>), KeyAndNumber<T::Key>>,
    T: ShardedTable<KeyAfter: QueryFragment<DB>> + QueryFragment<DB> + QueryId,
    T::PrimaryKey: EqAll<T::Key, Output: QueryFragment<DB> + QueryId + Send + Sync>,
{
    type KeyIs = <T::PrimaryKey as EqAll<T::Key>>::Output;
    type KeySql = SqlTypeOf<T::PrimaryKey>;
    type KeyAndNumberSql = (SqlTypeOf<T::PrimaryKey>, Nullable<Double>, Nullable<Text>);

    fn key_is(key: T::Key) -> Self::KeyIs {
        T::TABLE.primary_key().eq_all(key)
    }
}

/// The parents of a sharded table, as a value. The table has a type, or a tool has found it in the database.
pub trait Parents<DB: ShardedBackend>: Copy + Send + Sync {
    /// The key of a parent.
    type Key: Clone + Send + Sync + 'static;

    /// The SQL type of a key as it is read.
    type KeySql: ReadInto<DB, Self::Key>;

    /// `key = $n`
    type KeyIs: QueryFragment<DB> + QueryId + Send + Sync;

    /// `key > $n`
    type KeyAfter: QueryFragment<DB> + Send + Sync;

    /// The names of the table.
    fn names(&self) -> Names<'_, DB>;

    /// `key = $n`
    fn is(&self, key: &Self::Key) -> Self::KeyIs;

    /// `key > $n`
    fn is_after(&self, key: &Self::Key) -> Self::KeyAfter;

    /// The error of a parent that is unfit.
    fn unfit(&self, key: &Self::Key, reason: Unfit) -> Error {
        let (is_key, backend) = (self.is(key), DB::default());
        let values = shown_binds(&is_key, &backend).unwrap_or_default(); // the error says the rest
        let values: Vec<_> = values.iter().map(|value| format!("{value:?}")).collect();
        Error::Unfit {
            table: self.names().shards_table.to_string(),
            key: values.join(", "),
            reason,
        }
    }
}

impl<T, DB> Parents<DB> for T
where
    T: ShardedTable + KeyedTable<DB>,
    DB: ShardedBackend,
{
    type Key = <T as ShardedTable>::Key;
    type KeySql = <T as KeyedTable<DB>>::KeySql;
    type KeyIs = <T as KeyedTable<DB>>::KeyIs;
    type KeyAfter = <T as ShardedTable>::KeyAfter;

    fn names(&self) -> Names<'_, DB> {
        Names::of::<T>()
    }

    fn is(&self, key: &Self::Key) -> Self::KeyIs {
        T::key_is(key.clone())
    }

    fn is_after(&self, key: &Self::Key) -> Self::KeyAfter {
        T::key_after(key)
    }
}

/// How many parents one statement names: few enough for every planner and every limit on parameters.
pub const KEYS_IN_A_STATEMENT: usize = 100;

/// A `WHERE` clause for `keys`.
pub(crate) fn keys_are<P, DB>(of: &P, keys: &[P::Key]) -> KeysAre<P::KeyIs>
where
    P: Parents<DB>,
    DB: ShardedBackend,
{
    KeysAre(keys.iter().map(|key| of.is(key)).collect())
}

/// `WHERE` clauses for `keys`.
pub(crate) fn in_chunks<T, DB>(keys: Vec<T::Key>) -> Vec<KeysAre<T::KeyIs>>
where
    T: KeyedTable<DB>,
    DB: ShardedBackend,
{
    let mut keys = keys.into_iter().peekable();
    let mut chunks = vec![];
    while keys.peek().is_some() {
        let chunk = keys.by_ref().take(KEYS_IN_A_STATEMENT);
        chunks.push(KeysAre(chunk.map(T::key_is).collect()));
    }
    chunks
}

//! Parents that are addressed by their keys.

use diesel::deserialize::FromSqlRow;
use diesel::dsl::SqlTypeOf;
use diesel::expression::QueryMetadata;
use diesel::expression_methods::EqAll;
use diesel::prelude::*;
use diesel::query_builder::{Query, QueryFragment, QueryId};
use diesel::sql_types::{Nullable, Text};

use crate::backend::{Reads, ShardedBackend};
use crate::connection::{Link, LoadIo};
use crate::error::Error;
use crate::model::ShardedTable;
use crate::query_builder::{KeysAre, Names};
use crate::unfit::Unfit;

/// Keys, each with a text.
type KeysAndTexts<Key> = QueryResult<Vec<(Key, Option<String>)>>;

/// A sharded table whose parents can be named by their keys on `DB`. Every one is; the trait gathers what that takes.
pub trait KeyedTable<DB: ShardedBackend>:
    ShardedTable<KeyAfter: QueryFragment<DB>> + QueryFragment<DB> + QueryId
{
    /// `key = $n`
    type KeyIs: QueryFragment<DB> + QueryId + Send + Sync;

    /// `key = $n`
    fn key_is(key: Self::Key) -> Self::KeyIs;

    /// Reads keys.
    fn load_keys<'s, Q, M, Conn>(
        link: &'s mut Link<'_, M, Conn>,
        query: Q,
    ) -> M::Future<'s, QueryResult<Vec<Self::Key>>>
    where
        M: LoadIo<Conn, Backend = DB>,
        Q: Query<SqlType = SqlTypeOf<Self::PrimaryKey>> + QueryFragment<DB> + QueryId + 's;

    /// Reads keys, each with a text.
    fn load_texts<'s, Q, M, Conn>(
        link: &'s mut Link<'_, M, Conn>,
        query: Q,
    ) -> M::Future<'s, KeysAndTexts<Self::Key>>
    where
        M: LoadIo<Conn, Backend = DB>,
        Q: Query<SqlType = KeyAndText<Self>> + QueryFragment<DB> + QueryId + 's;
}

/// The SQL type of a key and a text.
pub type KeyAndText<T> = (SqlTypeOf<<T as Table>::PrimaryKey>, Nullable<Text>);

impl<T, DB> KeyedTable<DB> for T
where
    DB: ShardedBackend
        + QueryMetadata<SqlTypeOf<T::PrimaryKey>>
        + Reads<KeyAndText<T>, (T::Key, Option<String>)>,
    T: ShardedTable<KeyAfter: QueryFragment<DB>> + QueryFragment<DB> + QueryId,
    T::PrimaryKey: EqAll<T::Key, Output: QueryFragment<DB> + QueryId + Send + Sync>,
    T::Key: FromSqlRow<SqlTypeOf<T::PrimaryKey>, DB>,
{
    type KeyIs = <T::PrimaryKey as EqAll<T::Key>>::Output;

    fn key_is(key: T::Key) -> Self::KeyIs {
        T::TABLE.primary_key().eq_all(key)
    }

    fn load_keys<'s, Q, M, Conn>(
        link: &'s mut Link<'_, M, Conn>,
        query: Q,
    ) -> M::Future<'s, QueryResult<Vec<T::Key>>>
    where
        M: LoadIo<Conn, Backend = DB>,
        Q: Query<SqlType = SqlTypeOf<T::PrimaryKey>> + QueryFragment<DB> + QueryId + 's,
    {
        link.load(query)
    }

    fn load_texts<'s, Q, M, Conn>(
        link: &'s mut Link<'_, M, Conn>,
        query: Q,
    ) -> M::Future<'s, KeysAndTexts<T::Key>>
    where
        M: LoadIo<Conn, Backend = DB>,
        Q: Query<SqlType = KeyAndText<T>> + QueryFragment<DB> + QueryId + 's,
    {
        link.load(query)
    }
}

/// The parents of a sharded table, which is a value: one of a type, or one that a tool has found in the database.
pub(crate) trait Parents<DB: ShardedBackend>: Copy + Send + Sync {
    /// The key of a parent.
    type Key: Clone + Send + Sync + 'static;

    /// The SQL type of a key as it is read.
    type KeySql;

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

    /// Reads keys.
    fn load<'s, Q, M, Conn>(
        link: &'s mut Link<'_, M, Conn>,
        query: Q,
    ) -> M::Future<'s, QueryResult<Vec<Self::Key>>>
    where
        M: LoadIo<Conn, Backend = DB>,
        Q: Query<SqlType = Self::KeySql> + QueryFragment<DB> + QueryId + 's;

    /// The error of a parent that is unfit.
    fn unfit(&self, key: &Self::Key, reason: Unfit) -> Error {
        let key = self.is(key);
        let mut shown = String::new();
        if DB::show(&key, &mut shown).is_err() {
            shown.clear(); // the error says the rest
        }
        let values = shown.split_once(" -- binds: [");
        let values = values.and_then(|(_, values)| values.strip_suffix(']'));
        Error::Unfit {
            table: self.names().shards_table.to_string(),
            key: values.unwrap_or(&shown).to_owned(),
            reason,
        }
    }

    /// A `WHERE` clause for `keys`.
    fn are(&self, keys: &[Self::Key]) -> KeysAre<Self::KeyIs> {
        KeysAre(keys.iter().map(|key| self.is(key)).collect())
    }
}

impl<T, DB> Parents<DB> for T
where
    T: ShardedTable + KeyedTable<DB>,
    DB: ShardedBackend,
{
    type Key = <T as ShardedTable>::Key;
    type KeySql = SqlTypeOf<T::PrimaryKey>;
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

    fn load<'s, Q, M, Conn>(
        link: &'s mut Link<'_, M, Conn>,
        query: Q,
    ) -> M::Future<'s, QueryResult<Vec<Self::Key>>>
    where
        M: LoadIo<Conn, Backend = DB>,
        Q: Query<SqlType = Self::KeySql> + QueryFragment<DB> + QueryId + 's,
    {
        T::load_keys(link, query)
    }
}

/// How many parents one statement names: a number that every planner and every limit on parameters bears.
pub(crate) const KEYS_IN_A_STATEMENT: usize = 100;

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

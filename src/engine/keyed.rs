//! Parents that are addressed by their keys.

use diesel::deserialize::FromSqlRow;
use diesel::dsl::SqlTypeOf;
use diesel::expression::QueryMetadata;
use diesel::expression_methods::EqAll;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};

use crate::backend::ShardedBackend;
use crate::connection::{Link, LoadIo};
use crate::model::ShardedTable;
use crate::query_builder::KeysAre;

/// A sharded table whose parents can be named by their keys on `DB`. Every one is; the trait gathers what that takes.
pub trait KeyedTable<DB: ShardedBackend>: ShardedTable + QueryFragment<DB> + QueryId {
    /// `key = $n`
    type KeyIs: QueryFragment<DB> + QueryId + Send + Sync;

    /// `key = $n`
    fn key_is(key: Self::Key) -> Self::KeyIs;

    /// Writes `key > $n`.
    fn push_key_after<'b>(
        after: &'b <Self as ShardedTable>::KeyAfter,
        out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()>;

    /// Reads keys.
    fn load_keys<'s, Q, M, Conn>(
        link: &'s mut Link<'_, M, Conn>,
        query: Q,
    ) -> M::Future<'s, QueryResult<Vec<Self::Key>>>
    where
        M: LoadIo<Conn, Backend = DB>,
        Q: Query<SqlType = SqlTypeOf<Self::PrimaryKey>> + QueryFragment<DB> + QueryId + 's;
}

impl<T, DB> KeyedTable<DB> for T
where
    DB: ShardedBackend + QueryMetadata<SqlTypeOf<T::PrimaryKey>>,
    T: ShardedTable<KeyAfter: QueryFragment<DB>> + QueryFragment<DB> + QueryId,
    T::PrimaryKey: EqAll<T::Key, Output: QueryFragment<DB> + QueryId + Send + Sync>,
    T::Key: FromSqlRow<SqlTypeOf<T::PrimaryKey>, DB>,
{
    type KeyIs = <T::PrimaryKey as EqAll<T::Key>>::Output;

    fn key_is(key: T::Key) -> Self::KeyIs {
        T::TABLE.primary_key().eq_all(key)
    }

    fn push_key_after<'b>(after: &'b T::KeyAfter, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        after.walk_ast(out)
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

//! Locked parents by the names of their table: all that an operation does with them, whatever the types of their keys.

use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use diesel::result::Error as DieselError;

use crate::backend::{ShardedBackend, Strength};
use crate::connection::{Link, LoadIo};
use crate::query_builder::{
    FindHot, KeysAre, LockShards, Names, RowKind, SelectShards, StatementRows,
};
use crate::unfit::Unfit;

/// Parents that the open transaction has locked, with all their shards or with one.
pub(crate) struct LockedKeys<'a, K, DB: ShardedBackend> {
    pub(crate) names: Names<'a, DB>,
    /// A `WHERE` clause that names them, in key order.
    pub(crate) keys: &'a KeysAre<K>,
    /// The number of parents.
    pub(crate) parents: usize,
    pub(crate) shard: Option<i32>,
    /// How many of the shards that were locked are not empty, where rows can be locked.
    pub(crate) filled: Option<usize>,
}

/// An operation on locked parents that failed.
#[derive(Debug)]
pub(crate) enum LockError {
    /// The parent of this number, in key order, is unfit.
    Unfit(usize, Unfit),
    /// A statement failed.
    Database(DieselError),
}

impl From<DieselError> for LockError {
    fn from(error: DieselError) -> Self {
        LockError::Database(error)
    }
}

impl<K, DB> LockedKeys<'_, K, DB>
where
    K: QueryFragment<DB> + Sync,
    DB: ShardedBackend,
{
    /// Locks the shards, where rows can be locked. The number of them that are not empty.
    pub(crate) async fn lock_shards<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        strength: Strength,
    ) -> QueryResult<Option<usize>>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        let clause = link.dialect().locks_rows(strength);
        let (Some(clause), 1..) = (clause, self.parents) else {
            return Ok(None);
        };
        let of = self.rows(RowKind::Shards);
        let locked = link.load::<i32, _>(LockShards { of, clause }).await?;
        Ok(Some(locked.iter().filter(|filled| **filled != 0).count()))
    }

    /// The numbers of the shards that there are, held or not.
    pub(crate) async fn shards<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<Vec<i32>>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        let of = StatementRows {
            shard: None,
            ..self.rows(RowKind::Shards)
        };
        link.load::<i32, _>(SelectShards { of }).await
    }

    /// Whether at least so many shards are filled, of each parent in key order.
    pub(super) async fn are_hot<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        shards: u16,
    ) -> QueryResult<Vec<bool>>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        let find = FindHot {
            of: self.rows(RowKind::Parents),
            shards: shards.into(),
        };
        let are_hot = link.load::<i32, _>(find).await?;
        Ok(are_hot.into_iter().map(|is_hot| is_hot != 0).collect())
    }

    pub(super) fn rows(&self, rows: RowKind) -> StatementRows<'_, KeysAre<K>, DB> {
        StatementRows {
            rows,
            names: self.names,
            keys: self.keys,
            shard: self.shard,
        }
    }
}

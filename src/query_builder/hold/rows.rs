//! The rows that a statement is about.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};

use crate::backend::ShardedBackend;
use crate::model::ShardedTable;
use crate::query_builder::names::{push_shard_is, push_shards_as_parent};

/// Which of the rows that are held a statement is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    Parents,
    Shards,
}

/// The rows that a statement is about.
pub(crate) struct HeldRows<'a, T, W> {
    pub(crate) rows: Rows,
    pub(crate) keys: &'a W,
    pub(crate) shard: Option<i32>,
    pub(crate) table: PhantomData<T>,
}

impl<T, W> HeldRows<'_, T, W> {
    /// `parent`, or `shards AS parent`
    pub(super) fn push_table<DB>(&self, out: AstPass<'_, '_, DB>) -> QueryResult<()>
    where
        T: ShardedTable + QueryFragment<DB>,
        DB: ShardedBackend,
    {
        match self.rows {
            Rows::Parents => T::TABLE.walk_ast(out),
            Rows::Shards => push_shards_as_parent::<T, DB>(out),
        }
    }

    /// ` WHERE (keys)`, of shards with ` AND parent.shard = $n` if it is one
    pub(super) fn push_where<'b, DB>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        T: ShardedTable + QueryFragment<DB>,
        W: QueryFragment<DB>,
        DB: ShardedBackend,
    {
        self.keys.walk_ast(out.reborrow())?;
        match (self.rows, &self.shard) {
            (Rows::Shards, Some(shard)) => {
                out.push_sql(" AND ");
                push_shard_is::<T, DB>(shard, out)
            }
            _ => Ok(()),
        }
    }
}

macro_rules! no_query_id {
    ($($statement:ident<$($part:ident),+>)+) => {$(
        /// Its text has one length for each number of keys.
        impl<$($part),+> QueryId for $statement<'_, $($part),+> {
            type QueryId = ();
            const HAS_STATIC_QUERY_ID: bool = false;
        }
    )+};
}

pub(super) use no_query_id;

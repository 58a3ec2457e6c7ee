//! The changes of an update, and the statements that make them.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AsChangeset, QueryFragment, QueryId};

use crate::backend::ShardedBackend;
use crate::connection::{Io, Link};
use crate::engine::Statement;
use crate::model::ShardedTable;
use crate::query_builder::{
    CountAll, CountBeforeLoad, CountByKey, CountOne, CountPicked, CreateShards, FindMissing,
    FindParent, ProbeShard,
};

/// The changes of an update, as written (`V`) and as Diesel's tree.
pub(crate) struct Changes<T, V: AsChangeset> {
    pub(crate) changeset: V::Changeset,
    table: PhantomData<T>,
}

impl<T, V: AsChangeset> Changes<T, V> {
    pub(crate) fn new(changes: V) -> Self {
        Changes {
            changeset: changes.as_changeset(),
            table: PhantomData,
        }
    }

    /// Counts by key in a transaction that reads the parents later.
    pub(crate) fn count_before_load<'c, W, DB, M, Conn>(
        &'c self,
        link: &'c mut Link<'_, M, Conn>,
        filter: &'c W,
        shard: i32,
    ) -> M::Future<'c, QueryResult<usize>>
    where
        M: Io<Conn, Backend = DB>,
        DB: ShardedBackend,
        T: ShardedTable + QueryFragment<DB> + QueryId,
        W: QueryFragment<DB> + QueryId,
        V: QueryId,
        V::Changeset: QueryFragment<DB>,
    {
        link.execute_kept(CountBeforeLoad(CountByKey::<T, _, V, _> {
            changes: &self.changeset,
            filter,
            shard,
            types: PhantomData,
        }))
    }

    /// Sends a statement about the parents that `filter` matches. `Probe`, `FindMissing` and `CountByKey` take only one by key.
    pub(crate) fn send<'c, W, DB, M, Conn>(
        &'c self,
        link: &'c mut Link<'_, M, Conn>,
        statement: Statement,
        filter: &'c W,
        shard: i32,
    ) -> M::Future<'c, QueryResult<usize>>
    where
        M: Io<Conn, Backend = DB>,
        DB: ShardedBackend,
        T: ShardedTable + QueryFragment<DB> + QueryId,
        W: QueryFragment<DB> + QueryId,
        V: QueryId,
        V::Changeset: QueryFragment<DB>,
    {
        let table = PhantomData::<T>;
        let types = PhantomData;
        match statement {
            Statement::Probe => link.execute(ProbeShard {
                filter,
                shard,
                table,
            }),
            Statement::FindMissing => link.execute_query(FindMissing {
                filter,
                shard,
                table,
            }),
            Statement::FindParent => link.execute_query(FindParent { filter, table }),
            Statement::Create => link.execute_kept(CreateShards {
                filter,
                shard,
                table,
            }),
            Statement::CountByKey => link.execute_kept(CountByKey::<T, _, V, _> {
                changes: &self.changeset,
                filter,
                shard,
                types,
            }),
            Statement::CountOne => link.execute_kept(CountOne::<T, _, V, _> {
                changes: &self.changeset,
                filter,
                shard,
                types,
            }),
            Statement::CountAll => link.execute_kept(CountAll::<T, _, V, _> {
                changes: &self.changeset,
                filter,
                shard,
                types,
            }),
            Statement::CountPicked => link.execute_kept(CountPicked::<T, _, V, _> {
                changes: &self.changeset,
                filter,
                shard,
                types,
            }),
            // These are the caller's, who has what they need.
            Statement::Insert
            | Statement::InsertUnlessThere
            | Statement::Pick
            | Statement::CountAndLoad
            | Statement::CountOnce
            | Statement::Load => M::nothing(link.conn),
        }
    }
}

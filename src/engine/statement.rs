//! The statements of a counting update.

use std::future::Future;

use diesel::result::QueryResult;

use crate::backend::{ShardedBackend, Strength};
use crate::connection::{Io, Link};
use crate::query_builder::{
    Clauses, CountAll, CountByKey, CountOne, CountPicked, CreateShards, FindMissing, FindParent,
    InsertParent, LockShard,
};

/// One statement of a counting update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Statement {
    /// Fails, or on PostgreSQL meets no row, if the shard of a parent named by its key is locked.
    Probe,
    /// Checks whether the shard of a parent named by its key is missing, without a lock: meets a row if it is.
    FindMissing,
    /// Checks whether a parent named by its key is there, without a lock.
    FindParent,
    /// Adds to the shards of parents that are named by their keys.
    CountByKey,
    /// Adds to the shard of the one parent that a filter matches. Meets no row if the filter matches several, or if the shard is
    /// missing.
    CountOne,
    /// Adds to the shards of all parents that a filter matches; to none if one of the shards is missing.
    CountAll,
    /// The same, and also reads the parents.
    CountAndLoad,
    /// Claims an idempotency key, and adds to the shard of a parent named by its key. Meets no row if the key is known, or if the shard
    /// is missing.
    CountOnce,
    /// Adds to the shards of parents that a filter matches, as the parents' table compares.
    CountPicked,
    /// Inserts the shards that are missing, at zero, and locks the others.
    Create,
    /// Inserts the parent that is missing, unless one is there by now.
    InsertUnlessThere,
    /// Inserts the parent that is missing.
    Insert,
    /// Reads the keys of the parents that a filter matches.
    Pick,
    /// Reads the counted parents with their totals.
    Load,
}

impl Statement {
    /// The name by which it is observed.
    pub(super) fn name(self) -> &'static str {
        match self {
            Statement::Probe => "probe",
            Statement::FindMissing => "find_missing",
            Statement::FindParent => "find_parent",
            Statement::CountByKey => "count_by_key",
            Statement::CountOne => "count_one",
            Statement::CountAll => "count_all",
            Statement::CountAndLoad => "count_and_load",
            Statement::CountOnce => "count_once",
            Statement::CountPicked => "count_picked",
            Statement::Create => "create",
            Statement::InsertUnlessThere => "insert_unless_there",
            Statement::Insert => "insert",
            Statement::Pick => "pick",
            Statement::Load => "load",
        }
    }
}

/// A statement for one shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) statement: Statement,
    pub(crate) shard: i32,
}

/// Sends the statements of a counting update.
pub(crate) trait SendStatement<M: Io> {
    /// Sends a step, and returns the number of rows that it met.
    fn send(
        &mut self,
        link: &mut Link<'_, M>,
        step: Step,
    ) -> impl Future<Output = QueryResult<usize>>;
}

/// Sends a statement about the parents that the filter of `clauses` matches. `Probe`, `FindMissing` and `CountByKey` take only one by key.
///
/// This function is compiled once for each type of connection, and Diesel knows its statements by their text. The statement that an update
/// sends again and again is [known by its types](crate::query_builder::Identified).
pub(crate) fn send<'c, DB, M>(
    link: &'c mut Link<'_, M>,
    statement: Statement,
    clauses: Clauses<'c, DB>,
) -> M::Future<'c, QueryResult<usize>>
where
    M: Io<Backend = DB>,
    DB: ShardedBackend,
{
    let Clauses {
        names,
        changes,
        filter,
        insert,
        shard,
    } = clauses;
    match (statement, insert) {
        (Statement::Probe, _) => link.execute(LockShard(clauses, Strength::ExclusiveIfFree)),
        (Statement::FindMissing, _) => link.execute_query(FindMissing(clauses)),
        (Statement::FindParent, _) => link.execute_query(FindParent { names, filter }),
        (Statement::Create, _) => link.execute_prepared(CreateShards {
            names,
            filter,
            shard,
            locks: true,
        }),
        (Statement::CountByKey, _) => link.execute_prepared(CountByKey(clauses)),
        (Statement::CountOne, _) => link.execute_prepared(CountOne(clauses)),
        (Statement::CountAll, _) => link.execute_prepared(CountAll(clauses)),
        (Statement::CountPicked, _) => link.execute_prepared(CountPicked(clauses)),
        (Statement::Insert | Statement::InsertUnlessThere, Some(insert)) => {
            link.execute(InsertParent {
                insert,
                changes,
                fields: names.fields,
                unless_there: statement == Statement::InsertUnlessThere,
            })
        }
        _ => M::nothing(link.conn), // the caller sends the others itself; it has the values for them
    }
}

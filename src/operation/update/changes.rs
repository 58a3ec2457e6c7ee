//! The statements of an update that its types do not matter to.

use diesel::prelude::*;
use diesel::query_builder::QueryFragment;

use crate::backend::ShardedBackend;
use crate::connection::{Io, Link};
use crate::engine::Statement;
use crate::query_builder::{
    CountAll, CountByKey, CountOne, CountPicked, CreateShards, FindMissing, FindParent,
    InsertParent, Parts, ProbeShard,
};

/// Sends a statement about the parents that the filter of `parts` matches. `Probe`, `FindMissing` and `CountByKey` take only one by key.
///
/// It is compiled once for each connection, and Diesel knows such a statement by its text. The one that an update sends again and
/// again is [known by its types](crate::query_builder::Identified).
pub(crate) fn send<'c, DB, M, Conn>(
    link: &'c mut Link<'_, M, Conn>,
    statement: Statement,
    parts: Parts<'c, DB>,
    insert: Option<&'c dyn QueryFragment<DB>>,
) -> M::Future<'c, QueryResult<usize>>
where
    M: Io<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    let Parts {
        names,
        changes,
        filter,
        shard,
    } = parts;
    match (statement, insert) {
        (Statement::Probe, _) => link.execute(ProbeShard(parts)),
        (Statement::FindMissing, _) => link.execute_query(FindMissing(parts)),
        (Statement::FindParent, _) => link.execute_query(FindParent { names, filter }),
        (Statement::Create, _) => link.execute_prepared(CreateShards {
            names,
            filter,
            shard,
        }),
        (Statement::CountByKey, _) => link.execute_prepared(CountByKey(parts)),
        (Statement::CountOne, _) => link.execute_prepared(CountOne(parts)),
        (Statement::CountAll, _) => link.execute_prepared(CountAll(parts)),
        (Statement::CountPicked, _) => link.execute_prepared(CountPicked(parts)),
        (Statement::Insert | Statement::InsertUnlessThere, Some(insert)) => {
            link.execute(InsertParent {
                insert,
                changes,
                fields: names.fields,
                unless_there: statement == Statement::InsertUnlessThere,
            })
        }
        // These are the caller's, who has what they need.
        (
            Statement::Insert
            | Statement::InsertUnlessThere
            | Statement::Pick
            | Statement::CountAndLoad
            | Statement::CountOnce
            | Statement::Load,
            _,
        ) => M::nothing(link.conn),
    }
}

//! The parts of a counting update, of which its statements are made.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};

use super::text_guard::{Prepare, TextGuard};
use crate::backend::ShardedBackend;
use crate::query_builder::Names;

/// The parts of a counting update. What its types are is left behind, so that a statement is compiled once for each database and not
/// for each update.
pub(crate) struct Parts<'a, DB: Backend> {
    pub(crate) names: Names<'a, DB>,
    /// What follows `SET`.
    pub(crate) changes: &'a dyn QueryFragment<DB>,
    /// The `WHERE` clause.
    pub(crate) filter: &'a dyn QueryFragment<DB>,
    pub(crate) shard: i32,
}

impl<DB: Backend> Clone for Parts<'_, DB> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<DB: Backend> Copy for Parts<'_, DB> {}

/// A statement whose text depends on nothing but the types in `Id` and the dialect, so that Diesel can keep it prepared under its id.
pub(crate) struct Identified<Id, Q> {
    statement: Q,
    id: PhantomData<Id>,
}

impl<Id, Q> Identified<Id, Q> {
    pub(crate) fn new(statement: Q) -> Self {
        Identified {
            statement,
            id: PhantomData,
        }
    }
}

impl<Id, Q: QueryFragment<DB>, DB: Backend> QueryFragment<DB> for Identified<Id, Q> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.statement.walk_ast(out)
    }
}

impl<Id, Q: Prepare<DB>, DB: ShardedBackend> Prepare<DB> for Identified<Id, Q> {
    fn walk_guarded<'b>(
        &'b self,
        guard: &'b TextGuard,
        out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()> {
        self.statement.walk_guarded(guard, out)
    }
}

impl<Id, Q: Query> Query for Identified<Id, Q> {
    type SqlType = Q::SqlType;
}

impl<Id: QueryId, Q> QueryId for Identified<Id, Q> {
    type QueryId = Id::QueryId;
    const HAS_STATIC_QUERY_ID: bool = Id::HAS_STATIC_QUERY_ID;
}

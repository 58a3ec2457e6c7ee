//! Filters that name parents by their keys.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};

use crate::backend::ShardedBackend;
use crate::query_builder::{Sql, no_query_id, part, sql, walk};

/// A `WHERE` clause that names parents by their keys.
///
/// ```sql
/// WHERE (("videos"."id" = $1) OR ("videos"."id" = $2))
/// ```
pub(crate) struct KeysAre<P>(pub(crate) Vec<P>);

impl<P, DB> QueryFragment<DB> for KeysAre<P>
where
    DB: ShardedBackend,
    P: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        sql!(out; " WHERE ", self.any())
    }
}

impl<P> KeysAre<P> {
    /// `(("videos"."id" = $1) OR ("videos"."id" = $2))`
    pub(crate) fn any<'b, DB>(&'b self) -> impl Sql<'b, DB>
    where
        DB: ShardedBackend,
        P: QueryFragment<DB>,
    {
        part(|mut out: AstPass<'_, 'b, DB>| {
            out.unsafe_to_cache_prepared(); // one text for each number of keys
            sql!(out; "(", for key_is in (&self.0, " OR ") { walk(key_is) }, ")")
        })
    }
}

no_query_id!([P] KeysAre<P>);

/// A `WHERE` clause that names one parent by its key.
///
/// ```sql
/// WHERE ("videos"."id" = $1)
/// ```
#[derive(QueryId)]
pub(crate) struct KeyIs<P>(pub(crate) P);

impl<P, DB> QueryFragment<DB> for KeyIs<P>
where
    DB: ShardedBackend,
    P: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        sql!(out; " WHERE ", walk(&self.0))
    }
}

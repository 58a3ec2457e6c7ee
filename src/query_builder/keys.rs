//! Filters that name parents by their keys.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};

use crate::backend::ShardedBackend;
use crate::query_builder::no_query_id;

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
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql(" WHERE ");
        self.push_any(out)
    }
}

impl<P> KeysAre<P> {
    /// `(("videos"."id" = $1) OR ("videos"."id" = $2))`
    pub(crate) fn push_any<'b, DB>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        DB: ShardedBackend,
        P: QueryFragment<DB>,
    {
        out.unsafe_to_cache_prepared(); // one text for each number of keys
        for (i, key_is) in self.0.iter().enumerate() {
            out.push_sql(if i == 0 { "(" } else { " OR " });
            key_is.walk_ast(out.reborrow())?;
        }
        out.push_sql(")");
        Ok(())
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
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql(" WHERE ");
        self.0.walk_ast(out)
    }
}

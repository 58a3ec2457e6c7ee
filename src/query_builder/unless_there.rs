//! An `INSERT` that keeps the row that is there.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};

use crate::backend::ShardedBackend;
use crate::query_builder::query_ids::query_ids;

/// An `INSERT` that does nothing where it violates a unique key.
///
/// ```sql
/// INSERT … ON CONFLICT DO NOTHING
/// ```
pub(crate) struct UnlessThere<'a, S>(pub(crate) &'a S);

impl<S, DB> QueryFragment<DB> for UnlessThere<'_, S>
where
    DB: ShardedBackend,
    S: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.0.walk_ast(out.reborrow())?;
        out.push_sql(" ON CONFLICT DO NOTHING");
        Ok(())
    }
}

query_ids!(UnlessThere<'a, S>);

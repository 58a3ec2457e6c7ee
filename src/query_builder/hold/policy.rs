//! Row security of parents and shards.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryBuilder, QueryFragment};
use diesel::sql_types::Integer;

use crate::backend::ShardedBackend;
use crate::query_builder::literal::literal;
use crate::query_builder::no_query_id;

/// Reads a row if row security applies to this role's view of a table.
///
/// ```sql
/// SELECT 1 WHERE row_security_active('"videos"')
/// ```
pub(crate) struct FindPolicy<F>(pub(crate) F);

impl<F, DB> QueryFragment<DB> for FindPolicy<F>
where
    F: QueryFragment<DB>,
    DB: ShardedBackend,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT 1 WHERE ");
        push_row_security_active(&self.0, out)
    }
}

impl<F> Query for FindPolicy<F> {
    type SqlType = Integer;
}

no_query_id!([F] FindPolicy<F>);

/// `row_security_active('"videos"')`
pub(super) fn push_row_security_active<F, DB>(
    table: &F,
    mut out: AstPass<'_, '_, DB>,
) -> QueryResult<()>
where
    F: QueryFragment<DB> + ?Sized,
    DB: ShardedBackend,
{
    let mut name = out.backend().query_builder();
    table.to_sql(&mut name, out.backend())?;
    out.push_sql("row_security_active(");
    out.push_sql(&literal(out.backend().dialect(), &name.finish()));
    out.push_sql(")");
    Ok(())
}

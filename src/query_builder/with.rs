//! The rows of a `WITH` clause, asked for by its name.

use diesel::QueryResult;
use diesel::query_builder::AstPass;

use crate::backend::ShardedBackend;

/// `EXISTS (SELECT 1 FROM name)`
pub(crate) fn push_has_rows<DB: ShardedBackend>(
    name: &str,
    mut out: AstPass<'_, '_, DB>,
) -> QueryResult<()> {
    out.push_sql("EXISTS (SELECT 1 FROM ");
    out.push_identifier(name)?;
    out.push_sql(")");
    Ok(())
}

/// `(SELECT COUNT(*) FROM name)`
pub(crate) fn push_number_of_rows<DB: ShardedBackend>(
    name: &str,
    mut out: AstPass<'_, '_, DB>,
) -> QueryResult<()> {
    out.push_sql("(SELECT COUNT(*) FROM ");
    out.push_identifier(name)?;
    out.push_sql(")");
    Ok(())
}

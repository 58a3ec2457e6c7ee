//! Clearer reasons for errors that the database gives for statements of ours.

use diesel::query_builder::{QueryBuilder, QueryFragment};
use diesel::result::Error as DieselError;

use crate::backend::{Dialect, ShardedBackend};
use crate::error::Error;
use crate::model::ShardedTable;

/// Finds a clearer reason for an error that the database gave for a statement about `T` and its shards.
pub(crate) fn explain<T, DB>(backend: &DB, error: DieselError) -> DieselError
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    if !matches!(error, DieselError::DatabaseError(..)) {
        return error;
    }
    let mut name = backend.query_builder();
    match T::TABLE.to_sql(&mut name, backend).map(|()| name.finish()) {
        Ok(table) if table.contains("\".\"") || table.contains("`.`") => {
            Error::QualifiedTable { table }.into()
        }
        _ if is_nan::<T>(backend.dialect(), &error) => Error::Overflow { source: error }.into(),
        _ => explain_missing(backend, T::SHARDS_TABLE, error),
    }
}

/// Whether a shard would have become NaN.
fn is_nan<T: ShardedTable>(dialect: Dialect, error: &DieselError) -> bool {
    let mut fields = T::FIELDS.iter();
    fields.any(|field| dialect.is_nan(error, T::SHARDS_TABLE, field.name))
}

/// Names the table of the crate's that is missing, if that is the error.
pub(crate) fn explain_missing<DB: ShardedBackend>(
    backend: &DB,
    table: &'static str,
    source: DieselError,
) -> DieselError {
    match backend.dialect().is_missing_table(&source, table) {
        true => Error::MissingShardsTable { table, source }.into(),
        false => source,
    }
}

//! Clearer reasons for errors that the database gives for statements of ours.

use diesel::query_builder::QueryFragment;
use diesel::result::Error as DieselError;

use crate::backend::{Dialect, ShardedBackend};
use crate::error::Error;
use crate::model::ShardedTable;
use crate::query_builder::Names;

/// Finds a clearer reason for an error that the database gave for a statement about `T` and its shards.
pub(crate) fn explain<T, DB>(backend: &DB, error: DieselError) -> DieselError
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    explain_of(Names::of::<T>(), backend, error)
}

/// The same for a table by its names.
pub(crate) fn explain_of<DB: ShardedBackend>(
    names: Names<'_, DB>,
    backend: &DB,
    error: DieselError,
) -> DieselError {
    if !matches!(error, DieselError::DatabaseError(..)) {
        return error;
    }
    let dialect = backend.dialect();
    if is_nan(names, dialect, &error) {
        return Error::Overflow { source: error }.into();
    }
    let mut fields = names.fields.iter();
    match fields.find(|field| dialect.is_missing_column(&error, &field.name)) {
        Some(field) => Error::MissingShardsColumn {
            table: names.shards_table.to_string(),
            column: field.name.to_string(),
            source: error,
        }
        .into(),
        None => explain_missing(backend, names.shards_table.as_str(), error),
    }
}

/// Whether a shard would have become NaN.
fn is_nan<DB: ShardedBackend>(names: Names<'_, DB>, dialect: Dialect, error: &DieselError) -> bool {
    let mut fields = names.fields.iter();
    fields.any(|field| dialect.is_nan(error, names.shards_table.name(), &field.name))
}

/// Names the table of the crate's that is missing, if that is the error.
pub(crate) fn explain_missing<DB: ShardedBackend>(
    backend: &DB,
    table: &str,
    source: DieselError,
) -> DieselError {
    match backend.dialect().is_missing_table(&source, table) {
        true => {
            let table = table.to_owned();
            Error::MissingShardsTable { table, source }.into()
        }
        false => source,
    }
}

//! The errors of an attempt, and what follows each: the one table for counts, transactions and single statements.
//!
//! | error | conflict | connection lost | node not ready, overflow, disk full | any other |
//! |---|---|---|---|---|
//! | `Statement` | retried | `ConnectionLost` | as such | as it is |
//! | `Commit` | retried | `OutcomeUnknown` | `OutcomeUnknown` | `OutcomeUnknown` |
//! | `ParentGone` | retried | | | |
//! | `LostRace` | retried at once | | | |
//! | `ShardRemoved` | retried | | | |
//! | `Application` | retried, where one is behind it | as it is | as it is | as it is |
//! | `Aborted` | | | | `TransactionAborted` |
//!
//! A `Commit` counts as a `Statement` if the database is known to have refused it. The kind or the text of its error may prove that, or the
//! session's next answer ([`Dialect::proves_refusal`]). Without proof the outcome is unknown.
//!
//! Inside a caller's transaction only a lost race is retried. Errors stay as Diesel reports them, because callers decide on a retry by
//! them; only overflows and full disks are reported as such. If no attempt is left, a conflict is reported as `ConflictPersisted`; an
//! application's own error stays as it is.
//!
//! [`explain`] finds clearer reasons for errors that the database gave for statements of ours.

use std::error::Error as StdError;

use diesel::query_builder::QueryFragment;
use diesel::result::Error as DieselError;

use crate::backend::{Dialect, ErrorDetail, ShardedBackend};
use crate::conflict::{Conflict, ErrorClass};
use crate::error::Error;
use crate::model::{ShardedTable, ShardsColumn, TableName};
use crate::query_builder::Names;

/// The error of an attempt, by the step that it came from.
#[derive(Debug)]
pub(crate) enum AttemptError<E = DieselError> {
    /// `BEGIN` failed, or a statement of this crate's own before `COMMIT`: nothing is committed.
    Statement(DieselError),
    /// `COMMIT`, or a statement that commits by itself, failed but may have committed.
    Commit(DieselError),
    /// A parent was deleted, or got another key, while its shard was being created: the foreign key was violated.
    ParentGone(DieselError),
    /// Another connection has inserted the parent first. The next attempt finds it.
    LostRace(DieselError),
    /// A fold removed the shard after one statement created it and before the next counted on it. No transaction may keep the shard there.
    ShardRemoved(DieselError),
    /// The application's own error: of its closure or its row, or of a statement in its transaction.
    Application(E),
    /// The application's closure returned `Ok`, but the database had aborted its transaction.
    Aborted,
}

impl<E> AttemptError<E> {
    /// The error of the statement of this crate's own that failed.
    pub(super) fn source(&self) -> Option<&DieselError> {
        match self {
            AttemptError::Statement(error)
            | AttemptError::Commit(error)
            | AttemptError::ParentGone(error)
            | AttemptError::LostRace(error)
            | AttemptError::ShardRemoved(error) => Some(error),
            AttemptError::Application(_) | AttemptError::Aborted => None,
        }
    }
}

impl<E: From<DieselError> + StdError + 'static> AttemptError<E> {
    /// The conflict that the attempt met.
    pub(super) fn conflict(&self, dialect: Dialect) -> Option<Conflict> {
        match self {
            AttemptError::Statement(error) | AttemptError::Commit(error) => {
                conflict_behind(dialect, error)
            }
            AttemptError::ParentGone(_) => Some(Conflict::ParentGone),
            AttemptError::ShardRemoved(_) => Some(Conflict::Serialization),
            AttemptError::Application(error) => conflict_behind(dialect, error),
            AttemptError::LostRace(_) | AttemptError::Aborted => None,
        }
    }

    /// Whether a statement of this crate's own met a conflict that ends the whole transaction. `None` without a conflict, or if only a
    /// commit gives this error: then the statement committed by itself.
    pub(super) fn ended_transaction(&self, dialect: Dialect) -> Option<bool> {
        let (error, is_conflict) = match self {
            AttemptError::Statement(error) | AttemptError::Commit(error) => (
                error,
                matches!(dialect.classify(error), ErrorClass::Conflict(_)),
            ),
            AttemptError::ParentGone(error) => (error, true),
            AttemptError::LostRace(_)
            | AttemptError::ShardRemoved(_)
            | AttemptError::Application(_)
            | AttemptError::Aborted => return None,
        };
        (is_conflict && !dialect.has_detail(error, ErrorDetail::Commit))
            .then(|| dialect.ends_transaction(error))
    }

    /// The error to report where no new attempt can help; `inside`: in a caller's transaction.
    pub(super) fn report(self, dialect: Dialect, inside: bool) -> E {
        let may_be_committed = matches!(self, AttemptError::Commit(_)) && !inside;
        self.report_as(|source| match dialect.classify(&source) {
            _ if may_be_committed => Error::OutcomeUnknown { source },
            ErrorClass::Overflow => Error::Overflow { source },
            ErrorClass::DiskFull => Error::DiskFull { source },
            _ if inside => Error::Diesel(source),
            ErrorClass::ConnectionLost => Error::ConnectionLost { source },
            ErrorClass::NodeNotReady => Error::NodeNotReady { source },
            ErrorClass::Conflict(_) | ErrorClass::Other => Error::Diesel(source),
        })
    }

    /// Reports the database's error by `error_of`. An application's error is reported as it is.
    pub(super) fn report_as(self, error_of: impl FnOnce(DieselError) -> Error) -> E {
        match self {
            AttemptError::Statement(error)
            | AttemptError::Commit(error)
            | AttemptError::ParentGone(error)
            | AttemptError::LostRace(error)
            | AttemptError::ShardRemoved(error) => DieselError::from(error_of(error)).into(),
            AttemptError::Application(error) => error,
            AttemptError::Aborted => DieselError::from(Error::TransactionAborted).into(),
        }
    }
}

/// The conflict behind an application's error, if there is one.
///
/// An error with `#[error(transparent)]` shows the database's text but has no source, so the text has to do. Whatever the error was,
/// the attempt was rolled back, and a retry counts nothing twice.
fn conflict_behind(dialect: Dialect, error: &(dyn StdError + 'static)) -> Option<Conflict> {
    let mut next = Some(error);
    while let Some(error) = next {
        // The text of its source does not matter.
        if let Some(Error::StatementLost { .. }) = error.downcast_ref() {
            return Some(Conflict::StatementLost);
        }
        let class = match database_error(error) {
            Some(error) => dialect.classify(error),
            None => dialect.classify_text(&error.to_string()),
        };
        if let ErrorClass::Conflict(conflict) = class {
            return Some(conflict);
        }
        next = error.source();
    }
    None
}

/// Whether a row did not hold what was written to it.
pub(super) fn is_unfit(error: &DieselError) -> bool {
    let DieselError::QueryBuilderError(boxed) = error else {
        return false;
    };
    matches!(boxed.downcast_ref(), Some(Error::Unfit { .. }))
}

/// The database's error: this error itself, or one that it holds but does not return as its source.
fn database_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a DieselError> {
    match error.downcast_ref::<DieselError>() {
        Some(error @ DieselError::QueryBuilderError(boxed)) => match boxed.downcast_ref() {
            Some(Error::StatementLost { .. }) => Some(error),
            _ => database_error(boxed.as_ref()),
        },
        Some(error) => Some(error),
        None => match error.downcast_ref::<Error>()? {
            Error::Diesel(error) | Error::ConflictPersisted { source: error, .. } => Some(error),
            _ => None,
        },
    }
}

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
    explain_by(names.shards_table, names.fields, backend.dialect(), error)
}

/// The same for a table by its shards table and its sharded fields.
pub(crate) fn explain_by(
    table: TableName<'_>,
    fields: &[ShardsColumn],
    dialect: Dialect,
    error: DieselError,
) -> DieselError {
    if !matches!(error, DieselError::DatabaseError(..)) {
        return error;
    }
    let mut names = fields.iter().map(|field| &*field.name);
    // A shard would have become NaN.
    if names
        .clone()
        .any(|name| dialect.is_nan(&error, table.name(), name))
    {
        return Error::Overflow { source: error }.into();
    }
    match names.find(|name| dialect.is_missing_column(&error, name)) {
        Some(column) => Error::MissingShardsColumn {
            table: table.to_string(),
            column: column.to_owned(),
            source: error,
        }
        .into(),
        None => explain_missing(dialect, table.as_str(), error),
    }
}

/// The same where keys are read from the shards table.
pub(crate) fn explain_keys<DB: ShardedBackend>(
    names: Names<'_, DB>,
    backend: &DB,
    error: DieselError,
) -> DieselError {
    match backend.dialect().is_narrow(&error) {
        true => narrow_key(names.shards_table.as_str(), names.key, error),
        false => explain_of(names, backend, error),
    }
}

/// The error for a key that the shards table has no room for. Only the key can be too large, because the other values of a new shard are 0.
pub(crate) fn narrow_key(table: &str, key: &[ShardsColumn], source: DieselError) -> DieselError {
    let columns: Vec<_> = key.iter().map(|column| &*column.name).collect();
    Error::NarrowKey {
        table: table.to_owned(),
        column: columns.join("`, `"),
        source,
    }
    .into()
}

/// If a table of this crate's is missing, returns the error that names it.
pub(crate) fn explain_missing(dialect: Dialect, table: &str, source: DieselError) -> DieselError {
    match dialect.is_missing_table(&source, table) {
        true => {
            let table = table.to_owned();
            Error::MissingShardsTable { table, source }.into()
        }
        false => source,
    }
}

#[cfg(test)]
mod tests {
    use diesel::result::DatabaseErrorKind;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the application's own")]
    struct WithSource(#[from] DieselError);

    #[derive(Debug, thiserror::Error)]
    #[error(transparent)]
    struct Transparent(#[from] DieselError);

    #[derive(Debug, thiserror::Error)]
    #[error("around: {0}")]
    struct Around(#[source] Transparent);

    fn database_error(message: &str) -> DieselError {
        DieselError::DatabaseError(DatabaseErrorKind::Unknown, Box::new(message.to_owned()))
    }

    #[test]
    fn a_conflict_is_found_behind_the_applications_own_error() {
        let deadlock = || database_error("deadlock detected");
        let kind = DatabaseErrorKind::SerializationFailure;
        let text = "could not serialize access due to concurrent update".to_owned();
        let serialization = DieselError::DatabaseError(kind, Box::new(text));
        let persisted = DieselError::from(Error::ConflictPersisted {
            conflict: Conflict::Deadlock,
            attempts: 1,
            elapsed: Default::default(),
            source: deadlock(),
        });
        let [stale, stale_again] = [(); 2].map(|()| {
            let source = database_error("cached plan must not change result type");
            DieselError::from(Error::StatementLost { source })
        });
        let errors: [(&(dyn StdError + 'static), _); 8] = [
            (&stale, Conflict::StatementLost),
            (&WithSource(stale_again), Conflict::StatementLost),
            (&deadlock(), Conflict::Deadlock),
            (&WithSource(deadlock()), Conflict::Deadlock),
            (&Transparent(deadlock()), Conflict::Deadlock),
            (&Around(Transparent(deadlock())), Conflict::Deadlock),
            (&Transparent(serialization), Conflict::Serialization),
            (&WithSource(persisted), Conflict::Deadlock),
        ];
        for (error, conflict) in errors {
            let found = conflict_behind(Dialect::Postgres, error);
            assert_eq!(found, Some(conflict), "{error}");
        }
    }

    #[test]
    fn other_errors_are_no_conflicts() {
        let missing = database_error("no such table: videos");
        // Diesel keeps the application's own statement.
        let stale = database_error("cached plan must not change result type");
        assert_eq!(conflict_behind(Dialect::Postgres, &stale), None);
        let errors: [&(dyn StdError + 'static); 3] = [
            &Transparent(DieselError::NotFound),
            &WithSource(missing),
            &std::fmt::Error,
        ];
        for error in errors {
            assert_eq!(conflict_behind(Dialect::Sqlite, error), None, "{error}");
        }
    }
}

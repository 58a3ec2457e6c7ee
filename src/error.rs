//! What can go wrong.

use std::time::Duration;

use diesel::result::Error as DieselError;

use crate::conflict::Conflict;

/// Why a count did not happen, or may not have.
///
/// It converts from and to [`diesel::result::Error`], so that `?` works in functions that return a
/// [`QueryResult`](diesel::QueryResult) and in closures of `conn.transaction(..)`, and the way back loses nothing:
///
/// ```
/// # use std::time::Duration;
/// use diesel_sharded::Error;
///
/// fn report(error: diesel::result::Error) -> String {
///     match Error::from(error) {
///         Error::OutcomeUnknown { .. } => "may have been counted: look before you count again".into(),
///         Error::ConflictPersisted { attempts, .. } => format!("still contended after {attempts} attempts"),
///         other => other.to_string(),
///     }
/// }
/// # assert_eq!(report(diesel::NotFound), "Record not found");
/// # let lost = Error::OutcomeUnknown { source: diesel::NotFound };
/// # assert!(report(lost.into()).starts_with("may have been counted"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Every attempt ended in a conflict, until the policy's attempts or its deadline were used up. Nothing was counted.
    #[error(
        "nothing was counted: {conflict} in the last of {attempts} attempts within {elapsed:?}; \
         allow more attempts or a later deadline, or use more shards ({source})"
    )]
    ConflictPersisted {
        /// What ended the last attempt.
        conflict: Conflict,
        /// How many attempts were made, at least 1.
        attempts: u32,
        /// The time from the first attempt's start to the last one's end.
        elapsed: Duration,
        /// The database's own error of the last attempt.
        source: DieselError,
    },
    /// The connection was lost before the count could have been committed. Nothing was counted; count again on a new
    /// connection.
    #[error(
        "nothing was counted: the connection was lost before the commit; count again on a new one ({source})"
    )]
    ConnectionLost {
        /// The driver's own error.
        source: DieselError,
    },
    /// The connection was lost while a statement was in flight that commits. The count may have happened or not; it is
    /// never tried again by itself, since that could count twice.
    #[error(
        "the connection was lost while the commit was in flight: the count may have happened or not, \
         look before you count again ({source})"
    )]
    OutcomeUnknown {
        /// The driver's own error.
        source: DieselError,
    },
    /// The closure of [`retry::transaction`](crate::retry::transaction) returned `Ok`, but the transaction that was begun
    /// for it is not open any more: an error that the closure dropped had ended it, or, on MySQL, a statement that commits
    /// (`CREATE TABLE`). PostgreSQL has then committed nothing. MySQL has committed what ran after such an error, and what ran
    /// before such a statement.
    #[error(
        "the transaction ended before its closure did: at an error that the closure did not return (return every one, by `?`), \
         or on MySQL at a statement that commits; PostgreSQL has committed nothing, MySQL may have committed a part"
    )]
    TransactionAborted,
    /// The database has no shards table of this name.
    #[error(
        "there is no table `{table}`: run its migration, which `ShardsTable::of(…::table)` gives as a Diesel \
         migration (`.migration(version)`) or as text (`.create_sql(…)`) ({source})"
    )]
    MissingShardsTable {
        /// The name that the derive was given, or its default.
        table: &'static str,
        /// The database's own error.
        source: DieselError,
    },
    /// A shard would have left the range of its column's type. Nothing was counted.
    #[error(
        "nothing was counted: a value is out of the range of its column; use a wider type ({source})"
    )]
    Overflow {
        /// The database's own error.
        source: DieselError,
    },
    /// The table is declared inside a schema. A shards table takes the parent's place under its name, and no database
    /// takes a qualified name for that.
    #[error(
        "`{table}` is declared with a schema, which the shards of a table cannot be addressed through: declare the \
         `table!` without it, and let the connection's search path (PostgreSQL) or database (MySQL) lead there"
    )]
    QualifiedTable {
        /// The name as the statement has it.
        table: String,
    },
    /// Any other error, as Diesel reports it.
    #[error(transparent)]
    Diesel(DieselError),
}

impl From<DieselError> for Error {
    fn from(error: DieselError) -> Self {
        match error {
            DieselError::QueryBuilderError(boxed) => match boxed.downcast::<Error>() {
                Ok(error) => *error,
                Err(boxed) => Error::Diesel(DieselError::QueryBuilderError(boxed)),
            },
            error => Error::Diesel(error),
        }
    }
}

impl From<Error> for DieselError {
    fn from(error: Error) -> Self {
        match error {
            Error::Diesel(error) => error,
            error => DieselError::QueryBuilderError(Box::new(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_diesel_and_back_loses_nothing() {
        let there = DieselError::from(Error::ConflictPersisted {
            conflict: Conflict::Deadlock,
            attempts: 3,
            elapsed: Duration::from_millis(5),
            source: DieselError::NotFound,
        });
        assert!(
            there
                .to_string()
                .starts_with("nothing was counted: deadlock in the last of 3")
        );
        let back = Error::from(there);
        assert!(
            matches!(back, Error::ConflictPersisted { attempts: 3, .. }),
            "{back:?}"
        );
    }

    #[test]
    fn diesels_own_errors_stay_diesels() {
        let error = DieselError::from(Error::from(DieselError::NotFound));
        assert_eq!(error, DieselError::NotFound);
    }
}

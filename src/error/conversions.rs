//! The way to Diesel's error and back.

use diesel::result::Error as DieselError;

use super::Error;

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
    use crate::conflict::Conflict;
    use std::time::Duration;

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
                .starts_with("nothing was changed: deadlock in the last of 3")
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

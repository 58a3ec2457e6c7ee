//! The error of a batch, for each of its members.

use std::fmt;
use std::sync::Arc;

use diesel::result::{DatabaseErrorInformation, DatabaseErrorKind, Error as DieselError};

use crate::conflict::Conflict;

/// A database's error that several callers receive: Diesel's cannot be cloned.
#[derive(Clone)]
pub(super) struct SharedError {
    kind: DatabaseErrorKind,
    says: Arc<dyn DatabaseErrorInformation + Send + Sync>,
    /// The conflict that ended the last attempt, and the number of attempts.
    pub(super) persisted: Option<(Conflict, u32)>,
}

impl SharedError {
    pub(super) fn of(source: DieselError, persisted: Option<(Conflict, u32)>) -> Self {
        let (kind, says) = match source {
            DieselError::DatabaseError(kind, says) => (kind, Arc::from(says)),
            other => (DatabaseErrorKind::Unknown, Arc::new(other.to_string()) as _),
        };
        SharedError {
            kind,
            says,
            persisted,
        }
    }

    /// The error for one caller.
    pub(super) fn source(&self) -> DieselError {
        DieselError::DatabaseError(self.kind, Box::new(self.clone()))
    }
}

impl From<&str> for SharedError {
    fn from(text: &str) -> Self {
        let says = Arc::new(text.to_owned());
        SharedError {
            kind: DatabaseErrorKind::Unknown,
            says,
            persisted: None,
        }
    }
}

impl DatabaseErrorInformation for SharedError {
    fn message(&self) -> &str {
        self.says.message()
    }

    fn details(&self) -> Option<&str> {
        self.says.details()
    }

    fn hint(&self) -> Option<&str> {
        self.says.hint()
    }

    fn table_name(&self) -> Option<&str> {
        self.says.table_name()
    }

    fn column_name(&self) -> Option<&str> {
        self.says.column_name()
    }

    fn constraint_name(&self) -> Option<&str> {
        self.says.constraint_name()
    }

    fn statement_position(&self) -> Option<i32> {
        self.says.statement_position()
    }
}

impl fmt::Debug for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.message(), f)
    }
}

impl PartialEq for SharedError {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, self.message()) == (other.kind, other.message())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_caller_has_what_the_database_said() {
        let lost = || {
            let text = Box::new("server closed the connection".to_owned());
            DieselError::DatabaseError(DatabaseErrorKind::ClosedConnection, text)
        };
        let shared = SharedError::of(lost(), None);
        for source in [shared.source(), shared.clone().source()] {
            assert_eq!(source, lost());
        }
        let other = SharedError::of(DieselError::BrokenTransactionManager, None).source();
        assert_eq!(
            other.to_string(),
            DieselError::BrokenTransactionManager.to_string()
        );
    }
}

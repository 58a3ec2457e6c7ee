//! The error of a batch, as each of its callers is told it.

use std::fmt;
use std::sync::Arc;

use diesel::result::{DatabaseErrorInformation, DatabaseErrorKind, Error as DieselError};

use crate::conflict::Conflict;

/// A database's own error, which several callers have: Diesel's cannot be cloned.
#[derive(Clone)]
pub(super) struct Told {
    kind: DatabaseErrorKind,
    says: Arc<dyn DatabaseErrorInformation + Send + Sync>,
    /// The conflict that ended the last of so many attempts.
    pub(super) persisted: Option<(Conflict, u32)>,
}

impl Told {
    pub(super) fn of(source: DieselError, persisted: Option<(Conflict, u32)>) -> Self {
        let (kind, says) = match source {
            DieselError::DatabaseError(kind, says) => (kind, Arc::from(says)),
            other => (DatabaseErrorKind::Unknown, Arc::new(other.to_string()) as _),
        };
        Told {
            kind,
            says,
            persisted,
        }
    }

    /// The error for one of them.
    pub(super) fn source(&self) -> DieselError {
        DieselError::DatabaseError(self.kind, Box::new(self.clone()))
    }
}

impl From<&str> for Told {
    fn from(text: &str) -> Self {
        let says = Arc::new(text.to_owned());
        Told {
            kind: DatabaseErrorKind::Unknown,
            says,
            persisted: None,
        }
    }
}

impl DatabaseErrorInformation for Told {
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

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.message(), f)
    }
}

impl PartialEq for Told {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, self.message()) == (other.kind, other.message())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_caller_is_told_what_the_database_said() {
        let lost = || {
            let text = Box::new("server closed the connection".to_owned());
            DieselError::DatabaseError(DatabaseErrorKind::ClosedConnection, text)
        };
        let told = Told::of(lost(), None);
        for source in [told.source(), told.clone().source()] {
            assert_eq!(source, lost());
        }
        let other = Told::of(DieselError::BrokenTransactionManager, None).source();
        assert_eq!(
            other.to_string(),
            DieselError::BrokenTransactionManager.to_string()
        );
    }
}

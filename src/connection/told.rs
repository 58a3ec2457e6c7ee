//! Errors that come from the connection and not from the statement.

use diesel::result::Error as DieselError;

use crate::backend::Dialect;
use crate::conflict::{Conflict, Failure};
use crate::error::Error;
use crate::query_builder::statement_was_lost;

/// Gives failures that come from the connection their own errors. After the server's connection has lost a prepared statement, this
/// process keeps none prepared.
pub(crate) fn told(dialect: Dialect, error: DieselError) -> DieselError {
    match (&error, dialect.classify(&error)) {
        (DieselError::DatabaseError(..), Failure::Conflict(Conflict::StatementLost)) => {
            statement_was_lost();
            Error::StatementLost { source: error }.into()
        }
        (DieselError::DatabaseError(_, information), Failure::Other) => {
            match dialect.refused_by(information.message()) {
                Some((setting, remedy)) => Error::RefusedBySetting {
                    setting,
                    remedy,
                    source: error,
                }
                .into(),
                None => error,
            }
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diesel::result::DatabaseErrorKind;

    #[test]
    fn a_setting_that_refuses_a_statement_is_named() {
        let error = |text: &str| {
            DieselError::DatabaseError(DatabaseErrorKind::Unknown, Box::new(text.to_owned()))
        };
        let refused = |dialect, text| match Error::from(told(dialect, error(text))) {
            Error::RefusedBySetting { setting, .. } => Some(setting),
            _ => None,
        };
        let safe = "You are using safe update mode and you tried to update a table without a WHERE";
        assert_eq!(refused(Dialect::Mysql, safe), Some("sql_safe_updates"));
        assert_eq!(refused(Dialect::Postgres, safe), None);
        let log = "Cannot execute statement: impossible to write to binary log since BINLOG_FORMAT = STATEMENT and";
        assert_eq!(refused(Dialect::Mysql, log), Some("binlog_format"));
        assert_eq!(
            refused(Dialect::Mysql, "Deadlock found when trying to get lock"),
            None
        );
    }
}

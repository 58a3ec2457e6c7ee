//! The meaning of the databases' errors.

mod mysql;
mod postgres;
mod sqlite;

use diesel::result::{DatabaseErrorKind, Error as DieselError};

pub(crate) use self::mysql::INTERRUPTED_UNHEARD;
pub(crate) use self::postgres::{SHARD_REMOVED, TAKEN_FOR_ANOTHER};
use crate::backend::Dialect;
use crate::conflict::{Conflict, Failure};
use crate::error::Error;
use crate::unfit::Unfit;

impl Dialect {
    /// Tells the meaning of a failed statement.
    pub(crate) fn classify(self, error: &DieselError) -> Failure {
        let (kind, information) = match error {
            DieselError::DatabaseError(kind, information) => (kind, information.as_ref()),
            // The COMMIT failed, and the rollback after it failed too: nobody can tell whether it was committed.
            DieselError::RollbackErrorOnCommit { commit_error, .. } => {
                return match self.classify(commit_error) {
                    known @ (Failure::Conflict(_) | Failure::NodeNotReady) => known,
                    _ => Failure::ConnectionLost,
                };
            }
            DieselError::BrokenTransactionManager => return Failure::ConnectionLost,
            DieselError::QueryBuilderError(error)
                if matches!(error.downcast_ref(), Some(Error::StatementLost { .. })) =>
            {
                return Failure::Conflict(Conflict::StatementLost);
            }
            _ => return Failure::Other,
        };
        match kind {
            // Diesel gives this kind to MySQL's 1213, a deadlock, and to Postgres' 40001.
            DatabaseErrorKind::SerializationFailure if self == Dialect::Mysql => {
                Failure::Conflict(Conflict::Deadlock)
            }
            DatabaseErrorKind::SerializationFailure => Failure::Conflict(Conflict::Serialization),
            DatabaseErrorKind::ClosedConnection => Failure::ConnectionLost,
            DatabaseErrorKind::UnableToSendCommand if self == Dialect::Postgres => {
                Failure::ConnectionLost
            }
            // A standby, or a session whose transactions are read-only. PostgreSQL's drivers look at both before they take a server for
            // one that takes writes.
            DatabaseErrorKind::ReadOnlyTransaction if self == Dialect::Postgres => {
                Failure::NodeNotReady
            }
            // A shard out of range is reported through the CHECK of the shards table.
            DatabaseErrorKind::CheckViolation => Failure::Overflow,
            DatabaseErrorKind::Unknown => self.classify_text(information.message()),
            // The text of a known kind may quote what a user wrote.
            _ => Failure::Other,
        }
    }

    /// Why a base does not take a value that an overflow refused: its column's range, or a `CHECK`.
    pub(crate) fn refused(self, overflow: &DieselError) -> Unfit {
        let DieselError::DatabaseError(kind, information) = overflow else {
            return Unfit::OutOfRange;
        };
        let says = information.message();
        let is_check = matches!(kind, DatabaseErrorKind::CheckViolation)
            || (self == Dialect::Mysql && mysql::is_check(says));
        match is_check {
            true => Unfit::Check {
                says: says.to_owned(),
            },
            false => Unfit::OutOfRange,
        }
    }

    /// Tells the meaning of an error by its text.
    pub(crate) fn classify_text(self, message: &str) -> Failure {
        match self {
            Dialect::Postgres => postgres::classify(message),
            Dialect::Mysql => mysql::classify(message),
            Dialect::Sqlite => sqlite::classify(message),
        }
    }

    /// Whether a conflict has ended the whole transaction, so that the next statement runs in none, as on MySQL.
    pub(crate) fn ends_transaction(self, error: &DieselError) -> bool {
        let DieselError::DatabaseError(kind, information) = error else {
            return false;
        };
        self == Dialect::Mysql
            && match kind {
                DatabaseErrorKind::SerializationFailure => true, // Diesel's name for 1213
                DatabaseErrorKind::Unknown => mysql::ends_transaction(information.message()),
                _ => false,
            }
    }

    /// Whether the same statement may succeed on the same connection, as after one that was interrupted.
    pub(crate) fn may_succeed_again(self, error: &DieselError) -> bool {
        self.classify(error) != Failure::ConnectionLost && !self.is_savepoint_gone(error)
    }

    /// Whether a rollback to a savepoint failed because a conflict has ended its transaction. On PostgreSQL nothing but the session
    /// ends one.
    pub(crate) fn is_savepoint_gone(self, error: &DieselError) -> bool {
        let DieselError::DatabaseError(DatabaseErrorKind::Unknown, information) = error else {
            return false;
        };
        match self {
            Dialect::Mysql => mysql::is_savepoint_gone(information.message()),
            Dialect::Sqlite => information.message().starts_with("no such savepoint: "),
            Dialect::Postgres => false,
        }
    }

    /// Whether an error is one that only a commit gives, as of Group Replication.
    pub(crate) fn is_of_a_commit(self, error: &DieselError) -> bool {
        let DieselError::DatabaseError(DatabaseErrorKind::Unknown, information) = error else {
            return false;
        };
        self == Dialect::Mysql && mysql::is_of_a_commit(information.message())
    }

    /// Whether a shard was refused because its row is gone: a violated foreign key of the shards table, or MySQL's trigger in its
    /// place.
    pub(crate) fn is_parent_gone(self, error: &DieselError) -> bool {
        let DieselError::DatabaseError(kind, information) = error else {
            return false;
        };
        match kind {
            DatabaseErrorKind::ForeignKeyViolation => true,
            DatabaseErrorKind::Unknown => {
                self == Dialect::Mysql && mysql::is_parent_gone(information.message())
            }
            _ => false,
        }
    }

    /// The setting of a session that refused a statement, and the remedy.
    pub(crate) fn refused_by(self, message: &str) -> Option<(&'static str, &'static str)> {
        match self {
            Dialect::Mysql => mysql::refused_by(message),
            Dialect::Postgres | Dialect::Sqlite => None,
        }
    }

    /// Whether a statement failed because this column would have become NULL: SQLite stores a NaN as NULL.
    pub(crate) fn is_nan(self, error: &DieselError, table: &str, column: &str) -> bool {
        let DieselError::DatabaseError(DatabaseErrorKind::NotNullViolation, information) = error
        else {
            return false;
        };
        self == Dialect::Sqlite
            && information.message() == format!("NOT NULL constraint failed: {table}.{column}")
    }

    /// Whether a statement failed because one of its tables has no column of this name, whatever table that is.
    pub(crate) fn is_missing_column(self, error: &DieselError, column: &str) -> bool {
        let DieselError::DatabaseError(DatabaseErrorKind::Unknown, information) = error else {
            return false;
        };
        let message = information.message();
        let name = match self {
            // The text is in the server's language, and `table.column` is not quoted.
            Dialect::Postgres => {
                return information.statement_position().is_some()
                    && names(message, &format!(".{column}"));
            }
            Dialect::Mysql => message
                .strip_prefix("Unknown column '")
                .and_then(|rest| rest.rsplit_once("' in '"))
                .map(|(name, _)| name),
            Dialect::Sqlite => message.strip_prefix("no such column: "),
        };
        let rest = name.and_then(|name| name.strip_suffix(column));
        rest.is_some_and(|table| table.is_empty() || table.ends_with('.'))
    }

    /// Whether a statement failed because there is no table of this name.
    pub(crate) fn is_missing_table(self, error: &DieselError, table: &str) -> bool {
        let DieselError::DatabaseError(DatabaseErrorKind::Unknown, information) = error else {
            return false;
        };
        let message = information.message();
        match self {
            // The text is in the server's language. A missing privilege is reported without a position, a missing column
            // of the shards table as `table.column`.
            Dialect::Postgres => {
                information.statement_position().is_some() && names(message, table)
            }
            Dialect::Mysql => {
                let quoted = message.strip_prefix("Table '");
                let name = quoted.and_then(|rest| rest.strip_suffix("' doesn't exist"));
                name.is_some_and(|name| is_table(name, table))
            }
            Dialect::Sqlite => {
                let name = message.strip_prefix("no such table: ");
                name.is_some_and(|name| is_table(name, table))
            }
        }
    }
}

/// Whether `name`, with or without its schema, is that of a table. Some servers keep all names in small letters.
fn is_table(name: &str, table: &str) -> bool {
    let (name, table) = (name.to_lowercase(), table.to_lowercase());
    let schema = name.strip_suffix(&table);
    schema.is_some_and(|schema| schema.is_empty() || schema.ends_with('.'))
}

/// Whether a message names this very table: not a part of another word, and not a column of it.
fn names(message: &str, table: &str) -> bool {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    message.match_indices(table).any(|(at, _)| {
        let before = message[..at].chars().next_back();
        let after = message[at + table.len()..].chars().next();
        let begins = table.starts_with('.') || !before.is_some_and(in_word);
        begins && !after.is_some_and(|c| in_word(c) || c == '.')
    })
}

#[cfg(test)]
mod tests;

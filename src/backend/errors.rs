//! The classes of the databases' errors.
//!
//! Diesel passes on a kind for some errors, and a text for the others. The texts are in a file for each database (`postgres.txt`): below a
//! heading, `= detail, detail`, the texts that have it. `%s` stands for any text. The first class that fits applies. `mysql_refusals.txt`
//! has those of a setting, with the remedy.

use diesel::result::{
    DatabaseErrorInformation, DatabaseErrorKind, DeserializeFieldError, Error as DieselError,
};

use super::dialect::Dialect;
use crate::conflict::{Conflict, ErrorClass};
use crate::error::Error;
use crate::unfit::Unfit;

/// What the text of an error says: its class, or a detail beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorDetail {
    Class(ErrorClass),
    /// An overflow that a `CHECK` refused.
    Check,
    /// The error has ended the whole transaction.
    TransactionGone,
    /// Only a commit gives the error, as in Group Replication.
    Commit,
    /// A rollback to a savepoint failed because a conflict has ended its transaction. On PostgreSQL nothing but the session ends one.
    SavepointGone,
    ParentGone,
    /// Refused because a transaction is open: SQLite's `BEGIN`, and the questions that MySQL and MariaDB are asked.
    RefusedInside,
    /// The result of a prepared statement has another type by now. Diesel has to forget an application's own query first, so only this
    /// crate's [may be retried](ErrorClass::Conflict).
    StalePlan,
    /// The server does not know the syntax.
    Syntax,
    /// The server does not prepare such a statement.
    Unprepared,
    /// The statement may not read the table that it writes to. MySQL refuses that of a filter on a total.
    TargetRead,
    /// The statement was refused before it ran.
    Refused,
    /// The key of a table has another type or collation than its parent's.
    UnlikeParent,
}

impl ErrorDetail {
    fn of(heading: &str) -> Option<Self> {
        Some(match heading {
            "serialization" => ErrorDetail::Class(ErrorClass::Conflict(Conflict::Serialization)),
            "deadlock" => ErrorDetail::Class(ErrorClass::Conflict(Conflict::Deadlock)),
            "lock timeout" => ErrorDetail::Class(ErrorClass::Conflict(Conflict::LockTimeout)),
            "statement timeout" => {
                ErrorDetail::Class(ErrorClass::Conflict(Conflict::StatementTimeout))
            }
            "busy" => ErrorDetail::Class(ErrorClass::Conflict(Conflict::Busy)),
            "statement lost" => ErrorDetail::Class(ErrorClass::Conflict(Conflict::StatementLost)),
            "connection lost" => ErrorDetail::Class(ErrorClass::ConnectionLost),
            "node not ready" => ErrorDetail::Class(ErrorClass::NodeNotReady),
            "overflow" => ErrorDetail::Class(ErrorClass::Overflow),
            "disk full" => ErrorDetail::Class(ErrorClass::DiskFull),
            "check" => ErrorDetail::Check,
            "transaction gone" => ErrorDetail::TransactionGone,
            "commit" => ErrorDetail::Commit,
            "savepoint gone" => ErrorDetail::SavepointGone,
            "parent gone" => ErrorDetail::ParentGone,
            "refused inside" => ErrorDetail::RefusedInside,
            "stale plan" => ErrorDetail::StalePlan,
            "syntax" => ErrorDetail::Syntax,
            "unprepared" => ErrorDetail::Unprepared,
            "target read" => ErrorDetail::TargetRead,
            "refused" => ErrorDetail::Refused,
            "unlike parent" => ErrorDetail::UnlikeParent,
            _ => return None,
        })
    }
}

/// The information of an error without a known kind. The text of a known kind may quote what a user wrote.
fn of_unknown_kind(error: &DieselError) -> Option<&dyn DatabaseErrorInformation> {
    match error {
        DieselError::DatabaseError(DatabaseErrorKind::Unknown, information) => Some(&**information),
        _ => None,
    }
}

impl Dialect {
    fn details(self, message: &str) -> impl Iterator<Item = ErrorDetail> {
        let message = self.text_behind_proxy(message);
        let mut heading = "";
        let headings = self.error_texts().lines().filter_map(move |line| {
            if let Some(next) = line.strip_prefix("= ") {
                heading = next;
                return None;
            }
            // The first byte tells most of them apart.
            let begins = match line.as_bytes().first() {
                None | Some(b'#') => false,
                Some(b'%') => true,
                begin => begin == message.as_bytes().first(),
            };
            (begins && matches(line, message)).then_some(heading)
        });
        headings.flat_map(|heading| heading.split(", ").filter_map(ErrorDetail::of))
    }

    /// Whether the text of an error of no known kind says this.
    pub(crate) fn has_detail(self, error: &DieselError, detail: ErrorDetail) -> bool {
        let information = of_unknown_kind(error);
        information.is_some_and(|says| self.details(says.message()).any(|other| other == detail))
    }

    /// The class of a statement's error.
    pub(crate) fn classify(self, error: &DieselError) -> ErrorClass {
        let (kind, information) = match error {
            DieselError::DatabaseError(kind, information) => (kind, information.as_ref()),
            // The COMMIT failed, and the rollback after it failed too: nobody can tell whether it was committed.
            DieselError::RollbackErrorOnCommit { commit_error, .. } => {
                return match self.classify(commit_error) {
                    known @ (ErrorClass::Conflict(_) | ErrorClass::NodeNotReady) => known,
                    _ => ErrorClass::ConnectionLost,
                };
            }
            DieselError::BrokenTransactionManager => return ErrorClass::ConnectionLost,
            DieselError::QueryBuilderError(error)
                if matches!(error.downcast_ref(), Some(Error::StatementLost { .. })) =>
            {
                return ErrorClass::Conflict(Conflict::StatementLost);
            }
            _ => return ErrorClass::Other,
        };
        match kind {
            DatabaseErrorKind::ClosedConnection => ErrorClass::ConnectionLost,
            // A shard out of range is reported through the CHECK of the shards table.
            DatabaseErrorKind::CheckViolation => ErrorClass::Overflow,
            DatabaseErrorKind::Unknown => self.classify_text(information.message()),
            kind => self.class_of_kind(kind),
        }
    }

    /// The class of an error by its text.
    pub(crate) fn classify_text(self, message: &str) -> ErrorClass {
        let class = self.details(message).find_map(|detail| match detail {
            ErrorDetail::Class(class) => Some(class),
            _ => None,
        });
        class.unwrap_or(ErrorClass::Other)
    }

    /// Why a base does not accept a value that an overflow refused: its column's range, or a `CHECK`.
    #[doc(hidden)]
    pub fn refused(self, overflow: &DieselError) -> Unfit {
        match overflow {
            DieselError::DatabaseError(kind, information)
                if matches!(kind, DatabaseErrorKind::CheckViolation)
                    || self.has_detail(overflow, ErrorDetail::Check) =>
            {
                Unfit::Check {
                    says: information.message().to_owned(),
                }
            }
            _ => Unfit::OutOfRange,
        }
    }

    /// Whether a conflict has ended the whole transaction, so that the next statement runs in none, as on MySQL.
    pub(crate) fn ends_transaction(self, error: &DieselError) -> bool {
        let is_deadlock = matches!(
            error,
            DieselError::DatabaseError(DatabaseErrorKind::SerializationFailure, _)
        );
        is_deadlock && self.deadlock_ends_transaction()
            || self.has_detail(error, ErrorDetail::TransactionGone)
    }

    /// Whether a commit failed because there is no longer a transaction.
    pub(crate) fn has_no_transaction(self, error: &DieselError) -> bool {
        // Diesel may have noticed what SQLite did; elsewhere it knows of a closure that has ended it. A conflict has its own class.
        matches!(
            (self, error),
            (Dialect::Sqlite, DieselError::NotInTransaction)
        ) || (self.classify(error) == ErrorClass::Other
            && self.has_detail(error, ErrorDetail::TransactionGone))
    }

    /// Whether the error of a `COMMIT`, or of a statement that commits by itself, means that nothing was committed. Where it does not, the
    /// outcome is unknown, unless the database [proves](Self::proves_refusal) that it refused the statement.
    pub(crate) fn is_refusal(self, error: &DieselError, is_commit: bool) -> bool {
        let kind = match (error, self.classify(error)) {
            (_, ErrorClass::ConnectionLost) => return false,
            (DieselError::DatabaseError(..), _) if self.has_detail(error, ErrorDetail::Refused) => {
                return true;
            }
            (DieselError::DatabaseError(..), _) if !is_commit && self.keeps_after_errors() => {
                return false;
            }
            (DieselError::DatabaseError(kind, _), ErrorClass::Other) => kind,
            // It was not sent, or it was and its answer could not be read.
            (error, _) => return !matches!(error, DieselError::DeserializationError(_)),
        };
        !matches!(
            kind,
            DatabaseErrorKind::Unknown | DatabaseErrorKind::UnableToSendCommand
        )
    }

    /// Whether the same statement may succeed on the same connection, as after one that was interrupted.
    pub(crate) fn may_succeed_again(self, error: &DieselError) -> bool {
        self.classify(error) != ErrorClass::ConnectionLost
            && !self.has_detail(error, ErrorDetail::SavepointGone)
    }

    /// Whether a shard was refused because its row is gone: a violated foreign key of the shards table, or MySQL's trigger in its
    /// place.
    pub(crate) fn is_parent_gone(self, error: &DieselError) -> bool {
        matches!(
            error,
            DieselError::DatabaseError(DatabaseErrorKind::ForeignKeyViolation, _)
        ) || self.has_detail(error, ErrorDetail::ParentGone)
    }

    /// Whether a key could not be read because its column is narrower than its type; by Diesel's text.
    pub(crate) fn is_narrow(self, error: &DieselError) -> bool {
        let DieselError::DeserializationError(source) = error else {
            return false;
        };
        let of_field = source.downcast_ref::<DeserializeFieldError>();
        let text = of_field.map_or_else(|| source.to_string(), |of| of.error.to_string());
        self == Dialect::Postgres && text.starts_with("Received less than")
    }

    /// The setting of a session that refused a statement, and the remedy.
    pub(crate) fn refused_by(self, message: &str) -> Option<(&'static str, &'static str)> {
        let mut refusals = self
            .refusals()
            .lines()
            .filter_map(|line| line.split_once(" | "));
        let (_, refusal) = refusals.find(|(text, _)| message.starts_with(text))?;
        refusal.split_once(" | ")
    }

    /// Whether a statement failed because this column would have become NULL: SQLite stores a NaN as NULL.
    pub(crate) fn is_nan(self, error: &DieselError, table: &str, column: &str) -> bool {
        let DieselError::DatabaseError(DatabaseErrorKind::NotNullViolation, information) = error
        else {
            return false;
        };
        self.stores_nan_as_null()
            && information.message() == format!("NOT NULL constraint failed: {table}.{column}")
    }

    /// Whether a statement failed because one of its tables has no column of this name, whichever table that is.
    pub(crate) fn is_missing_column(self, error: &DieselError, column: &str) -> bool {
        let Some(information) = of_unknown_kind(error) else {
            return false;
        };
        let message = information.message();
        let Some((before, behind)) = self.missing_column_text() else {
            // The text is in the server's language, and `table.column` is not quoted.
            let column = format!(".{column}");
            return information.statement_position().is_some() && names(message, &column);
        };
        let rest = message.strip_prefix(before);
        let name = rest.and_then(|rest| Some(rest.rsplit_once(behind)?.0));
        let table = name.and_then(|name| name.strip_suffix(column));
        table.is_some_and(|table| table.is_empty() || table.ends_with('.'))
    }

    /// Whether a statement failed because there is no table of this name.
    pub(crate) fn is_missing_table(self, error: &DieselError, table: &str) -> bool {
        let Some(information) = of_unknown_kind(error) else {
            return false;
        };
        let message = information.message();
        let Some((before, behind)) = self.missing_table_text() else {
            // The text is in the server's language. A missing privilege is reported without a position, a missing column
            // of the shards table as `table.column`.
            return information.statement_position().is_some() && names(message, table);
        };
        let rest = message.strip_prefix(before);
        let name = rest.and_then(|rest| rest.strip_suffix(behind));
        name.is_some_and(|name| is_table(name, table))
    }
}

/// Whether a message has the form of a pattern.
fn matches(pattern: &str, message: &str) -> bool {
    let Some((begin, mut pattern)) = pattern.split_once("%s") else {
        return pattern == message;
    };
    let Some(mut rest) = message.strip_prefix(begin) else {
        return false;
    };
    while let Some((part, next)) = pattern.split_once("%s") {
        let Some((_, behind)) = rest.split_once(part) else {
            return false;
        };
        (rest, pattern) = (behind, next);
    }
    rest.ends_with(pattern)
}

/// Whether `name`, with or without its schema, is that of a table. Some servers keep all names in lower case.
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

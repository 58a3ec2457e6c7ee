//! PostgreSQL's errors by their texts.
//!
//! Diesel hands on the server's text and no SQLSTATE, and the text is in the language of `lc_messages`, which only a
//! superuser may change.

mod messages;
mod standby;

use self::messages::{
    AMBIGUOUS, DEADLOCK, DISK_FULL, LOCK_TIMEOUT, OVERFLOW, SERIALIZATION, STATEMENT_LOST,
    STATEMENT_TIMEOUT, TERMINATED,
};
use self::standby::NODE_NOT_READY;
use crate::conflict::{Conflict, Failure};

/// Stands in the error of a guarded statement, in whatever language the server writes it.
pub(crate) const TAKEN_FOR_ANOTHER: &str =
    "diesel_sharded: this text was prepared for another statement";

/// Stands in the error of a statement that found a shard at first, and not any more when it counted.
pub(crate) const SHARD_REMOVED: &str = "diesel_sharded: the shard was removed meanwhile";

/// Tells the meaning of an error by its text.
pub(super) fn classify(message: &str) -> Failure {
    if message.contains(TAKEN_FOR_ANOTHER) {
        return Failure::Conflict(Conflict::StatementLost);
    }
    if message.contains(SHARD_REMOVED) {
        return Failure::Conflict(Conflict::Serialization);
    }
    PATTERNS
        .iter()
        .find(|(patterns, _)| patterns.iter().any(|pattern| matches(pattern, message)))
        .map_or(Failure::Other, |(_, failure)| *failure)
}

fn matches(pattern: &str, message: &str) -> bool {
    match pattern.split_once("%s") {
        Some((before, after)) => message
            .strip_prefix(before)
            .is_some_and(|rest| rest.ends_with(after)),
        None => pattern == message,
    }
}

const PATTERNS: &[(&[&str], Failure)] = &[
    (DEADLOCK, Failure::Conflict(Conflict::Deadlock)),
    (LOCK_TIMEOUT, Failure::Conflict(Conflict::LockTimeout)),
    (
        STATEMENT_TIMEOUT,
        Failure::Conflict(Conflict::StatementTimeout),
    ),
    (SERIALIZATION, Failure::Conflict(Conflict::Serialization)),
    (OVERFLOW, Failure::Overflow),
    (AMBIGUOUS, Failure::ConnectionLost),
    (TERMINATED, Failure::ConnectionLost),
    (NODE_NOT_READY, Failure::NodeNotReady),
    (DISK_FULL, Failure::DiskFull),
    (STATEMENT_LOST, Failure::Conflict(Conflict::StatementLost)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_tells_the_same() {
        for (message, conflict) in [
            ("deadlock detected", Conflict::Deadlock),
            ("Verklemmung (Deadlock) entdeckt", Conflict::Deadlock),
            ("デッドロックを検出しました", Conflict::Deadlock),
            (
                "could not obtain lock on row in relation \"a\"",
                Conflict::LockTimeout,
            ),
            (
                "konnte Sperre für Zeile in Relation »a« nicht setzen",
                Conflict::LockTimeout,
            ),
            (
                "выполнение оператора отменено из-за тайм-аута блокировки",
                Conflict::LockTimeout,
            ),
            (
                "выполнение оператора отменено из-за тайм-аута",
                Conflict::StatementTimeout,
            ),
        ] {
            assert_eq!(classify(message), Failure::Conflict(conflict), "{message}");
        }
        assert_eq!(classify("ganzzahl"), Failure::Other);
        assert_eq!(classify("bigint fuera de rango"), Failure::Overflow);
    }

    #[test]
    fn a_statement_that_the_server_does_not_hold_is_lost() {
        let guarded = format!("ungültige Eingabesyntax für Typ boolean: »{TAKEN_FOR_ANOTHER}«");
        for message in [
            "prepared statement \"__diesel_stmt_3\" does not exist",
            "vorbereitete Anweisung »s7« existiert bereits",
            "bind message supplies 4 parameters, but prepared statement \"s7\" requires 2",
            "incorrect binary data format in bind parameter 2",
            &guarded,
        ] {
            let lost = Failure::Conflict(Conflict::StatementLost);
            assert_eq!(classify(message), lost, "{message}");
        }
        let quoted = "invalid input: \"prepared statement \"a\" does not exist";
        assert_eq!(classify(quoted), Failure::Other);
    }

    #[test]
    fn a_shard_that_is_removed_meanwhile_is_a_conflict() {
        let message = format!("ungültige Eingabesyntax für Typ boolean: »{SHARD_REMOVED}«");
        let conflict = Failure::Conflict(Conflict::Serialization);
        assert_eq!(classify(&message), conflict);
    }

    #[test]
    fn a_connection_that_is_terminated_is_lost() {
        for message in [
            "terminating connection due to administrator command",
            "terminating connection due to idle-in-transaction timeout",
            "Verbindung wird abgebrochen aufgrund von Anweisung des Administrators",
            "закрытие подключения по команде администратора",
        ] {
            assert_eq!(classify(message), Failure::ConnectionLost, "{message}");
        }
        let quoted =
            "invalid input syntax: \"terminating connection due to administrator command\"";
        assert_eq!(classify(quoted), Failure::Other);
    }

    #[test]
    fn a_cancel_request_is_no_conflict() {
        assert_eq!(
            classify("canceling statement due to user request"),
            Failure::Other
        );
    }
}

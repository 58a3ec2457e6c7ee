//! How transactions begin and end.

use crate::backend::Dialect;

/// See [`Dialect::survival_check`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct SurvivalCheck {
    pub(crate) at_begin: Option<&'static str>,
    pub(crate) before_commit: &'static str,
}

/// See [`Dialect::guard`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guard {
    pub(crate) before: &'static str,
    pub(crate) at_begin: &'static str,
    pub(crate) before_commit: &'static str,
    /// Is sent before Diesel's own: the first one may fail because nothing is left to roll back, and Diesel would give up the
    /// connection for that.
    pub(crate) rollback: &'static str,
    pub(crate) after: &'static str,
}

impl Dialect {
    /// Whether `BEGIN IMMEDIATE` exists, which takes the write lock before the first read.
    pub(crate) fn begins_immediate(self) -> bool {
        self == Dialect::Sqlite
    }

    /// Whether a statement that is kept prepared begins a transaction in fewer round trips than Diesel's `BEGIN`.
    pub(crate) fn begins_by_statement(self) -> bool {
        self == Dialect::Mysql
    }

    /// Whether `ROLLBACK` outside a transaction is no error.
    pub(crate) fn allows_idle_rollback(self) -> bool {
        self != Dialect::Sqlite
    }

    /// Whether a missing shard is created by a statement that commits by itself. No total changes by that, since the shard is
    /// zero; and the count needs no transaction, before which the library would have to ask whether one is open already. On the
    /// others that question is free, MySQL needs its own isolation level for the statement, and SQLite would write to its
    /// disk twice.
    pub(crate) fn creates_alone(self) -> bool {
        self == Dialect::Postgres
    }

    /// Statements that fail before COMMIT unless the transaction that was begun is still open.
    ///
    /// Postgres answers the COMMIT of an aborted transaction with ROLLBACK and no error. MySQL ends the transaction at
    /// a deadlock and runs what follows in autocommit mode; a savepoint set at the start is gone then. SQLite's COMMIT
    /// fails by itself when there is no transaction.
    pub(crate) fn survival_check(self) -> Option<SurvivalCheck> {
        match self {
            Dialect::Postgres => Some(SurvivalCheck {
                at_begin: None,
                before_commit: "SELECT 1",
            }),
            Dialect::Mysql => Some(SurvivalCheck {
                at_begin: Some("SAVEPOINT diesel_sharded"),
                before_commit: "RELEASE SAVEPOINT diesel_sharded",
            }),
            Dialect::Sqlite => None,
        }
    }

    /// Statements that make it harmless if the server ends a transaction without an error: nothing that follows is committed, and
    /// the check before COMMIT fails.
    ///
    /// A node of MariaDB Galera reports that another node's write aborted the transaction, but that error is lost if it answers
    /// the close of a statement. In autocommit mode the next statement would commit by itself. Without autocommit it begins a
    /// new transaction, which lacks the savepoint. (`SET autocommit = 1` commits, so that it has to follow a COMMIT or
    /// ROLLBACK.) Afterwards the connection has the mode that it had before.
    pub(crate) fn guard(self) -> Option<Guard> {
        (self == Dialect::Mysql).then_some(Guard {
            before: "SET @diesel_sharded_autocommit = @@autocommit, autocommit = 0",
            at_begin: "SAVEPOINT diesel_sharded",
            before_commit: "RELEASE SAVEPOINT diesel_sharded",
            rollback: "ROLLBACK",
            after: "SET autocommit = COALESCE(@diesel_sharded_autocommit, @@autocommit), @diesel_sharded_autocommit = NULL",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_begin_as_each_database_needs() {
        let immediate = Dialect::ALL.map(Dialect::begins_immediate);
        assert_eq!(immediate, [false, false, true]);
        let checks = Dialect::ALL.map(|dialect| dialect.survival_check().is_some());
        assert_eq!(checks, [true, true, false]);
        let guards = Dialect::ALL.map(|dialect| dialect.guard().is_some());
        assert_eq!(guards, [false, true, false]);
    }
}

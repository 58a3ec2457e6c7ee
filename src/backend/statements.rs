//! Clauses that differ, or that one database alone needs.

use diesel::result::{DatabaseErrorKind, Error as DieselError};

use crate::backend::Dialect;

/// See `Dialect::commits_at_once`.
#[cfg(feature = "r2d2")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtOnce {
    /// Data-modifying `WITH` clauses.
    With,
    /// An update of two tables.
    Join,
}

/// See [`Dialect::counts_once_by`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnceForm {
    /// Data-modifying `WITH` clauses.
    With,
    /// MariaDB's compound statement, a transaction of its own. MySQL does not know its syntax.
    Compound,
}

impl Dialect {
    /// Whether joined rows are named before `SET`, as MySQL does. The others name them after it in a `FROM` clause.
    pub(crate) fn joins_before_set(self) -> bool {
        self == Dialect::Mysql
    }

    /// Whether an update of joined tables that is interrupted may end well, on the rows that it met until then, as MariaDB's does.
    pub(crate) fn joins_end_early(self) -> bool {
        self.joins_before_set()
    }

    /// Whether an update joins a list of values that stands in the statement, as PostgreSQL does with the plan of a lookup for each
    /// value. SQLite takes as long as with a `CASE`.
    pub(crate) fn joins_values(self) -> bool {
        self == Dialect::Postgres
    }

    /// Ends a derived table that has to keep the order of its rows, so that they are locked in that order. MySQL drops an
    /// `ORDER BY` without a limit. It also merges a derived table without a limit into the update around it, and then refuses
    /// to read the shards table, as a filter on a total does.
    pub(crate) fn keeps_order(self) -> Option<&'static str> {
        (self == Dialect::Mysql).then_some(" LIMIT 18446744073709551615")
    }

    /// Ends a query that has to give all of its rows, whatever `sql_select_limit` MySQL's session has.
    pub(crate) fn all_rows(self) -> &'static str {
        self.keeps_order().unwrap_or_default()
    }

    /// Whether a session's setting may cut any query, as MySQL's `sql_select_limit` does.
    pub(crate) fn cuts_queries(self) -> bool {
        self == Dialect::Mysql
    }

    /// Ends a `DELETE` whose condition no index serves. MySQL under `sql_safe_updates` accepts such a statement only with a
    /// limit.
    #[cfg(feature = "r2d2")]
    pub(crate) fn deletes_all(self) -> &'static str {
        match self {
            Dialect::Mysql => " LIMIT 1000000",
            _ => "",
        }
    }

    /// Whether `DELETE` needs the alias before `FROM shards AS parent`. MySQL takes an alias in a single table's `DELETE` only in
    /// late versions.
    pub(crate) fn deletes_by_alias(self) -> bool {
        self == Dialect::Mysql
    }

    /// Whether an `INSERT` that keeps existing rows returns the number of rows that it inserted. MySQL's client, as Diesel
    /// sets it up, counts the existing ones too.
    pub(crate) fn counts_inserted_alone(self) -> bool {
        self != Dialect::Mysql
    }

    /// Whether ` ON CONFLICT DO NOTHING` is better behind an `INSERT` that may race: PostgreSQL then reports a serialization
    /// failure to a transaction that cannot see the other's row yet, instead of a violation like any other.
    pub(crate) fn inserts_unless_there(self) -> bool {
        self == Dialect::Postgres
    }

    /// Whether an upsert names its unique key, `ON CONFLICT (..) DO UPDATE SET`. On MySQL it is about any unique key.
    pub(crate) fn names_conflict_target(self) -> bool {
        self != Dialect::Mysql
    }

    /// Whether every driver tells how many rows a query gave that was executed like a statement.
    pub(crate) fn tells_rows_of_queries(self) -> bool {
        self == Dialect::Postgres
    }

    /// Whether one statement can lock rows, write them if it has locked all of them, and return what it wrote.
    pub(crate) fn counts_all_or_none(self) -> bool {
        self == Dialect::Postgres
    }

    /// The form in which one statement claims an idempotency key and counts, or does neither; `None` if there is none. SQLite has no
    /// round trips to save.
    pub(crate) fn counts_once_by(self) -> Option<OnceForm> {
        match self {
            Dialect::Postgres => Some(OnceForm::With),
            Dialect::Mysql => Some(OnceForm::Compound),
            Dialect::Sqlite => None,
        }
    }

    /// Whether an error says that the server does not know a statement's syntax: MySQL's 1064.
    pub(crate) fn lacks_syntax(self, error: &DieselError) -> bool {
        self.is_mysqls_refusal(error, "You have an error in your SQL syntax")
    }

    /// Whether an error says that the server does not prepare such a statement: MySQL's 1295.
    pub(crate) fn refuses_to_prepare(self, error: &DieselError) -> bool {
        let refusal = "This command is not supported in the prepared statement protocol";
        self.is_mysqls_refusal(error, refusal)
    }

    /// Whether an error says that a statement may not read the table that it writes to. MySQL refuses that of a filter on a total.
    pub(crate) fn refuses_to_read_target(self, error: &DieselError) -> bool {
        self.is_mysqls_refusal(error, "You can't specify target table")
    }

    /// Whether MySQL refused a statement by an error whose text begins so.
    fn is_mysqls_refusal(self, error: &DieselError, text: &str) -> bool {
        let DieselError::DatabaseError(DatabaseErrorKind::Unknown, information) = error else {
            return false;
        };
        self == Dialect::Mysql && information.message().starts_with(text)
    }

    /// The form in which one statement commits a batch that counts on so many rows of one table, together with its mark; `None` if
    /// there is none.
    ///
    /// PostgreSQL: by data-modifying `WITH` clauses. MySQL: by an update of two tables, which meets both rows or none; with
    /// several shards it could meet some of them. SQLite has no round trips to save.
    #[cfg(feature = "r2d2")]
    pub(crate) fn commits_at_once(self, rows: usize) -> Option<AtOnce> {
        match self {
            Dialect::Postgres => Some(AtOnce::With),
            Dialect::Mysql => (rows == 1).then_some(AtOnce::Join),
            Dialect::Sqlite => None,
        }
    }
}

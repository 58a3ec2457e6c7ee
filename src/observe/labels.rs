//! The values of fields and labels.

use super::work::Work;
use crate::backend::Dialect;
use crate::conflict::Conflict;

/// As OpenTelemetry names databases.
pub(super) const fn backend_of(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => "postgresql",
        Dialect::Mysql => "mysql",
        Dialect::Sqlite => "sqlite",
    }
}

pub(super) const fn conflict_of(conflict: Conflict) -> &'static str {
    match conflict {
        Conflict::Serialization => "serialization",
        Conflict::Deadlock => "deadlock",
        Conflict::LockTimeout => "lock_timeout",
        Conflict::StatementTimeout => "statement_timeout",
        Conflict::Busy => "busy",
        Conflict::StatementLost => "statement_lost",
        Conflict::ParentGone => "parent_gone",
    }
}

pub(super) const fn outcome_of(succeeded: bool) -> &'static str {
    match succeeded {
        true => "ok",
        false => "error",
    }
}

pub(super) const fn kind_of(work: Work) -> &'static str {
    match work {
        Work::Closure => "closure",
        Work::Own => "own",
        Work::Savepoint => "savepoint",
        Work::Statement => "statement",
        Work::Read => "read",
    }
}

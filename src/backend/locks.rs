//! How rows are locked, and which locks each database takes by itself.

use crate::backend::Dialect;

/// How rows are locked; see [`Dialect::locks_rows`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strength {
    Exclusive,
    /// Fails at once if a row is locked.
    ExclusiveAtOnce,
    /// The same, but without an error where an error would abort the open transaction: there it leaves out locked rows.
    ExclusiveIfFree,
    /// Rows that refer to these may still be inserted. On MySQL they wait.
    NoKeyUpdate,
}

/// See [`Dialect::keeps_and_locks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeepsAndLocks {
    /// `ON CONFLICT (key, shard) DO UPDATE SET shard = excluded.shard WHERE FALSE`
    ConflictLocks,
    /// `ON CONFLICT (key, shard) DO NOTHING`
    ConflictIgnored,
    /// `ON DUPLICATE KEY UPDATE shard = shards.shard`
    DuplicateKeyLocks,
}

impl Dialect {
    /// Follows `INSERT INTO shards (key, shard) SELECT …`: shards that exist stay as they are, and are locked in key order.
    ///
    /// Postgres: `DO UPDATE … WHERE FALSE` locks the row without writing a version of it. MySQL: an upsert takes the
    /// exclusive lock at once, where `INSERT IGNORE` would take a shared one first, on which two writers deadlock. SQLite
    /// has one writer at a time.
    pub(crate) fn keeps_and_locks(self) -> KeepsAndLocks {
        match self {
            Dialect::Postgres => KeepsAndLocks::ConflictLocks,
            Dialect::Sqlite => KeepsAndLocks::ConflictIgnored,
            Dialect::Mysql => KeepsAndLocks::DuplicateKeyLocks,
        }
    }

    /// Follows a `SELECT` that locks its rows until the transaction ends. SQLite has one writer at a time.
    pub(crate) fn locks_rows(self, strength: Strength) -> Option<&'static str> {
        match (self, strength) {
            (Dialect::Sqlite, _) => None,
            (Dialect::Postgres, Strength::ExclusiveIfFree) => Some(" FOR UPDATE SKIP LOCKED"),
            (_, Strength::ExclusiveAtOnce | Strength::ExclusiveIfFree) => {
                Some(" FOR UPDATE NOWAIT")
            }
            (Dialect::Postgres, Strength::NoKeyUpdate) => Some(" FOR NO KEY UPDATE"),
            (_, Strength::Exclusive | Strength::NoKeyUpdate) => Some(" FOR UPDATE"),
        }
    }

    /// Whether [`ExclusiveIfFree`](Strength::ExclusiveIfFree) leaves out locked rows.
    pub(crate) fn skips_what_is_locked(self) -> bool {
        self == Dialect::Postgres
    }

    /// Bounds each wait for a lock until the open transaction ends, and leaves the session as it was. Only where a bound can be
    /// below a second: MySQL's is in seconds, and SQLite has one lock.
    ///
    /// Shorter than PostgreSQL's `deadlock_timeout`, so that in a deadlock the one that waits so gives way.
    pub(crate) fn bounds_waits_for_locks(self) -> Option<&'static str> {
        (self == Dialect::Postgres).then_some("SET LOCAL lock_timeout = '200ms'")
    }

    /// Whether rows can be locked at all.
    pub(crate) fn has_row_locks(self) -> bool {
        self != Dialect::Sqlite
    }

    /// Follows a `SELECT` of rows that are locked already. In MySQL's default isolation a plain one would read the caller's
    /// snapshot, not the rows that were locked.
    pub(crate) fn reads_what_is_locked(self) -> &'static str {
        match self {
            Dialect::Mysql => " FOR UPDATE",
            _ => "",
        }
    }

    /// Follows a `SELECT` of what an earlier transaction has committed, where the answer tells the caller that it is done. On PostgreSQL
    /// other sessions may see a commit that the synchronous standby has not, once its wait was interrupted. A transaction that only
    /// reads waits for no standby. A read that locks a row writes, so its own commit waits for all that came before.
    pub(crate) fn reads_what_is_safe(self) -> &'static str {
        match self {
            Dialect::Postgres => " FOR KEY SHARE",
            Dialect::Mysql | Dialect::Sqlite => self.reads_what_is_locked(),
        }
    }

    /// Whether a row that a query shows may be hidden from a lock and from an update, as PostgreSQL's row security does.
    pub(crate) fn hides_rows_from_locks(self) -> bool {
        self == Dialect::Postgres
    }

    /// Whether an `UPDATE` that finds no row locks the gap where it would be, as MySQL's does. Two transactions that both lock the
    /// gap before both insert there deadlock. In a caller's transaction a plain read therefore looks for the row first.
    pub(crate) fn missing_row_locks_gap(self) -> bool {
        self == Dialect::Mysql
    }

    /// Whether a transaction may wait for a table's metadata lock in a circle that no detector sees: whoever alters the table holds that
    /// lock, and waits for the rows that the transaction has written.
    pub(crate) fn waits_unseen_for_tables(self) -> bool {
        self == Dialect::Mysql
    }

    /// Begins the condition of that read, and makes MariaDB from 11.6 on answer that no shard is missing, without a look: no
    /// other server runs such a comment. Its snapshot isolation would end the transaction if the row changed between the read
    /// and the update, as a hot row does. A rare deadlock of two first counts is better.
    pub(crate) fn finds_without_a_look(self) -> &'static str {
        match self {
            Dialect::Mysql => "/*M!110600 TRUE OR */ ",
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sqlite_locks_no_rows() {
        let locks = Dialect::ALL.map(Dialect::has_row_locks);
        assert_eq!(locks, [true, true, false]);
    }
}

//! Isolation levels.

use crate::backend::Dialect;

/// How far concurrent transactions may see each other, as SQL names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// Each statement sees what was committed before it.
    ReadCommitted,
    /// All statements see what was committed before the first one.
    RepeatableRead,
    /// As if the transactions had run one after the other. SQLite's only level.
    Serializable,
}

impl Dialect {
    /// The isolation level of the crate's own transactions, where it differs from the database's default. MySQL's default would
    /// lock the parent rows that a filter reads, and the gaps between shards.
    pub(crate) fn own_isolation(self) -> Option<Isolation> {
        (self == Dialect::Mysql).then_some(Isolation::ReadCommitted)
    }

    /// The isolation level of a transaction that locks parents. After it waited for a lock it has to read what the lock's holder
    /// committed, whatever the database's default is.
    pub(crate) fn holding_isolation(self) -> Option<Isolation> {
        (self != Dialect::Sqlite).then_some(Isolation::ReadCommitted)
    }

    /// The statement that sets the isolation level, and whether it is sent before `BEGIN`.
    pub(crate) fn set_isolation(self, isolation: Isolation) -> Option<(&'static str, bool)> {
        let sql = match isolation {
            Isolation::ReadCommitted => "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
            Isolation::RepeatableRead => "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            Isolation::Serializable => "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        };
        match self {
            Dialect::Postgres => Some((sql, false)),
            Dialect::Mysql => Some((sql, true)),
            Dialect::Sqlite => None, // always serializable
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_have_the_isolation_that_each_database_needs() {
        let committed = Some(Isolation::ReadCommitted);
        let own = Dialect::ALL.map(Dialect::own_isolation);
        assert_eq!(own, [None, committed, None]);
        let holding = Dialect::ALL.map(Dialect::holding_isolation);
        assert_eq!(holding, [committed, committed, None]);
        let levels = [
            (Isolation::ReadCommitted, "READ COMMITTED"),
            (Isolation::RepeatableRead, "REPEATABLE READ"),
            (Isolation::Serializable, "SERIALIZABLE"),
        ];
        for (isolation, level) in levels {
            let sql = format!("SET TRANSACTION ISOLATION LEVEL {level}");
            let set = Dialect::ALL.map(|dialect| dialect.set_isolation(isolation));
            assert_eq!(set, [Some((&*sql, false)), Some((&*sql, true)), None]);
        }
    }
}

//! Parents that are locked by their keys, and folded by the library.

use bigdecimal::BigDecimal;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::Unfit;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{HoldError, LockedParents, zero};
use diesel_sharded::operation::Amount;
use diesel_sharded::retry::{Isolation, RetryPolicy, Transaction};

use crate::connection::AnyConnection;
use crate::key::{Key, Keyed};
use crate::sharded::Sharded;
use crate::statement::{Row, Statement};

/// The result of one transaction that folds.
#[derive(Debug, Clone)]
pub struct Moved {
    pub parents: usize,
    pub shards_removed: usize,
    /// For each field.
    pub amounts: Vec<Amount>,
}

impl Moved {
    pub fn nothing(sharded: &Sharded) -> Self {
        let fields = sharded.fields.iter();
        Moved {
            parents: 0,
            shards_removed: 0,
            amounts: fields.map(|field| zero(field.column_type)).collect(),
        }
    }
}

/// The reason why a transaction folded nothing.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    #[error("{0}")]
    Unfit(Unfit),
    /// Not all of the parents were locked, though they can be seen.
    #[error("{}", Unfit::NotLocked)]
    NotLocked,
    #[error("{0}")]
    Diesel(#[from] DieselError),
}

impl From<HoldError> for FoldError {
    fn from(error: HoldError) -> Self {
        match error {
            HoldError::Unfit(_, reason) => FoldError::Unfit(reason),
            HoldError::Database(error) => FoldError::Diesel(error),
        }
    }
}

/// Which shards are held, and how.
#[derive(Debug, Clone, Copy)]
pub struct Shards {
    /// The one of this number, or all.
    pub only: Option<i32>,
    /// Those numbered from here on are removed.
    pub remove_from: Option<u16>,
}

impl Keyed<'_> {
    /// Folds parents in one transaction that waits for no lock, by the statements that the library documents for `fold`.
    pub fn fold_held(
        self,
        conn: &mut AnyConnection,
        keys: &[Key],
        shards: Shards,
        retry: RetryPolicy,
    ) -> Result<Moved, FoldError> {
        Transaction::new()
            .isolation(Isolation::ReadCommitted)
            .retry(retry)
            .run(conn, |conn| {
                let locked = self.lock_parents(conn, keys, " FOR UPDATE NOWAIT")?;
                if !self.not_locked(conn, keys, &locked)?.is_empty() {
                    return Err(FoldError::NotLocked);
                }
                if locked.is_empty() {
                    return Ok(Moved::nothing(self.sharded));
                }
                let named = self.named(&locked);
                let parents = self.locked(&named, locked.len(), shards.only);
                let (moved, shards_removed) = parents.fold(shards.remove_from, conn)?;
                Ok(Moved {
                    parents: moved.parents,
                    shards_removed,
                    amounts: moved.sums,
                })
            })
    }

    /// ` WHERE ("videos"."id" = $1 OR …)`
    pub fn named(self, keys: &[Key]) -> Statement {
        let statement = Statement::default().sql(" WHERE ");
        self.is_one_of(statement, self.sharded.table, keys)
    }

    /// Parents that are locked, for the library.
    pub fn locked<'k>(
        &'k self,
        named: &'k Statement,
        number: usize,
        shard: Option<i32>,
    ) -> LockedParents<'k, Statement> {
        LockedParents {
            table: &self.sharded.described,
            keys: named,
            number,
            shard,
        }
    }

    /// Locks the parents among `keys` that are there until the transaction ends. On SQLite other writers already wait.
    pub fn lock_parents(
        self,
        conn: &mut AnyConnection,
        keys: &[Key],
        clause: &str,
    ) -> QueryResult<Vec<Key>> {
        let table = self.sharded.table;
        let lock = self.select_key(Statement::default().sql("SELECT "), table);
        let lock = lock.sql(" FROM ").name(table);
        let lock = self.is_one_of(lock.sql(" WHERE "), table, keys);
        let lock = self.key(lock.sql(" ORDER BY "), table);
        let lock = match self.dialect {
            Dialect::Sqlite => lock,
            _ => lock.sql(clause),
        };
        let rows = lock.rows(conn)?;
        rows.iter()
            .map(|row| Key::read(self.sharded, row))
            .collect()
    }

    /// The parents among `keys` that can be seen and were not locked: PostgreSQL's row security hides them from locks, or they
    /// have come back since.
    pub fn not_locked(
        self,
        conn: &mut AnyConnection,
        keys: &[Key],
        locked: &[Key],
    ) -> QueryResult<Vec<Key>> {
        if self.dialect != Dialect::Postgres || locked.len() == keys.len() {
            return Ok(vec![]);
        }
        let table = self.sharded.table;
        let find = self.select_key(Statement::default().sql("SELECT "), table);
        let find = find.sql(" FROM ").name(table);
        let rows = self
            .is_one_of(find.sql(" WHERE "), table, keys)
            .rows(conn)?;
        let seen = rows.iter().map(|row| Key::read(self.sharded, row));
        let seen: Vec<_> = seen.collect::<QueryResult<_>>()?;
        Ok(seen
            .into_iter()
            .filter(|key| !locked.contains(key))
            .collect())
    }

    /// `"videos_shards"."views" <> 0 OR "videos_shards"."likes" <> 0`
    pub fn is_not_zero(self, statement: Statement) -> Statement {
        statement.each(" OR ", &self.sharded.fields, |statement, field| {
            statement
                .column(self.sharded.shards_table, field.name)
                .sql(" <> 0")
        })
    }
}

/// The numbers in `columns` columns from `first` on.
pub fn numbers(row: &Row, first: usize, columns: usize) -> QueryResult<Vec<BigDecimal>> {
    (first..first + columns)
        .map(|column| row.parse(column))
        .collect()
}

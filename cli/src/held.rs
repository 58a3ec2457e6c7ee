//! Parents that are held, and folded: the statements that the library documents for `fold`, over a table that is known at run
//! time.
//!
//! The parent's row lock comes first and is the mutex; then the shards are locked, in the order in which counts lock them.

use bigdecimal::BigDecimal;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::Unfit;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{FieldState, amount, number_as_text, unfit, zero};
use diesel_sharded::operation::Amount;
use diesel_sharded::retry::{Isolation, RetryPolicy, Transaction};

use crate::connection::AnyConnection;
use crate::key::{Key, Keyed, as_text};
use crate::sharded::Sharded;
use crate::statement::{Row, Statement, Value};

/// What one transaction folded.
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

/// Why nothing of it came about.
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

/// What parents hold of each field, in key order.
pub type States = Vec<Vec<FieldState>>;

/// Which shards are held, and how.
#[derive(Debug, Clone, Copy)]
pub struct Shards {
    /// The one of this number, or all.
    pub only: Option<i32>,
    /// Those numbered from here on are removed.
    pub remove_from: Option<u16>,
}

impl Keyed<'_> {
    /// Folds parents in one transaction that waits for no lock.
    ///
    /// ```sql
    /// BEGIN;                                                     -- READ COMMITTED; SQLite: BEGIN IMMEDIATE, and no locks
    /// SELECT "videos"."id" FROM "videos" WHERE … ORDER BY "videos"."id" FOR UPDATE NOWAIT;   -- those that are there go on
    /// SELECT 1 FROM "videos_shards" WHERE … ORDER BY "videos_shards"."id", "videos_shards"."shard" FOR UPDATE NOWAIT;
    /// SELECT base, sum of shards FROM "videos" WHERE …;                                    -- as texts
    /// UPDATE "videos" SET "views" = total WHERE … AND EXISTS (…);
    /// UPDATE "videos_shards" SET "views" = 0 WHERE … AND ("videos_shards"."views" <> 0);
    /// SELECT base, sum of shards FROM "videos" WHERE …;                     -- has to be what was moved; also before the shards are emptied
    /// DELETE FROM "videos_shards" WHERE … AND "videos_shards"."shard" >= $1 AND NOT ("videos_shards"."views" <> 0);
    /// COMMIT
    /// ```
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
                let keys = &locked;
                self.lock_shards(conn, keys, shards.only)?;
                let before = self.states(conn, keys, shards.only)?;
                let mut added = before.clone();
                let mut amounts = Moved::nothing(self.sharded).amounts;
                for parent in &mut added {
                    for (state, amount) in parent.iter_mut().zip(&mut amounts) {
                        state.base += &state.shards;
                        *amount += &state.shards;
                    }
                }
                let parents = self.add_shards_to_bases(conn, keys, shards.only)?;
                // What a trigger on the parent adds to shards must not be emptied with the rest.
                self.check(conn, keys, shards.only, &before, &added)?;
                let mut expected = added.clone();
                for parent in &mut expected {
                    let nothing = Moved::nothing(self.sharded).amounts;
                    for (state, nothing) in parent.iter_mut().zip(nothing) {
                        state.shards = nothing;
                    }
                }
                self.empty_shards(conn, keys, shards.only)?;
                self.check(conn, keys, shards.only, &added, &expected)?;
                let shards_removed = match shards.remove_from {
                    Some(first) => self.remove_shards(conn, keys, shards.only, first)?,
                    None => 0,
                };
                Ok(Moved {
                    parents,
                    shards_removed,
                    amounts,
                })
            })
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

    fn lock_shards(
        self,
        conn: &mut AnyConnection,
        keys: &[Key],
        only: Option<i32>,
    ) -> QueryResult<()> {
        if self.dialect == Dialect::Sqlite {
            return Ok(());
        }
        let shards = self.sharded.shards_table;
        let lock = Statement::default().sql("SELECT 1 FROM ").name(shards);
        let lock = self.shards_of(lock, keys, only);
        let lock = self.key(lock.sql(" ORDER BY "), shards);
        let lock = lock.sql(", ").column(shards, "shard");
        lock.sql(" FOR UPDATE NOWAIT").execute(conn).map(drop)
    }

    /// ` WHERE (shards.key = $1 OR …)`, and ` AND shards.shard = $n` for one of them
    fn shards_of(self, statement: Statement, keys: &[Key], only: Option<i32>) -> Statement {
        let shards = self.sharded.shards_table;
        let statement = self.is_one_of(statement.sql(" WHERE "), shards, keys);
        self.only(statement, only)
    }

    fn only(self, statement: Statement, only: Option<i32>) -> Statement {
        match only {
            Some(shard) => statement
                .sql(" AND ")
                .column(self.sharded.shards_table, "shard")
                .sql(" = ")
                .bind(Value::Integer(shard.into())),
            None => statement,
        }
    }

    /// What parents that are locked hold.
    pub fn states(
        self,
        conn: &mut AnyConnection,
        keys: &[Key],
        only: Option<i32>,
    ) -> Result<States, FoldError> {
        let (table, shards) = (self.sharded.table, self.sharded.shards_table);
        let fields = &self.sharded.fields;
        let read = Statement::default().sql("SELECT ");
        let read = read.each(", ", fields, |read, field| {
            let (cast, as_text) = number_as_text(self.dialect, field.column_type);
            let read = read.sql(cast).column(table, field.name).sql(as_text);
            let read = read.sql(", ").sql(cast).sql("COALESCE((SELECT SUM(");
            let read = read.column(shards, field.name).sql(") FROM ");
            let read = self.is_parents(read.name(shards).sql(" WHERE "));
            self.only(read, only).sql("), 0)").sql(as_text)
        });
        let read = read.sql(" FROM ").name(table).sql(" WHERE ");
        let read = self.is_one_of(read, table, keys).sql(" ORDER BY ");
        let rows = self.key(read, table).rows(conn)?;
        if rows.len() != keys.len() {
            return Err(FoldError::Unfit(Unfit::Removed));
        }
        let states = rows.iter().map(|row| {
            let fields = fields.iter().enumerate().map(|(i, field)| {
                let number = |column| amount(row.text(column)?, field.column_type);
                Ok(FieldState {
                    base: number(2 * i)?,
                    shards: number(2 * i + 1)?,
                })
            });
            fields.collect::<QueryResult<_>>()
        });
        Ok(states.collect::<QueryResult<_>>()?)
    }

    /// Compares what parents hold with what they are to hold.
    pub fn check(
        self,
        conn: &mut AnyConnection,
        keys: &[Key],
        only: Option<i32>,
        before: &States,
        expected: &States,
    ) -> Result<(), FoldError> {
        let found = self.states(conn, keys, only)?;
        for ((before, expected), found) in before.iter().zip(expected).zip(&found) {
            let fields = before.iter().zip(expected).zip(found);
            for (((before, expected), found), field) in fields.zip(&self.sharded.fields) {
                if let Some(reason) = unfit(self.dialect, &field.column, before, expected, found) {
                    return Err(FoldError::Unfit(reason));
                }
            }
        }
        Ok(())
    }

    /// Adds shards to their bases where one of them is not zero. The number of parents.
    fn add_shards_to_bases(
        self,
        conn: &mut AnyConnection,
        keys: &[Key],
        only: Option<i32>,
    ) -> QueryResult<usize> {
        let (table, shards) = (self.sharded.table, self.sharded.shards_table);
        let fields = &self.sharded.fields;
        let add = Statement::default().sql("UPDATE ").name(table).sql(" SET ");
        let add = add.each(", ", fields, |add, field| {
            add.name(field.name)
                .sql(" = ")
                .total(self.sharded.described, field.column, only)
        });
        let add = self.is_one_of(add.sql(" WHERE "), table, keys);
        let add = add
            .sql(" AND EXISTS (SELECT 1 FROM ")
            .name(shards)
            .sql(" WHERE ");
        let add = self.only(self.is_parents(add), only).sql(" AND (");
        self.is_not_zero(add).sql("))").execute(conn)
    }

    /// `"videos_shards"."views" <> 0 OR "videos_shards"."likes" <> 0`
    pub fn is_not_zero(self, statement: Statement) -> Statement {
        statement.each(" OR ", &self.sharded.fields, |statement, field| {
            statement
                .column(self.sharded.shards_table, field.name)
                .sql(" <> 0")
        })
    }

    fn empty_shards(
        self,
        conn: &mut AnyConnection,
        keys: &[Key],
        only: Option<i32>,
    ) -> QueryResult<usize> {
        let shards = self.sharded.shards_table;
        let empty = Statement::default()
            .sql("UPDATE ")
            .name(shards)
            .sql(" SET ");
        let empty = empty.each(", ", &self.sharded.fields, |empty, field| {
            empty.name(field.name).sql(" = 0")
        });
        let empty = self.shards_of(empty, keys, only).sql(" AND (");
        self.is_not_zero(empty).sql(")").execute(conn)
    }

    fn remove_shards(
        self,
        conn: &mut AnyConnection,
        keys: &[Key],
        only: Option<i32>,
        first: u16,
    ) -> QueryResult<usize> {
        let shards = self.sharded.shards_table;
        let remove = Statement::default().sql("DELETE FROM ").name(shards);
        let remove = self.shards_of(remove, keys, only).sql(" AND ");
        let remove = remove.column(shards, "shard").sql(" >= ");
        let remove = remove.bind(Value::Integer(first.into()));
        let remove = self.is_not_zero(remove.sql(" AND NOT (")).sql(")");
        remove.execute(conn)
    }

    /// The numbers of a parent's shards.
    pub fn shard_counts(self, conn: &mut AnyConnection, keys: &[Key]) -> QueryResult<Vec<i32>> {
        let shards = self.sharded.shards_table;
        let numbers = Statement::default()
            .sql("SELECT CAST(")
            .column(shards, "shard");
        let numbers = numbers
            .sql(as_text(self.dialect))
            .sql(" FROM ")
            .name(shards);
        let numbers = self.shards_of(numbers, keys, None).sql(" ORDER BY ");
        let rows = numbers.column(shards, "shard").rows(conn)?;
        rows.iter().map(|row| row.parse(0)).collect()
    }
}

/// The numbers in `columns` columns from `first` on.
pub fn numbers(row: &Row, first: usize, columns: usize) -> QueryResult<Vec<BigDecimal>> {
    (first..first + columns)
        .map(|column| row.parse(column))
        .collect()
}

//! Parents that are held, and folded: the statements that the library documents for `fold`, over a table that is known at run
//! time.
//!
//! The parent's row lock comes first and is the mutex; then the shards are locked, in the order in which counts lock them.

use bigdecimal::BigDecimal;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::Dialect;
use diesel_sharded::described::may_cut;
use diesel_sharded::retry::{Isolation, Retry, Transaction};

use crate::connection::AnyConnection;
use crate::key::{Key, Keyed, as_text};
use crate::statement::{Row, Statement, Value};

/// What one transaction folded.
#[derive(Debug, Clone)]
pub struct Moved {
    pub parents: usize,
    pub shards_removed: usize,
    /// For each field.
    pub amounts: Vec<BigDecimal>,
}

/// Why nothing of it came about.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    #[error("a base did not take what its shards held, but another number")]
    Inexact,
    #[error("{0}")]
    Diesel(#[from] DieselError),
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
    /// Folds parents in one transaction that waits for no lock.
    ///
    /// ```sql
    /// BEGIN;                                                     -- READ COMMITTED; SQLite: BEGIN IMMEDIATE, and no locks
    /// SELECT 1 FROM "videos" WHERE … ORDER BY "videos"."id" FOR UPDATE NOWAIT;
    /// SELECT 1 FROM "videos_shards" WHERE … ORDER BY "videos_shards"."id", "videos_shards"."shard" FOR UPDATE NOWAIT;
    /// SELECT CAST(SUM("videos_shards"."views") AS TEXT) FROM "videos_shards" WHERE …;
    /// UPDATE "videos" SET "views" = total WHERE … AND EXISTS (…);
    /// UPDATE "videos_shards" SET "views" = 0 WHERE … AND ("videos_shards"."views" <> 0);
    /// DELETE FROM "videos_shards" WHERE … AND "videos_shards"."shard" >= $1;
    /// COMMIT
    /// ```
    pub fn fold_held(
        self,
        conn: &mut AnyConnection,
        keys: &[Key],
        shards: Shards,
        retry: Retry,
    ) -> Result<Moved, FoldError> {
        Transaction::new()
            .isolation(Isolation::ReadCommitted)
            .retry(retry)
            .run(conn, |conn| {
                self.lock_parents(conn, keys, " FOR UPDATE NOWAIT")?;
                self.lock_shards(conn, keys, shards.only)?;
                let amounts = self.sums(conn, keys, shards.only)?;
                let expected = self.cut_fields_after(conn, keys, shards.only)?;
                let parents = self.add_shards_to_bases(conn, keys, shards.only)?;
                if self.cut_fields(conn, keys)? != expected {
                    return Err(FoldError::Inexact);
                }
                self.empty_shards(conn, keys, shards.only)?;
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

    /// Locks parents until the transaction ends. On SQLite other writers already wait.
    pub fn lock_parents(
        self,
        conn: &mut AnyConnection,
        keys: &[Key],
        clause: &str,
    ) -> QueryResult<()> {
        if self.dialect == Dialect::Sqlite {
            return Ok(());
        }
        let table = self.sharded.table;
        let lock = Statement::default().sql("SELECT 1 FROM ").name(table);
        let lock = self.is_one_of(lock.sql(" WHERE "), table, keys);
        let lock = self.key(lock.sql(" ORDER BY "), table).sql(clause);
        lock.execute(conn).map(drop)
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

    /// What the shards of all these parents hold, field by field.
    fn sums(
        self,
        conn: &mut AnyConnection,
        keys: &[Key],
        only: Option<i32>,
    ) -> QueryResult<Vec<BigDecimal>> {
        let shards = self.sharded.shards_table;
        let fields = &self.sharded.fields;
        let sums = Statement::default().sql("SELECT ");
        let sums = sums.each(", ", fields, |sums, field| {
            sums.sql("CAST(COALESCE(SUM(")
                .column(shards, field.name)
                .sql("), 0)")
                .sql(as_text(self.dialect))
        });
        let sums = self.shards_of(sums.sql(" FROM ").name(shards), keys, only);
        let rows = sums.rows(conn)?;
        rows.first()
            .map_or(Ok(vec![]), |row| numbers(row, 0, fields.len()))
    }

    /// The fields whose columns may round or cut what they are given, and do not say so.
    fn may_cut(self) -> Vec<&'static str> {
        let fields = self.sharded.fields.iter();
        fields
            .filter(|field| may_cut(self.dialect, field.column_type))
            .map(|field| field.name)
            .collect()
    }

    /// What the bases of such fields have to be after the fold, in key order.
    fn cut_fields_after(
        self,
        conn: &mut AnyConnection,
        keys: &[Key],
        only: Option<i32>,
    ) -> QueryResult<Vec<Vec<BigDecimal>>> {
        let cut = self.may_cut();
        let fields = self.sharded.fields.iter();
        let fields: Vec<_> = fields.filter(|field| cut.contains(&field.name)).collect();
        self.each_parent(conn, keys, &fields, |statement, field| {
            // Without the cast to the column's type, which could cut too.
            let shards = self.sharded.shards_table;
            let statement = statement
                .column(self.sharded.table, field.name)
                .sql(" + COALESCE((SELECT SUM(")
                .column(shards, field.name)
                .sql(") FROM ")
                .name(shards)
                .sql(" WHERE ");
            let statement = self.is_parents(statement);
            self.only(statement, only).sql("), 0)")
        })
    }

    /// What they are.
    fn cut_fields(
        self,
        conn: &mut AnyConnection,
        keys: &[Key],
    ) -> QueryResult<Vec<Vec<BigDecimal>>> {
        let cut = self.may_cut();
        let fields = self.sharded.fields.iter();
        let fields: Vec<_> = fields.filter(|field| cut.contains(&field.name)).collect();
        self.each_parent(conn, keys, &fields, |statement, field| {
            statement.column(self.sharded.table, field.name)
        })
    }

    fn each_parent<F: Copy>(
        self,
        conn: &mut AnyConnection,
        keys: &[Key],
        fields: &[F],
        push: impl Fn(Statement, F) -> Statement,
    ) -> QueryResult<Vec<Vec<BigDecimal>>> {
        if fields.is_empty() {
            return Ok(vec![]);
        }
        let table = self.sharded.table;
        let each = Statement::default().sql("SELECT ");
        let each = each.each(", ", fields, |each, field| {
            push(each.sql("CAST("), *field).sql(as_text(self.dialect))
        });
        let each = each.sql(" FROM ").name(table).sql(" WHERE ");
        let each = self.is_one_of(each, table, keys).sql(" ORDER BY ");
        let rows = self.key(each, table).rows(conn)?;
        rows.iter()
            .map(|row| numbers(row, 0, fields.len()))
            .collect()
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
        remove.bind(Value::Integer(first.into())).execute(conn)
    }

    /// The numbers of a parent's shards.
    pub fn shard_numbers(self, conn: &mut AnyConnection, keys: &[Key]) -> QueryResult<Vec<i32>> {
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

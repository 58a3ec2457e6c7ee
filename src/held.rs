//! Parents that are held: locked together with their shards, so that no total of theirs can change but by the holder.
//!
//! The parent's row lock comes first and is the mutex: while it is held, nobody else holds the parent, and no shard can be
//! created, since that locks the parent for the foreign key. Then the shards are locked, in the order in which counts lock
//! them. Counts on these shards wait until the holder's transaction ends; nothing is lost or comes in between.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Integer, Nullable, Text};

use crate::amount::Amount;
use crate::dialect::{BackendOf, ShardedBackend, Strength};
use crate::error::Error;
use crate::field::{ShardedTable, ShardsColumn};
use crate::io::{Io, LoadIo};
use crate::keyed::{KeyedTable, KeysAre};
use crate::retry::{Repeated, Retry, TransactionOptions};
use crate::sql::{
    Reads, SHARD, push_bind, push_column, push_from_shards, push_key, push_shard_is,
    push_shards_as_parent, push_shards_column, push_zeros,
};
use crate::total::push_total;

/// Parents of `T` that the connection's transaction holds, with all their shards or with one.
pub(crate) struct Held<'a, T: KeyedTable<DB>, DB: ShardedBackend> {
    keys: &'a KeysAre<T::KeyIs>,
    shard: Option<i32>,
}

/// What was moved from shards to bases.
pub(crate) struct Moved {
    /// The number of parents that had something to move.
    pub(crate) parents: usize,
    /// The number of shards that it was moved from.
    pub(crate) shards: usize,
    /// How much of each field.
    pub(crate) sums: Vec<Amount>,
}

/// Which shards are held, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shards {
    /// The one of this number, or all.
    pub(crate) only: Option<i32>,
    /// A lock that is not had at once is a [`LockTimeout`](crate::Conflict::LockTimeout).
    pub(crate) at_once: bool,
}

impl Shards {
    /// All, once every lock was had.
    pub(crate) const ALL: Self = Shards {
        only: None,
        at_once: false,
    };
}

/// A transaction of its own that may hold parents and is tried again after a conflict, or a savepoint of the caller's.
pub(crate) fn holding<M, Conn>(conn: &mut Conn, retry: Retry) -> QueryResult<Repeated>
where
    M: Io<Conn>,
{
    let dialect = M::Backend::backend_of(conn).dialect();
    let options = TransactionOptions {
        isolation: dialect.holding_isolation(),
        ..TransactionOptions::guarded()
    };
    Repeated::transaction::<M, _>(conn, retry, options)
}

impl<'a, T: KeyedTable<DB>, DB: ShardedBackend> Held<'a, T, DB> {
    /// Parents that the transaction that is open holds as far as it needs to.
    pub(crate) fn of(keys: &'a KeysAre<T::KeyIs>) -> Self {
        Held { keys, shard: None }
    }

    /// Locks the parents that `keys` names, and then their shards, in the transaction that is open.
    pub(crate) async fn lock<M, Conn>(
        conn: &mut Conn,
        keys: &'a KeysAre<T::KeyIs>,
        shards: Shards,
    ) -> QueryResult<Self>
    where
        M: Io<Conn, Backend = DB>,
        DB: BackendOf<Conn>,
    {
        let held = Held {
            keys,
            shard: shards.only,
        };
        let strength = match shards.at_once {
            true => Strength::ExclusiveAtOnce,
            false => Strength::Exclusive,
        };
        held.lock_rows::<M, _>(conn, Rows::Parents, strength)
            .await?;
        held.lock_rows::<M, _>(conn, Rows::Shards, strength).await?;
        Ok(held)
    }

    /// Locks rows until the transaction ends. On SQLite other writers already wait.
    pub(crate) async fn lock_rows<M, Conn>(
        &self,
        conn: &mut Conn,
        rows: Rows,
        strength: Strength,
    ) -> QueryResult<()>
    where
        M: Io<Conn, Backend = DB>,
        DB: BackendOf<Conn>,
    {
        if let Some(clause) = DB::backend_of(conn).dialect().locks_rows(strength) {
            let of = self.rows(rows);
            M::execute(conn, Lock { of, clause }).await?;
        }
        Ok(())
    }

    /// The numbers of the shards that there are, held or not.
    pub(crate) async fn shards<M, Conn>(&self, conn: &mut Conn) -> QueryResult<Vec<i32>>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        let of = self.rows(Rows::Shards);
        <DB as Reads<Integer, i32>>::load::<M, _, _>(conn, SelectShards { of }).await
    }

    /// A field's base, or the sum of its shards that are held, of each parent, in key order.
    pub(crate) async fn each<M, Conn>(
        &self,
        conn: &mut Conn,
        rows: Rows,
        field: &'static ShardsColumn,
    ) -> QueryResult<Vec<Amount>>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        let of = self.rows(Rows::Parents);
        let each = Each { of, rows, field };
        let each = <DB as Reads<Nullable<Text>, Option<String>>>::load::<M, _, _>(conn, each);
        each.await?
            .iter()
            .map(|amount| match amount {
                Some(text) => Amount::parse(text, field.column_type),
                None => Ok(Amount::zero(field.column_type)), // there is no shard
            })
            .collect()
    }

    /// Adds the shards that are held to the bases and empties them: no total changes.
    ///
    /// # Errors
    /// [`Inexact`](Error::Inexact) if a base did not take what its shards held, as a column of a smaller scale does, and
    /// MySQL without its strict mode.
    pub(crate) async fn fold<M, Conn>(&self, conn: &mut Conn) -> QueryResult<Moved>
    where
        M: LoadIo<Conn, Backend = DB>,
        DB: BackendOf<Conn>,
    {
        let dialect = DB::backend_of(conn).dialect();
        let mut sums = vec![];
        let mut expected = vec![];
        for field in T::FIELDS {
            let moved = self.each::<M, _>(conn, Rows::Shards, field).await?;
            let mut sum = Amount::zero(field.column_type);
            moved.iter().for_each(|moved| sum += moved);
            sums.push(sum);
            if dialect.may_cut(field.column_type) {
                let mut bases = self.each::<M, _>(conn, Rows::Parents, field).await?;
                bases
                    .iter_mut()
                    .zip(&moved)
                    .for_each(|(base, moved)| *base += moved);
                expected.push((field, bases));
            }
        }
        let of = self.rows(Rows::Parents);
        let parents = M::execute(conn, AddShardsToBases { of }).await?;
        for (field, bases) in expected {
            if self.each::<M, _>(conn, Rows::Parents, field).await? != bases {
                return Err(Error::Inexact { field: field.name }.into());
            }
        }
        let shards = self.empty::<M, _>(conn, T::FIELDS.iter().collect());
        let shards = shards.await?;
        Ok(Moved {
            parents,
            shards,
            sums,
        })
    }

    /// Sets fields of the shards to zero, whatever that does to the totals. The number of shards that were not.
    pub(crate) async fn empty<M, Conn>(
        &self,
        conn: &mut Conn,
        fields: Vec<&'static ShardsColumn>,
    ) -> QueryResult<usize>
    where
        M: Io<Conn, Backend = DB>,
    {
        let of = self.rows(Rows::Shards);
        M::execute(conn, EmptyShards { of, fields }).await
    }

    /// Removes the shards numbered `first` and above, which have to be empty. The number removed.
    pub(crate) async fn remove_shards<M, Conn>(
        &self,
        conn: &mut Conn,
        first: u16,
    ) -> QueryResult<usize>
    where
        M: Io<Conn, Backend = DB>,
    {
        let of = self.rows(Rows::Shards);
        let first = i32::from(first);
        M::execute(conn, RemoveShards { of, first }).await
    }

    /// Writes columns of the bases or the shards, whatever that does to the totals. `assignments`: `"views" = $1`. The number
    /// of rows.
    pub(crate) async fn write<M, Conn, A>(
        &self,
        conn: &mut Conn,
        rows: Rows,
        assignments: &A,
    ) -> QueryResult<usize>
    where
        M: Io<Conn, Backend = DB>,
        A: QueryFragment<DB>,
    {
        let of = self.rows(rows);
        M::execute(conn, Write { of, assignments }).await
    }

    fn rows(&self, rows: Rows) -> HeldRows<'a, T, KeysAre<T::KeyIs>> {
        HeldRows {
            rows,
            keys: self.keys,
            shard: self.shard,
            table: PhantomData,
        }
    }
}

/// Which of the rows that are held a statement is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    Parents,
    Shards,
}

/// The rows that a statement is about.
struct HeldRows<'a, T, W> {
    rows: Rows,
    keys: &'a W,
    shard: Option<i32>,
    table: PhantomData<T>,
}

impl<T, W> HeldRows<'_, T, W> {
    /// `parent`, or `shards AS parent`
    fn push_table<DB>(&self, out: AstPass<'_, '_, DB>) -> QueryResult<()>
    where
        T: ShardedTable + QueryFragment<DB>,
        DB: ShardedBackend,
    {
        match self.rows {
            Rows::Parents => T::TABLE.walk_ast(out),
            Rows::Shards => push_shards_as_parent::<T, DB>(out),
        }
    }

    /// ` WHERE (keys)`, of shards with ` AND parent.shard = $n` if it is one
    fn push_where<'b, DB>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        T: ShardedTable + QueryFragment<DB>,
        W: QueryFragment<DB>,
        DB: ShardedBackend,
    {
        self.keys.walk_ast(out.reborrow())?;
        match (self.rows, &self.shard) {
            (Rows::Shards, Some(shard)) => {
                out.push_sql(" AND ");
                push_shard_is::<T, DB>(shard, out)
            }
            _ => Ok(()),
        }
    }
}

/// See [`Held::lock_rows`].
///
/// ```sql
/// SELECT 1 FROM "videos" WHERE … ORDER BY "videos"."id" FOR UPDATE
/// SELECT 1 FROM "videos_shards" AS "videos" WHERE … ORDER BY "videos"."id", "videos"."shard" FOR UPDATE
/// ```
struct Lock<'a, T, W> {
    of: HeldRows<'a, T, W>,
    clause: &'static str,
}

impl<T, W, DB> QueryFragment<DB> for Lock<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT 1 FROM ");
        self.of.push_table(out.reborrow())?;
        self.of.push_where(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        push_key::<T, DB>(out.reborrow())?;
        if self.of.rows == Rows::Shards {
            out.push_sql(", ");
            push_column::<T, DB>(SHARD, out.reborrow())?;
        }
        out.push_sql(self.clause);
        Ok(())
    }
}

/// See [`Held::shards`].
///
/// ```sql
/// SELECT "videos"."shard" FROM "videos_shards" AS "videos" WHERE …
/// ```
struct SelectShards<'a, T, W> {
    of: HeldRows<'a, T, W>,
}

impl<T, W, DB> QueryFragment<DB> for SelectShards<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        push_column::<T, DB>(SHARD, out.reborrow())?;
        out.push_sql(" FROM ");
        self.of.push_table(out.reborrow())?;
        self.of.push_where(out)
    }
}

impl<T, W> Query for SelectShards<'_, T, W> {
    type SqlType = Integer;
}

/// See [`Held::each`].
///
/// ```sql
/// SELECT CAST("videos"."views" AS TEXT) FROM "videos" WHERE … ORDER BY "videos"."id";
/// SELECT CAST((SELECT SUM("videos_shards"."views") FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id") AS TEXT)
/// FROM "videos" WHERE … ORDER BY "videos"."id"
/// -- MySQL, MariaDB: AS CHAR, and both SELECTs end in FOR UPDATE
/// ```
struct Each<'a, T, W> {
    of: HeldRows<'a, T, W>,
    rows: Rows,
    field: &'static ShardsColumn,
}

impl<T, W, DB> QueryFragment<DB> for Each<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let dialect = out.backend().dialect();
        out.push_sql("SELECT CAST(");
        match self.rows {
            Rows::Parents => push_column::<T, DB>(self.field.name, out.reborrow())?,
            Rows::Shards => {
                out.push_sql("(SELECT SUM(");
                push_shards_column::<T, DB>(self.field.name, out.reborrow())?;
                out.push_sql(")");
                push_from_shards::<T, DB>(self.of.shard.as_ref(), out.reborrow())?;
                out.push_sql(dialect.reads_what_is_locked());
                out.push_sql(")");
            }
        }
        out.push_sql(" AS ");
        out.push_sql(dialect.text_type());
        out.push_sql(") FROM ");
        T::TABLE.walk_ast(out.reborrow())?;
        self.of.push_where(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        push_key::<T, DB>(out.reborrow())?;
        out.push_sql(dialect.reads_what_is_locked());
        Ok(())
    }
}

impl<T, W> Query for Each<'_, T, W> {
    type SqlType = Nullable<Text>;
}

/// Writes columns of the parents or of their shards.
///
/// ```sql
/// UPDATE "videos" SET … WHERE …
/// UPDATE "videos_shards" AS "videos" SET … WHERE …
/// ```
struct Write<'a, T, W, A> {
    of: HeldRows<'a, T, W>,
    assignments: &'a A,
}

impl<T, W, A, DB> QueryFragment<DB> for Write<'_, T, W, A>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    A: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("UPDATE ");
        self.of.push_table(out.reborrow())?;
        out.push_sql(" SET ");
        self.assignments.walk_ast(out.reborrow())?;
        self.of.push_where(out)
    }
}

/// Adds shards to their bases where one of them is not zero.
///
/// ```sql
/// UPDATE "videos" SET "views" = total, "likes" = total
/// WHERE … AND EXISTS (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id"
///     AND ("videos_shards"."views" <> 0 OR "videos_shards"."likes" <> 0))
/// ```
struct AddShardsToBases<'a, T, W> {
    of: HeldRows<'a, T, W>,
}

impl<T, W, DB> QueryFragment<DB> for AddShardsToBases<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let shard = self.of.shard.as_ref();
        out.push_sql("UPDATE ");
        T::TABLE.walk_ast(out.reborrow())?;
        for (i, field) in T::FIELDS.iter().enumerate() {
            out.push_sql(if i == 0 { " SET " } else { ", " });
            out.push_identifier(field.name)?;
            out.push_sql(" = ");
            push_total::<T, DB>(field, shard, out.reborrow())?;
        }
        self.of.push_where(out.reborrow())?;
        out.push_sql(" AND EXISTS (SELECT 1");
        push_from_shards::<T, DB>(shard, out.reborrow())?;
        out.push_sql(" AND (");
        for (i, field) in T::FIELDS.iter().enumerate() {
            if i > 0 {
                out.push_sql(" OR ");
            }
            push_shards_column::<T, DB>(field.name, out.reborrow())?;
            out.push_sql(" <> 0");
        }
        out.push_sql("))");
        Ok(())
    }
}

/// Sets fields of shards to zero where they are not.
///
/// ```sql
/// UPDATE "videos_shards" AS "videos" SET "views" = 0, "likes" = 0
/// WHERE … AND ("videos"."views" <> 0 OR "videos"."likes" <> 0)
/// ```
struct EmptyShards<'a, T, W> {
    of: HeldRows<'a, T, W>,
    fields: Vec<&'static ShardsColumn>,
}

impl<T, W, DB> QueryFragment<DB> for EmptyShards<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("UPDATE ");
        self.of.push_table(out.reborrow())?;
        out.push_sql(" SET ");
        push_zeros(self.fields.iter().copied(), out.reborrow())?;
        self.of.push_where(out.reborrow())?;
        for (i, field) in self.fields.iter().enumerate() {
            out.push_sql(if i == 0 { " AND (" } else { " OR " });
            push_column::<T, DB>(field.name, out.reborrow())?;
            out.push_sql(" <> 0");
        }
        out.push_sql(")");
        Ok(())
    }
}

/// Deletes shards from a number on.
///
/// ```sql
/// DELETE FROM "videos_shards" AS "videos" WHERE … AND "videos"."shard" >= $n
/// -- MySQL, MariaDB
/// DELETE `videos` FROM `videos_shards` AS `videos` WHERE … AND `videos`.`shard` >= ?
/// ```
struct RemoveShards<'a, T, W> {
    of: HeldRows<'a, T, W>,
    first: i32,
}

impl<T, W, DB> QueryFragment<DB> for RemoveShards<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("DELETE ");
        if out.backend().dialect().deletes_by_alias() {
            T::TABLE.walk_ast(out.reborrow())?;
            out.push_sql(" ");
        }
        out.push_sql("FROM ");
        self.of.push_table(out.reborrow())?;
        self.of.push_where(out.reborrow())?;
        out.push_sql(" AND ");
        push_column::<T, DB>(SHARD, out.reborrow())?;
        out.push_sql(" >= ");
        push_bind::<Integer, i32, DB>(&self.first, out)
    }
}

macro_rules! no_query_id {
    ($($statement:ident<$($part:ident),+>)+) => {$(
        /// Its text has one length for each number of keys.
        impl<$($part),+> QueryId for $statement<'_, $($part),+> {
            type QueryId = ();
            const HAS_STATIC_QUERY_ID: bool = false;
        }
    )+};
}

no_query_id! {
    Lock<T, W> SelectShards<T, W> Each<T, W> Write<T, W, A> AddShardsToBases<T, W> EmptyShards<T, W> RemoveShards<T, W>
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::videos::dsl::id;
    use crate::test_schema::{sql, videos as table};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::sqlite::Sqlite;

    macro_rules! rows {
        ($rows:ident, $keys:expr, $shard:expr) => {
            HeldRows::<table::table, _> {
                rows: Rows::$rows,
                keys: &$keys,
                shard: $shard,
                table: PhantomData,
            }
        };
    }

    #[test]
    fn parents_are_locked_and_then_shards_in_key_order() {
        let keys = KeysAre(vec![id.eq(1), id.eq(2)]);
        let of = rows!(Parents, keys, None);
        let clause = " FOR UPDATE";
        assert_eq!(
            sql!(Pg, Lock { of, clause }),
            r#"SELECT 1 FROM "videos" WHERE (("videos"."id" = $1) OR ("videos"."id" = $2)) ORDER BY "videos"."id" FOR UPDATE"#
        );
        let of = rows!(Shards, keys, Some(3));
        let clause = " FOR UPDATE NOWAIT";
        assert_eq!(
            sql!(Mysql, Lock { of, clause }),
            "SELECT 1 FROM `videos_shards` AS `videos` WHERE ((`videos`.`id` = ?) OR (`videos`.`id` = ?)) AND `videos`.`shard` = ? ORDER BY `videos`.`id`, `videos`.`shard` FOR UPDATE NOWAIT"
        );
    }

    #[test]
    fn amounts_are_read_as_they_are_locked() {
        let keys = KeysAre(vec![id.eq(1)]);
        let each = |rows, shard| Each {
            of: rows!(Parents, keys, shard),
            rows,
            field: &table::table::FIELDS[0],
        };
        assert_eq!(
            sql!(Pg, each(Rows::Shards, Some(3))),
            r#"SELECT CAST((SELECT SUM("videos_shards"."views") FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id" AND "videos_shards"."shard" = $1) AS TEXT) FROM "videos" WHERE (("videos"."id" = $2)) ORDER BY "videos"."id""#
        );
        assert_eq!(
            sql!(Mysql, each(Rows::Shards, None)),
            "SELECT CAST((SELECT SUM(`videos_shards`.`views`) FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id` FOR UPDATE) AS CHAR) FROM `videos` WHERE ((`videos`.`id` = ?)) ORDER BY `videos`.`id` FOR UPDATE"
        );
        assert_eq!(
            sql!(Mysql, each(Rows::Parents, None)),
            "SELECT CAST(`videos`.`views` AS CHAR) FROM `videos` WHERE ((`videos`.`id` = ?)) ORDER BY `videos`.`id` FOR UPDATE"
        );
    }

    #[test]
    fn a_fold_adds_and_then_empties() {
        let keys = KeysAre(vec![id.eq(1)]);
        let add = |shard| AddShardsToBases {
            of: rows!(Parents, keys, shard),
        };
        assert_eq!(
            sql!(Mysql, add(None)),
            "UPDATE `videos` SET `views` = (`videos`.`views` + COALESCE((SELECT SUM(`videos_shards`.`views`) FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id`), 0)), `likes` = (`videos`.`likes` + COALESCE((SELECT SUM(`videos_shards`.`likes`) FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id`), 0)) WHERE ((`videos`.`id` = ?)) AND EXISTS (SELECT 1 FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id` AND (`videos_shards`.`views` <> 0 OR `videos_shards`.`likes` <> 0))"
        );
        let one = sql!(Pg, add(Some(3)));
        assert_eq!(one.matches(r#"AND "videos_shards"."shard" = $"#).count(), 3);
        let empty = EmptyShards {
            of: rows!(Shards, keys, None),
            fields: table::table::FIELDS.iter().collect(),
        };
        assert_eq!(
            sql!(Sqlite, empty),
            "UPDATE `videos_shards` AS `videos` SET `views` = 0, `likes` = 0 WHERE ((`videos`.`id` = ?)) AND (`videos`.`views` <> 0 OR `videos`.`likes` <> 0)"
        );
    }

    #[test]
    fn shards_are_removed_from_a_number_on() {
        let keys = KeysAre(vec![id.eq(1)]);
        let remove = || RemoveShards {
            of: rows!(Shards, keys, None),
            first: 4,
        };
        assert_eq!(
            sql!(Pg, remove()),
            r#"DELETE FROM "videos_shards" AS "videos" WHERE (("videos"."id" = $1)) AND "videos"."shard" >= $2"#
        );
        assert_eq!(
            sql!(Mysql, remove()),
            "DELETE `videos` FROM `videos_shards` AS `videos` WHERE ((`videos`.`id` = ?)) AND `videos`.`shard` >= ?"
        );
    }
}

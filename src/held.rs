//! Parents that are held: locked together with their shards, so that no total of theirs can change but by the holder.
//!
//! The parent's row lock comes first and is the mutex: while it is held, nobody else holds the parent, and no shard can be
//! created, since that locks the parent for the foreign key. Then the shards are locked, in the order in which counts lock
//! them. Counts on these shards wait until the holder's transaction ends; nothing is lost or comes in between.

use std::marker::PhantomData;

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Integer, Nullable, Text};

use crate::amount::Amount;
use crate::dialect::{BackendOf, ShardedBackend};
use crate::field::{ShardedTable, ShardsColumn};
use crate::keyed::{KeyedTable, KeysAre};
use crate::retry::{Retry, own_transaction};
use crate::sql::{
    Reads, SHARD, push_bind, push_column, push_key, push_shards_as_parent, push_zeros,
};
use crate::total::push_total;

/// Parents of `T` that the connection's transaction holds.
pub(crate) struct Held<'a, T: KeyedTable<DB>, DB: ShardedBackend> {
    keys: &'a KeysAre<T::KeyIs>,
}

/// Runs `work` while the parents that `keys` names are held: in a transaction of its own that is tried again after a
/// conflict, or in a savepoint of the caller's.
pub(crate) fn hold<T, DB, Conn, R>(
    conn: &mut Conn,
    keys: &KeysAre<T::KeyIs>,
    retry: Retry,
    mut work: impl FnMut(&mut Conn, Held<'_, T, DB>) -> QueryResult<R>,
) -> QueryResult<R>
where
    T: KeyedTable<DB>,
    DB: BackendOf<Conn>,
    Conn: LoadConnection<Backend = DB>,
{
    let isolation = DB::backend_of(conn).dialect().holding_isolation();
    own_transaction(conn, retry, isolation, |conn| {
        let held = Held::<T, DB>::lock(conn, keys)?;
        work(conn, held)
    })
}

impl<'a, T: KeyedTable<DB>, DB: ShardedBackend> Held<'a, T, DB> {
    /// The parents that `keys` names, which the transaction that is open holds already, or as far as it needs to.
    pub(crate) fn of(keys: &'a KeysAre<T::KeyIs>) -> Self {
        Held { keys }
    }

    /// Locks the parents that `keys` names, and then all their shards, in the transaction that is open.
    pub(crate) fn lock<Conn>(conn: &mut Conn, keys: &'a KeysAre<T::KeyIs>) -> QueryResult<Self>
    where
        Conn: Connection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        Self::lock_rows(conn, Rows::Parents, keys)?;
        Self::lock_rows(conn, Rows::Shards, keys)?;
        Ok(Self::of(keys))
    }

    /// Locks rows until the transaction ends. On SQLite other writers already wait.
    pub(crate) fn lock_rows<Conn>(
        conn: &mut Conn,
        rows: Rows,
        keys: &KeysAre<T::KeyIs>,
    ) -> QueryResult<()>
    where
        Conn: Connection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        if DB::backend_of(conn).dialect().locks_rows().is_some() {
            conn.execute_returning_count(&Lock::<T, _> {
                rows,
                keys,
                table: PhantomData,
            })?;
        }
        Ok(())
    }

    /// The sum of a field over the bases or the shards that are held.
    pub(crate) fn sum<Conn>(
        &self,
        conn: &mut Conn,
        rows: Rows,
        field: &'static ShardsColumn,
    ) -> QueryResult<Amount>
    where
        Conn: LoadConnection<Backend = DB>,
    {
        let sum = Sum::<T, _> {
            rows,
            field,
            keys: self.keys,
            table: PhantomData,
        };
        let sums = <DB as Reads<Nullable<Text>, Option<String>>>::load(conn, sum)?;
        match sums.into_iter().next().flatten() {
            Some(text) => Amount::parse(&text, field.column_type),
            None => Ok(Amount::zero(field.column_type)), // there is no row
        }
    }

    /// Adds the shards to the bases and empties them: no total changes. The number of parents.
    pub(crate) fn fold<Conn>(&self, conn: &mut Conn) -> QueryResult<usize>
    where
        Conn: Connection<Backend = DB>,
    {
        let parents = self.write(conn, Rows::Parents, &ToTotals::<T>(PhantomData))?;
        self.empty(conn, T::FIELDS.iter())?;
        Ok(parents)
    }

    /// Sets fields of the shards to zero, whatever that does to the totals.
    pub(crate) fn empty<Conn>(
        &self,
        conn: &mut Conn,
        fields: impl Iterator<Item = &'static ShardsColumn>,
    ) -> QueryResult<()>
    where
        Conn: Connection<Backend = DB>,
    {
        conn.execute_returning_count(&EmptyShards::<T, _> {
            fields: fields.collect(),
            keys: self.keys,
            table: PhantomData,
        })?;
        Ok(())
    }

    /// Removes the shards numbered `first` and above, which have to be empty. The number removed.
    pub(crate) fn remove_shards<Conn>(&self, conn: &mut Conn, first: u16) -> QueryResult<usize>
    where
        Conn: Connection<Backend = DB>,
    {
        conn.execute_returning_count(&RemoveShards::<T, _> {
            first: i32::from(first),
            keys: self.keys,
            table: PhantomData,
        })
    }

    /// Writes columns of the bases or the shards, whatever that does to the totals. `assignments`: `"views" = $1`. The number
    /// of rows.
    pub(crate) fn write<Conn, A>(
        &self,
        conn: &mut Conn,
        rows: Rows,
        assignments: &A,
    ) -> QueryResult<usize>
    where
        Conn: Connection<Backend = DB>,
        A: QueryFragment<DB>,
    {
        conn.execute_returning_count(&Write::<T, _, A> {
            rows,
            assignments,
            keys: self.keys,
            table: PhantomData,
        })
    }
}

/// Which of the rows that are held a statement is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    Parents,
    Shards,
}

/// `parent`, or `shards AS parent`
fn push_rows<T, DB>(rows: Rows, out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    match rows {
        Rows::Parents => T::TABLE.walk_ast(out),
        Rows::Shards => push_shards_as_parent::<T, DB>(out),
    }
}

/// See [`Held::lock_rows`].
///
/// ```sql
/// SELECT 1 FROM "videos" WHERE … ORDER BY "videos"."id" FOR UPDATE
/// SELECT 1 FROM "videos_shards" AS "videos" WHERE … ORDER BY "videos"."id", "videos"."shard" FOR UPDATE
/// ```
struct Lock<'a, T, W> {
    rows: Rows,
    keys: &'a W,
    table: PhantomData<T>,
}

impl<T, W, DB> QueryFragment<DB> for Lock<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT 1 FROM ");
        push_rows::<T, DB>(self.rows, out.reborrow())?;
        self.keys.walk_ast(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        push_key::<T, DB>(out.reborrow())?;
        if self.rows == Rows::Shards {
            out.push_sql(", ");
            push_column::<T, DB>(SHARD, out.reborrow())?;
        }
        if let Some(lock) = out.backend().dialect().locks_rows() {
            out.push_sql(lock);
        }
        Ok(())
    }
}

/// Adds up a field of rows that are locked.
///
/// ```sql
/// SELECT CAST(SUM("videos"."views") AS TEXT) FROM "videos_shards" AS "videos" WHERE …
/// -- MySQL, MariaDB
/// SELECT CAST(SUM(`videos`.`views`) AS CHAR) FROM `videos_shards` AS `videos` WHERE … FOR UPDATE
/// ```
struct Sum<'a, T, W> {
    rows: Rows,
    field: &'static ShardsColumn,
    keys: &'a W,
    table: PhantomData<T>,
}

impl<T, W, DB> QueryFragment<DB> for Sum<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let dialect = out.backend().dialect();
        out.push_sql("SELECT CAST(SUM(");
        push_column::<T, DB>(self.field.name, out.reborrow())?;
        out.push_sql(") AS ");
        out.push_sql(dialect.text_type());
        out.push_sql(") FROM ");
        push_rows::<T, DB>(self.rows, out.reborrow())?;
        self.keys.walk_ast(out.reborrow())?;
        out.push_sql(dialect.reads_what_is_locked());
        Ok(())
    }
}

impl<T, W> Query for Sum<'_, T, W> {
    type SqlType = Nullable<Text>;
}

/// Writes columns of the parents or of their shards.
///
/// ```sql
/// UPDATE "videos" SET … WHERE …
/// UPDATE "videos_shards" AS "videos" SET … WHERE …
/// ```
struct Write<'a, T, W, A> {
    rows: Rows,
    assignments: &'a A,
    keys: &'a W,
    table: PhantomData<T>,
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
        push_rows::<T, DB>(self.rows, out.reborrow())?;
        out.push_sql(" SET ");
        self.assignments.walk_ast(out.reborrow())?;
        self.keys.walk_ast(out)
    }
}

/// `"views" = total, "likes" = total`
pub(crate) struct ToTotals<T>(pub(crate) PhantomData<T>);

impl<T, DB> QueryFragment<DB> for ToTotals<T>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        for (i, field) in T::FIELDS.iter().enumerate() {
            if i > 0 {
                out.push_sql(", ");
            }
            out.push_identifier(field.name)?;
            out.push_sql(" = ");
            push_total::<T, DB>(field, out.reborrow())?;
        }
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
    fields: Vec<&'static ShardsColumn>,
    keys: &'a W,
    table: PhantomData<T>,
}

impl<T, W, DB> QueryFragment<DB> for EmptyShards<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("UPDATE ");
        push_shards_as_parent::<T, DB>(out.reborrow())?;
        out.push_sql(" SET ");
        push_zeros(self.fields.iter().copied(), out.reborrow())?;
        self.keys.walk_ast(out.reborrow())?;
        out.push_sql(" AND ");
        push_any_is_not_zero::<T, DB>(&self.fields, out)
    }
}

/// `(shards.views <> 0 OR shards.likes <> 0)`, of shards under their parent's name
fn push_any_is_not_zero<T, DB>(
    fields: &[&'static ShardsColumn],
    mut out: AstPass<'_, '_, DB>,
) -> QueryResult<()>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
{
    for (i, field) in fields.iter().enumerate() {
        out.push_sql(if i == 0 { "(" } else { " OR " });
        push_column::<T, DB>(field.name, out.reborrow())?;
        out.push_sql(" <> 0");
    }
    out.push_sql(")");
    Ok(())
}

/// Deletes shards from a number on.
///
/// ```sql
/// DELETE FROM "videos_shards" AS "videos" WHERE … AND "videos"."shard" >= $n
/// -- MySQL, MariaDB
/// DELETE `videos` FROM `videos_shards` AS `videos` WHERE … AND `videos`.`shard` >= ?
/// ```
struct RemoveShards<'a, T, W> {
    first: i32,
    keys: &'a W,
    table: PhantomData<T>,
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
        push_shards_as_parent::<T, DB>(out.reborrow())?;
        self.keys.walk_ast(out.reborrow())?;
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

no_query_id! { Lock<T, W> Sum<T, W> Write<T, W, A> EmptyShards<T, W> RemoveShards<T, W> }

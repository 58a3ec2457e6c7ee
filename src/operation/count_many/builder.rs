//! Counts on many rows as they are asked for.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::query_builder::QueryFragment;

use crate::backend::BackendOf;
use crate::connection::{Blocking, Link, now};
use crate::engine::KeyedTable;
use crate::model::{ShardedColumn, ShardedTable};
use crate::operation::row_counter::IntegerField;
use crate::operation::update::NoInsert;
use crate::policy::RetryPolicy;

use super::missing::{InsertMissing, OrInsertEach};

/// Begins to count on many rows of one field, each with its own amount, by their keys.
///
/// ```
/// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
/// # use schema::videos::{self, dsl::{id, videos as all, views}};
/// # use diesel::prelude::*;
/// # #[derive(diesel_sharded::ShardedField)]
/// # #[diesel(table_name = videos)]
/// # struct Video { id: i64, #[sharded] views: i64 }
/// # fn main() -> QueryResult<()> {
/// # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
/// # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, views BIGINT NOT NULL)").execute(conn)?;
/// # diesel::insert_into(all).values([(id.eq(7), views.eq(100)), (id.eq(8), views.eq(0))]).execute(conn)?;
/// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
/// use diesel_sharded::count_many;
/// use diesel_sharded::prelude::*;
///
/// let counted = count_many(views, [(7, 3), (8, -1), (7, 1), (9, 5)]).run(conn)?;
/// assert_eq!(counted.rows, 2);
/// assert_eq!(counted.missing, [9]); // no such row
///
/// let new = |key: &i64| (id.eq(*key), views.eq(0));
/// let counted = count_many(views, [(7, 1), (9, 5)]).or_insert(new).run(conn)?;
/// assert_eq!(counted.rows, 2);
/// let totals = all.order(id).select(views.total()).load::<i64>(conn)?;
/// assert_eq!(totals, [105, -1, 5]);
/// # Ok(())
/// # }
/// ```
///
/// # Statements
///
/// One transaction, which is retried after a conflict. Amounts of one key are added up, and the keys are sorted; each 100 of them take one
/// statement:
///
/// ```sql
/// BEGIN;                                                     -- READ COMMITTED; SQLite: BEGIN IMMEDIATE
/// -- PostgreSQL
/// WITH "sharded_batch" ("id", "shard", "views") AS (VALUES ($1, $2, $3), …)
/// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + "sharded_batch"."views") FROM "sharded_batch"
/// WHERE "videos"."id" = "sharded_batch"."id" AND "videos"."shard" = "sharded_batch"."shard";
/// -- MySQL, SQLite
/// UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + CASE WHEN (`videos`.`id` = ?) THEN ? … END)
/// WHERE `videos`.`id` IN (?, …) AND `videos`.`shard` = ?;
/// COMMIT
/// ```
///
/// If a shard is missing, the transaction begins again, creates the missing shards, and looks for rows that are not there.
///
/// # Effect on the totals
/// Each total changes by the sum of its key's amounts, all in one commit, or none does.
///
/// # Result
/// [`CountedMany`]: the number of rows counted, and the keys that have no row. With [`or_insert`](CountMany::or_insert) none is
/// missing.
///
/// # Inside a transaction
/// The counts are part of the caller's transaction, in a savepoint, and hold the locks of their shards until it ends. Nothing is
/// retried.
///
/// # Errors
/// As [`update`](crate::update())'s, and [`Overflow`](crate::Error::Overflow) if the amounts of a key do not add up to an `i64`.
pub fn count_many<C, I>(_column: C, amounts: I) -> CountMany<C>
where
    C: ShardedColumn<Table: ShardedTable<Key: Ord>>,
    I: IntoIterator<Item = (<C::Table as ShardedTable>::Key, i64)>,
{
    CountMany::of(amounts)
}

/// Counts on many rows; made by [`count_many`].
#[must_use = "nothing is counted until it is `.run(conn)`"]
pub struct CountMany<C: ShardedColumn, Ins = NoInsert, Run = Blocking> {
    /// In the order of the keys.
    pub(super) amounts: Vec<(<C::Table as ShardedTable>::Key, i128)>,
    pub(super) insert: Ins,
    pub(super) retry: Option<RetryPolicy>,
    run: PhantomData<fn() -> Run>,
}

impl<C: ShardedColumn, Run> CountMany<C, NoInsert, Run> {
    fn of(
        amounts: impl IntoIterator<Item = (<C::Table as ShardedTable>::Key, i64)>,
    ) -> CountMany<C, NoInsert, Run>
    where
        <C::Table as ShardedTable>::Key: Ord,
    {
        let mut sums = BTreeMap::new();
        for (key, n) in amounts {
            *sums.entry(key).or_insert(0) += i128::from(n);
        }
        CountMany {
            amounts: sums.into_iter().collect(),
            insert: NoInsert,
            retry: None,
            run: PhantomData,
        }
    }

    /// Inserts the row that `row_of` makes for each key that has none, in the same transaction, and counts on it. Its own value of the
    /// field is the base, 0 if it has none.
    ///
    /// As with [`or_insert`](crate::operation::UpdateStatement::or_insert) of an update, callers that race insert one row, and lose no
    /// count.
    pub fn or_insert<F, I>(self, row_of: F) -> CountMany<C, OrInsertEach<F, I>, Run>
    where
        F: Fn(&<C::Table as ShardedTable>::Key) -> I,
        I: Insertable<C::Table>,
    {
        CountMany {
            amounts: self.amounts,
            insert: OrInsertEach::new(row_of),
            retry: self.retry,
            run: PhantomData,
        }
    }
}

impl<C: ShardedColumn, Ins, Run> CountMany<C, Ins, Run> {
    /// Retries by `policy` instead of the [process-wide](RetryPolicy::global) one.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }
}

impl<C: ShardedColumn, Ins> CountMany<C, Ins> {
    /// Counts; see [`count_many`].
    ///
    /// # Errors
    /// As there. No total was changed then.
    pub fn run<Conn, DB>(self, conn: &mut Conn) -> QueryResult<CountedMany<C::Table>>
    where
        C: IntegerField<DB>,
        C::Table: KeyedTable<DB> + ShardedTable<Key: Ord, KeyValues: QueryFragment<DB>>,
        Ins: InsertMissing<C::Table, DB>,
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        now(self.count(&mut Link::blocking(conn)))
    }
}

impl<C, Ins, Run> fmt::Debug for CountMany<C, Ins, Run>
where
    C: ShardedColumn,
    <C::Table as ShardedTable>::Key: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountMany")
            .field("column", &C::NAME)
            .field("amounts", &self.amounts)
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}

/// The result of a [`count_many`].
#[non_exhaustive]
#[must_use = "keys may be missing"]
pub struct CountedMany<T: ShardedTable> {
    /// How many keys have a row that was counted on.
    pub rows: usize,
    /// The keys that have no row, in their order. Nothing was counted for them.
    pub missing: Vec<T::Key>,
}

impl<T: ShardedTable> CountedMany<T> {
    pub(super) fn nothing() -> Self {
        CountedMany {
            rows: 0,
            missing: vec![],
        }
    }
}

impl<T: ShardedTable<Key: fmt::Debug>> fmt::Debug for CountedMany<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountedMany")
            .field("rows", &self.rows)
            .field("missing", &self.missing)
            .finish()
    }
}

/// Counts on many rows, awaited.
#[cfg(feature = "async")]
pub mod asynchronous {
    use diesel::query_builder::QueryFragment;
    use diesel::result::QueryResult;
    use diesel_async::AsyncConnection;

    use super::super::missing::InsertMissing;
    use super::{CountMany, CountedMany};
    use crate::backend::BackendOf;
    use crate::connection::{Async, BoxFuture, Link};
    use crate::engine::KeyedTable;
    use crate::model::{ShardedColumn, ShardedTable};
    use crate::operation::row_counter::IntegerField;
    use crate::operation::update::NoInsert;

    /// Counts on many rows on a connection of `diesel_async`; see [`count_many`](crate::count_many()).
    pub fn count_many<C, I>(_column: C, amounts: I) -> CountMany<C, NoInsert, Async>
    where
        C: ShardedColumn<Table: ShardedTable<Key: Ord>>,
        I: IntoIterator<Item = (<C::Table as ShardedTable>::Key, i64)>,
    {
        CountMany::of(amounts)
    }

    impl<C: ShardedColumn, Ins> CountMany<C, Ins, Async> {
        /// Counts; see [`count_many`](crate::count_many()).
        ///
        /// # Errors
        /// As there. No total was changed then.
        pub fn run<'c, Conn, DB>(
            self,
            conn: &'c mut Conn,
        ) -> BoxFuture<'c, QueryResult<CountedMany<C::Table>>>
        where
            C: IntegerField<DB> + Send + Sync + 'c,
            C::Table: KeyedTable<DB> + ShardedTable<Key: Ord, KeyValues: QueryFragment<DB> + Send>,
            Ins: InsertMissing<C::Table, DB, Statement: Send> + Send + Sync + 'c,
            Conn: AsyncConnection<Backend = DB>,
            DB: BackendOf<Conn>,
        {
            Box::pin(async move { self.count(&mut Link::awaited(conn)).await })
        }
    }
}

//! Folds as they are asked for, and their results.

use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;

use diesel::connection::LoadConnection;
use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};

use crate::backend::BackendOf;
use crate::connection::{Blocking, Link, now};
use crate::counting::update::UpdateSource;
use crate::engine::{KEYS_IN_A_STATEMENT, KeyedTable, Moved, zeros};
use crate::model::{Amount, ShardedColumn, ShardedTable, ShardsColumn, shows};
use crate::policy::RetryPolicy;
use crate::unfit::Unfit;

/// Begins a fold: the values of shards move into the base, so that the plain column, its index and readers who know nothing of
/// shards are nearly fresh. No reader ever sees a total change.
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
/// # diesel::insert_into(all).values((id.eq(7), views.eq(100))).execute(conn)?;
/// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
/// use diesel_sharded::operation::Amount;
/// use diesel_sharded::{fold, update};
///
/// update(all.find(7)).set(views.eq(views + 5)).execute(conn)?;
/// // One row, rows by any filter, or the whole table.
/// let folded = fold(all.find(7)).run(conn)?;
/// assert_eq!((folded.parents, folded.moved(views)), (1, Amount::Integer(5)));
/// assert_eq!(all.find(7).select(views).first::<i64>(conn)?, 105);
/// # Ok(())
/// # }
/// ```
///
/// # Statements
///
/// On SQLite a fold first checks that the triggers of the [`ShardsTable`](crate::ShardsTable) exist, by one read of
/// `sqlite_master`. A rebuild of the parent's table drops them, and the fold then fails with
/// [`MissingTriggers`](crate::Error::MissingTriggers).
///
/// The parents that have something to fold are found in key order, [`batch`](Fold::batch) by batch. A fold of the whole table
/// finds them in the shards table, so its cost depends only on the rows that were counted on. A fold with a filter reads all
/// parents that match. They are found on the primary, even behind a proxy that sends plain reads to a replica. Each batch is one
/// transaction:
///
/// ```sql
/// -- the whole table
/// SELECT "videos"."id" FROM (SELECT DISTINCT "videos"."id" FROM "videos_shards" AS "videos"
///     WHERE ("videos"."views" <> 0 OR "videos"."shard" >= $1) AND "videos"."id" > $2
///     ORDER BY "videos"."id" LIMIT $3) AS "videos" ORDER BY "videos"."id";
/// -- by a filter
/// SELECT "videos"."id" FROM (SELECT "videos"."id" FROM "videos" WHERE …) AS "videos"
/// WHERE (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id"
///        AND ("videos_shards"."views" <> 0 OR "videos_shards"."shard" >= $1) LIMIT 1) IS NOT NULL
///   AND "videos"."id" > $2
/// ORDER BY "videos"."id" LIMIT $3;
///
/// BEGIN;                                                     -- READ COMMITTED; SQLite: BEGIN IMMEDIATE, and no locks
/// SET LOCAL lock_timeout = '200ms';                          -- PostgreSQL
/// SELECT "videos"."id" FROM "videos" WHERE … ORDER BY "videos"."id" FOR NO KEY UPDATE NOWAIT;
/// SELECT CASE WHEN "videos"."views" <> 0 THEN 1 ELSE 0 END FROM "videos_shards" AS "videos" WHERE …
///     ORDER BY "videos"."id", "videos"."shard" FOR NO KEY UPDATE NOWAIT;
/// SELECT base || ' ' || sum of shards FROM "videos" WHERE …;                             -- as texts; MySQL: CONCAT(…) … FOR UPDATE
/// UPDATE "videos" SET "views" = total WHERE … AND EXISTS (…);                            -- of parents with shards that are not 0
/// -- MySQL: SET `views` = (`views` + CASE WHEN (`videos`.`id` = ?) THEN 5 … ELSE 0 END) WHERE …, by the sums that were read
/// UPDATE "videos_shards" AS "videos" SET "views" = 0 WHERE … AND ("videos"."views" <> 0);
/// SELECT base || ' ' || sum of shards FROM "videos" WHERE …;                             -- also before the shards are emptied
/// DELETE FROM "videos_shards" AS "videos" WHERE … AND "videos"."shard" >= $1 AND "videos"."views" = 0;
///                                                                                        -- MySQL: DELETE `videos` FROM …
/// COMMIT
/// ```
///
/// Only parents that the first lock returns are folded, because a parent that was deleted meanwhile may be inserted again under
/// its key. Bases and sums of shards are read before and after, and compared. If they differ (a column that rounds or cuts, an
/// update that row security or a trigger suppresses), the move is rolled back, and the parent is listed in
/// [`unfit`](Folded::unfit) with the reason.
///
/// Counts on the shards of a batch wait for these few statements and no longer, because a batch waits for no row. (On PostgreSQL its update
/// of the bases waits for rows that refer to them, 200 ms at most, if a unique index contains a sharded field.) If a lock
/// cannot be acquired at once, the parents are tried one by one. On PostgreSQL one parent waits for its locks, 200 ms at most for
/// each (`SET LOCAL lock_timeout`, which ends with the fold's transaction), so that a row is folded under any number of writers.
/// The same bound holds for a table that others may not write meanwhile, as during `CREATE INDEX`. For a table that nobody may read, the
/// search for work waits, without a lock and without a bound of its own.
/// A parent that is busy for longer is folded shard by shard, without a wait, with as many attempts as the policy allows; once a shard
/// was blocked for all of them, each other one has a single attempt. Shards that others hold all the time keep their values, and
/// their parent is listed in [`busy`](Folded::busy). (PostgreSQL logs each
/// lock that is not acquired as an error.)
///
/// A fold that is killed at any statement loses and doubles nothing: the database rolls the open batch back, and committed
/// batches are complete. Several processes may fold at once: the parent's row lock admits one at a time, and the next finds
/// nothing left to fold. On PostgreSQL the parents of a batch are tried one by one if a count creates a shard meanwhile; elsewhere
/// the foreign key that [`ShardsTable`](crate::ShardsTable) creates lets none. All this relies on `NOWAIT`, which MySQL has from
/// 8.0 on and MariaDB from 10.3.
///
/// Shards numbered beyond the [wished number](crate::shard_counts) are removed when they are empty; a count that was
/// waiting for one creates it again.
///
/// # Effect on the total
/// None. A reader sees a parent before or after its batch, never in between. Two ways of reading do not see a single instant,
/// with or without folds:
///
/// - A statement that takes a lock *and* reads a total (`.for_update()`, an `UPDATE … WHERE` on a total) may wait for a fold and
///   then pair the new base with the old shards, on PostgreSQL and MySQL. Lock first, and read the total in the next statement.
/// - On MySQL, a transaction in its default isolation, REPEATABLE READ, reads old rows beside those that it wrote itself. Suppose
///   that it reads, then counts on a shard that was folded meanwhile, and reads the total again. That total is a value that never
///   existed, although the committed data is right. With READ COMMITTED
///   ([`Transaction::isolation`](crate::retry::Transaction::isolation)) the total is right too.
///
/// # Inside a transaction
/// The fold is part of the caller's transaction, with savepoints in place of transactions. It waits for its locks and holds them until that
/// transaction ends: the rows and their shards, so that the bases may be corrected behind it. On PostgreSQL it locks the rows
/// `FOR UPDATE`, which waits as long as rows that refer to them are inserted without a gap. The isolation level is the caller's: above `READ COMMITTED` the fold of a busy counter may end in a
/// serialization failure on PostgreSQL. A transaction that counts and then writes the parent's row itself may deadlock with a
/// fold: retry it.
pub fn fold<Source, Kind>(source: Source) -> Fold<Source::Query>
where
    Source: UpdateSource<Kind>,
    Source::Query: IntoUpdateTarget<Table: ShardedTable>,
{
    Fold::of(source)
}

/// A fold that has not run yet; made by [`fold`](fold()).
#[must_use = "a fold moves nothing until it is `.run(conn)`"]
pub struct Fold<Q: IntoUpdateTarget<Table: ShardedTable>, Run = Blocking> {
    pub(super) query: Q,
    pub(super) batch: usize,
    pub(super) per_second: Option<u32>,
    pub(super) keep_shards: Option<u16>,
    pub(super) cold_below: Option<u16>,
    pub(super) after: Option<Key<Q>>,
    pub(super) retry: Option<RetryPolicy>,
    pub(super) run: PhantomData<fn() -> Run>,
}

type Key<Q> = <<Q as diesel::associations::HasTable>::Table as ShardedTable>::Key;

impl<Q: IntoUpdateTarget<Table: ShardedTable>, Run> Fold<Q, Run> {
    /// A fold of the rows that `source` names.
    pub(crate) fn of<Source, Kind>(source: Source) -> Self
    where
        Source: UpdateSource<Kind, Query = Q>,
    {
        Fold {
            query: source.into_query(),
            batch: KEYS_IN_A_STATEMENT,
            per_second: None,
            keep_shards: None,
            cold_below: None,
            after: None,
            retry: None,
            run: PhantomData,
        }
    }

    /// The same fold once more.
    pub(super) fn again(&self) -> Self
    where
        Q: Clone,
    {
        Fold {
            query: self.query.clone(),
            after: self.after.clone(),
            retry: self.retry.clone(),
            ..*self
        }
    }

    /// Sets how many parents are folded at once: 100 by default, and at most. With fewer, counts on them wait less.
    pub fn batch(mut self, parents: usize) -> Self {
        self.batch = parents.clamp(1, KEYS_IN_A_STATEMENT);
        self
    }

    /// Folds no more parents than this in any second, by smaller batches and pauses between them. Parents that a slow batch missed are
    /// made up for, a tenth of a second's at most. It has no effect inside a caller's transaction, which would only hold its locks
    /// longer. By default, and with zero, there is no limit.
    pub fn at_most_per_second(mut self, parents: u32) -> Self {
        self.per_second = Some(parents);
        self
    }

    /// Keeps empty shards numbered below this, instead of below the [number](crate::shard_counts) that the database keeps
    /// (inside a transaction: the one known to this process). 0 removes every shard that it folded.
    pub fn keep_shards(mut self, number: u16) -> Self {
        self.keep_shards = Some(number);
        self
    }

    /// Also removes every shard of a cold row: a row of which fewer shards than this had something to move. With 2, a row on
    /// which one writer at a time counts loses its shards, and its next count creates one. A hot row keeps its shards until it is
    /// folded once without counts. With 0, the default outside a [`Folder`](crate::operation::Folder),
    /// [`keep_shards`](Self::keep_shards) alone decides.
    ///
    /// With any other number the fold looks at all shards, even empty ones.
    pub fn cold_below(mut self, shards: u16) -> Self {
        self.cold_below = Some(shards);
        self
    }

    /// Folds only parents whose keys come after this one: the [`last`](Folded::last) of a fold that was interrupted, which
    /// may be none.
    pub fn after(mut self, key: impl Into<Option<Key<Q>>>) -> Self {
        self.after = key.into();
        self
    }

    /// Retries each batch by `policy` instead of the [process-wide](RetryPolicy::global) one.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }
}

impl<Q: IntoUpdateTarget<Table: ShardedTable>> Fold<Q> {
    /// Folds to the end.
    ///
    /// # Errors
    /// As [`update`](crate::update())'s. Batches before the error stay folded, and no total has changed. Another fold continues
    /// with the rest. A parent whose base does not accept its total is no error, but is listed in [`unfit`](Folded::unfit).
    pub fn run<Conn, DB, T, W>(self, conn: &mut Conn) -> QueryResult<Folded<T>>
    where
        Q: IntoUpdateTarget<Table = T, WhereClause = W>,
        T: KeyedTable<DB>,
        T::PrimaryKey: Expression,
        W: QueryFragment<DB> + QueryId,
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        self.run_with(conn, |_| ControlFlow::Continue(()))
    }

    /// Folds to the end, or until `progress` breaks off. `progress` is called after every batch with the result so far.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with<Conn, DB, T, W>(
        self,
        conn: &mut Conn,
        mut progress: impl FnMut(&Folded<T>) -> ControlFlow<()>,
    ) -> QueryResult<Folded<T>>
    where
        Q: IntoUpdateTarget<Table = T, WhereClause = W>,
        T: KeyedTable<DB>,
        T::PrimaryKey: Expression,
        W: QueryFragment<DB> + QueryId,
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        now(self.folded(&mut Link::blocking(conn), &mut progress))
    }
}

/// Folds that are awaited.
#[cfg(feature = "async")]
pub mod asynchronous {
    use diesel_async::AsyncConnection;

    use super::*;
    use crate::connection::{Async, BoxFuture};

    /// Begins a fold on a connection of `diesel_async`; see [`fold`](crate::fold()).
    pub fn fold<Source, Kind>(source: Source) -> Fold<Source::Query, Async>
    where
        Source: UpdateSource<Kind>,
        Source::Query: IntoUpdateTarget<Table: ShardedTable>,
    {
        Fold::of(source)
    }

    impl<Q, T, W> Fold<Q, Async>
    where
        Q: IntoUpdateTarget<Table = T, WhereClause = W>,
        T: ShardedTable,
    {
        /// Folds to the end.
        ///
        /// # Errors
        /// As [`Fold::run`](crate::operation::Fold::run)'s.
        pub fn run<'c, Conn, DB>(self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<Folded<T>>>
        where
            Q: Send + 'c,
            T: KeyedTable<DB>,
            T::PrimaryKey: Expression,
            W: QueryFragment<DB> + QueryId + Send + Sync + 'c,
            Conn: AsyncConnection<Backend = DB>,
            DB: BackendOf<Conn>,
        {
            self.run_with(conn, |_| ControlFlow::Continue(()))
        }

        /// Folds to the end, or until `progress` breaks off. `progress` is called after every batch with the result so far. If
        /// the future is dropped, all work that was reported stays complete.
        ///
        /// # Errors
        /// As [`run`](Self::run)'s.
        pub fn run_with<'c, Conn, DB>(
            self,
            conn: &'c mut Conn,
            mut progress: impl FnMut(&Folded<T>) -> ControlFlow<()> + Send + 'c,
        ) -> BoxFuture<'c, QueryResult<Folded<T>>>
        where
            Q: Send + 'c,
            T: KeyedTable<DB>,
            T::PrimaryKey: Expression,
            W: QueryFragment<DB> + QueryId + Send + Sync + 'c,
            Conn: AsyncConnection<Backend = DB>,
            DB: BackendOf<Conn>,
        {
            Box::pin(async move { self.folded(&mut Link::awaited(conn), &mut progress).await })
        }
    }
}

/// The result of a fold of `T`: counts, amounts, and the parents that it left, by their keys.
#[non_exhaustive]
pub struct Folded<T, K = <T as ShardedTable>::Key> {
    /// How many parents had something to move.
    pub parents: u64,
    /// How many empty shards were removed.
    pub shards_removed: u64,
    /// The key of the last parent that was examined, for [`after`](crate::operation::Fold::after).
    pub last: Option<K>,
    /// Whether the fold reached the end of the rows.
    pub finished: bool,
    /// The keys of parents whose bases do not accept the values of their shards, and why: a total out of the column's range, a
    /// scale that is too small, an update that row security or a trigger suppresses. Their totals are as they were.
    pub unfit: Vec<(K, Unfit)>,
    /// The keys of parents with shards that others had locked all the time. Fold these parents again later.
    pub busy: Vec<K>,
    /// How many parents were examined.
    pub(crate) looked_at: u64,
    /// For each of the fields.
    pub(crate) moved: Vec<Amount>,
    table: PhantomData<fn() -> T>,
}

impl<T, K> Folded<T, K> {
    pub(crate) fn nothing(fields: &[ShardsColumn], last: Option<K>) -> Self {
        Folded {
            parents: 0,
            shards_removed: 0,
            last,
            finished: false,
            unfit: vec![],
            busy: vec![],
            looked_at: 0,
            moved: zeros(fields),
            table: PhantomData,
        }
    }

    /// The bases of these parents do not accept the values of their shards.
    pub(super) fn refuse(&mut self, keys: Vec<K>, reason: &Unfit) {
        let unfit = keys.into_iter().map(|key| (key, reason.clone()));
        self.unfit.extend(unfit);
    }

    pub(super) fn add(&mut self, moved: &Moved, removed: usize) {
        self.parents += moved.parents as u64;
        self.shards_removed += removed as u64;
        for (sum, moved) in self.moved.iter_mut().zip(&moved.sums) {
            *sum += moved;
        }
    }
}

impl<T: ShardedTable> Folded<T> {
    /// How much was moved from the shards of a field to its base, over all parents.
    pub fn moved<C: ShardedColumn<Table = T>>(&self, _field: C) -> Amount {
        let fields = T::FIELDS.iter().zip(&self.moved);
        fields
            .filter(|(field, _)| field.name == C::NAME)
            .map(|(_, amount)| amount.clone())
            .next()
            .unwrap_or(Amount::Integer(0)) // every sharded column is a field
    }
}

shows!([T, K: fmt::Debug] Folded<T, K>: |self| Folded {
    parents: self.parents, shards_removed: self.shards_removed, last: self.last, finished: self.finished, unfit: self.unfit,
    busy: self.busy, moved: self.moved
} finish);

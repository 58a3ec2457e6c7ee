//! `fold(..)`: moves shards into the base, under full write load, without changing any total.

use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use diesel::connection::LoadConnection;
use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, IntoUpdateTarget, Query, QueryFragment, QueryId};
use diesel::result::Error as DieselError;
use diesel::sql_types::{BigInt, Integer};

use crate::backend::{BackendOf, Dialect, ShardedBackend};
use crate::conflict::{Conflict, Failure};
use crate::connection::{Blocking, Link, LoadIo, in_any_transaction, now};
use crate::engine::{
    Held, KEYS_IN_A_STATEMENT, KeyedTable, RetryLoop, Shards, TRIES_TO_LOCK, explain, holding,
    retry_loop, shards_of, zeros,
};
use crate::error::Error;
use crate::model::{Amount, SHARD, ShardedColumn, ShardedTable};
use crate::operation::shards_table::check_triggers;
use crate::operation::update::UpdateSource;
use crate::policy::RetryPolicy;
use crate::query_builder::{
    KeysAre, push_bind, push_from_shards, push_key, push_select_keys_as_parent, push_shards_column,
};
use crate::unfit::Unfit;
use crate::{observe, shard_counts};

/// Begins a fold: the values of shards move into the base, so that the plain column, its index and readers who know nothing
/// of shards are nearly fresh. No total changes, not for one reader at one instant.
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
/// # What it sends
///
/// On SQLite it first looks whether the triggers of the [`ShardsTable`](crate::ShardsTable) are there, which a rebuild of the
/// parent's table drops: one read of `sqlite_master`, and [`MissingTriggers`](crate::Error::MissingTriggers) if they are not.
///
/// The parents that have something to fold are found in key order, [`batch`](Fold::batch) by batch. Each batch is one
/// transaction:
///
/// ```sql
/// SELECT "videos"."id" FROM (SELECT "videos"."id" FROM "videos" WHERE …) AS "videos"
/// WHERE (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id"
///        AND ("videos_shards"."views" <> 0 OR "videos_shards"."shard" >= $1) LIMIT 1) IS NOT NULL
///   AND "videos"."id" > $2
/// ORDER BY "videos"."id" LIMIT $3;
///
/// BEGIN;                                                     -- READ COMMITTED; SQLite: BEGIN IMMEDIATE, and no locks
/// SELECT "videos"."id" FROM "videos" WHERE … ORDER BY "videos"."id" FOR UPDATE NOWAIT;
/// SELECT CASE WHEN "videos"."views" <> 0 THEN 1 ELSE 0 END FROM "videos_shards" AS "videos" WHERE …
///     ORDER BY "videos"."id", "videos"."shard" FOR UPDATE NOWAIT;
/// SELECT base || ' ' || sum of shards FROM "videos" WHERE …;                             -- as texts; MySQL: CONCAT(…) … FOR UPDATE
/// UPDATE "videos" SET "views" = total WHERE … AND EXISTS (…);                            -- of parents with shards that are not 0
/// UPDATE "videos_shards" AS "videos" SET "views" = 0 WHERE … AND ("videos"."views" <> 0);
/// SELECT base || ' ' || sum of shards FROM "videos" WHERE …;                             -- also before the shards are emptied
/// DELETE FROM "videos_shards" AS "videos" WHERE … AND "videos"."shard" >= $1 AND "videos"."views" = 0;
///                                                                                        -- MySQL: DELETE `videos` FROM …
/// COMMIT
/// ```
///
/// Only parents that the first lock gives back go on: one that was deleted meanwhile may come back under its key. Bases and sums
/// of shards are read before and after, and compared. Whatever differs (a column that rounds or cuts, an update that row
/// security or a trigger suppresses) is rolled back, and the parent is listed in [`unfit`](Folded::unfit) with the reason.
///
/// Counts on the shards of a batch wait for these few statements, and nobody for longer: the fold waits for no lock. If one
/// is not had at once, the parents are tried one by one, and one that is busy shard by shard, again and again as the
/// policy has it; what others hold all the time is left on its shards, and named in [`busy`](Folded::busy). (PostgreSQL logs each
/// lock that is not had as an error. Inside a caller's transaction, which cannot try again, the fold waits for a busy shard.)
///
/// Nothing is lost or doubled when it is killed at any statement: the database takes the open batch back, and what was
/// committed is complete. Several processes may fold at once: the parent's row lock lets one at a time at a parent, and
/// the next finds nothing left. All this rests on the foreign key that [`ShardsTable`](crate::ShardsTable) creates, and on
/// `NOWAIT`, which MySQL has from 8.0 on and MariaDB from 10.3.
///
/// Shards numbered beyond the [wished number](crate::shard_counts) are removed when they are empty; a count that was
/// waiting for one creates it again.
///
/// # Effect on the total
/// None. A reader sees a parent before or after its batch, never in between. Two ways of reading do not read from one
/// instant, folds or not, and meet a fold so:
///
/// - What takes a lock and reads a total in the *same* statement (`.for_update()`, an `UPDATE … WHERE` on a total) may wait for
///   a fold and then pair the new base with the old shards, on PostgreSQL and MySQL. Lock first, read the total in the
///   next statement.
/// - On MySQL, a transaction in its default isolation, REPEATABLE READ, reads old rows beside those that it wrote itself. One
///   that read, then counted on a shard that was folded meanwhile, and reads the total again, reads one that never was.
///   What it commits is right. READ COMMITTED ([`Transaction::isolation`](crate::retry::Transaction::isolation)) reads right too.
///
/// # Inside a transaction
/// It is part of the caller's, with savepoints in place of transactions, and holds its locks until the caller's ends. The
/// isolation level is the caller's: above `READ COMMITTED` the fold of a busy counter may end in a serialization failure on
/// PostgreSQL. A transaction that counts and then writes the parent's row itself may deadlock with a fold: try it again.
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
    query: Q,
    batch: usize,
    per_second: Option<f64>,
    keep_shards: Option<u16>,
    after: Option<Key<Q>>,
    retry: Option<RetryPolicy>,
    run: PhantomData<fn() -> Run>,
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
            after: None,
            retry: None,
            run: PhantomData,
        }
    }

    /// How many parents are folded at once; 100 by default, and at most. Fewer make counts on them wait shorter.
    pub fn batch(mut self, parents: usize) -> Self {
        self.batch = parents.clamp(1, KEYS_IN_A_STATEMENT);
        self
    }

    /// Folds no more parents than this in a second, by smaller batches and a sleep after each. Without effect inside a
    /// caller's transaction, whose locks would be held the longer. No limit by default, nor by zero.
    pub fn at_most_per_second(mut self, parents: u32) -> Self {
        self.per_second = (parents > 0).then_some(f64::from(parents));
        self
    }

    /// Keeps empty shards numbered below this, instead of below the [number](crate::shard_counts) that the database keeps
    /// (inside a transaction: the one known to this process). 0 removes every shard that it folded.
    pub fn keep_shards(mut self, number: u16) -> Self {
        self.keep_shards = Some(number);
        self
    }

    /// Folds only parents whose keys come after this one: the [`last`](Folded::last) of a fold that was interrupted, which
    /// may be none.
    pub fn after(mut self, key: impl Into<Option<Key<Q>>>) -> Self {
        self.after = key.into();
        self
    }

    /// Tries each batch again by `policy` instead of the [process-wide](RetryPolicy::global) one.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }
}

impl<Q: IntoUpdateTarget<Table: ShardedTable>> Fold<Q> {
    /// Folds to the end.
    ///
    /// # Errors
    /// As [`update`](crate::update())'s. What was folded before the error stays folded, and no total has changed; folding again
    /// goes on with what is left. A parent whose base does not take its total is no error, but is listed in
    /// [`unfit`](Folded::unfit).
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

    /// Folds to the end, or until `progress` breaks off; it is called after every batch with what was folded so far.
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

impl<Q: IntoUpdateTarget<Table: ShardedTable>, Run> Fold<Q, Run> {
    pub(crate) async fn folded<DB, T, W, M, Conn>(
        self,
        link: &mut Link<'_, M, Conn>,
        progress: &mut impl FnMut(&Folded<T>) -> ControlFlow<()>,
    ) -> QueryResult<Folded<T>>
    where
        Q: IntoUpdateTarget<Table = T, WhereClause = W>,
        T: KeyedTable<DB>,
        T::PrimaryKey: Expression,
        W: QueryFragment<DB> + QueryId,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let dialect = link.dialect();
        let retry = self.retry.unwrap_or_default();
        if dialect.has_triggers() {
            let looking = RetryLoop::read(link, retry.clone())?;
            retry_loop!(link, looking, check_triggers::<T, DB, _, _>(link).await)?;
        }
        let filter = self.query.into_update_target().where_clause;
        let keep = match self.keep_shards {
            Some(number) => number,
            None => shard_counts::wished::<T, _, _>(link).await?,
        };
        let inside = in_any_transaction(link).await?;
        let pace = self.per_second.filter(|_| !inside);
        let batch = pace.map_or(self.batch, |rate| self.batch.min(rate as usize));
        let folding = Folding {
            keep,
            retry: retry.clone(),
            dialect,
            inside,
        };
        let mut due = Instant::now();
        let mut folded = Folded::nothing(self.after);
        loop {
            let after = folded.last.as_ref().map(T::key_after);
            let first_to_remove = i32::from(keep);
            let limit = batch as i64;
            let reading = RetryLoop::read(link, retry.clone())?;
            let keys = retry_loop!(link, reading, {
                let pick = PickFoldable::<T, W> {
                    filter: &filter,
                    after: after.as_ref(),
                    first_to_remove,
                    limit,
                };
                T::load_keys(link, pick).await
            });
            let keys = keys.map_err(|error| explain::<T, DB>(&link.backend(), error))?;
            folded.finished = keys.len() < batch;
            if let Some(last) = keys.last().cloned() {
                let parents = keys.len();
                let told = observe::fold(dialect, T::SHARDS_TABLE, parents);
                let moving = folding.fold::<T, DB, _, _>(keys, &mut folded, link);
                told.within(moving).await?;
                folded.last = Some(last);
                if progress(&folded).is_break() {
                    return Ok(folded);
                }
                if let Some(per_second) = pace {
                    due = due.max(Instant::now())
                        + Duration::from_secs_f64(parents as f64 / per_second);
                }
            }
            if folded.finished {
                return Ok(folded);
            }
            M::sleep(&retry, due.saturating_duration_since(Instant::now())).await;
        }
    }
}

/// What holds for every batch of a fold.
struct Folding {
    keep: u16,
    retry: RetryPolicy,
    dialect: Dialect,
    /// In a caller's transaction, which cannot try again later.
    inside: bool,
}

const AT_ONCE: Shards = Shards {
    only: None,
    at_once: true,
};

/// Why a fold of several parents, or of one, did not come about.
enum Trouble {
    /// Somebody holds a lock, or was in the way.
    Blocked(DieselError),
    /// A base does not take what its shards hold.
    Unfit(Unfit),
    Other(DieselError),
}

impl Folding {
    /// Folds parents together if all their locks can be had at once; else one by one, and what is busy shard by shard, so
    /// that nobody waits for a fold that waits.
    async fn fold<T, DB, M, Conn>(
        &self,
        keys: Vec<T::Key>,
        folded: &mut Folded<T>,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<()>
    where
        T: KeyedTable<DB>,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let mut left = vec![(keys, 0)];
        while let Some((keys, tries)) = left.pop() {
            let named = KeysAre(keys.iter().cloned().map(T::key_is).collect());
            match self.fold_together::<T, DB, _, _>(&named, link).await {
                Ok((batch, not_locked)) => {
                    folded.add(batch);
                    for key in not_locked {
                        match tries + 1 {
                            TRIES_TO_LOCK => folded.unfit.push((key, Unfit::NotLocked)),
                            tries => left.push((vec![key], tries)),
                        }
                    }
                }
                Err(error) => match (self.trouble(error), keys.len()) {
                    (Trouble::Other(error), _) => return Err(error),
                    (_, 2..) => {
                        left.extend(keys.into_iter().rev().map(|key| (vec![key], tries)));
                    }
                    (Trouble::Unfit(reason), _) => {
                        let unfit = keys.into_iter().map(|key| (key, reason.clone()));
                        folded.unfit.extend(unfit);
                    }
                    (Trouble::Blocked(_), _) => {
                        self.fold_shard_by_shard::<T, DB, _, _>(keys, folded, link)
                            .await?;
                    }
                },
            }
        }
        Ok(())
    }

    async fn fold_together<T, DB, M, Conn>(
        &self,
        named: &KeysAre<T::KeyIs>,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<(Folded<T>, Vec<T::Key>)>
    where
        T: KeyedTable<DB>,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        // On SQLite there are no locks but that on the database.
        let (shards, retry) = match self.dialect.has_row_locks() {
            true => (AT_ONCE, RetryPolicy::never()),
            false => (Shards::ALL, self.retry.clone()),
        };
        self.fold_held::<T, DB, _, _>(named, shards, retry, link)
            .await
    }

    /// Each shard in a transaction of its own, which holds no lock while it waits for its turn to try again. One that does not
    /// fit is tried again as long as others change the base.
    async fn fold_shard_by_shard<T, DB, M, Conn>(
        &self,
        keys: Vec<T::Key>,
        folded: &mut Folded<T>,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<()>
    where
        T: KeyedTable<DB>,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let named = KeysAre(keys.iter().cloned().map(T::key_is).collect());
        let reading = RetryLoop::read(link, self.retry.clone())?;
        let shards = retry_loop!(link, reading, {
            shards_of::<T, DB, _, _>(link, &named).await
        });
        let mut left = shards.map_err(|error| explain::<T, DB>(&link.backend(), error))?;
        let mut parent = Folded::nothing(None);
        let (mut busy, mut tried) = (false, usize::MAX);
        let mut reason = None;
        while left.len() < tried {
            tried = left.len();
            let mut unfit = vec![];
            for shard in left {
                let shards = Shards {
                    only: Some(shard),
                    at_once: !self.inside,
                };
                let retry = self.retry.clone();
                match self
                    .fold_held::<T, DB, _, _>(&named, shards, retry, link)
                    .await
                {
                    Ok((batch, _)) => parent.add(batch),
                    Err(error) => match self.trouble(error) {
                        Trouble::Unfit(unfits) => {
                            unfit.push(shard);
                            reason = Some(unfits);
                        }
                        Trouble::Blocked(_) if !self.inside => busy = true,
                        Trouble::Blocked(error) | Trouble::Other(error) => return Err(error),
                    },
                }
            }
            left = unfit;
        }
        parent.parents = parent.parents.min(1);
        folded.add(parent);
        if let (false, Some(reason)) = (left.is_empty(), reason) {
            let unfit = keys.into_iter().map(|key| (key, reason.clone()));
            folded.unfit.extend(unfit);
        } else if busy {
            folded.busy.extend(keys);
        }
        Ok(())
    }

    /// Folds the parents whose locks can be acquired. The others that can be seen come back.
    async fn fold_held<T, DB, M, Conn>(
        &self,
        keys: &KeysAre<T::KeyIs>,
        shards: Shards,
        retry: RetryPolicy,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<(Folded<T>, Vec<T::Key>)>
    where
        T: KeyedTable<DB>,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let holding = holding(link, retry)?;
        let folded = retry_loop!(link, holding, {
            let held = Held::<T, DB>::lock(link, keys, shards).await?;
            let not_locked = held.not_locked(link, keys).await?;
            let moved = held.fold(link).await?;
            let removed = held.remove_shards(link, self.keep).await?;
            Ok((moved, removed, not_locked))
        });
        let (moved, removed, not_locked) =
            folded.map_err(|error| explain::<T, DB>(&link.backend(), error))?;
        observe::folded(self.dialect, T::SHARDS_TABLE, &moved, removed);
        let folded = Folded {
            parents: moved.parents as u64,
            moved: moved.sums,
            shards_removed: removed as u64,
            ..Folded::nothing(None)
        };
        Ok((folded, not_locked))
    }

    fn trouble(&self, error: DieselError) -> Trouble {
        if !self.dialect.has_row_locks() {
            return match Error::from(error) {
                Error::Overflow { .. } => Trouble::Unfit(Unfit::OutOfRange),
                Error::Unfit { reason, .. } => Trouble::Unfit(reason),
                error => Trouble::Other(error.into()),
            };
        }
        // Inside a caller's transaction: the lock was not had, and the savepoint took back what was.
        if self.dialect.classify(&error) == Failure::Conflict(Conflict::LockTimeout) {
            return Trouble::Blocked(error);
        }
        match Error::from(error) {
            error @ Error::ConflictPersisted { .. } => Trouble::Blocked(error.into()),
            Error::Overflow { .. } => Trouble::Unfit(Unfit::OutOfRange),
            Error::Unfit { reason, .. } => Trouble::Unfit(reason),
            error => Trouble::Other(error.into()),
        }
    }
}

/// What a fold has moved.
#[non_exhaustive]
pub struct Folded<T: ShardedTable> {
    /// How many parents had something to move.
    pub parents: u64,
    /// How many empty shards were removed.
    pub shards_removed: u64,
    /// The key of the last parent that was looked at, for [`after`](Fold::after).
    pub last: Option<T::Key>,
    /// Whether it came to the end of the rows.
    pub finished: bool,
    /// The keys of parents whose bases do not take what their shards hold, and why: a total out of the column's range, a scale
    /// that is too small, an update that row security or a trigger suppresses. Their totals are as they were.
    pub unfit: Vec<(T::Key, Unfit)>,
    /// The keys of parents some of whose shards others held all the time: fold these again later.
    pub busy: Vec<T::Key>,
    /// For each of `T::FIELDS`.
    moved: Vec<Amount>,
}

impl<T: ShardedTable> Folded<T> {
    fn nothing(last: Option<T::Key>) -> Self {
        Folded {
            parents: 0,
            shards_removed: 0,
            last,
            finished: false,
            unfit: vec![],
            busy: vec![],
            moved: zeros(T::FIELDS),
        }
    }

    /// How much was moved from the shards of a field to its base, over all parents.
    pub fn moved<C: ShardedColumn<Table = T>>(&self, _field: C) -> Amount {
        let fields = T::FIELDS.iter().zip(&self.moved);
        fields
            .filter(|(field, _)| field.name == C::NAME)
            .map(|(_, amount)| amount.clone())
            .next()
            .unwrap_or(Amount::Integer(0)) // every sharded column is a field
    }

    fn add(&mut self, batch: Self) {
        self.parents += batch.parents;
        self.shards_removed += batch.shards_removed;
        self.unfit.extend(batch.unfit);
        self.busy.extend(batch.busy);
        for (sum, moved) in self.moved.iter_mut().zip(&batch.moved) {
            *sum += moved;
        }
    }
}

impl<T: ShardedTable<Key: fmt::Debug>> fmt::Debug for Folded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folded")
            .field("parents", &self.parents)
            .field("shards_removed", &self.shards_removed)
            .field("last", &self.last)
            .field("finished", &self.finished)
            .field("unfit", &self.unfit)
            .field("busy", &self.busy)
            .field("moved", &self.moved)
            .finish()
    }
}

/// Finds parents that have something to fold; see [`fold`](fold()).
///
/// Not `EXISTS`: planners turn that into a join that reads the whole shards table for every batch.
struct PickFoldable<'a, T: ShardedTable, W> {
    filter: &'a W,
    after: Option<&'a T::KeyAfter>,
    first_to_remove: i32,
    limit: i64,
}

impl<T, W, DB> QueryFragment<DB> for PickFoldable<'_, T, W>
where
    DB: ShardedBackend,
    T: KeyedTable<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_select_keys_as_parent::<T, W, DB>(self.filter, out.reborrow())?;
        out.push_sql(" WHERE (SELECT 1");
        push_from_shards::<T, DB>(None, out.reborrow())?;
        out.push_sql(" AND (");
        for field in T::FIELDS {
            push_shards_column::<T, DB>(field.name, out.reborrow())?;
            out.push_sql(" <> 0 OR ");
        }
        push_shards_column::<T, DB>(SHARD, out.reborrow())?;
        out.push_sql(" >= ");
        push_bind::<Integer, i32, DB>(&self.first_to_remove, out.reborrow())?;
        out.push_sql(") LIMIT 1) IS NOT NULL");
        if let Some(after) = self.after {
            out.push_sql(" AND ");
            T::push_key_after(after, out.reborrow())?;
        }
        out.push_sql(" ORDER BY ");
        push_key::<T, DB>(out.reborrow())?;
        out.push_sql(" LIMIT ");
        push_bind::<BigInt, i64, DB>(&self.limit, out)
    }
}

impl<T: ShardedTable, W> Query for PickFoldable<'_, T, W> {
    type SqlType = <T::PrimaryKey as Expression>::SqlType;
}

/// Its text changes with `after`; one preparation a batch is little.
impl<T: ShardedTable, W> QueryId for PickFoldable<'_, T, W> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

/// Folds that are awaited.
#[cfg(feature = "async")]
pub mod asynchronous {
    use std::ops::ControlFlow;

    use diesel::expression::Expression;
    use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};
    use diesel::result::QueryResult;
    use diesel_async::AsyncConnection;

    use crate::backend::BackendOf;
    use crate::connection::{Async, BoxFuture, Link};
    use crate::engine::KeyedTable;
    use crate::model::ShardedTable;
    use crate::operation::fold::{Fold, Folded};
    use crate::operation::update::UpdateSource;

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

        /// Folds to the end, or until `progress` breaks off; it is called after every batch with what was folded so far. A future
        /// that is dropped leaves complete what was told.
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

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::{downloads, sql, videos};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;

    #[test]
    fn parents_are_picked_behind_the_last_one() {
        let filter = videos::table
            .filter(videos::slug.eq("a"))
            .into_update_target();
        let pick = PickFoldable::<videos::table, _> {
            filter: &filter.where_clause,
            after: Some(&videos::table::key_after(&7)),
            first_to_remove: 16,
            limit: 100,
        };
        assert_eq!(
            sql!(Pg, pick),
            r#"SELECT "videos"."id" FROM (SELECT "videos"."id" FROM "videos" WHERE ("videos"."slug" = $1)) AS "videos" WHERE (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id" AND ("videos_shards"."views" <> 0 OR "videos_shards"."likes" <> 0 OR "videos_shards"."shard" >= $2) LIMIT 1) IS NOT NULL AND ("videos"."id" > $3) ORDER BY "videos"."id" LIMIT $4"#
        );
        let all = downloads::table.into_update_target();
        let pick = PickFoldable::<downloads::table, _> {
            filter: &all.where_clause,
            after: Some(&downloads::table::key_after(&(1, "x".to_owned()))),
            first_to_remove: 16,
            limit: 100,
        };
        assert!(
            sql!(Mysql, pick).contains(
                "AND ((`downloads`.`version` > ?) OR ((`downloads`.`version` = ?) AND (`downloads`.`day` > ?))) ORDER BY `downloads`.`version`, `downloads`.`day` LIMIT ?"
            ),
            "{}",
            sql!(Mysql, pick)
        );
    }
}

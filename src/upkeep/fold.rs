//! `fold(..)`: moves shards into the base, under full write load, without changing any total. It folds batch by batch, in key order,
//! with no wait for a lock, or a short one.

mod folder;
mod pace;

use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use diesel::associations::HasTable;
use diesel::connection::LoadConnection;
use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};
use diesel::result::Error as DieselError;
use diesel::sql_types::Integer;
#[cfg(feature = "async")]
use diesel_async::AsyncConnection;

pub use self::folder::{Folder, FolderBuilder, FolderStats};
pub use self::pace::Pace;
use crate::backend::{BackendOf, Dialect, ShardedBackend, Strength};
use crate::conflict::{Conflict, ErrorClass};
#[cfg(feature = "async")]
use crate::connection::{Async, BoxFuture};
use crate::connection::{Blocking, Link, LoadIo, in_any_transaction, now, paired};
use crate::counting::update::UpdateSource;
use crate::engine::{
    KEYS_IN_A_STATEMENT, KeyedTable, LockedRows, Moved, Parents, ReadInto, RetryLoop, Sums,
    TRIES_TO_LOCK, explain_keys, explain_of, keys_are, locking, retry_loop, zeros,
};
use crate::error::Error;
use crate::model::{
    Amount, FieldType, SHARD, ShardedColumn, ShardedTable, ShardsColumn, TotalValue, shows,
};
use crate::policy::RetryPolicy;
use crate::query_builder::{KeysAre, Names, Sql, bind, sql, statements};
use crate::tables::shards_table::check_triggers;
use crate::unfit::{FieldState, Unfit};
use crate::{observe, shard_counts};

pub use self::blocking::fold;

paired! {
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
    /// SELECT base, sum of shards FROM "videos" WHERE …;                                     -- MySQL: … FOR UPDATE
    /// UPDATE "videos" SET "views" = total WHERE … AND EXISTS (…);                            -- of parents with shards that are not 0
    /// -- MySQL: SET `views` = (`views` + CASE WHEN (`videos`.`id` = ?) THEN 5 … ELSE 0 END) WHERE …, by the sums that were read
    /// UPDATE "videos_shards" AS "videos" SET "views" = 0 WHERE … AND ("videos"."views" <> 0);
    /// SELECT base, sum of shards FROM "videos" WHERE …;                                     -- also before the shards are emptied
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
    /// Increments on the shards of a batch wait for these few statements and no longer, because a batch waits for no row. (On PostgreSQL its update
    /// of the bases waits for rows that refer to them, 200 ms at most, if a unique index contains a sharded field.) If a lock
    /// cannot be acquired at once, the parents are tried one by one. On PostgreSQL one parent waits for its locks, 200 ms at most for
    /// each (`SET LOCAL lock_timeout`, which ends with the fold's transaction), so that a row is folded under any number of writers.
    /// The same bound holds while others may not write the table, as during `CREATE INDEX`. While nobody may read it, the search for work
    /// waits, without a lock and without a bound of its own. A parent that is busy for longer is folded shard by shard, without a wait,
    /// with as many attempts as the policy allows; once a shard was blocked for all of them, each other shard gets a single attempt. Shards
    /// that others hold all the time keep their values, and their parent is listed in [`busy`](Folded::busy). (PostgreSQL logs each lock
    /// that is not acquired as an error.)
    ///
    /// A fold that is killed at any statement loses and doubles nothing: the database rolls the open batch back, and committed
    /// batches are complete. Several processes may fold at once: the parent's row lock admits one at a time, and the next finds
    /// nothing left to fold. On PostgreSQL the parents of a batch are tried one by one if an increment creates a shard meanwhile; elsewhere
    /// the foreign key that [`ShardsTable`](crate::ShardsTable) creates lets none. All this relies on `NOWAIT`, which MySQL has from
    /// 8.0 on and MariaDB from 10.3.
    ///
    /// Shards numbered beyond the [wished number](crate::shard_counts) are removed when they are empty; an increment that was
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
    /// transaction ends: the rows and their shards, so that the transaction may correct the bases afterwards. On PostgreSQL it locks the
    /// rows `FOR UPDATE`, which waits as long as rows that refer to them are inserted without a gap. The isolation level is the caller's:
    /// above `READ COMMITTED` the fold of a busy counter may end in a serialization failure on PostgreSQL. A transaction that counts and
    /// then writes the parent's row itself may deadlock with a fold: retry it.
    pub fn fold<Source, Kind>(source: Source) -> Fold<Source::Query, Run>
    where
        Source: UpdateSource<Kind>,
        Source::Query: IntoUpdateTarget<Table: ShardedTable>,
    {
        Fold::of(source)
    }

    #[awaited(Q: Send, Q::WhereClause: Send + Sync)]
    impl<Q: IntoUpdateTarget<Table: ShardedTable>> Fold<Q, Run>
    where
        Q::Table: KeyedTable<DB, PrimaryKey: Expression>,
        Q::WhereClause: QueryFragment<DB>,
        Q::WhereClause: QueryId,
        DB: BackendOf<Conn>,
    {
        /// Folds to the end.
        ///
        /// # Errors
        /// As [`update`](crate::update())'s. Batches before the error stay folded, and no total has changed. Another fold continues
        /// with the rest. A parent whose base does not accept its total is no error, but is listed in [`unfit`](Folded::unfit), unless
        /// the database refuses all of them.
        pub fn run(self, link: Link) -> QueryResult<Folded<Q::Table>> {
            self.folded(link, &mut |_| ControlFlow::Continue(())).await
        }
    }
}

/// A fold that has not run yet; made by [`fold`](fold()).
#[must_use = "a fold moves nothing until it is `.run(conn)`"]
pub struct Fold<Q: IntoUpdateTarget<Table: ShardedTable>, Run = Blocking> {
    query: Q,
    batch: usize,
    per_second: Option<u32>,
    keep_shards: Option<u16>,
    cold_below: Option<u16>,
    after: Option<Key<Q>>,
    retry: Option<RetryPolicy>,
    reports: Vec<Report<Key<Q>>>,
    run: PhantomData<fn() -> Run>,
}

type Key<Q> = <<Q as HasTable>::Table as ShardedTable>::Key;

/// The key of a row, and the states of its fields.
type FoldedRow<K> = (K, Vec<FieldState>);

/// Receives the rows of each batch.
type Report<K> = Arc<dyn Fn(&[FoldedRow<K>]) + Send + Sync>;

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
            reports: vec![],
            run: PhantomData,
        }
    }

    /// The same fold once more.
    fn again(&self) -> Self
    where
        Q: Clone,
    {
        Fold {
            query: self.query.clone(),
            after: self.after.clone(),
            retry: self.retry.clone(),
            reports: self.reports.clone(),
            ..*self
        }
    }

    /// Sets how many parents are folded at once: 100 by default, which is also the maximum. With fewer, increments on them wait less.
    pub fn batch(mut self, parents: usize) -> Self {
        self.batch = parents.clamp(1, KEYS_IN_A_STATEMENT);
        self
    }

    /// Folds no more parents than this in any second, by smaller batches and pauses between them. The fold makes up for parents that a slow
    /// batch missed, by those of a tenth of a second at most. It has no effect inside a caller's transaction, which would only hold its
    /// locks longer. By default, and with zero, there is no limit.
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
    /// which one writer at a time counts loses its shards, and its next increment creates one. A hot row keeps its shards until it is
    /// folded once without increments. With 0, the default outside a [`Folder`](crate::operation::Folder),
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

    /// Calls `report` after each commit, with the keys of the rows in that batch and their bases of this field: for a cache, a search index
    /// or a live page. The rows are those that were folded, in key order, 100 at most. A second call reports another field too.
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
    /// use std::collections::BTreeMap;
    /// use std::sync::{Arc, Mutex};
    /// use diesel_sharded::{fold, update};
    ///
    /// let cache = Arc::new(Mutex::new(BTreeMap::new()));
    /// let cached = Arc::clone(&cache);
    /// update(all.find(7)).set(views.eq(views + 5)).execute(conn)?;
    /// fold(all)
    ///     .on_folded(views, move |rows: &[(i64, i64)]| cached.lock().unwrap().extend(rows.iter().copied()))
    ///     .run(conn)?; // or `.every(Duration::from_secs(1)).start(connect)`
    /// assert_eq!(cache.lock().unwrap()[&7], 105);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A base is what the column held when the batch committed; increments since then are on shards. Two processes may report one row in
    /// either order. Inside a caller's transaction nothing is reported, because nothing is committed yet.
    ///
    /// A [`Folder`] reports each row that it folds at least once. Shards are removed only after their row's `report` has returned, by one more
    /// transaction, and only if the row has not changed since; with [`cold_below`](Self::cold_below) a hot row keeps even those beyond the
    /// wished number. So a row whose report was lost, because a process ended, a connection broke or `report` panicked, still has shards: the
    /// next pass reports it, of any process that reports. A shard that keeps what a `Double` [rounds](crate::reference::folding#doubles) ends
    /// this, and so do `cold_below(0)` and folds that do not report.
    ///
    /// The fold waits for `report`, without a lock; in a task it must not block. A panic in it ends the fold: of a single one it reaches the
    /// caller, with all batches so far complete; of a background fold it ends the pass, as an error.
    pub fn on_folded<C>(
        mut self,
        _field: C,
        report: impl Fn(&[(Key<Q>, TotalValue<C>)]) + Send + Sync + 'static,
    ) -> Self
    where
        C: ShardedColumn<Table = Q::Table>,
    {
        let base = |states: &[FieldState]| {
            let mut fields = Q::Table::FIELDS.iter().zip(states);
            let (_, state) = fields.find(|(field, _)| field.name == C::NAME)?;
            match state {
                FieldState::Sum { base, .. } => C::SqlType::of_amount(base), // always, since its column holds it
                FieldState::Peak { .. } => None,
            }
        };
        self.reports.push(Arc::new(move |rows| {
            let rows = rows.iter();
            let bases = rows.filter_map(|(key, states)| Some((key.clone(), base(states)?)));
            report(&bases.collect::<Vec<_>>());
        }));
        self
    }
}

impl<Q: IntoUpdateTarget<Table: ShardedTable>> Fold<Q> {
    /// Folds to the end, or until `progress` breaks off. `progress` is called after every batch with the result so far.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with<Conn, DB>(
        self,
        conn: &mut Conn,
        mut progress: impl FnMut(&Folded<Q::Table>) -> ControlFlow<()>,
    ) -> QueryResult<Folded<Q::Table>>
    where
        Q::Table: KeyedTable<DB, PrimaryKey: Expression>,
        Q::WhereClause: QueryFragment<DB> + QueryId,
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        now(self.folded(&mut Link::blocking(conn), &mut progress))
    }
}

// Apart from the blocking method, because `progress` has to be `Send` here.
#[cfg(feature = "async")]
impl<Q: IntoUpdateTarget<Table: ShardedTable>> Fold<Q, Async> {
    /// Folds to the end, or until `progress` breaks off. `progress` is called after every batch with the result so far. If
    /// the future is dropped, all work that was reported stays complete.
    ///
    /// # Errors
    /// As [`run`](Self::run)'s.
    pub fn run_with<'c, Conn, DB>(
        self,
        conn: &'c mut Conn,
        mut progress: impl FnMut(&Folded<Q::Table>) -> ControlFlow<()> + Send + 'c,
    ) -> BoxFuture<'c, QueryResult<Folded<Q::Table>>>
    where
        Q: Send + 'c,
        Q::Table: KeyedTable<DB, PrimaryKey: Expression>,
        Q::WhereClause: QueryFragment<DB> + QueryId + Send + Sync,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        Box::pin(async move { self.folded(&mut Link::awaited(conn), &mut progress).await })
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
    /// scale that is too small, an update that row security or a trigger suppresses or refuses. Their totals are as they were.
    pub unfit: Vec<(K, Unfit)>,
    /// The keys of parents with shards that others had locked all the time. Fold these parents again later.
    pub busy: Vec<K>,
    /// How many parents were examined.
    #[doc(hidden)]
    pub looked_at: u64,
    /// For each of the fields.
    #[doc(hidden)]
    pub amounts: Vec<Amount>,
    /// The parents that the database [refused](Unfit::Refused) before it accepted one, and its first error.
    refused: Vec<(K, Unfit)>,
    refusal: Option<DieselError>,
    /// The rows of the last batch that were folded.
    rows: Vec<FoldedRow<K>>,
    /// Those of them whose shards are removed after their report.
    cold: Vec<FoldedRow<K>>,
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
            amounts: zeros(fields),
            refused: vec![],
            refusal: None,
            rows: vec![],
            cold: vec![],
            table: PhantomData,
        }
    }

    /// Lists the parents that the database refused, if it has accepted another one. Else the reason may not be a row's, but for example a
    /// missing privilege: fails at the end of the rows, or if it would only go on to be refused.
    fn list_refused(&mut self) -> QueryResult<()> {
        if self.parents > 0 {
            self.unfit.append(&mut self.refused);
        }
        let is_over = self.finished || self.refused.len() >= MOST_REFUSED;
        match self
            .refusal
            .take_if(|_| is_over && !self.refused.is_empty())
        {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// The reason why the database refused a parent; keeps the first error.
    fn note_refusal(&mut self, error: DieselError) -> Unfit {
        let says = error.to_string();
        self.refusal.get_or_insert(error);
        Unfit::Refused { says }
    }

    /// The bases of these parents do not accept the values of their shards.
    fn refuse(&mut self, keys: Vec<K>, reason: &Unfit) {
        let unfit = keys.into_iter().map(|key| (key, reason.clone()));
        match reason {
            Unfit::Refused { .. } => self.refused.extend(unfit),
            _ => self.unfit.extend(unfit),
        }
    }

    fn add(&mut self, keys: Vec<K>, cold: &[bool], moved: Moved)
    where
        K: Clone,
    {
        self.parents += moved.parents as u64;
        self.shards_removed += moved.removed as u64;
        for (sum, moved) in self.amounts.iter_mut().zip(&moved.sums) {
            *sum += moved;
        }
        let rows = self.rows.len();
        self.rows.extend(keys.into_iter().zip(moved.states));
        let cold = self.rows[rows..]
            .iter()
            .zip(cold)
            .filter(|(_, cold)| **cold);
        self.cold.extend(cold.map(|(row, _)| row.clone()));
    }
}

impl<T: ShardedTable> Folded<T> {
    /// How much was moved from the shards of a field to its base, over all parents.
    pub fn moved<C: ShardedColumn<Table = T>>(&self, _field: C) -> Amount {
        let mut fields = T::FIELDS.iter().zip(&self.amounts);
        let moved = fields.find(|(field, _)| field.name == C::NAME);
        moved.map_or(Amount::Integer(0), |(_, amount)| amount.clone()) // every sharded column is a field
    }
}

shows!([T, K: fmt::Debug] Folded<T, K>: |self| Folded {
    parents: self.parents, shards_removed: self.shards_removed, last: self.last, finished: self.finished, unfit: self.unfit,
    busy: self.busy, moved: self.amounts
} finish);

impl<Q: IntoUpdateTarget<Table: ShardedTable>, Run> Fold<Q, Run> {
    async fn folded<M>(
        self,
        link: &mut Link<'_, M>,
        progress: &mut impl FnMut(&Folded<Q::Table>) -> ControlFlow<()>,
    ) -> QueryResult<Folded<Q::Table>>
    where
        Q: IntoUpdateTarget<
                Table: KeyedTable<M::Backend>,
                WhereClause: QueryFragment<M::Backend> + QueryId,
            >,
        M: LoadIo,
    {
        let inside = in_any_transaction(link).await?;
        let keep = match self.keep_shards {
            Some(number) => number,
            None => shard_counts::wished::<Q::Table, _>(link, inside).await?,
        };
        let folding = Folding {
            of: *Q::Table::TABLE,
            keep: Some(keep),
            cold_below: self.cold_below.filter(|shards| *shards > 0),
            retry: self.retry.unwrap_or_default(),
            dialect: link.dialect(),
            inside,
            reports: !inside && !self.reports.is_empty(),
        };
        let batches = Batches {
            filter: self.query.into_update_target().where_clause,
            batch: self.batch,
            per_second: self.per_second,
        };
        let mut folded = Folded::nothing(Q::Table::FIELDS, self.after);
        let reports = self.reports;
        let progress = &mut |folded: &Folded<_>| {
            if !inside && !folded.rows.is_empty() {
                reports.iter().for_each(|report| report(&folded.rows));
            }
            progress(folded)
        };
        let folding = folding.fold_all(&batches, &mut folded, link, progress);
        folding.await.map(|()| folded)
    }
}

/// The parents that are folded, and how many of them at once.
pub(crate) struct Batches<W> {
    pub(crate) filter: W,
    pub(crate) batch: usize,
    /// Without effect in a caller's transaction.
    pub(crate) per_second: Option<u32>,
}

impl<P> Folding<P> {
    /// Parents with a shard numbered from here on may have shards to remove.
    fn first_to_remove(&self) -> Option<u16> {
        self.cold_below.map_or(self.keep, |_| Some(0))
    }

    /// Whether parents keep rests on their shards: not if they are to have no shards.
    fn keeps_rests(&self) -> bool {
        self.keep != Some(0)
    }

    /// Continues after the last parent that was `folded`, to the end or until `progress` breaks off.
    pub(crate) async fn fold_all<T, DB, W, M>(
        &self,
        batches: &Batches<W>,
        folded: &mut Folded<T, P::Key>,
        link: &mut Link<'_, M>,
        progress: &mut impl FnMut(&Folded<T, P::Key>) -> ControlFlow<()>,
    ) -> QueryResult<()>
    where
        P: Parents<DB>,
        W: QueryFragment<DB> + QueryId,
        M: LoadIo<Backend = DB>,
        DB: ShardedBackend,
    {
        if self.dialect.has_triggers() {
            let looking = RetryLoop::read(link, self.retry.clone())?;
            let names = self.of.names();
            retry_loop!(link, looking, check_triggers(names, link).await)?;
        }
        let per_second = batches.per_second.filter(|_| !self.inside);
        let mut pace = Pace::at_most_per_second(per_second, batches.batch);
        let batch = pace.batch();
        loop {
            let began = Instant::now();
            let mut due = began;
            let picking = RetryLoop::decision(link, self.retry.clone())?;
            let keys = retry_loop!(link, picking, {
                let after = folded.last.as_ref().map(|last| self.of.is_after(last));
                let pick = PickFoldable {
                    names: self.of.names(),
                    filter: &batches.filter,
                    after: after.as_ref().map(|after| after as &dyn QueryFragment<DB>),
                    first_to_remove: self.first_to_remove().map(i32::from),
                    keeps_rests: self.keeps_rests(),
                    limit: batch as i64,
                    key_sql: PhantomData,
                };
                P::KeySql::rows(link, pick).await
            });
            let keys =
                keys.map_err(|error| explain_keys(self.of.names(), &link.backend(), error))?;
            folded.finished = keys.len() < batch;
            if let Some(last) = keys.last().cloned() {
                let parents = keys.len();
                let table = self.of.names().shards_table.as_str();
                let told = observe::fold(self.dialect, table, parents);
                folded.rows.clear();
                folded.cold.clear();
                let moving = self.fold(keys, folded, link);
                if let Err(error) = told.within(moving).await {
                    if !folded.rows.is_empty() {
                        let _ = progress(folded); // what was committed before it is reported
                    }
                    return Err(error);
                }
                folded.last = Some(last);
                folded.looked_at += parents as u64;
                folded.list_refused()?;
                if progress(folded).is_break() {
                    folded.unfit.append(&mut folded.refused);
                    return Ok(());
                }
                self.remove_reported(folded, link).await?;
                due = pace.next(parents, began, Instant::now());
            }
            if folded.finished {
                return folded.list_refused();
            }
            let wait = due.saturating_duration_since(Instant::now());
            M::sleep(&self.retry, wait).await;
        }
    }
}

statements! {
    /// Finds parents that have something to fold [on the primary](Names::on_primary); see [`fold`](fold()).
    ///
    /// Without a filter only the shards table is read, so that rows without shards cost nothing.
    ///
    /// A query with a filter avoids `EXISTS`: planners turn that into a join that reads the whole shards table for every batch.
    ///
    /// A shard that holds a rest is no work: the base cannot hold the rest, and a removal leaves the shard.
    struct PickFoldable<'a, ST> {
        names: Names<'a, DB>,
        filter: &'a dyn QueryFragment<DB>,
        after: Option<&'a dyn QueryFragment<DB>>,
        first_to_remove: Option<i32>,
        keeps_rests: bool,
        limit: i64,
        key_sql: PhantomData<ST>,
    }: Query<ST>;
    |self, mut out| {
        let table = self.names;
        let next = table.next_keys(self.after.as_ref(), &self.limit);
        table.on_primary().push(out.reborrow())?;
        if self.filter.is_noop(out.backend())? {
            let has_work = self.has_work(|name| table.under_alias().column(name));
            return table.keys_of_shards(sql! { has_work, next }).push(out);
        }
        sql!(out;
            table.select_keys_as_parent(&self.filter), " WHERE (SELECT 1 FROM ", table.under_alias().shards_of_parent(None),
            " AND ", self.has_work(|name| table.shards_column(name)), " LIMIT 1) IS NOT NULL", next)
    }
}

impl<ST, DB: ShardedBackend> PickFoldable<'_, ST, DB> {
    /// `(table.field <> 0 OR … OR table.shard >= $n)`, where `column` writes a column of the shards table.
    fn has_work<'b, C: Sql<'b, DB>>(&'b self, column: impl Fn(&'b str) -> C) -> impl Sql<'b, DB> {
        let may_be_rest = |field: &&ShardsColumn| self.keeps_rests && field.leaves_rests();
        sql! {
            "(", for field in (self.names.fields, " OR ") {
                column(&field.name), field.merge.is_filled(),
                if may_be_rest(&field) { " AND NOT ", self.names.is_rest(field, &column) }
            },
            if let Some(first) = &self.first_to_remove {
                " OR ", column(SHARD), " >= ", bind(Integer, first),
                for field in (self.names.fields.iter().filter(may_be_rest), "") { " AND ", column(&field.name), " = 0" }
            }, ")"
        }
    }
}

/// How many parents the database refuses before a fold in which it has accepted none ends.
const MOST_REFUSED: usize = 1_000;

/// The settings of every batch of a fold.
pub(crate) struct Folding<P> {
    pub(crate) of: P,
    /// Empty shards numbered from here on are removed, or none.
    pub(crate) keep: Option<u16>,
    /// A parent with fewer filled shards than this loses all of its shards.
    pub(crate) cold_below: Option<u16>,
    pub(crate) retry: RetryPolicy,
    pub(crate) dialect: Dialect,
    /// In a caller's transaction, which cannot try again later.
    pub(crate) inside: bool,
    /// Shards are removed after each batch was reported, not with it.
    pub(crate) reports: bool,
}

/// The result of an attempt to fold several parents, or one parent, or one of its shards.
enum FoldTry<P: Parents<DB>, DB: ShardedBackend> {
    Folded {
        rows: LockedRows<P, DB>,
        /// For each of the locked ones, whether its shards are removed after the report; empty if none is.
        cold: Vec<bool>,
        moved: Moved,
    },
    /// Another transaction holds a lock, or there was a conflict: the database's error.
    Blocked(DieselError),
    /// A base does not accept the values of its shards.
    Unfit(Unfit),
    /// The database refused a statement, perhaps because of one row.
    Refused(DieselError),
}

impl<P> Folding<P> {
    /// Folds parents together if all their locks can be acquired at once; else one by one, and busy ones shard by shard.
    ///
    /// A single parent may wait for its locks where the wait can be bounded: its own writers wait at most that long, and writers of other
    /// parents do not wait. A caller's transaction keeps its locks. There the fold waits for all locks together, and no shard is created
    /// behind them.
    async fn fold<T, M>(
        &self,
        keys: Vec<P::Key>,
        folded: &mut Folded<T, P::Key>,
        link: &mut Link<'_, M>,
    ) -> QueryResult<()>
    where
        P: Parents<M::Backend>,
        M: LoadIo,
    {
        let mut left = vec![(keys, 0)];
        while let Some((keys, tries)) = left.pop() {
            let named = keys_are(&self.of, &keys);
            let (strength, retry) = self.together(keys.len());
            match self.try_fold(&named, None, strength, retry, link).await? {
                FoldTry::Folded { rows, cold, moved } => {
                    folded.add(rows.locked, &cold, moved);
                    for key in rows.not_locked {
                        match tries + 1 {
                            TRIES_TO_LOCK => folded.unfit.push((key, Unfit::NotLocked)),
                            tries => left.push((vec![key], tries)),
                        }
                    }
                }
                // Some servers have ended the whole transaction.
                FoldTry::Blocked(error) | FoldTry::Refused(error) if self.inside => {
                    return Err(error);
                }
                _ if keys.len() > 1 => {
                    left.extend(keys.into_iter().rev().map(|key| (vec![key], tries)));
                }
                FoldTry::Unfit(reason) => folded.refuse(keys, &reason),
                FoldTry::Refused(error) => {
                    let reason = folded.note_refusal(error);
                    folded.refuse(keys, &reason);
                }
                FoldTry::Blocked(_) => self.fold_shard_by_shard(keys, folded, link).await?,
            }
        }
        Ok(())
    }

    /// How the shards of this many parents are locked together, and how often that is tried.
    fn together(&self, parents: usize) -> (Strength, RetryPolicy) {
        let waits = parents == 1 && self.bound().is_some();
        let strength = match waits {
            _ if self.inside => Strength::Full,
            true => Strength::Exclusive,
            false => Strength::ExclusiveAtOnce,
        };
        (strength, self.retry_at_once())
    }

    /// How often a lock that is not waited for is tried. SQLite has only the lock on the database.
    fn retry_at_once(&self) -> RetryPolicy {
        match self.dialect.has_row_locks() {
            true => RetryPolicy::never(),
            false => self.retry.clone(),
        }
    }

    /// Bounds the waits of a transaction: for rows, and for a table that others may not write meanwhile, to which `NOWAIT` does not apply.
    /// During these waits, increments wait for the shards that are already locked. Inside a caller's transaction the bound would outlive the
    /// fold.
    fn bound(&self) -> Option<&'static str> {
        let bound = self.dialect.bounds_waits_for_locks();
        bound.filter(|_| !self.inside)
    }

    /// Folds each shard in a transaction of its own, which holds no lock while it waits to try again. A shard that does not fit is retried
    /// as long as other shards change the base.
    async fn fold_shard_by_shard<T, M>(
        &self,
        keys: Vec<P::Key>,
        folded: &mut Folded<T, P::Key>,
        link: &mut Link<'_, M>,
    ) -> QueryResult<()>
    where
        P: Parents<M::Backend>,
        M: LoadIo,
    {
        let named = keys_are(&self.of, &keys);
        let reading = RetryLoop::decision(link, self.retry.clone())?;
        let unlocked = LockedRows::locked(self.of, keys.clone()); // only their shards are looked for
        let shards = retry_loop!(link, reading, unlocked.on(link).shards().await);
        let mut left =
            shards.map_err(|error| explain_of(self.of.names(), &link.backend(), error))?;
        let (mut busy, mut tried, mut parents) = (false, usize::MAX, 0);
        let mut reason = None;
        let others = folded.rows.len();
        while left.len() < tried {
            tried = left.len();
            let mut unfit = vec![];
            for shard in left {
                // One shard was blocked for as long as the policy allows, perhaps by the parent's lock. So the fold does not wait for the
                // others again.
                let retry = match busy {
                    true => RetryPolicy::never(),
                    false => self.retry.clone(),
                };
                let at_once = Strength::ExclusiveAtOnce;
                let tried = self.try_fold(&named, Some(shard), at_once, retry, link);
                match tried.await? {
                    FoldTry::Folded {
                        rows,
                        cold,
                        mut moved,
                    } => {
                        parents = mem::take(&mut moved.parents).max(parents);
                        folded.rows.truncate(others); // the row as it was after the last shard
                        folded.add(rows.locked, &cold, moved);
                    }
                    FoldTry::Unfit(unfits) => {
                        unfit.push(shard);
                        reason = Some(unfits);
                    }
                    FoldTry::Refused(error) => {
                        unfit.push(shard);
                        reason = Some(folded.note_refusal(error));
                    }
                    FoldTry::Blocked(_) => busy = true,
                }
            }
            left = unfit;
        }
        folded.parents += parents as u64;
        if let (false, Some(reason)) = (left.is_empty(), reason) {
            folded.refuse(keys, &reason);
        } else if busy {
            folded.busy.extend(keys);
        }
        Ok(())
    }

    /// Folds the parents whose locks can be acquired: all their shards, or the `only` one.
    async fn try_fold<M>(
        &self,
        keys: &KeysAre<P::KeyIs>,
        only: Option<i32>,
        strength: Strength,
        retry: RetryPolicy,
        link: &mut Link<'_, M>,
    ) -> QueryResult<FoldTry<P, M::Backend>>
    where
        P: Parents<M::Backend>,
        M: LoadIo,
    {
        let locking = locking(link, retry)?;
        let folded = retry_loop!(link, locking, {
            if let Some(bound) = self.bound() {
                link.batch_execute(bound).await?;
            }
            let locked = LockedRows::lock(self.of, link, keys, strength).await?;
            let locked = locked.with_shards(link, only, strength).await?;
            // One shard cannot show contention; a row folded this way is busy anyway.
            let mut cold = match self.cold_below.filter(|_| only.is_none()) {
                Some(shards) => locked.on(link).are_cold(shards).await?,
                None => vec![self.reports && only.is_none(); locked.locked.len()],
            };
            let mut moved = locked.on(link).fold(self.keeps_rests()).await?;
            if !self.reports {
                let [hot, cold_rows] = locked.split(&cold);
                if let Some(first) = self.keep {
                    moved.removed += hot.on(link).remove_shards(first).await?;
                }
                moved.removed += cold_rows.on(link).remove_shards(0).await?;
                cold.clear(); // nothing is left for after the report
            }
            Ok((locked, cold, moved))
        });
        let names = self.of.names();
        match folded.map_err(|error| explain_of(names, &link.backend(), error)) {
            Ok((rows, cold, moved)) => {
                let table = names.shards_table.as_str();
                let numbers = [moved.parents, moved.shards, moved.removed];
                observe::folded(self.dialect, table, numbers);
                Ok(FoldTry::Folded { rows, cold, moved })
            }
            Err(error) => self.failed(error),
        }
    }

    /// Removes the shards of cold rows whose report has returned: of all together, or of each half if one of them is busy or has changed. Such
    /// a row keeps its shards, so the next fold finds and reports it.
    async fn remove_reported<T, M>(
        &self,
        folded: &mut Folded<T, P::Key>,
        link: &mut Link<'_, M>,
    ) -> QueryResult<()>
    where
        P: Parents<M::Backend>,
        M: LoadIo,
    {
        let mut left = vec![mem::take(&mut folded.cold)];
        while let Some(mut rows) = left.pop() {
            match self.try_to_remove(&rows, link).await? {
                Some(removed) => folded.shards_removed += removed as u64,
                None if rows.len() > 1 => {
                    left.push(rows.split_off(rows.len() / 2));
                    left.push(rows);
                }
                None => {}
            }
        }
        Ok(())
    }

    /// The number of shards that were removed; `None` if a lock is not free, or a row is not what was reported.
    async fn try_to_remove<M>(
        &self,
        rows: &[FoldedRow<P::Key>],
        link: &mut Link<'_, M>,
    ) -> QueryResult<Option<usize>>
    where
        P: Parents<M::Backend>,
        M: LoadIo,
    {
        if rows.is_empty() {
            return Ok(Some(0));
        }
        let (keys, reported): (Vec<_>, Vec<_>) = rows.iter().cloned().unzip();
        let named = keys_are(&self.of, &keys);
        let fields: Vec<_> = self.of.names().fields.iter().collect();
        let first = self.cold_below.map_or(self.keep.unwrap_or(0), |_| 0);
        let at_once = Strength::ExclusiveAtOnce;
        let locking = locking(link, self.retry_at_once())?;
        let removed = retry_loop!(link, locking, {
            if let Some(bound) = self.bound() {
                link.batch_execute(bound).await?;
            }
            let locked = LockedRows::lock(self.of, link, &named, at_once).await?;
            if locked.locked.len() < rows.len() {
                return Ok(None);
            }
            let locked = locked.with_shards(link, None, at_once).await?;
            let mut locked = locked.on(link);
            let are_same = locked.check(&fields, Sums::Read, &reported, &reported);
            are_same.await?;
            locked.remove_shards(first).await.map(Some)
        });
        let names = self.of.names();
        match removed.map_err(|error| explain_of(names, &link.backend(), error)) {
            Ok(removed) => {
                let table = names.shards_table.as_str();
                observe::folded(self.dialect, table, [0, 0, removed.unwrap_or(0)]);
                Ok(removed)
            }
            Err(error) => self.failed::<M::Backend>(error).map(|_| None),
        }
    }

    /// The result for the parents that were tried, if the error is about them.
    fn failed<DB>(&self, error: DieselError) -> QueryResult<FoldTry<P, DB>>
    where
        P: Parents<DB>,
        DB: ShardedBackend,
    {
        let locks_rows = self.dialect.has_row_locks();
        let is_blocked = match self.dialect.classify(&error) {
            ErrorClass::Conflict(Conflict::LockTimeout) => locks_rows,
            // A shard appeared beside those that were locked.
            ErrorClass::Conflict(Conflict::Serialization) => self.dialect.unlocks_at_savepoints(),
            _ => false,
        };
        if is_blocked {
            return Ok(FoldTry::Blocked(error));
        }
        match Error::from(error) {
            Error::Overflow { source } => Ok(FoldTry::Unfit(self.dialect.refused(&source))),
            Error::Unfit { reason, .. } => Ok(FoldTry::Unfit(reason)),
            error @ Error::ConflictPersisted { .. } if locks_rows => {
                Ok(FoldTry::Blocked(error.into()))
            }
            // Neither the connection nor the server is the reason: those errors have variants of their own.
            Error::Diesel(error @ DieselError::DatabaseError(..)) => Ok(FoldTry::Refused(error)),
            error => Err(error.into()),
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
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;

    use super::*;
    use crate::test_schema::{assert_sql, downloads, videos};

    macro_rules! pick {
        ($schema:ident, $filter:expr, $after:expr) => {
            PickFoldable::<(), _> {
                names: Names::of::<$schema::table>(),
                filter: &$filter.into_update_target().where_clause,
                after: Some(&$schema::table::key_after(&$after)),
                first_to_remove: Some(16),
                keeps_rests: true,
                limit: 100,
                key_sql: PhantomData,
            }
        };
    }

    #[test]
    fn parents_are_picked_behind_the_last_one() {
        assert_sql!(pick!(videos, videos::table.filter(videos::slug.eq("a")), 7);
            Pg => r#"WITH "sharded_primary" AS (UPDATE "videos_shards" SET "shard" = 0 WHERE FALSE) SELECT "videos"."id" FROM (SELECT "videos"."id" FROM "videos" WHERE ("videos"."slug" = $1)) AS "videos" WHERE (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id" AND ("videos_shards"."views" <> 0 OR "videos_shards"."likes" <> 0 OR "videos_shards"."shard" >= $2) LIMIT 1) IS NOT NULL AND ("videos"."id" > $3) ORDER BY "videos"."id" LIMIT $4"#,
        );
        assert_sql!(pick!(downloads, downloads::table, (1, "x".to_owned()));
            Mysql => "SELECT `downloads`.`version`, `downloads`.`day` FROM (SELECT DISTINCT `downloads`.`version`, `downloads`.`day` FROM `download \"counts\"` AS `downloads` WHERE (`downloads`.`number` <> 0 AND NOT EXISTS (SELECT 1 FROM `downloads` AS `diesel_sharded_parents` WHERE `diesel_sharded_parents`.`version` = `downloads`.`version` AND `diesel_sharded_parents`.`day` = `downloads`.`day` AND CASE WHEN ABS(`downloads`.`number`) < 1e300 AND ABS(`diesel_sharded_parents`.`number`) < 1e300 THEN `diesel_sharded_parents`.`number` + `downloads`.`number` = `diesel_sharded_parents`.`number` END) OR `downloads`.`shard` >= ? AND `downloads`.`number` = 0) AND ((`downloads`.`version` >= ?) AND ((`downloads`.`version` > ?) OR ((`downloads`.`version` = ?) AND (`downloads`.`day` > ?)))) ORDER BY `downloads`.`version`, `downloads`.`day` LIMIT ?) AS `downloads` ORDER BY `downloads`.`version`, `downloads`.`day` LIMIT 18446744073709551615",
        );
    }
}

//! Many rows of one field or several, each with its own amounts, at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::marker::PhantomData;

use diesel::associations::HasTable;
use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::query_builder::{InsertStatement, QueryFragment, QueryId};
use diesel::result::{Error as DieselError, QueryResult};

use crate::backend::{BackendOf, ShardedBackend};
use crate::conflict::Failure;
use crate::connection::{Blocking, Link, LoadIo, TransactionOptions, in_transaction, now};
use crate::counting::combine::{Combined, count};
use crate::counting::idempotency::{Idempotent, Request, Requested, once};
use crate::counting::row_counter::{ready_to_add, ready_to_add_or_insert};
use crate::engine::{
    KEYS_IN_A_STATEMENT, KeyedTable, LockedParents, RetryLoop, SendStep, Statement, Step, explain,
    retry_loop,
};
use crate::error::Error;
use crate::model::{IntegerFields, ShardedTable, are_distinct, shows};
use crate::placement::{Choice, Process, Subject};
use crate::policy::{Attempts, RetryPolicy};
use crate::query_builder::{
    CountEach, CountedRow, CountedShard, CreateShards, KeysAre, Names, SelectKeys,
};
use crate::upkeep::shard_counts;

/// Begins to count on many rows of one field, each with its own amount, by their keys; or of a tuple of fields, each row with an array of
/// amounts.
///
/// ```
/// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, likes -> Integer, } } }
/// # use schema::videos::{self, dsl::{id, likes, videos as all, views}};
/// # use diesel::prelude::*;
/// # #[derive(diesel_sharded::ShardedField)]
/// # #[diesel(table_name = videos)]
/// # struct Video { id: i64, #[sharded] views: i64, #[sharded] likes: i32 }
/// # fn main() -> QueryResult<()> {
/// # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
/// # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, views BIGINT NOT NULL, likes INTEGER NOT NULL DEFAULT 0)").execute(conn)?;
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
///
/// // Views and likes.
/// count_many((views, likes), [(7, [10, 2]), (8, [1, 0])]).run(conn)?;
/// let totals = all.find(7).select((views.total(), likes.total())).first::<(i64, i32)>(conn)?;
/// assert_eq!(totals, (115, 2));
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
/// WHERE "videos"."id" = "sharded_batch"."id" AND "videos"."shard" = "sharded_batch"."shard" AND "sharded_batch"."shard" >= 0;
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
/// missing. Named counters are counted by [`Counter::count_many`](crate::Counter::count_many).
///
/// # Inside a transaction
/// The counts are part of the caller's transaction, in a savepoint, and hold the locks of their shards until it ends. Nothing is
/// retried.
///
/// # Errors
/// As [`update`](crate::update())'s, and [`Overflow`](crate::Error::Overflow) if the amounts of a key do not add up to an `i64`.
pub fn count_many<F, I>(_fields: F, amounts: I) -> CountMany<F>
where
    F: IntegerFields<ParentTable: ShardedTable<Key: Ord>>,
    I: IntoIterator<Item = (KeyOf<F>, F::Amounts)>,
{
    CountMany::of(amounts)
}

/// Counts on many rows; made by [`count_many`].
#[must_use = "nothing is counted until it is `.run(conn)`"]
pub struct CountMany<F: IntegerFields, Ins = NoInsert<KeyOf<F>>, Run = Blocking> {
    /// In the order of the keys, for each field.
    amounts: Vec<(KeyOf<F>, Vec<i128>)>,
    /// Makes the insert for a key that has no row.
    insert: Option<Ins>,
    retry: Option<RetryPolicy>,
    /// See [`Plan::alone`](crate::engine::Plan::alone).
    alone: bool,
    check_key: fn(&KeyOf<F>) -> Result<(), Error>,
    run: PhantomData<fn() -> Run>,
}

/// `.or_insert(..)` was not called.
type NoInsert<Key> = fn(&Key);

/// Fields that can be counted on a database `DB`. It stands for the bounds on their table.
#[doc(hidden)]
pub trait CountableFields<DB: ShardedBackend>:
    IntegerFields<
        ParentTable: KeyedTable<DB> + ShardedTable<Key: Ord, KeyValues: QueryFragment<DB>>,
    > + QueryId
{
}

#[diagnostic::do_not_recommend]
impl<F, DB> CountableFields<DB> for F
where
    F: IntegerFields<
            ParentTable: KeyedTable<DB> + ShardedTable<Key: Ord, KeyValues: QueryFragment<DB>>,
        > + QueryId,
    DB: ShardedBackend,
{
}

type KeyOf<F> = <<F as IntegerFields>::ParentTable as ShardedTable>::Key;

impl<F: IntegerFields, Run> CountMany<F, NoInsert<KeyOf<F>>, Run> {
    pub(crate) fn of(amounts: impl IntoIterator<Item = (KeyOf<F>, F::Amounts)>) -> Self
    where
        KeyOf<F>: Ord,
    {
        const {
            assert!(
                are_distinct(F::NAMES),
                "a sharded field is counted twice: add the two amounts up"
            );
        }
        let mut sums = BTreeMap::new();
        for (key, amounts) in amounts {
            let sums = sums.entry(key).or_insert_with(|| vec![0; F::NAMES.len()]);
            for (sum, n) in sums.iter_mut().zip(F::each(amounts)) {
                *sum += i128::from(n);
            }
        }
        Self::of_sums(sums.into_iter().collect())
    }

    /// In the order of the keys, each of which is there once.
    pub(crate) fn of_sums(amounts: Vec<(KeyOf<F>, Vec<i128>)>) -> Self {
        CountMany {
            amounts,
            insert: None,
            retry: None,
            alone: false,
            check_key: |_| Ok(()),
            run: PhantomData,
        }
    }

    /// Inserts the row that `row_of` makes for each key that has none, in the same transaction, and counts on it. Its own value of a
    /// field is the base, 0 if it has none.
    ///
    /// As with [`or_insert`](crate::operation::UpdateStatement::or_insert) of an update, callers that race insert one row, and lose no
    /// count.
    #[allow(clippy::type_complexity)] // a closure has no name
    pub fn or_insert<R, I>(
        self,
        row_of: R,
    ) -> CountMany<F, impl Fn(&KeyOf<F>) -> InsertStatement<F::ParentTable, I::Values>, Run>
    where
        R: Fn(&KeyOf<F>) -> I,
        I: Insertable<F::ParentTable>,
    {
        self.inserting(move |key: &KeyOf<F>| {
            diesel::insert_into(F::ParentTable::table()).values(row_of(key))
        })
    }

    /// The same, by a statement that inserts a key's row.
    pub(crate) fn inserting<Ins>(self, insert: Ins) -> CountMany<F, Ins, Run> {
        CountMany {
            amounts: self.amounts,
            insert: Some(insert),
            retry: self.retry,
            alone: self.alone,
            check_key: self.check_key,
            run: PhantomData,
        }
    }
}

impl<F: IntegerFields, Ins, Run> CountMany<F, Ins, Run> {
    /// Retries by `policy` instead of the [process-wide](RetryPolicy::global) one.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// Counts only if nothing was counted with this key of 1 to 255 bytes before, in any process: for a batch that a queue may deliver
    /// twice. See [`idempotency`](crate::idempotency).
    pub fn idempotency_key(self, key: impl AsRef<[u8]>) -> Idempotent<Self> {
        Idempotent::new(self, key)
    }

    /// Refuses keys before anything is sent.
    pub(crate) fn checking_keys(mut self, check_key: fn(&KeyOf<F>) -> Result<(), Error>) -> Self {
        self.check_key = check_key;
        self
    }

    /// The transaction in which it counts is of this crate's own, and counts on nothing else.
    #[cfg(feature = "r2d2")]
    pub(crate) fn alone(mut self) -> Self {
        self.alone = true;
        self
    }
}

impl<F: IntegerFields, Ins> CountMany<F, Ins> {
    /// Counts; see [`count_many`].
    ///
    /// # Errors
    /// As there. No total was changed then.
    pub fn run<Conn, DB, Insert>(self, conn: &mut Conn) -> QueryResult<CountedMany<F::ParentTable>>
    where
        F: CountableFields<DB>,
        Ins: Fn(&KeyOf<F>) -> Insert,
        Insert: QueryFragment<DB> + QueryId,
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        now(self.count(&mut Link::blocking(conn)))
    }
}

impl<F: IntegerFields, Ins> Idempotent<CountMany<F, Ins>> {
    /// Counts, unless that was done with this key before, and returns the number of rows counted, now or then. Only the same amounts
    /// are a repeat. A batch that meets no row leaves the key free; keys without a row are left out as in [`CountMany::run`], so
    /// [insert](CountMany::or_insert) them, or compare the number.
    ///
    /// # Errors
    /// Those of [`count_many`] and of [`idempotency`](crate::idempotency). No total was changed then.
    pub fn run<Conn, DB, Insert>(self, conn: &mut Conn) -> QueryResult<usize>
    where
        F: CountableFields<DB>,
        KeyOf<F>: fmt::Debug,
        Ins: Fn(&KeyOf<F>) -> Insert,
        Insert: QueryFragment<DB> + QueryId,
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        now(self.of.count_once(&self.key, &mut Link::blocking(conn)))
    }
}

shows!([F: IntegerFields<ParentTable: ShardedTable<Key: fmt::Debug>>, Ins, Run] CountMany<F, Ins, Run>: |self| CountMany {
    fields: F::NAMES, amounts: self.amounts, retry: self.retry
} finish_non_exhaustive);

/// The result of a [`count_many`].
#[non_exhaustive]
#[must_use = "keys may be missing"]
pub struct CountedMany<T: ShardedTable> {
    /// How many keys have a row that was counted on.
    pub rows: usize,
    /// The keys that have no row, in their order. Nothing was counted for them.
    pub missing: Vec<T::Key>,
}

shows!([T: ShardedTable<Key: fmt::Debug>] CountedMany<T>: |self| CountedMany { rows: self.rows, missing: self.missing } finish);

/// Counts on many rows, awaited.
#[cfg(feature = "async")]
pub mod asynchronous {
    use diesel_async::AsyncConnection;

    use super::*;
    use crate::connection::{Async, BoxFuture};

    /// Counts on many rows on a connection of `diesel_async`; see [`count_many`](crate::count_many()).
    pub fn count_many<F, I>(_fields: F, amounts: I) -> CountMany<F, NoInsert<KeyOf<F>>, Async>
    where
        F: IntegerFields<ParentTable: ShardedTable<Key: Ord>>,
        I: IntoIterator<Item = (KeyOf<F>, F::Amounts)>,
    {
        CountMany::of(amounts)
    }

    impl<F: IntegerFields, Ins> CountMany<F, Ins, Async> {
        /// Counts; see [`count_many`](crate::count_many()).
        ///
        /// # Errors
        /// As there. No total was changed then.
        pub fn run<'c, Conn, DB, Insert>(
            self,
            conn: &'c mut Conn,
        ) -> BoxFuture<'c, QueryResult<CountedMany<F::ParentTable>>>
        where
            F: CountableFields<DB> + Send + Sync + 'c,
            F::ParentTable: ShardedTable<KeyValues: Send>,
            Ins: Fn(&KeyOf<F>) -> Insert + Send + Sync + 'c,
            Insert: QueryFragment<DB> + QueryId + Send + 'c,
            Conn: AsyncConnection<Backend = DB>,
            DB: BackendOf<Conn>,
        {
            Box::pin(async move { self.count(&mut Link::awaited(conn)).await })
        }
    }

    impl<F: IntegerFields, Ins> Idempotent<CountMany<F, Ins, Async>> {
        /// Counts, unless that was done before, and returns the number of rows; see
        /// [the blocking method](Idempotent#method.run).
        ///
        /// # Errors
        /// As there. No total was changed then.
        pub fn run<'c, Conn, DB, Insert>(
            self,
            conn: &'c mut Conn,
        ) -> BoxFuture<'c, QueryResult<usize>>
        where
            F: CountableFields<DB> + Send + Sync + 'c,
            F::ParentTable: ShardedTable<Key: fmt::Debug, KeyValues: Send>,
            Ins: Fn(&KeyOf<F>) -> Insert + Send + Sync + 'c,
            Insert: QueryFragment<DB> + QueryId + Send + 'c,
            Conn: AsyncConnection<Backend = DB>,
            DB: BackendOf<Conn>,
        {
            Box::pin(async move {
                let link = &mut Link::awaited(conn);
                self.of.count_once(&self.key, link).await
            })
        }
    }
}

impl<F, Ins, Run, Insert, M, Conn, DB> Requested<M, Conn> for CountMany<F, Ins, Run>
where
    F: CountableFields<DB>,
    Ins: Fn(&KeyOf<F>) -> Insert,
    Insert: QueryFragment<DB> + QueryId,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    fn set_alone(&mut self, alone: bool) {
        self.alone = alone;
    }

    async fn carry_out(&mut self, link: &mut Link<'_, M, Conn>) -> QueryResult<usize> {
        Ok(self.count(link).await?.rows)
    }
}

impl<F: IntegerFields, Ins, Run> CountMany<F, Ins, Run> {
    async fn count_once<M, Conn>(
        mut self,
        key: &[u8],
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<usize>
    where
        Self: Requested<M, Conn>,
        KeyOf<F>: fmt::Debug,
        M: LoadIo<Conn>,
    {
        let request = Request::new(key, |text| {
            let table = <F::ParentTable as ShardedTable>::SHARDS_TABLE;
            match F::NAMES {
                [name] => {
                    let amounts = self.amounts.iter().map(|(key, n)| (key, n[0]));
                    let amounts = amounts.collect::<Vec<_>>();
                    write!(text, "{table}.{name} by {amounts:?}")
                }
                names => write!(text, "{table}.{names:?} by {:?}", self.amounts),
            }
        })?;
        let retry = self.retry.clone().unwrap_or_default();
        Ok(once(link, &request, retry, &mut self).await?.0)
    }

    pub(crate) async fn count<DB, M, Conn, Insert>(
        &self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<CountedMany<F::ParentTable>>
    where
        F: CountableFields<DB>,
        Ins: Fn(&KeyOf<F>) -> Insert,
        Insert: QueryFragment<DB> + QueryId,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let retry = self.retry.clone().unwrap_or_default().begun();
        let (dialect, inside) = (link.dialect(), in_transaction(link)?);
        let attempts = Attempts::start(retry.clone());
        let mut additions = vec![];
        for (key, sums) in self.amounts.iter() {
            (self.check_key)(key)?;
            let amounts = sums.iter().map(|sum| i64::try_from(*sum));
            let Ok(amounts) = amounts.collect::<Result<Vec<_>, _>>() else {
                let source =
                    DieselError::QueryBuilderError("amounts add up to more than an i64".into());
                return Err(Error::Overflow { source }.into());
            };
            let mut count = ready_to_add::<F, DB>(key.clone(), amounts.clone());
            count.alone = self.alone;
            let subject = Subject {
                in_batch: true,
                timed: false, // a wait may have been for any of the keys
                ..count.plan(link)?.subject()
            };
            let choice = Choice::new(subject, Process::this(), &attempts);
            additions.push(Addition {
                key: key.clone(),
                amounts,
                choice,
            });
        }
        let mut counting = Counting::<F, Ins> {
            additions,
            insert: self.insert.as_ref(),
            shards: shard_counts::known::<F::ParentTable>(F::NAMES.iter().copied()),
            attempts,
        };
        let options = TransactionOptions::of_a_count(dialect);
        let mut rung = match inside && !self.alone && dialect.missing_row_locks_gap() {
            true => Rung::Creating,
            false => Rung::Together,
        };
        loop {
            let (mut is_first, mut next) = (true, rung);
            let repeated = RetryLoop::transaction(link, retry.clone(), options)?;
            let counted = retry_loop!(link, repeated, {
                if !std::mem::take(&mut is_first) {
                    counting.leave_shards();
                }
                let climbed = counting.attempt::<DB, _, _, _>(link, rung).await;
                climbed.and_then(|climbed| {
                    climbed.map_err(|higher| {
                        next = higher;
                        DieselError::RollbackTransaction
                    })
                })
            });
            match counted {
                Err(DieselError::RollbackTransaction) if next != rung => rung = next,
                counted => {
                    return counted.map_err(|error| {
                        if matches!(dialect.classify(&error), Failure::Conflict(_)) {
                            counting.leave_shards(); // for who repeats the transaction
                        }
                        explain::<F::ParentTable, DB>(&link.backend(), error)
                    });
                }
            }
        }
    }
}

/// Counts on many rows, under way.
struct Counting<'a, F: IntegerFields, Ins> {
    additions: Vec<Addition<KeyOf<F>>>,
    insert: Option<&'a Ins>,
    /// How many shards there are to choose from.
    shards: u16,
    attempts: Attempts,
}

/// An amount for each field of a key's row, and the shard on which they are counted, chosen as a count of its own would.
struct Addition<Key> {
    key: Key,
    amounts: Vec<i64>,
    choice: Choice,
}

impl<F: IntegerFields, Ins> Counting<'_, F, Ins> {
    /// After a conflict, which may have been on any of the keys, the next attempt takes another shard of each.
    fn leave_shards(&mut self) {
        for Addition { choice, .. } in &mut self.additions {
            choice.met_conflict(&self.attempts);
            choice.again(&self.attempts);
        }
    }

    /// One attempt, in an open transaction, which has to be undone where another rung is the result.
    async fn attempt<DB, M, Conn, Insert>(
        &self,
        link: &mut Link<'_, M, Conn>,
        rung: Rung,
    ) -> QueryResult<Result<CountedMany<F::ParentTable>, Rung>>
    where
        F: CountableFields<DB>,
        Ins: Fn(&KeyOf<F>) -> Insert,
        Insert: QueryFragment<DB> + QueryId,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let mut counted = CountedMany {
            rows: 0,
            missing: vec![],
        };
        for additions in self.additions.chunks(KEYS_IN_A_STATEMENT) {
            let mut missing = vec![];
            if rung == Rung::EachAlone {
                for addition in additions {
                    let mut add =
                        ready_to_add::<F, DB>(addition.key.clone(), addition.amounts.clone());
                    if count(link, &mut add).await? == 0 {
                        missing.push(addition);
                    }
                }
            } else {
                missing = match count_together::<F, _, _, _>(link, rung, additions).await? {
                    Ok(missing) => missing,
                    Err(higher) => return Ok(Err(higher)),
                };
            }
            counted.rows += additions.len() - missing.len();
            for Addition { key, amounts, .. } in missing {
                match &self.insert {
                    Some(insert) => {
                        let insert = Some((insert(key), self.shards));
                        let mut add = ready_to_add_or_insert::<F, DB, _>(
                            key.clone(),
                            amounts.clone(),
                            insert,
                        );
                        counted.rows += count(link, &mut add).await?;
                    }
                    None => counted.missing.push(key.clone()),
                }
            }
        }
        Ok(Ok(counted))
    }
}

/// How many keys are counted on. Each rung costs more than the one before, and follows it where that cannot count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rung {
    /// In one statement; all shards exist.
    Together,
    /// In one statement, after another one that creates the missing shards.
    Creating,
    /// Key by key, since some of them are one to the database, or some row cannot take its amount.
    EachAlone,
}

/// Counts on many rows by one statement, in an open transaction; on every rung but the last one. Returns those that have no row, or the rung
/// on which to begin again, after this transaction was undone.
async fn count_together<'a, F, DB, M, Conn>(
    link: &mut Link<'_, M, Conn>,
    rung: Rung,
    additions: &'a [Addition<KeyOf<F>>],
) -> QueryResult<Result<Vec<&'a Addition<KeyOf<F>>>, Rung>>
where
    F: CountableFields<DB>,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    if rung != Rung::Together {
        for (shard, additions) in by_shard(additions) {
            let create = CreateShards {
                names: Names::of::<F::ParentTable>(),
                filter: &keys_are::<F::ParentTable, DB>(additions),
                shard,
                locks: false, // the count locks in an order of its own
            };
            link.execute(create).await?;
        }
    }
    let counted = match additions {
        [one] => {
            let mut add = ready_to_add::<F, DB>(one.key.clone(), one.amounts.clone());
            let step = Step {
                statement: Statement::CountByKey,
                shard: one.choice.shard(),
            };
            add.send_step(link, step).await?
        }
        _ => {
            link.execute_prepared(count_each::<F, DB>(additions))
                .await?
        }
    };
    if counted == additions.len() {
        return Ok(Ok(vec![]));
    }
    if rung == Rung::Together {
        return Ok(Err(Rung::Creating));
    }
    let found = rows_of::<F::ParentTable, DB, _, _>(link, additions).await?;
    let missing = additions.iter().filter(|one| !found.contains(&one.key));
    let missing: Vec<_> = missing.collect();
    if !found.is_empty() && !missing.is_empty() {
        // One that is there now is another name of a row that was found, or was inserted meanwhile.
        let others = rows_of::<F::ParentTable, DB, _, _>(link, missing.iter().copied()).await?;
        if !others.is_empty() {
            return Ok(Err(Rung::EachAlone));
        }
    }
    // Shards without a row were counted on too, as where nothing keeps the two together: then the number tells nothing.
    let keys = missing.iter().map(|addition| addition.key.clone());
    let orphans =
        LockedParents::<F::ParentTable, DB>::locked(*F::ParentTable::TABLE, keys.collect());
    let is_exact = counted + missing.len() == additions.len()
        && (counted == 0 || orphans.is_empty() || orphans.shards(link).await?.is_empty());
    Ok(match is_exact {
        true => Ok(missing),
        false => Err(Rung::EachAlone),
    })
}

/// The statement that adds to one shard of each row.
fn count_each<F, DB>(additions: &[Addition<KeyOf<F>>]) -> CountEachRow<F, F::ParentTable, DB>
where
    F: IntegerFields<ParentTable: KeyedTable<DB>>,
    DB: ShardedBackend,
{
    let row = |Addition { key, amounts, .. }: &Addition<KeyOf<F>>| CountedRow {
        key_values: F::ParentTable::key_values(key),
        key_is: F::ParentTable::key_is(key.clone()),
        amounts: amounts.clone(),
    };
    let shards = by_shard(additions).into_iter();
    let shards = shards.map(|(shard, additions)| CountedShard {
        shard,
        rows: additions.into_iter().map(row).collect(),
    });
    CountEach::new(shards.collect())
}

type CountEachRow<F, T, DB> =
    CountEach<F, <T as KeyedTable<DB>>::KeyIs, <T as ShardedTable>::KeyValues>;

fn by_shard<Key>(additions: &[Addition<Key>]) -> BTreeMap<i32, Vec<&Addition<Key>>> {
    let mut shards = BTreeMap::<_, Vec<_>>::new();
    for addition in additions {
        shards
            .entry(addition.choice.shard())
            .or_default()
            .push(addition);
    }
    shards
}

/// The keys of those rows that exist.
async fn rows_of<'k, T, DB, M, Conn>(
    link: &mut Link<'_, M, Conn>,
    additions: impl IntoIterator<Item = &'k Addition<T::Key>>,
) -> QueryResult<BTreeSet<T::Key>>
where
    T: KeyedTable<DB, Key: Ord + 'k>,
    DB: ShardedBackend,
    M: LoadIo<Conn, Backend = DB>,
{
    let filter = keys_are::<T, DB>(additions);
    let pick = SelectKeys::new(Names::of::<T>(), &filter);
    let keys = T::load_keys(link, pick).await?;
    Ok(keys.into_iter().collect())
}

fn keys_are<'k, T, DB>(
    additions: impl IntoIterator<Item = &'k Addition<T::Key>>,
) -> KeysAre<T::KeyIs>
where
    T: KeyedTable<DB, Key: 'k>,
    DB: ShardedBackend,
{
    let keys = additions.into_iter().map(|addition| &addition.key);
    KeysAre(keys.cloned().map(T::key_is).collect())
}

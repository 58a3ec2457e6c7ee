//! Many rows of one field or several, each with its own amounts, at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::marker::PhantomData;

use diesel::associations::HasTable;
use diesel::prelude::*;
use diesel::query_builder::{InsertStatement, QueryFragment, QueryId};
use diesel::result::QueryResult;

use crate::backend::{BackendOf, ShardedBackend};
use crate::conflict::ErrorClass;
use crate::connection::{Blocking, Ending, Link, LoadIo, TransactionOptions, paired};
use crate::counting::combine;
use crate::counting::idempotency::{Idempotent, Request, Requested, once};
use crate::counting::row_counter::add;
use crate::counting::update::NO_INSERT;
use crate::engine::{
    KEYS_IN_A_STATEMENT, KeyedTable, LockedRows, PartOf, ReadInto, RetryLoop, SendStatement,
    Statement, Step, explain, retry_loop,
};
use crate::error::Error;
use crate::model::{IntegerFields, ShardedTable, are_distinct, shows};
use crate::placement::{Choice, Process, Subject};
use crate::policy::{Attempts, RetryPolicy};
use crate::query_builder::{
    CountEach, CountedRow, CountedShard, CreateShards, KeysAre, Names, SelectKeys,
};
use crate::upkeep::shard_counts;

pub use self::blocking::count_many;

paired! {
    /// Begins to count one field of many rows, by their keys, each row with its own amount; or a tuple of fields, each row with an array of
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
    /// The increments are one transaction, which is retried after a conflict. Amounts of one key are added up, and the keys are sorted. Each
    /// 100 keys take one statement:
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
    /// If a shard is missing, the transaction begins again, creates the missing shards, and looks for missing rows.
    ///
    /// # Effect on the totals
    /// Each total changes by the sum of its key's amounts: all of them in one commit, or none.
    ///
    /// # Result
    /// [`CountedMany`]: the number of rows counted, and the keys that have no row. With [`or_insert`](CountMany::or_insert) none is
    /// missing. Named counters are counted by [`Counter::count_many`](crate::Counter::count_many).
    ///
    /// # Inside a transaction
    /// The increments are part of the caller's transaction, in a savepoint, and hold the locks of their shards until it ends. Nothing is
    /// retried.
    ///
    /// # Errors
    /// As [`update`](crate::update())'s, and [`Overflow`](crate::Error::Overflow) if the amounts of a key do not add up to an `i64`.
    pub fn count_many<F, I>(_fields: F, amounts: I) -> CountMany<F, NoInsert<KeyOf<F>>, Run>
    where
        F: IntegerFields<ParentTable: ShardedTable<Key: Ord>>,
        I: IntoIterator<Item = (KeyOf<F>, F::Amounts)>,
    {
        CountMany::of(amounts)
    }

    #[awaited(F: Send + Sync, F::ParentTable: ShardedTable<KeyValues: Send>, Ins: Send + Sync, Insert: Send)]
    impl<F: IntegerFields, Ins> CountMany<F, Ins, Run>
    where
        F: CountableFields<DB>,
        Ins: Fn(&KeyOf<F>) -> Insert,
        Insert: QueryFragment<DB>,
        Insert: QueryId,
        DB: BackendOf<Conn>,
    {
        /// Counts; see [`count_many`].
        ///
        /// # Errors
        /// As [`count_many`]'s. No total was changed then.
        pub fn run<Insert>(self, link: Link) -> QueryResult<CountedMany<F::ParentTable>> {
            self.count(link).await
        }
    }

    #[awaited(F: Send + Sync, F::ParentTable: ShardedTable<KeyValues: Send>, Ins: Send + Sync, Insert: Send)]
    impl<F: IntegerFields, Ins> Idempotent<CountMany<F, Ins, Run>>
    where
        F: CountableFields<DB>,
        KeyOf<F>: fmt::Debug,
        Ins: Fn(&KeyOf<F>) -> Insert,
        Insert: QueryFragment<DB>,
        Insert: QueryId,
        DB: BackendOf<Conn>,
    {
        /// Counts, unless that was done with this key before, and returns the number of rows counted, now or then. Only the same amounts
        /// are a repeat. A batch that meets no row leaves the key free. Keys without a row are left out as in [`CountMany::run`]:
        /// [insert](CountMany::or_insert) them, or compare the number.
        ///
        /// # Errors
        /// Those of [`count_many`] and of [`idempotency`](crate::idempotency). No total was changed then.
        pub fn run<Insert>(self, link: Link) -> QueryResult<usize> {
            self.of.count_once(&self.key, link).await
        }
    }
}

/// Counts on many rows; made by [`count_many`].
#[must_use = "nothing is counted until it is `.run(conn)`"]
pub struct CountMany<F: IntegerFields, Ins = NoInsert<KeyOf<F>>, Run = Blocking> {
    /// In the order of the keys, for each field.
    amounts: Vec<(KeyOf<F>, Vec<i128>)>,
    /// Makes the insert for a key that has no row.
    insert: Option<Ins>,
    retry: Option<RetryPolicy>,
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

    /// `amounts` are in the order of the keys, and contain each key once.
    pub(crate) fn of_sums(amounts: Vec<(KeyOf<F>, Vec<i128>)>) -> Self {
        CountMany {
            amounts,
            insert: None,
            retry: None,
            check_key: |_| Ok(()),
            run: PhantomData,
        }
    }

    /// Inserts the row that `row_of` makes for each key that has none, in the same transaction, and counts on it. The base of a field is
    /// the row's value of it, 0 if it has none.
    ///
    /// As with [`or_insert`](crate::operation::UpdateStatement::or_insert) of an update, callers that race insert one row, and lose no
    /// increment.
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

    /// As [`or_insert`](Self::or_insert), by a statement that inserts a key's row.
    pub(crate) fn inserting<Ins>(self, insert: Ins) -> CountMany<F, Ins, Run> {
        CountMany {
            amounts: self.amounts,
            insert: Some(insert),
            retry: self.retry,
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

    /// Refuses invalid keys before anything is sent.
    pub(crate) fn checking_keys(mut self, check_key: fn(&KeyOf<F>) -> Result<(), Error>) -> Self {
        self.check_key = check_key;
        self
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

impl<T: ShardedTable> CountedMany<T> {
    fn nothing() -> Self {
        CountedMany {
            rows: 0,
            missing: vec![],
        }
    }
}

shows!([T: ShardedTable<Key: fmt::Debug>] CountedMany<T>: |self| CountedMany { rows: self.rows, missing: self.missing } finish);

impl<F, Ins, Run, Insert, M, DB> Requested<M> for CountMany<F, Ins, Run>
where
    F: CountableFields<DB>,
    Ins: Fn(&KeyOf<F>) -> Insert,
    Insert: QueryFragment<DB> + QueryId,
    M: LoadIo<Backend = DB>,
    DB: ShardedBackend,
{
    async fn carry_out(&mut self, link: &mut Link<'_, M>) -> QueryResult<usize> {
        Ok(self.count(link).await?.rows)
    }
}

impl<F: IntegerFields, Ins, Run> CountMany<F, Ins, Run> {
    async fn count_once<M>(mut self, key: &[u8], link: &mut Link<'_, M>) -> QueryResult<usize>
    where
        Self: Requested<M>,
        KeyOf<F>: fmt::Debug,
        M: LoadIo,
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

    pub(crate) async fn count<DB, M, Insert>(
        &self,
        link: &mut Link<'_, M>,
    ) -> QueryResult<CountedMany<F::ParentTable>>
    where
        F: CountableFields<DB>,
        Ins: Fn(&KeyOf<F>) -> Insert,
        Insert: QueryFragment<DB> + QueryId,
        M: LoadIo<Backend = DB>,
        DB: ShardedBackend,
    {
        let mut counting = CountingMany::begin(self, link)?;
        let counted = counting.count().await;
        counted.map_err(|error| {
            let failure = counting.link.dialect().classify(&error);
            if matches!(failure, ErrorClass::Conflict(_)) {
                counting.leave_shards(); // for a caller that repeats its transaction
            }
            explain::<F::ParentTable, DB>(&counting.link.backend(), error)
        })
    }
}

/// An increment on many rows in progress.
struct CountingMany<'a, 'l, F: IntegerFields, Ins, M: LoadIo> {
    additions: Vec<KeyAmounts<KeyOf<F>>>,
    /// Makes the insert for a missing row; and the number of shards to choose from for that row.
    insert: Option<(&'a Ins, u16)>,
    attempts: Attempts,
    /// Whether to create missing shards before the first increment.
    creates_first: bool,
    link: &'a mut Link<'l, M>,
}

/// An amount for each field of a key's row, and the shard on which they are counted, chosen as for a single increment.
struct KeyAmounts<Key> {
    key: Key,
    amounts: Vec<i64>,
    choice: Choice,
}

impl<'a, 'l, F, Ins, Insert, M, DB> CountingMany<'a, 'l, F, Ins, M>
where
    F: CountableFields<DB>,
    Ins: Fn(&KeyOf<F>) -> Insert,
    Insert: QueryFragment<DB> + QueryId,
    M: LoadIo<Backend = DB>,
    DB: ShardedBackend,
{
    /// Chooses a shard of each row.
    fn begin<Run>(
        many: &'a CountMany<F, Ins, Run>,
        link: &'a mut Link<'l, M>,
    ) -> QueryResult<Self> {
        let retry = many.retry.clone().unwrap_or_default();
        let attempts = Attempts::start(retry.begun());
        let (dialect, part_of) = (link.dialect(), PartOf::of(link)?);
        let mut additions = vec![];
        for (key, sums) in many.amounts.iter() {
            (many.check_key)(key)?;
            let amounts = sums.iter().map(|sum| i64::try_from(*sum));
            let Ok(amounts) = amounts.collect::<Result<Vec<_>, _>>() else {
                return Err(Error::overflow("amounts add up to more than an i64").into());
            };
            let count = add::<F, DB, _>(key.clone(), amounts.clone(), NO_INSERT, dialect);
            let mut facts = count.facts;
            facts.part_of = part_of;
            let subject = Subject {
                in_batch: true,
                timed: false, // any of the keys may have caused a wait
                ..facts.subject()
            };
            let choice = Choice::new(subject, Process::this(), &attempts);
            additions.push(KeyAmounts {
                key: key.clone(),
                amounts,
                choice,
            });
        }
        let shards = shard_counts::known::<F::ParentTable>(F::NAMES.iter().copied());
        let locks_gaps = dialect.missing_row_locks_gap();
        Ok(CountingMany {
            additions,
            insert: many.insert.as_ref().map(|insert| (insert, shards)),
            attempts,
            creates_first: locks_gaps && part_of == PartOf::CallersTransaction,
            link,
        })
    }

    /// Takes another shard of each key after a conflict, which may have been on any of them.
    fn leave_shards(&mut self) {
        for KeyAmounts { choice, .. } in &mut self.additions {
            choice.met_conflict(&self.attempts);
            choice.again(&self.attempts);
        }
    }

    /// Counts on all rows together, at first as if no shard were missing. If that does not count on each row once, counts on each alone.
    async fn count(&mut self) -> QueryResult<CountedMany<F::ParentTable>> {
        let options = TransactionOptions::of_a_count(self.link.dialect());
        let retry = self.attempts.retry().clone();
        let ways = [false, true].into_iter();
        for creates in ways.skip(self.creates_first.into()) {
            let mut is_first = true;
            let repeated = RetryLoop::transaction(self.link, retry.clone(), options)?;
            let counted = retry_loop!(self.link, repeated, ending => {
                if !std::mem::take(&mut is_first) {
                    self.leave_shards();
                }
                let counted = self.together(creates).await?;
                Ok(Ending::commit_if(counted.is_some(), counted))
            });
            if let Some(counted) = counted? {
                return Ok(counted);
            }
        }
        let repeated = RetryLoop::transaction(self.link, retry, options)?;
        retry_loop!(self.link, repeated, self.one_by_one().await)
    }

    /// Counts on many rows by one statement. If it `creates` missing shards, other statements do that first. `None` if some row was not
    /// counted exactly once: that has to be undone.
    async fn together(
        &mut self,
        creates: bool,
    ) -> QueryResult<Option<CountedMany<F::ParentTable>>> {
        let mut counted = CountedMany::nothing();
        for additions in self.additions.chunks(KEYS_IN_A_STATEMENT) {
            if creates {
                Self::create_shards(self.link, additions).await?;
            }
            let rows = Self::add_together(self.link, additions).await?;
            counted.rows += rows;
            if rows == additions.len() {
                continue;
            }
            if !creates {
                return Ok(None);
            }
            let missing = Self::missing(self.link, rows, additions).await?;
            let Some(missing) = missing else {
                return Ok(None);
            };
            for addition in missing {
                Self::add_to_missing(self.link, addition, self.insert, &mut counted).await?;
            }
        }
        Ok(Some(counted))
    }

    /// Counts on each row by itself, since some keys are the same to the database, or some row cannot accept its amount.
    async fn one_by_one(&mut self) -> QueryResult<CountedMany<F::ParentTable>> {
        let mut counted = CountedMany::nothing();
        for addition in &self.additions {
            let rows = Self::add_one(self.link, addition, None).await?;
            counted.rows += rows;
            if rows == 0 {
                Self::add_to_missing(self.link, addition, self.insert, &mut counted).await?;
            }
        }
        Ok(counted)
    }

    /// Counts on a missing row, if it can be inserted.
    async fn add_to_missing(
        link: &mut Link<'_, M>,
        addition: &KeyAmounts<KeyOf<F>>,
        insert: Option<(&Ins, u16)>,
        counted: &mut CountedMany<F::ParentTable>,
    ) -> QueryResult<()> {
        match insert {
            Some((insert, shards)) => {
                let insert = (insert(&addition.key), shards);
                counted.rows += Self::add_one(link, addition, Some(insert)).await?;
            }
            None => counted.missing.push(addition.key.clone()),
        }
        Ok(())
    }

    async fn add_one(
        link: &mut Link<'_, M>,
        addition: &KeyAmounts<KeyOf<F>>,
        insert: Option<(Insert, u16)>,
    ) -> QueryResult<usize> {
        let (key, amounts) = (addition.key.clone(), addition.amounts.clone());
        let mut add = add::<F, DB, _>(key, amounts, insert, link.dialect());
        combine::count(link, &mut add).await
    }

    /// Creates the missing shards of existing rows.
    async fn create_shards(
        link: &mut Link<'_, M>,
        additions: &[KeyAmounts<KeyOf<F>>],
    ) -> QueryResult<()> {
        for (shard, additions) in by_shard(additions) {
            let create = CreateShards {
                names: Names::of::<F::ParentTable>(),
                filter: &Self::keys_are(additions),
                shard,
                locks: false, // the increment locks in its own order
            };
            link.execute(create).await?;
        }
        Ok(())
    }

    /// Adds to a shard of each row by one statement. Returns the number of shards that it met.
    async fn add_together(
        link: &mut Link<'_, M>,
        additions: &[KeyAmounts<KeyOf<F>>],
    ) -> QueryResult<usize> {
        if let [one] = additions {
            let (key, amounts) = (one.key.clone(), one.amounts.clone());
            let mut add = add::<F, DB, _>(key, amounts, NO_INSERT, link.dialect());
            let step = Step {
                statement: Statement::CountByKey,
                shard: one.choice.shard(),
            };
            return add.send(link, step).await;
        }
        let row = |KeyAmounts { key, amounts, .. }: &KeyAmounts<KeyOf<F>>| CountedRow {
            key_values: F::ParentTable::key_values(key),
            key_is: F::ParentTable::key_is(key.clone()),
            amounts: amounts.clone(),
        };
        let shards = by_shard(additions).into_iter();
        let shards = shards.map(|(shard, additions)| CountedShard {
            shard,
            rows: additions.into_iter().map(row).collect(),
        });
        let count_each = CountEach::<F, _, _>::new(shards.collect());
        link.execute_prepared(count_each).await
    }

    /// The additions without a row, given the number of shards that were `met`; `None` if it is not certain that each other addition was
    /// counted once.
    async fn missing<'k>(
        link: &mut Link<'_, M>,
        met: usize,
        additions: &'k [KeyAmounts<KeyOf<F>>],
    ) -> QueryResult<Option<Vec<&'k KeyAmounts<KeyOf<F>>>>> {
        let found = Self::rows_of(link, additions).await?;
        let missing = additions.iter().filter(|one| !found.contains(&one.key));
        let missing: Vec<_> = missing.collect();
        if !found.is_empty() && !missing.is_empty() {
            // If one of these exists now, it is another name of a row that was found, or was inserted meanwhile.
            let others = Self::rows_of(link, missing.iter().copied()).await?;
            if !others.is_empty() {
                return Ok(None);
            }
        }
        // If shards without a row were counted on too, the number tells nothing. There may be some if nothing keeps shards and rows
        // together.
        let keys = missing.iter().map(|addition| addition.key.clone());
        let orphans =
            LockedRows::<F::ParentTable, DB>::locked(*F::ParentTable::TABLE, keys.collect());
        let is_exact = met + missing.len() == additions.len()
            && (met == 0 || orphans.is_empty() || orphans.on(link).shards().await?.is_empty());
        Ok(is_exact.then_some(missing))
    }

    /// The keys of the rows that exist.
    async fn rows_of<'k>(
        link: &mut Link<'_, M>,
        additions: impl IntoIterator<Item = &'k KeyAmounts<KeyOf<F>>>,
    ) -> QueryResult<BTreeSet<KeyOf<F>>>
    where
        KeyOf<F>: 'k,
    {
        let filter = Self::keys_are(additions);
        let pick = SelectKeys::new(Names::of::<F::ParentTable>(), &filter);
        let keys = <F::ParentTable as KeyedTable<DB>>::KeySql::rows(link, pick).await?;
        Ok(keys.into_iter().collect())
    }

    fn keys_are<'k>(
        additions: impl IntoIterator<Item = &'k KeyAmounts<KeyOf<F>>>,
    ) -> KeysAre<<F::ParentTable as KeyedTable<DB>>::KeyIs>
    where
        KeyOf<F>: 'k,
    {
        let keys = additions.into_iter().map(|addition| &addition.key);
        KeysAre(keys.cloned().map(F::ParentTable::key_is).collect())
    }
}

fn by_shard<Key>(additions: &[KeyAmounts<Key>]) -> BTreeMap<i32, Vec<&KeyAmounts<Key>>> {
    let mut shards = BTreeMap::<_, Vec<_>>::new();
    for addition in additions {
        shards
            .entry(addition.choice.shard())
            .or_default()
            .push(addition);
    }
    shards
}

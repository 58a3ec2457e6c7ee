//! Named counters: created on the fly, without a table of the application's own.
//!
//! They live in the library's own tables (see [`MIGRATIONS`](crate::MIGRATIONS)). Those are a parent like any other, with one sharded
//! field: the derive declares them, and the same statements count, fold and set them.

mod list;
mod sql;

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::marker::PhantomData;
use std::ops::ControlFlow;

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel::sql_types::BigInt;

use crate::ShardedField;
use crate::backend::{BackendOf, Dialect};
use crate::connection::{
    Blocking, Link, LoadIo, TransactionOptions, in_any_transaction, now, paired,
};
use crate::counting::bounded::Within;
use crate::counting::combine::{Combine, Combiner};
use crate::counting::count_many::CountMany;
use crate::counting::idempotency::{Idempotent, Request, Requested, once};
use crate::counting::row_counter::{Adding, CachedAs, IntegerField, OneCounter, TableOf, add};
use crate::engine::{
    KEYS_IN_A_STATEMENT, KeyedTable, explain, locking, locking_options, retry_loop,
};
use crate::error::Error;
use crate::model::ShardedTable;
use crate::policy::RetryPolicy;
use crate::query_builder::KeyIs;
use crate::upkeep::fold::{Batches, Folded, Folding};
use crate::upkeep::set_total::set_by_key;
use crate::upkeep::shard_counts::{self, Number};

use self::sql::{DeleteCounter, SelectedRows, explain_counters, select};

pub use self::list::{CounterList, TopCounters};
pub use self::sql::InsertCounter;

diesel::table! {
    /// The named counters: a sharded table like any other, for [`fold`](crate::fold()), [`verify`](crate::verify()) and
    /// queries with `value.total()`. Names are UTF-8, as bytes.
    #[sql_name = "diesel_sharded_counters"]
    counters (name) {
        /// The name, in UTF-8.
        name -> Binary,
        /// The base.
        value -> BigInt,
    }
}

#[derive(ShardedField)]
#[diesel(table_name = counters, primary_key(name))]
#[sharded(table_name = diesel_sharded_counter_shards, shards = 128)]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct NamedCounter {
    name: Vec<u8>,
    #[sharded]
    value: i64,
}

/// A backend whose connections have named counters. Every backend of the crate implements the trait, which collects the necessary
/// bounds.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no named counters on a `{Conn}`",
    note = "enable the feature `postgres`, `mysql` or `sqlite` of `diesel_sharded` (or `postgres_backend`, `mysql_backend`)",
    note = "for an enum with `#[derive(MultiConnection)]`, call `diesel_sharded::multi_connection!` beside it"
)]
pub trait CounterBackend<Conn>: BackendOf<Conn> {
    /// [`counters::value`].
    #[doc(hidden)]
    type Value: IntegerField<Self, Table: ShardedTable<Key = Vec<u8>>, SqlType = BigInt> + Default;
}

impl<Conn, DB> CounterBackend<Conn> for DB
where
    DB: BackendOf<Conn>,
    counters::value: IntegerField<DB>,
{
    type Value = counters::value;
}

/// A counter that is known only by its name, and exists from its first increment on.
///
/// ```
/// # use diesel::prelude::*;
/// # use diesel_migrations::MigrationHarness;
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// # let conn = &mut SqliteConnection::establish(":memory:")?;
/// use diesel_sharded::Counter;
///
/// conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?; // once
///
/// Counter::named("signups").increment(conn)?;
/// Counter::named("page:/about").add(3, conn)?;
/// Counter::named("page:/").decrement(conn)?;
/// assert_eq!(Counter::named("page:/about").get(conn)?, 3);
///
/// let pages = Counter::list("page:").load(conn)?;
/// assert_eq!(pages, [("page:/".to_owned(), -1), ("page:/about".to_owned(), 3)]);
/// # Ok(())
/// # }
/// ```
///
/// # Names
/// Any UTF-8 of 1 to 255 bytes. Two names are the same counter only if they are the same bytes, on every database: `"A"` and
/// `"a"`, `"é"` and `"e"`, with and without a space at the end are different counters. (Two forms of one letter, precomposed or
/// not, are different bytes too: normalize names that people type.)
///
/// # Errors
/// The errors of each operation are those of [`update`](crate::update()); also [`InvalidCounterName`](Error::InvalidCounterName) if the
/// name is empty or too long, and [`MissingShardsTable`](Error::MissingShardsTable) if the library's migrations have not run.
///
/// After the counters of [App Engine's article](https://web.archive.org/web/2010/http://code.google.com/appengine/articles/sharding_counters.html).
#[derive(Debug, Clone)]
#[must_use = "a counter does nothing by itself"]
pub struct Counter<Run = Blocking> {
    pub(crate) name: String,
    combine: Combine,
    run: PhantomData<fn() -> Run>,
}

/// A named counter that stays within bounds; made by [`Counter::never_below`] and [`Counter::never_above`].
///
/// ```
/// # use diesel::prelude::*;
/// # use diesel_migrations::MigrationHarness;
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// # let conn = &mut SqliteConnection::establish(":memory:")?;
/// # conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
/// use diesel_sharded::Counter;
///
/// // At most two requests of this customer in this minute.
/// let requests = Counter::named("requests:42:12:30").never_above(2);
/// assert!(requests.add(1, conn)?);
/// assert!(requests.add(1, conn)?);
/// assert!(!requests.add(1, conn)?);
/// # Ok(())
/// # }
/// ```
///
/// It is [`Bounded`](crate::bounded::Bounded) on the library's own tables, with the same SQL, and the same rules: all processes use the
/// same bounds, and nobody counts on it without them. A counter that does not exist has the total 0, and is created by the first increment that
/// its bounds allow.
pub type BoundedCounter<Run = Blocking> = Within<Counter<Run>>;

paired! {
    impl<> Counter<Run>
    where
        DB: CounterBackend<Conn>,
    {
        /// Adds 1.
        ///
        /// # Errors
        /// See [`Counter`](Self#errors).
        pub fn increment(&self, link: Link) -> QueryResult<()> {
            self.count(1, link).await.map(drop)
        }

        /// Subtracts 1, also below zero.
        ///
        /// # Errors
        /// See [`Counter`](Self#errors).
        pub fn decrement(&self, link: Link) -> QueryResult<()> {
            self.count(-1, link).await.map(drop)
        }

        /// Adds `n`, which may be negative.
        ///
        /// It is [`update`](crate::update()) with [`or_insert`](crate::operation::UpdateStatement::or_insert): one statement, or a
        /// transaction of a few more at the first increment and at the first one on a shard. Inside a transaction the increment is part of
        /// the caller's.
        ///
        /// ```sql
        /// UPDATE "diesel_sharded_counter_shards" AS "diesel_sharded_counters"
        /// SET "value" = ("diesel_sharded_counters"."value" + $1)
        /// WHERE ("diesel_sharded_counters"."name" = $2) AND "diesel_sharded_counters"."shard" = $3
        /// ```
        ///
        /// Its effect on the total: `n`. Adding 0 sends nothing, and creates no counter.
        ///
        /// # Errors
        /// See [`Counter`](Self#errors).
        pub fn add(&self, link: Link, n: i64) -> QueryResult<()> {
            self.count(n, link).await.map(drop)
        }

        /// Adds `n`, which may be negative, and returns the new total. The increment and the read are one statement or one transaction,
        /// so the total contains `n`, and no increment that another connection has not committed by then. Two callers at once may get the
        /// same total: take numbers that have to be unique from a sequence or a plain column.
        ///
        /// The SQL is that of [`update`](crate::update#results) with `.returning(..)`. Adding 0 is [`get`](Self::get).
        ///
        /// ```
        /// # use diesel::prelude::*;
        /// # use diesel_migrations::MigrationHarness;
        /// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        /// # let conn = &mut SqliteConnection::establish(":memory:")?;
        /// # conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
        /// use diesel_sharded::Counter;
        ///
        /// assert_eq!(Counter::named("page:/").add_and_get(1, conn)?, 1);
        /// assert_eq!(Counter::named("page:/").add_and_get(2, conn)?, 3);
        /// # Ok(())
        /// # }
        /// ```
        ///
        /// # Errors
        /// See [`Counter`](Self#errors).
        pub fn add_and_get(&self, link: Link, n: i64) -> QueryResult<i64> {
            let total = self.count_and_total(n, link).await?;
            total.ok_or(DieselError::NotFound) // a trigger keeps the counter out
        }

        /// The exact total; 0 for a counter that was never used.
        ///
        /// ```sql
        /// SELECT "diesel_sharded_counters"."name", total FROM "diesel_sharded_counters"
        /// WHERE "diesel_sharded_counters"."name" IN ($1)
        /// ```
        ///
        /// # Errors
        /// See [`Counter`](Self#errors).
        pub fn get(&self, link: Link) -> QueryResult<i64> {
            self.value(true, link).await
        }

        /// The base alone, without the sum: as fresh as the last [`fold`](Self::fold) or [`set`](Self::set).
        ///
        /// # Errors
        /// See [`Counter`](Self#errors).
        pub fn estimate(&self, link: Link) -> QueryResult<i64> {
            self.value(false, link).await
        }

        /// Sets the total, and creates the counter if it does not exist. It is [`set_total`](crate::set_total()) by key, with the
        /// same effect, also inside a transaction.
        ///
        /// ```sql
        /// BEGIN;                                                 -- READ COMMITTED; SQLite: BEGIN IMMEDIATE, and no FOR UPDATE
        /// SELECT 1 FROM "diesel_sharded_counters" WHERE … FOR UPDATE;
        /// SELECT 1 FROM "diesel_sharded_counter_shards" AS "diesel_sharded_counters" WHERE … ORDER BY … FOR UPDATE;
        /// UPDATE "diesel_sharded_counters" SET "value" = $1 WHERE …;
        /// UPDATE "diesel_sharded_counter_shards" AS "diesel_sharded_counters" SET "value" = 0 WHERE … AND (… <> 0);
        /// COMMIT
        /// ```
        ///
        /// # Errors
        /// See [`Counter`](Self#errors).
        pub fn set(&self, link: Link, total: i64) -> QueryResult<()> {
            self.set_to(total, link).await
        }

        /// Sets the total to 0; see [`set`](Self::set).
        ///
        /// # Errors
        /// See [`Counter`](Self#errors).
        pub fn reset(&self, link: Link) -> QueryResult<()> {
            self.set_to(0, link).await
        }

        /// Removes the counter with its shards and its number of shards, and returns whether it existed. A later increment begins again
        /// at zero.
        ///
        /// ```sql
        /// DELETE FROM "diesel_sharded_counters" WHERE "diesel_sharded_counters"."name" = $1;
        /// DELETE FROM "diesel_sharded_shard_numbers" WHERE "shards_table" = $1 AND "counter" = $2
        /// ```
        ///
        /// # Errors
        /// See [`Counter`](Self#errors).
        pub fn delete(&self, link: Link) -> QueryResult<bool> {
            self.remove(link).await
        }

        /// Moves the shards into the base; see [`fold`](crate::fold()). No total changes.
        ///
        /// # Errors
        /// See [`Counter`](Self#errors).
        pub fn fold(&self, link: Link) -> QueryResult<Folded<counters::table>> {
            let keep = match in_any_transaction(link).await? {
                true => self.number().known(),
                false => self.number().get(link).await?,
            };
            self.fold_to(keep, link).await
        }

        /// How many shards writers choose from; 128 unless it was changed.
        ///
        /// # Errors
        /// See [`Counter`](Self#errors).
        pub fn shards(&self, link: Link) -> QueryResult<u16> {
            check(&self.name)?;
            self.number().get(link).await
        }

        /// Raises the number of shards to `n`, but never lowers it, and returns the resulting number. It takes effect in this process
        /// at once, in others when they follow: see [`shard_counts`](crate::shard_counts).
        ///
        /// # Errors
        /// See [`Counter`](Self#errors); [`InvalidShardCount`](Error::InvalidShardCount) unless `n` is from 1 to 4096.
        pub fn increase_shards(&self, link: Link, n: u16) -> QueryResult<u16> {
            check(&self.name)?;
            self.number().write(n, true, link).await
        }

        /// Sets the number of shards, up or down, and folds the counter, so that shards beyond the number are removed. No total
        /// changes.
        ///
        /// # Errors
        /// As [`increase_shards`](Self::increase_shards).
        pub fn resize(&self, link: Link, n: u16) -> QueryResult<()> {
            check(&self.name)?;
            self.number().write(n, false, link).await?;
            self.fold_to(n, link).await.map(drop)
        }
    }

    impl<> Idempotent<Counter<Run>>
    where
        DB: CounterBackend<Conn>,
    {
        /// Adds `n`, which may be negative, unless that was done with this key before. Returns the number of counters counted, now
        /// or then: 1.
        ///
        /// # Errors
        /// As [`set`](Self::set).
        pub fn add(&self, link: Link, n: i64) -> QueryResult<usize> {
            Ok(self.of.count_once(n, &self.key, link).await?.0)
        }

        /// Adds `n` in the same way, and returns the new total. A repeat adds nothing, and returns the current total.
        ///
        /// # Errors
        /// As [`set`](Self::set).
        pub fn add_and_get(&self, link: Link, n: i64) -> QueryResult<i64> {
            let total = self.of.count_once_and_total(n, &self.key, link).await?;
            total.ok_or(DieselError::NotFound) // a trigger keeps the counter out
        }

        /// Sets the total, unless that was done with this key before; see [`Counter::set`]. A repeat changes nothing, even if the counter
        /// was added to, set or deleted in the meantime.
        ///
        /// ```
        /// # use diesel::prelude::*;
        /// # use diesel_migrations::MigrationHarness;
        /// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        /// # let conn = &mut SqliteConnection::establish(":memory:")?;
        /// # conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
        /// use diesel_sharded::Counter;
        ///
        /// let visits = Counter::named("visits");
        /// visits.idempotency_key("import of May").set(700, conn)?;
        /// visits.increment(conn)?;
        /// visits.idempotency_key("import of May").set(700, conn)?; // a job that runs again
        /// assert_eq!(visits.get(conn)?, 701);
        /// # Ok(())
        /// # }
        /// ```
        ///
        /// # Errors
        /// Those of the counter; [`InvalidIdempotencyKey`](Error::InvalidIdempotencyKey) for a key that is empty or too long,
        /// [`IdempotencyKeyReused`](Error::IdempotencyKeyReused) for a key that came with another request before.
        pub fn set(&self, link: Link, total: i64) -> QueryResult<()> {
            self.change(Change::Set(total), link).await.map(drop)
        }

        /// Sets the total to 0, unless that was done with this key before; see [`set`](Self::set).
        ///
        /// # Errors
        /// As [`set`](Self::set).
        pub fn reset(&self, link: Link) -> QueryResult<()> {
            self.change(Change::Set(0), link).await.map(drop)
        }

        /// Removes the counter, unless that was done with this key before; see [`Counter::delete`]. Returns whether it existed, now or
        /// then. If there was no counter, nothing was done, and the key is free.
        ///
        /// # Errors
        /// As [`set`](Self::set).
        pub fn delete(&self, link: Link) -> QueryResult<bool> {
            Ok(self.change(Change::Delete, link).await? > 0)
        }
    }
}

/// Makes the insert for a counter that does not exist.
type InsertNamed = fn(&Vec<u8>) -> InsertCounter;

impl<Run> Counter<Run> {
    /// The counter of this name, whether it exists yet or not.
    pub fn named(name: impl Into<String>) -> Self {
        Counter {
            name: name.into(),
            combine: Combine::default(),
            run: PhantomData,
        }
    }

    /// Counts on many counters at once, each with its own amount. Counters that do not exist are created, even for an amount of 0. It is
    /// [`count_many`](crate::count_many()) with [`or_insert`](CountMany::or_insert), with the same SQL, also inside a transaction, and with
    /// the same [idempotency key](CountMany::idempotency_key).
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel_migrations::MigrationHarness;
    /// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// # let conn = &mut SqliteConnection::establish(":memory:")?;
    /// # conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
    /// use diesel_sharded::Counter;
    ///
    /// let counted = Counter::count_many([("page:/", 3), ("page:/about", 1), ("page:/", 2)]).run(conn)?;
    /// assert_eq!(counted.rows, 2);
    /// assert_eq!(Counter::named("page:/").get(conn)?, 5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Its effect on the totals: all of them change in one commit, or none of them.
    ///
    /// # Errors
    /// [`run`](CountMany::run) fails with those of [`Counter`](Self#errors) and [`Overflow`](Error::Overflow), if the amounts of a name do
    /// not add up to an `i64`.
    pub fn count_many<Name: AsRef<str>>(
        amounts: impl IntoIterator<Item = (Name, i64)>,
    ) -> CountMany<counters::value, InsertNamed, Run> {
        let by_key = |(name, n): (Name, _)| (name.as_ref().as_bytes().to_vec(), n);
        let many = CountMany::of(amounts.into_iter().map(by_key));
        let insert: InsertNamed = |name| InsertCounter::named(name);
        many.inserting(insert).checking_keys(|name| check(name))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The `n` counters with the greatest totals whose names begin with `prefix`; see [`TopCounters`].
    pub fn top(prefix: impl Into<String>, n: u32) -> TopCounters<Run> {
        TopCounters::new(prefix.into(), n)
    }

    /// The counters whose names begin with `prefix`, in the order of their bytes, page by page; see [`CounterList`].
    pub fn list(prefix: impl Into<String>) -> CounterList<Run> {
        CounterList::new(prefix.into())
    }

    /// The same counter, whose increments may share a commit with others through the same combiner; see [`combine`](crate::combine).
    pub fn combine(&self, combiner: &Combiner) -> Self {
        self.combined(Combine::With(combiner.clone()))
    }

    /// The same counter, which counts by itself, even if the connection is [admitted](Combiner::admit) to a combiner.
    pub fn alone(&self) -> Self {
        self.combined(Combine::Alone)
    }

    fn combined(&self, combine: Combine) -> Self {
        Counter {
            combine,
            ..Self::named(self.name.as_str())
        }
    }

    /// The same counter, which is changed only once by all requests with this key of 1 to 255 bytes: added to, set, reset or
    /// deleted. See [`idempotency`](crate::idempotency).
    pub fn idempotency_key(&self, key: impl AsRef<[u8]>) -> Idempotent<Self> {
        Idempotent::new(Self::named(self.name.as_str()), key)
    }

    /// The exact total, or the base; 0 for a counter that was never used.
    async fn value<M: LoadIo>(&self, exact: bool, link: &mut Link<'_, M>) -> QueryResult<i64> {
        let rows = SelectedRows::Named(vec![key(&self.name)?]);
        let found = select(rows, exact, link).await?;
        Ok(found.first().map_or(0, |(_, value)| *value))
    }

    async fn set_to<DB, M>(&self, total: i64, link: &mut Link<'_, M>) -> QueryResult<()>
    where
        M: LoadIo<Backend = DB>,
        DB: CounterBackend<M::Conn>,
    {
        for left in (0..MOST_CREATED).rev() {
            let set = set_by_key::<DB::Value, _, _>(link, key(&self.name)?, total).await;
            if set.map_err(|error| explain_counters(&link.backend(), error))? > 0 {
                return Ok(());
            }
            if left > 0 {
                self.create(link).await?;
            }
        }
        Err(DieselError::NotFound)
    }

    /// Removes the counter, and returns whether it existed.
    async fn remove<M: LoadIo>(&self, link: &mut Link<'_, M>) -> QueryResult<bool> {
        let name = key(&self.name)?;
        let repeated = locking(link, RetryPolicy::default())?;
        retry_loop!(link, repeated, {
            self.number().forget(link).await?;
            let delete = DeleteCounter { name: name.clone() };
            Ok(link.execute(delete).await? > 0)
        })
    }

    async fn fold_to<DB, M>(
        &self,
        keep_shards: u16,
        link: &mut Link<'_, M>,
    ) -> QueryResult<Folded<counters::table>>
    where
        M: LoadIo<Backend = DB>,
        DB: CounterBackend<M::Conn>,
    {
        let folding = Folding {
            of: *TableOf::<DB::Value>::TABLE,
            keep: Some(keep_shards),
            cold_below: None,
            retry: RetryPolicy::default(),
            dialect: link.dialect(),
            inside: in_any_transaction(link).await?,
            reports: false,
        };
        let by_name = Batches {
            filter: KeyIs(TableOf::<DB::Value>::key_is(key(&self.name)?)),
            batch: KEYS_IN_A_STATEMENT,
            per_second: None,
        };
        let mut folded = Folded::nothing(counters::table::FIELDS, None);
        let to_the_end = &mut |_: &Folded<_>| ControlFlow::Continue(());
        let folding = folding.fold_all(&by_name, &mut folded, link, to_the_end);
        let done = folding.await;
        done.map_err(|error| explain_counters(&link.backend(), error))?;
        Ok(folded)
    }

    pub(crate) fn number(&self) -> Number {
        Number::of_counter::<counters::table>(self.name.as_bytes())
    }
}

/// How many times an operation creates a counter, if another connection keeps deleting it.
pub(super) const MOST_CREATED: u8 = 4;

impl<Run, M, DB> OneCounter<M> for Counter<Run>
where
    M: LoadIo<Backend = DB>,
    DB: CounterBackend<M::Conn>,
{
    type Field = DB::Value;
    type Insert = InsertCounter;

    const IS_INSERTED: bool = true;

    fn field(&self) -> DB::Value {
        DB::Value::default()
    }

    fn key(&self) -> QueryResult<Vec<u8>> {
        Ok(key(&self.name)?)
    }

    fn shards(&self) -> u16 {
        self.number().known()
    }

    fn adding(
        &self,
        n: i64,
        dialect: Dialect,
    ) -> QueryResult<Adding<DB::Value, DB, InsertCounter>> {
        let name = key(&self.name)?;
        let insert = (InsertCounter::named(&name), self.number().known());
        let mut count = add(name, vec![n], Some(insert), dialect);
        count.combine = self.combine.clone();
        Ok(count)
    }

    async fn begin(&self, link: &mut Link<'_, M>) -> QueryResult<()> {
        check(&self.name)?;
        shard_counts::keep_fresh(link).await
    }

    async fn is_there(&self, _: &mut Link<'_, M>) -> QueryResult<bool> {
        check(&self.name)?;
        Ok(true) // no operation reports whether the counter exists
    }

    async fn total(&self, link: &mut Link<'_, M>) -> QueryResult<Option<i64>> {
        self.value(true, link).await.map(Some)
    }

    fn explained(&self, link: &Link<'_, M>, error: DieselError) -> DieselError {
        let backend = &link.backend();
        explain_counters(backend, explain::<TableOf<DB::Value>, DB>(backend, error))
    }
}

impl<Run> CachedAs for Counter<Run> {
    fn cached_as(&self) -> String {
        format!("{}:{:?}", counters::table::SHARDS_TABLE, self.name)
    }
}

impl Counter {
    /// The exact totals of many counters, in the order of `names`; 0 for counters that were never used. One query reads up to 10,000 names,
    /// at one instant. Each further 10,000 names take one more query, because databases limit parameters.
    ///
    /// ```sql
    /// SELECT "diesel_sharded_counters"."name", total FROM "diesel_sharded_counters"
    /// WHERE "diesel_sharded_counters"."name" IN ($1, $2, …)
    /// ```
    ///
    /// # Errors
    /// See [`Counter`](Self#errors).
    pub fn get_many<Conn, S>(names: &[S], conn: &mut Conn) -> QueryResult<Vec<i64>>
    where
        S: AsRef<str>,
        Conn: LoadConnection,
        Conn::Backend: CounterBackend<Conn>,
    {
        now(totals(names, &mut Link::blocking(conn)))
    }
}

#[cfg(feature = "async")]
impl Counter<crate::connection::Async> {
    /// The totals of many counters; see [`Counter::get_many`](crate::Counter::get_many).
    ///
    /// # Errors
    /// As there.
    pub fn get_many<'c, Conn, S>(
        names: &'c [S],
        conn: &'c mut Conn,
    ) -> crate::connection::BoxFuture<'c, QueryResult<Vec<i64>>>
    where
        S: AsRef<str> + Sync,
        Conn: diesel_async::AsyncConnection,
        Conn::Backend: CounterBackend<Conn>,
    {
        Box::pin(async move { totals(names, &mut Link::awaited(conn)).await })
    }
}

async fn totals<S, M>(names: &[S], link: &mut Link<'_, M>) -> QueryResult<Vec<i64>>
where
    S: AsRef<str>,
    M: LoadIo,
{
    let keys = names.iter().map(|name| key(name.as_ref()));
    let keys: Vec<Vec<u8>> = keys.collect::<Result<_, _>>()?;
    let mut totals = HashMap::with_capacity(keys.len());
    for keys in keys.chunks(10_000) {
        totals.extend(select(SelectedRows::Named(keys.to_vec()), true, link).await?);
    }
    let total = |key| totals.get(key).copied().unwrap_or(0);
    Ok(keys.iter().map(total).collect())
}

#[cfg(feature = "async")]
impl From<Counter> for Counter<crate::connection::Async> {
    fn from(counter: Counter) -> Self {
        Counter {
            combine: counter.combine,
            ..Self::named(counter.name)
        }
    }
}

impl<Run> AsRef<str> for Counter<Run> {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

impl<Run> fmt::Display for Counter<Run> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The longest name, in bytes.
const LONGEST: usize = 255;

/// The name as the key of a counter.
fn key(name: &str) -> Result<Vec<u8>, Error> {
    check(name)?;
    Ok(name.as_bytes().to_vec())
}

/// Whether a counter may have this name.
pub(crate) fn check(name: impl AsRef<[u8]>) -> Result<(), Error> {
    match name.as_ref().len() {
        1..=LONGEST => Ok(()),
        bytes => Err(Error::InvalidCounterName { bytes }),
    }
}

/// A change of a counter other than an increment, that an idempotency key stands for.
#[derive(Debug, Clone, Copy)]
enum Change {
    Set(i64),
    Delete,
}

impl Change {
    fn request<Run>(self, of: &Counter<Run>, key: &[u8]) -> Result<Request, Error> {
        let of = of.cached_as();
        match self {
            Change::Set(total) => Request::new(key, |text| write!(text, "set {of} to {total}")),
            Change::Delete => Request::new(key, |text| write!(text, "delete {of}")),
        }
    }
}

impl<Run> Idempotent<Counter<Run>> {
    /// Changes the counter, unless that was done with this key before. Returns the number of counters changed, now or then.
    async fn change<DB, M>(&self, change: Change, link: &mut Link<'_, M>) -> QueryResult<usize>
    where
        M: LoadIo<Backend = DB>,
        DB: CounterBackend<M::Conn>,
    {
        let request = change.request(&self.of, &self.key)?;
        let mut work = ChangeOnce(&self.of, change);
        let changed = once(link, &request, RetryPolicy::default(), &mut work).await?;
        Ok(changed.0)
    }
}

struct ChangeOnce<'a, Run>(&'a Counter<Run>, Change);

impl<Run, M, DB> Requested<M> for ChangeOnce<'_, Run>
where
    M: LoadIo<Backend = DB>,
    DB: CounterBackend<M::Conn>,
{
    fn transaction(&self, dialect: Dialect) -> TransactionOptions {
        locking_options(dialect)
    }

    async fn carry_out(&mut self, link: &mut Link<'_, M>) -> QueryResult<usize> {
        match self.1 {
            Change::Set(total) => self.0.set_to(total, link).await.map(|()| 1),
            Change::Delete => self.0.remove(link).await.map(usize::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_1_to_255_bytes() {
        let refused = |name: &str| match key(name) {
            Err(Error::InvalidCounterName { bytes }) => Some(bytes),
            _ => None,
        };
        assert_eq!(refused(""), Some(0));
        assert_eq!(refused(&"é".repeat(128)), Some(256));
        assert_eq!(refused(&"x".repeat(255)), None);
        assert_eq!(refused("\0"), None);
    }

    /// Another release must recognize the requests that this one has carried out.
    #[test]
    fn fingerprints_stay_what_they_are() {
        let of = crate::Counter::named("a");
        let fingerprints = [Change::Set(1), Change::Set(0), Change::Delete]
            .map(|change| change.request(&of, b"key").unwrap().fingerprint);
        assert_eq!(
            fingerprints,
            [
                -983055718542928811,
                -983056818054557022,
                8651706006474150584
            ]
        );
    }
}

//! Named counters: created on the fly, without a table of the application's own.
//!
//! They live in the library's own tables (see [`MIGRATIONS`](crate::MIGRATIONS)), which are a parent with one sharded field
//! like any other: the derive declares them, and the same statements count, fold and set them.

use std::fmt;
use std::ops::ControlFlow;

use diesel::connection::LoadConnection;
use diesel::dsl::Find;
use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, IntoUpdateTarget, Query, QueryFragment, QueryId};
use diesel::result::Error as DieselError;
use diesel::sql_types::{BigInt, Binary};

use crate::ShardedField;
use crate::backend::{BackendOf, ShardedBackend};
use crate::connection::{
    Blocking, Io, Link, LoadIo, TransactionOptions, done, in_any_transaction, now,
};
use crate::engine::{KeyedTable, RetryLoop, explain_missing, retry_loop};
use crate::error::Error;
use crate::model::ShardedTable;
use crate::operation::cached::CachedCounter;
use crate::operation::fold::{Fold, Folded};
use crate::operation::row_counter::AddTo;
use crate::operation::set_total::set_by_key;
use crate::operation::shard_counts;
use crate::operation::shard_counts::ShardCount;
use crate::operation::update::Ready;
use crate::policy::RetryPolicy;
use crate::query_builder::{KeyIs, push_bind, push_column, push_total};

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

/// A counter that is known by its name alone, and exists from its first count on.
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
/// Each operation's are those of [`update`](crate::update()); also [`InvalidCounterName`](Error::InvalidCounterName) if the name is empty or
/// too long, and [`MissingShardsTable`](Error::MissingShardsTable) if the library's migrations have not run.
///
/// After the counters of [App Engine's article](https://web.archive.org/web/2010/http://code.google.com/appengine/articles/sharding_counters.html).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[must_use = "a counter does nothing by itself"]
pub struct Counter {
    pub(crate) name: String,
}

impl Counter {
    /// The counter of this name, whether it exists yet or not.
    pub fn named(name: impl Into<String>) -> Self {
        Counter { name: name.into() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds 1.
    ///
    /// # Errors
    /// See [`Counter`](Self#errors).
    pub fn increment<Conn>(&self, conn: &mut Conn) -> QueryResult<()>
    where
        Conn: LoadConnection,
        Conn::Backend: CounterBackend<Conn>,
    {
        self.add(1, conn)
    }

    /// Subtracts 1, also below zero.
    ///
    /// # Errors
    /// See [`Counter`](Self#errors).
    pub fn decrement<Conn>(&self, conn: &mut Conn) -> QueryResult<()>
    where
        Conn: LoadConnection,
        Conn::Backend: CounterBackend<Conn>,
    {
        self.add(-1, conn)
    }

    /// Adds `n`, which may be negative.
    ///
    /// It is [`update`](crate::update()) with [`or_insert`](crate::UpdateStatement::or_insert): one statement, and a transaction of a few
    /// more at the first count and at the first on a shard. Inside a transaction it is part of the caller's.
    ///
    /// ```sql
    /// UPDATE "diesel_sharded_counter_shards" AS "diesel_sharded_counters"
    /// SET "value" = ("diesel_sharded_counters"."value" + $1)
    /// WHERE ("diesel_sharded_counters"."name" = $2) AND "diesel_sharded_counters"."shard" = $3
    /// ```
    ///
    /// Its effect on the total: `n`.
    ///
    /// # Errors
    /// See [`Counter`](Self#errors).
    pub fn add<Conn>(&self, n: i64, conn: &mut Conn) -> QueryResult<()>
    where
        Conn: LoadConnection,
        Conn::Backend: CounterBackend<Conn>,
    {
        now(Conn::Backend::add(conn, self.key()?, n))
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
    pub fn get<Conn>(&self, conn: &mut Conn) -> QueryResult<i64>
    where
        Conn: LoadConnection,
        Conn::Backend: CounterBackend<Conn>,
    {
        now(self.total(true, &mut Link::blocking(conn)))
    }

    /// The base alone, without the sum: as fresh as the last [`fold`](Self::fold) or [`set`](Self::set).
    ///
    /// # Errors
    /// See [`Counter`](Self#errors).
    pub fn estimate<Conn>(&self, conn: &mut Conn) -> QueryResult<i64>
    where
        Conn: LoadConnection,
        Conn::Backend: CounterBackend<Conn>,
    {
        now(self.total(false, &mut Link::blocking(conn)))
    }

    pub(crate) async fn total<DB, M, Conn>(
        &self,
        exact: bool,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<i64>
    where
        M: Io<Conn, Backend = DB>,
        DB: CounterBackend<Conn, M>,
    {
        let rows = SelectedRows::Named(vec![self.key()?]);
        let found = DB::select(link.conn, SelectCounters { rows, exact }).await?;
        Ok(found.first().map_or(0, |(_, value)| *value))
    }

    /// The exact totals of many counters, in the order of `names`; 0 for those that were never used. One query, and so
    /// one instant, for up to 10,000 names; one more for each 10,000 beyond, since databases limit parameters.
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
        now(Self::totals(names, &mut Link::blocking(conn)))
    }

    pub(crate) async fn totals<DB, S, M, Conn>(
        names: &[S],
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<Vec<i64>>
    where
        S: AsRef<str>,
        M: Io<Conn, Backend = DB>,
        DB: CounterBackend<Conn, M>,
    {
        let keys: Vec<Vec<u8>> = names
            .iter()
            .map(|name| key(name.as_ref()))
            .collect::<QueryResult<_>>()?;
        let mut totals = std::collections::HashMap::with_capacity(keys.len());
        for keys in keys.chunks(10_000) {
            let rows = SelectedRows::Named(keys.to_vec());
            totals.extend(DB::select(link.conn, SelectCounters { rows, exact: true }).await?);
        }
        let total = |key| totals.get(key).copied().unwrap_or(0);
        Ok(keys.iter().map(total).collect())
    }

    /// The counters whose names begin with `prefix`, in the order of their bytes, page by page; see [`CounterList`].
    pub fn list(prefix: impl Into<String>) -> CounterList {
        CounterList {
            prefix: prefix.into(),
            after: None,
            limit: 100,
        }
    }

    /// Sets the total, and creates the counter if it is not there: [`set_total`](crate::set_total()) by key, with the same effect,
    /// also inside a transaction.
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
    pub fn set<Conn>(&self, total: i64, conn: &mut Conn) -> QueryResult<()>
    where
        Conn: LoadConnection,
        Conn::Backend: CounterBackend<Conn>,
    {
        now(Conn::Backend::set(conn, self.key()?, total))
    }

    /// Sets the total to 0; see [`set`](Self::set).
    ///
    /// # Errors
    /// See [`Counter`](Self#errors).
    pub fn reset<Conn>(&self, conn: &mut Conn) -> QueryResult<()>
    where
        Conn: LoadConnection,
        Conn::Backend: CounterBackend<Conn>,
    {
        self.set(0, conn)
    }

    /// Removes it with its shards and its number of shards; gives whether it was there. A count that comes later begins
    /// again at zero.
    ///
    /// ```sql
    /// DELETE FROM "diesel_sharded_counters" WHERE "diesel_sharded_counters"."name" = $1;
    /// DELETE FROM "diesel_sharded_shard_numbers" WHERE "shards_table" = $1 AND "counter" = $2
    /// ```
    ///
    /// # Errors
    /// See [`Counter`](Self#errors).
    pub fn delete<Conn>(&self, conn: &mut Conn) -> QueryResult<bool>
    where
        Conn: LoadConnection,
        Conn::Backend: CounterBackend<Conn>,
    {
        now(Conn::Backend::delete(conn, self.key()?))
    }

    /// Moves the shards into the base; see [`fold`](crate::fold()). No total changes.
    ///
    /// # Errors
    /// See [`Counter`](Self#errors).
    pub fn fold<Conn>(&self, conn: &mut Conn) -> QueryResult<Folded<counters::table>>
    where
        Conn: LoadConnection,
        Conn::Backend: CounterBackend<Conn>,
    {
        now(self.folded(&mut Link::blocking(conn)))
    }

    pub(crate) async fn folded<DB, M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<Folded<counters::table>>
    where
        M: LoadIo<Conn, Backend = DB>,
        DB: CounterBackend<Conn, M>,
    {
        let keep = match in_any_transaction(link).await? {
            true => self.shard_count().known(),
            false => self.shard_count().number(link).await?,
        };
        DB::fold(link.conn, self.key()?, keep).await
    }

    /// How many shards writers choose from; 128 unless it was changed.
    ///
    /// # Errors
    /// See [`Counter`](Self#errors).
    pub fn shards<Conn>(&self, conn: &mut Conn) -> QueryResult<u16>
    where
        Conn: LoadConnection,
        Conn::Backend: CounterBackend<Conn>,
    {
        self.key()?;
        self.shard_count().get(conn)
    }

    /// Raises the number of shards to `n`, and never lowers it; gives the number that holds then. Takes effect in this
    /// process at once, in others when they follow: see [`shard_counts`](crate::shard_counts).
    ///
    /// # Errors
    /// See [`Counter`](Self#errors); [`InvalidShardCount`](Error::InvalidShardCount) unless `n` is from 1 to 4096.
    pub fn increase_shards<Conn>(&self, n: u16, conn: &mut Conn) -> QueryResult<u16>
    where
        Conn: LoadConnection,
        Conn::Backend: CounterBackend<Conn>,
    {
        self.key()?;
        self.shard_count().increase(n, conn)
    }

    /// Sets the number of shards, up or down, and folds the counter, so that shards beyond the number are removed. No total
    /// changes.
    ///
    /// # Errors
    /// As [`increase_shards`](Self::increase_shards).
    pub fn resize<Conn>(&self, n: u16, conn: &mut Conn) -> QueryResult<()>
    where
        Conn: LoadConnection,
        Conn::Backend: CounterBackend<Conn>,
    {
        now(self.resized(n, &mut Link::blocking(conn)))
    }

    pub(crate) async fn resized<DB, M, Conn>(
        &self,
        n: u16,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<()>
    where
        M: LoadIo<Conn, Backend = DB>,
        DB: CounterBackend<Conn, M>,
    {
        let key = self.key()?;
        self.shard_count().write(n, false, link).await?;
        DB::fold(link.conn, key, n).await.map(drop)
    }

    pub(crate) fn key(&self) -> QueryResult<Vec<u8>> {
        key(&self.name)
    }

    /// Whether a counter may have this name.
    #[cfg(feature = "r2d2")]
    pub(crate) fn check(&self) -> Result<(), Error> {
        check(&self.name)
    }

    /// What it is known by in a cache, and what is asked of it under an idempotency key.
    pub(crate) fn cached_as(&self) -> String {
        format!("{}:{:?}", counters::table::SHARDS_TABLE, self.name)
    }

    pub(crate) fn shard_count(&self) -> ShardCount {
        ShardCount::of_counter::<counters::table>(self.name.as_bytes())
    }
}

impl<Conn> CachedCounter<Conn> for Counter
where
    Conn: LoadConnection,
    Conn::Backend: CounterBackend<Conn>,
{
    fn cache_key(&self) -> String {
        self.cached_as()
    }

    fn read(&self, conn: &mut Conn) -> QueryResult<i64> {
        self.get(conn)
    }

    fn add(&self, n: i64, conn: &mut Conn) -> QueryResult<usize> {
        Counter::add(self, n, conn).map(|()| 1)
    }
}

impl AsRef<str> for Counter {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The longest name, in bytes.
const LONGEST: usize = 255;

fn key(name: &str) -> QueryResult<Vec<u8>> {
    check(name)?;
    Ok(name.as_bytes().to_vec())
}

fn check(name: &str) -> Result<(), Error> {
    match name.len() {
        1..=LONGEST => Ok(()),
        bytes => Err(Error::InvalidCounterName { bytes }),
    }
}

/// A page of counters; made by [`Counter::list`].
///
/// Pages are found by the last name of the page before, so that each costs the same however deep it is, and counters that
/// come or go meanwhile neither shift nor repeat others.
///
/// ```sql
/// SELECT "diesel_sharded_counters"."name", total FROM "diesel_sharded_counters"
/// WHERE "diesel_sharded_counters"."name" >= $1 AND "diesel_sharded_counters"."name" < $2
///   AND "diesel_sharded_counters"."name" > $3
/// ORDER BY "diesel_sharded_counters"."name" LIMIT $4
/// ```
///
/// ```
/// # use diesel::prelude::*;
/// # use diesel_migrations::MigrationHarness;
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// # let conn = &mut SqliteConnection::establish(":memory:")?;
/// # conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
/// # for name in ["page:/", "page:/about", "signups"] { diesel_sharded::Counter::named(name).increment(conn)?; }
/// use diesel_sharded::Counter;
///
/// let mut list = Counter::list("page:").limit(1);
/// loop {
///     let page = list.load(conn)?;
///     let Some((last, _)) = page.last() else { break };
///     list = list.after(last);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is read until it is `.load(conn)`-ed"]
pub struct CounterList {
    prefix: String,
    after: Option<String>,
    limit: u32,
}

impl CounterList {
    /// Only names that come after this one.
    pub fn after(mut self, name: impl Into<String>) -> Self {
        self.after = Some(name.into());
        self
    }

    /// At most so many counters; 100 by default.
    pub fn limit(mut self, counters: u32) -> Self {
        self.limit = counters;
        self
    }

    /// The names and exact totals of this page, at one instant.
    ///
    /// # Errors
    /// The database's, and as [`Counter`]'s.
    pub fn load<Conn>(&self, conn: &mut Conn) -> QueryResult<Vec<(String, i64)>>
    where
        Conn: LoadConnection,
        Conn::Backend: CounterBackend<Conn>,
    {
        now(self.page(&mut Link::blocking(conn)))
    }

    pub(crate) async fn page<DB, M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<Vec<(String, i64)>>
    where
        M: Io<Conn, Backend = DB>,
        DB: CounterBackend<Conn, M>,
    {
        let rows = SelectedRows::Page {
            prefix: self.prefix.as_bytes().to_vec(),
            end: end_of_prefix(&self.prefix),
            after: self.after.as_ref().map(|name| name.as_bytes().to_vec()),
            limit: self.limit.into(),
        };
        let page = DB::select(link.conn, SelectCounters { rows, exact: true }).await?;
        page.into_iter()
            .map(|(name, total)| match String::from_utf8(name) {
                Ok(name) => Ok((name, total)),
                Err(error) => Err(DieselError::DeserializationError(error.into())),
            })
            .collect()
    }
}

/// The first name after all those that begin with `prefix`; none for an empty one. No byte of UTF-8 is the last there is.
fn end_of_prefix(prefix: &str) -> Option<Vec<u8>> {
    let mut end = prefix.as_bytes().to_vec();
    *end.last_mut()? += 1;
    Some(end)
}

/// A backend whose connections have named counters. Every backend of the crate's is one; the trait gathers what that takes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no named counters on a `{Conn}`",
    note = "enable the feature `postgres`, `mysql` or `sqlite` of `diesel_sharded` (or `postgres_backend`, `mysql_backend`)",
    note = "for an enum with `#[derive(MultiConnection)]`, call `diesel_sharded::multi_connection!` beside it"
)]
pub trait CounterBackend<Conn, Run: Io<Conn> = Blocking>: BackendOf<Conn> {
    #[doc(hidden)]
    fn add(conn: &mut Conn, name: Vec<u8>, n: i64) -> Run::Future<'_, QueryResult<()>>;

    #[doc(hidden)]
    fn set(conn: &mut Conn, name: Vec<u8>, total: i64) -> Run::Future<'_, QueryResult<()>>;

    #[doc(hidden)]
    fn fold(
        conn: &mut Conn,
        name: Vec<u8>,
        keep_shards: u16,
    ) -> Run::Future<'_, QueryResult<Folded<counters::table>>>;

    #[doc(hidden)]
    fn select(conn: &mut Conn, select: SelectCounters) -> Run::Future<'_, Found>;

    #[doc(hidden)]
    fn delete(conn: &mut Conn, name: Vec<u8>) -> Run::Future<'_, QueryResult<bool>>;
}

/// Names and their totals.
type Found = QueryResult<Vec<(Vec<u8>, i64)>>;

pub(crate) type ByName = Find<counters::table, Vec<u8>>;

/// Implements [`CounterBackend`] for one way of reaching a connection; `$done` makes its future of several steps.
macro_rules! counter_backend {
    ($io:ty, $connection:ident, $done:path) => {
        impl<Conn, DB> CounterBackend<Conn, $io> for DB
        where
            Conn: $connection<Backend = DB>,
            DB: BackendOf<Conn>,
            counters::table: KeyedTable<DB>,
            <ByName as IntoUpdateTarget>::WhereClause: QueryFragment<DB>,
        {
            fn add(
                conn: &mut Conn,
                name: Vec<u8>,
                n: i64,
            ) -> <$io as Io<Conn>>::Future<'_, QueryResult<()>> {
                $done(async move {
                    let link = &mut Link::<$io, _>::new(conn);
                    shard_counts::keep_fresh(link).await?;
                    let number = ShardCount::of_counter::<counters::table>(&name).known();
                    let key = KeyIs(<counters::table as KeyedTable<DB>>::key_is(name.clone()));
                    let add = AddTo::<counters::value>::new(n);
                    let mut add = Ready::by_key(key, add, &[counters::value::NAME])
                        .or_insert(InsertCounter { name }, number);
                    add.count(link).await.map(drop)
                })
            }

            fn set(
                conn: &mut Conn,
                name: Vec<u8>,
                total: i64,
            ) -> <$io as Io<Conn>>::Future<'_, QueryResult<()>> {
                $done(async move {
                    let link = &mut Link::<$io, _>::new(conn);
                    // One that is deleted as soon as it is created is created again, but not for ever.
                    for left in (0..4).rev() {
                        let key = name.clone();
                        let set = set_by_key::<counters::value, _, _, _>(link, key, total).await;
                        if set.map_err(|error| explain_counters(&link.backend(), error))? > 0 {
                            return Ok(());
                        }
                        if left > 0 {
                            <Self as CounterBackend<Conn, $io>>::add(link.conn, name.clone(), 0)
                                .await?;
                        }
                    }
                    Err(DieselError::NotFound)
                })
            }

            fn fold(
                conn: &mut Conn,
                name: Vec<u8>,
                keep_shards: u16,
            ) -> <$io as Io<Conn>>::Future<'_, QueryResult<Folded<counters::table>>> {
                $done(async move {
                    let link = &mut Link::<$io, _>::new(conn);
                    let fold =
                        Fold::<_, $io>::of(counters::table.find(name)).keep_shards(keep_shards);
                    let to_the_end = &mut |_: &Folded<_>| ControlFlow::Continue(());
                    let folded = fold.folded(link, to_the_end).await;
                    folded.map_err(|error| explain_counters(&link.backend(), error))
                })
            }

            fn select(
                conn: &mut Conn,
                select: SelectCounters,
            ) -> <$io as Io<Conn>>::Future<'_, QueryResult<Vec<(Vec<u8>, i64)>>> {
                $done(async move {
                    let link = &mut Link::<$io, _>::new(conn);
                    let found = link.load(select);
                    found
                        .await
                        .map_err(|error| explain_counters(&link.backend(), error))
                })
            }

            fn delete(
                conn: &mut Conn,
                name: Vec<u8>,
            ) -> <$io as Io<Conn>>::Future<'_, QueryResult<bool>> {
                $done(async move {
                    let link = &mut Link::<$io, _>::new(conn);
                    let number = ShardCount::of_counter::<counters::table>(&name);
                    let options = TransactionOptions::guarded();
                    let repeated = RetryLoop::transaction(link, RetryPolicy::default(), options)?;
                    retry_loop!(link, repeated, {
                        number.forget(link).await?;
                        Ok(link.execute(DeleteCounter { name: name.clone() }).await? > 0)
                    })
                })
            }
        }
    };
}

counter_backend!(Blocking, LoadConnection, done);
#[cfg(feature = "async")]
pub(crate) use counter_backend;

/// Inserts a counter at 0.
///
/// ```sql
/// INSERT INTO "diesel_sharded_counters" ("name", "value") VALUES ($1, 0)
/// ```
#[derive(QueryId)]
pub(crate) struct InsertCounter {
    pub(crate) name: Vec<u8>,
}

impl<DB> QueryFragment<DB> for InsertCounter
where
    DB: ShardedBackend,
    counters::table: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("INSERT INTO ");
        counters::table.walk_ast(out.reborrow())?;
        out.push_sql(" (");
        out.push_identifier(counters::name::NAME)?;
        out.push_sql(", ");
        out.push_identifier(counters::value::NAME)?;
        out.push_sql(") VALUES (");
        push_bind::<Binary, [u8], DB>(&self.name, out.reborrow())?;
        out.push_sql(", 0)");
        Ok(())
    }
}

/// The tables come from one migration: whichever is missing, it has not run.
pub(crate) fn explain_counters<DB: ShardedBackend>(
    backend: &DB,
    error: DieselError,
) -> DieselError {
    let error = explain_missing(backend, "diesel_sharded_counters", error);
    explain_missing(backend, counters::table::SHARDS_TABLE, error)
}

/// Reads names with totals, or with bases.
#[doc(hidden)]
#[derive(Debug)]
pub struct SelectCounters {
    rows: SelectedRows,
    exact: bool,
}

#[derive(Debug)]
enum SelectedRows {
    Named(Vec<Vec<u8>>),
    Page {
        prefix: Vec<u8>,
        end: Option<Vec<u8>>,
        after: Option<Vec<u8>>,
        limit: i64,
    },
}

impl<DB> QueryFragment<DB> for SelectCounters
where
    DB: ShardedBackend,
    counters::table: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared(); // one text for each number of names
        out.push_sql("SELECT ");
        push_name(out.reborrow())?;
        out.push_sql(", ");
        match counters::table::FIELDS.first() {
            Some(field) if self.exact => {
                push_total::<counters::table, DB>(field, None, out.reborrow())?
            }
            _ => push_column::<counters::table, DB>(counters::value::NAME, out.reborrow())?,
        }
        out.push_sql(" FROM ");
        counters::table.walk_ast(out.reborrow())?;
        match &self.rows {
            SelectedRows::Named(names) => {
                out.push_sql(" WHERE ");
                push_name(out.reborrow())?;
                for (i, name) in names.iter().enumerate() {
                    out.push_sql(if i == 0 { " IN (" } else { ", " });
                    push_bind::<Binary, [u8], DB>(name, out.reborrow())?;
                }
                let all_rows = out.backend().dialect().all_rows();
                out.push_sql(")");
                out.push_sql(all_rows);
            }
            SelectedRows::Page {
                prefix,
                end,
                after,
                limit,
            } => {
                out.push_sql(" WHERE ");
                push_name(out.reborrow())?;
                out.push_sql(" >= ");
                push_bind::<Binary, [u8], DB>(prefix, out.reborrow())?;
                let bounds = [(" < ", end), (" > ", after)];
                for (compares, bound) in bounds {
                    if let Some(bound) = bound {
                        out.push_sql(" AND ");
                        push_name(out.reborrow())?;
                        out.push_sql(compares);
                        push_bind::<Binary, [u8], DB>(bound, out.reborrow())?;
                    }
                }
                out.push_sql(" ORDER BY ");
                push_name(out.reborrow())?;
                out.push_sql(" LIMIT ");
                push_bind::<BigInt, i64, DB>(limit, out.reborrow())?;
            }
        }
        Ok(())
    }
}

impl Query for SelectCounters {
    type SqlType = (
        <counters::name as Expression>::SqlType,
        <counters::value as Expression>::SqlType,
    );
}

impl QueryId for SelectCounters {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

/// See [`Counter::delete`].
#[doc(hidden)]
#[derive(Debug, QueryId)]
pub(crate) struct DeleteCounter {
    pub(crate) name: Vec<u8>,
}

impl<DB> QueryFragment<DB> for DeleteCounter
where
    DB: ShardedBackend,
    counters::table: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("DELETE FROM ");
        counters::table.walk_ast(out.reborrow())?;
        out.push_sql(" WHERE ");
        push_name(out.reborrow())?;
        out.push_sql(" = ");
        push_bind::<Binary, [u8], DB>(&self.name, out)
    }
}

/// `counters.name`
fn push_name<DB>(out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    DB: ShardedBackend,
    counters::table: QueryFragment<DB>,
{
    push_column::<counters::table, DB>(counters::name::NAME, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_1_to_255_bytes() {
        let refused = |name: &str| match key(name).map_err(Error::from) {
            Err(Error::InvalidCounterName { bytes }) => Some(bytes),
            _ => None,
        };
        assert_eq!(refused(""), Some(0));
        assert_eq!(refused(&"é".repeat(128)), Some(256));
        assert_eq!(refused(&"x".repeat(255)), None);
        assert_eq!(refused("\0"), None);
    }

    #[test]
    fn a_prefix_ends_where_the_next_begins() {
        assert_eq!(end_of_prefix("page:"), Some(b"page;".to_vec()));
        assert_eq!(end_of_prefix(""), None);
        let end = end_of_prefix("é").unwrap();
        assert!("é€".as_bytes() < end.as_slice() && "ê".as_bytes() >= end.as_slice());
    }

    #[cfg(all(feature = "postgres_backend", feature = "mysql_backend"))]
    #[test]
    fn sql_of_totals_by_name_and_by_page() {
        use crate::test_schema::sql;
        use diesel::mysql::Mysql;
        use diesel::pg::Pg;

        let named = SelectCounters {
            rows: SelectedRows::Named(vec![b"a".into(), b"b".into()]),
            exact: true,
        };
        assert_eq!(
            sql!(Pg, named),
            r#"SELECT "diesel_sharded_counters"."name", CAST(("diesel_sharded_counters"."value" + COALESCE((SELECT SUM("diesel_sharded_counter_shards"."value") FROM "diesel_sharded_counter_shards" WHERE "diesel_sharded_counter_shards"."name" = "diesel_sharded_counters"."name"), 0)) AS bigint) FROM "diesel_sharded_counters" WHERE "diesel_sharded_counters"."name" IN ($1, $2)"#
        );
        let page = SelectCounters {
            rows: SelectedRows::Page {
                prefix: b"page:".into(),
                end: end_of_prefix("page:"),
                after: Some(b"page:/".into()),
                limit: 10,
            },
            exact: false,
        };
        assert_eq!(
            sql!(Mysql, page),
            "SELECT `diesel_sharded_counters`.`name`, `diesel_sharded_counters`.`value` FROM `diesel_sharded_counters` WHERE `diesel_sharded_counters`.`name` >= ? AND `diesel_sharded_counters`.`name` < ? AND `diesel_sharded_counters`.`name` > ? ORDER BY `diesel_sharded_counters`.`name` LIMIT ?"
        );
    }
}

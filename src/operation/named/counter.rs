//! A counter that is known by its name.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;

use diesel::connection::LoadConnection;
use diesel::prelude::*;

use super::backend::{CounterBackend, total_of};
use super::list::CounterList;
#[cfg(feature = "r2d2")]
use super::name::check;
use super::name::key;
use super::sql::{SelectCounters, SelectedRows};
use super::table::counters;
use super::top::TopCounters;
use crate::connection::{Blocking, Io, Link, LoadIo, in_any_transaction, now, paired};
#[cfg(any(doc, feature = "r2d2"))]
use crate::error::Error;
use crate::model::ShardedTable;
use crate::operation::fold::Folded;
use crate::operation::idempotency::Idempotent;

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
pub struct Counter<Run = Blocking> {
    pub(crate) name: String,
    run: PhantomData<fn() -> Run>,
}

paired! {
    impl<> Counter<Run>
    where
        DB: CounterBackend<Conn, Run>,
    {
        /// Adds 1.
        ///
        /// # Errors
        /// See [`Counter`](Self#errors).
        pub fn increment(&self, link: Link) -> QueryResult<()> {
            DB::add(link.conn, self.key()?, 1).await
        }

        /// Subtracts 1, also below zero.
        ///
        /// # Errors
        /// See [`Counter`](Self#errors).
        pub fn decrement(&self, link: Link) -> QueryResult<()> {
            DB::add(link.conn, self.key()?, -1).await
        }

        /// Adds `n`, which may be negative.
        ///
        /// It is [`update`](crate::update()) with [`or_insert`](crate::operation::UpdateStatement::or_insert): one statement, or a
        /// transaction of a few more at the first count and at the first count on a shard. Inside a transaction the count is part of
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
            DB::add(link.conn, self.key()?, n).await
        }

        /// Adds `n`, which may be negative, and returns the new total. The count and the read are one statement or one transaction,
        /// so the total contains `n`, and no count that another connection has not committed by then.
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
        /// assert_eq!(Counter::named("tickets").add_and_get(1, conn)?, 1);
        /// assert_eq!(Counter::named("tickets").add_and_get(2, conn)?, 3);
        /// # Ok(())
        /// # }
        /// ```
        ///
        /// # Errors
        /// See [`Counter`](Self#errors).
        pub fn add_and_get(&self, link: Link, n: i64) -> QueryResult<i64> {
            DB::add_and_get(link.conn, self.key()?, n).await
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
            self.total(true, link).await
        }

        /// The base alone, without the sum: as fresh as the last [`fold`](Self::fold) or [`set`](Self::set).
        ///
        /// # Errors
        /// See [`Counter`](Self#errors).
        pub fn estimate(&self, link: Link) -> QueryResult<i64> {
            self.total(false, link).await
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
            DB::set(link.conn, self.key()?, total).await
        }

        /// Sets the total to 0; see [`set`](Self::set).
        ///
        /// # Errors
        /// See [`Counter`](Self#errors).
        pub fn reset(&self, link: Link) -> QueryResult<()> {
            DB::set(link.conn, self.key()?, 0).await
        }

        /// Removes the counter with its shards and its number of shards, and returns whether it existed. A later count begins again
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
            DB::delete(link.conn, self.key()?).await
        }

        /// Moves the shards into the base; see [`fold`](crate::fold()). No total changes.
        ///
        /// # Errors
        /// See [`Counter`](Self#errors).
        pub fn fold(&self, link: Link) -> QueryResult<Folded<counters::table>> {
            self.folded(link).await
        }
    }
}

impl<Run> Counter<Run> {
    /// The counter of this name, whether it exists yet or not.
    pub fn named(name: impl Into<String>) -> Self {
        Counter {
            name: name.into(),
            run: PhantomData,
        }
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

    /// The same counter, which is changed only once by all requests with this key of 1 to 255 bytes: added to, set, reset or
    /// deleted. See [`idempotency`](crate::idempotency).
    pub fn idempotency_key(&self, key: impl AsRef<[u8]>) -> Idempotent<Self> {
        Idempotent::new(Self::named(self.name.as_str()), key)
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
        total_of(self.key()?, exact, link).await
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
            false => self.shard_count().get(link).await?,
        };
        DB::fold(link.conn, self.key()?, keep).await
    }

    pub(crate) fn key(&self) -> QueryResult<Vec<u8>> {
        key(&self.name)
    }

    /// Whether a counter may have this name.
    #[cfg(feature = "r2d2")]
    pub(crate) fn check(&self) -> Result<(), Error> {
        check(&self.name)
    }

    /// Its name in a cache, and in the request that an idempotency key stands for.
    pub(crate) fn cached_as(&self) -> String {
        format!("{}:{:?}", counters::table::SHARDS_TABLE, self.name)
    }
}

impl Counter {
    /// The exact totals of many counters, in the order of `names`; 0 for those that were never used. Up to 10,000 names take one
    /// query, and so are read at one instant. Each further 10,000 take one more, because databases limit parameters.
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
        Conn::Backend: CounterBackend<Conn, crate::connection::Async>,
    {
        Box::pin(async move { totals(names, &mut Link::awaited(conn)).await })
    }
}

async fn totals<DB, S, M, Conn>(names: &[S], link: &mut Link<'_, M, Conn>) -> QueryResult<Vec<i64>>
where
    S: AsRef<str>,
    M: Io<Conn, Backend = DB>,
    DB: CounterBackend<Conn, M>,
{
    let keys: Vec<Vec<u8>> = names
        .iter()
        .map(|name| key(name.as_ref()))
        .collect::<QueryResult<_>>()?;
    let mut totals = HashMap::with_capacity(keys.len());
    for keys in keys.chunks(10_000) {
        let rows = SelectedRows::Named(keys.to_vec());
        totals.extend(DB::select(link.conn, SelectCounters { rows, exact: true }).await?);
    }
    let total = |key| totals.get(key).copied().unwrap_or(0);
    Ok(keys.iter().map(total).collect())
}

#[cfg(feature = "async")]
impl From<Counter> for Counter<crate::connection::Async> {
    fn from(counter: Counter) -> Self {
        Self::named(counter.name)
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

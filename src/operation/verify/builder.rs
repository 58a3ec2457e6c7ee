//! Requests for comparisons.

use std::hash::Hash;
use std::marker::PhantomData;

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};
use diesel::query_dsl::methods::LoadQuery;

use crate::backend::BackendOf;
use crate::connection::{Blocking, Link, now};
use crate::engine::KeyedTable;
use crate::model::ShardedColumn;
use crate::operation::row_counter::IntegerField;
use crate::operation::update::UpdateSource;
use crate::policy::RetryPolicy;

use super::recount::Drift;

/// Begins to compare the totals of a field with `expected`: a query for keys and numbers, such as a recount returns. A row that
/// the query leaves out is expected to have 0. Keys of other rows in the query's result are ignored.
///
/// ```
/// # mod schema {
/// #     diesel::table! { videos (id) { id -> BigInt, likes -> BigInt, } }
/// #     diesel::table! { likes (id) { id -> Integer, video_id -> BigInt, } }
/// # }
/// # use schema::{likes, videos};
/// # use diesel::prelude::*;
/// # #[derive(diesel_sharded::ShardedField)]
/// # struct Video { id: i64, #[sharded] likes: i64 }
/// # fn main() -> QueryResult<()> {
/// # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
/// # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, likes BIGINT NOT NULL)").execute(conn)?;
/// # diesel::sql_query("CREATE TABLE likes (id INTEGER PRIMARY KEY, video_id BIGINT NOT NULL)").execute(conn)?;
/// # diesel::insert_into(videos::table).values((videos::id.eq(7), videos::likes.eq(1))).execute(conn)?;
/// # diesel::insert_into(likes::table).values([likes::video_id.eq(7), likes::video_id.eq(7)]).execute(conn)?;
/// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
/// use diesel::dsl::count_star;
/// use diesel_sharded::verify;
///
/// let recount = likes::table
///     .group_by(likes::video_id)
///     .select((likes::video_id, count_star()));
/// let drifts = verify(videos::table, videos::likes, recount).repair(conn)?;
/// assert_eq!((drifts[0].key, drifts[0].total, drifts[0].expected), (7, 1, 2));
/// assert!(verify(videos::table, videos::likes, recount).drifts(conn)?.is_empty());
/// # Ok(())
/// # }
/// ```
///
/// Keys are compared as values of the key's Rust type. A recount that returns two numbers for one key is an error.
///
/// Named counters are verified by their table, `verify(counters::table, counters::value, recount)`, with names as bytes. `add(0)`
/// creates a counter that does not exist yet.
///
/// # When it is exact
/// Totals and recount are read from one snapshot. If the application writes the counted rows and the count in one transaction,
/// they differ only by real errors. If it counts afterwards, a count that is still missing looks like a drift: repair only the
/// drifts that [`drifts`](Verify::drifts) finds twice.
///
/// # Backfill
/// A new counter begins at 0 although rows to count already exist. First deploy the code that counts new rows in the transaction
/// that writes them. Then [`repair`](Verify::repair) adds the earlier rows while the application runs. Process a large table in
/// steps of some thousand keys, by a filter of the rows *and* of the recount (`videos.filter(id.between(1, 5000))`,
/// `likes.filter(video_id.between(1, 5000))`): each step holds its keys and numbers in memory, and locks its rows.
pub fn verify<Source, Kind, C, Q>(
    source: Source,
    column: C,
    expected: Q,
) -> Verify<Source::Query, C, Q>
where
    Source: UpdateSource<Kind>,
    Source::Query: IntoUpdateTarget<Table = C::Table>,
    C: ShardedColumn,
{
    Verify::of(source, column, expected)
}

/// A comparison that was not made yet; made by [`verify`].
#[derive(Debug, Clone)]
#[must_use = "nothing is compared until `.drifts(conn)` or `.repair(conn)`"]
pub struct Verify<Rows, C, Q, Run = Blocking> {
    pub(super) query: Rows,
    pub(super) column: C,
    pub(super) expected: Q,
    pub(super) retry: Option<RetryPolicy>,
    pub(super) run: PhantomData<fn() -> Run>,
}

impl<R, C, Q, Run> Verify<R, C, Q, Run> {
    pub(crate) fn of<Source, Kind>(source: Source, column: C, expected: Q) -> Self
    where
        Source: UpdateSource<Kind, Query = R>,
    {
        Self::of_query(source.into_query(), column, expected)
    }

    pub(crate) fn of_query(query: R, column: C, expected: Q) -> Self {
        Verify {
            query,
            column,
            expected,
            retry: None,
            run: PhantomData,
        }
    }

    /// Retries by `policy` instead of the [process-wide](RetryPolicy::global) one.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }
}

impl<R, C, Q> Verify<R, C, Q> {
    /// The totals that are not as expected, in no order. Changes nothing, and locks nothing.
    ///
    /// ```sql
    /// BEGIN ISOLATION LEVEL REPEATABLE READ;                  -- SQLite: BEGIN
    /// …;                                                      -- the recount
    /// SELECT "videos"."id", total FROM "videos" WHERE …;
    /// COMMIT
    /// ```
    ///
    /// # Errors
    /// As [`update`](crate::update())'s; [`AlreadyInTransaction`](diesel::result::Error::AlreadyInTransaction) inside a
    /// transaction, which might not read from one snapshot. A total that does not fit its column's type causes the database's own
    /// error.
    pub fn drifts<'q, Conn, DB, T, W>(self, conn: &mut Conn) -> QueryResult<Vec<Drift<T::Key>>>
    where
        R: IntoUpdateTarget<Table = T, WhereClause = W>,
        C: IntegerField<DB, Table = T>,
        Q: LoadQuery<'q, Conn, (T::Key, i64)> + Clone,
        T: KeyedTable<DB, Key: Eq + Hash>,
        W: QueryFragment<DB> + QueryId,
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        now(self.find_drifts(&mut Link::blocking(conn)))
    }

    /// Adds the difference to every total that is not as expected, and returns the drifts that it repaired. Counts that arrive
    /// meanwhile are kept.
    ///
    /// If there are [`drifts`](Self::drifts), it locks these rows, so that no other repair, fold or set comes in between,
    /// compares again in one snapshot, and corrects the bases. On PostgreSQL the snapshot is that of the lock. A row that was
    /// written since then causes a serialization failure, and the repair is retried.
    ///
    /// ```sql
    /// BEGIN ISOLATION LEVEL REPEATABLE READ;                  -- SQLite: BEGIN IMMEDIATE
    /// SELECT 1 FROM "videos" WHERE … ORDER BY "videos"."id" FOR NO KEY UPDATE;     -- MySQL: FOR UPDATE; SQLite: none
    /// …;                                                      -- the recount
    /// SELECT "videos"."id", total FROM "videos" WHERE …;
    /// UPDATE "videos" SET "likes" = ("videos"."likes" + $1) WHERE …;               -- for each difference, 100 keys at once
    /// COMMIT
    /// ```
    ///
    /// Counts on existing shards do not wait for a repair, except on SQLite, where every write waits. On MySQL, first counts on a
    /// shard of these rows wait, as do inserts of rows that refer to them. Do not repair a [bounded](crate::bounded) counter; set
    /// it.
    ///
    /// Its effect on the total: the difference.
    ///
    /// # Errors
    /// As [`drifts`](Self::drifts). [`Overflow`](crate::Error::Overflow) if a base cannot take the difference. That happens to an
    /// unsigned base if most of the total is on shards: fold first.
    pub fn repair<'q, Conn, DB, T, W>(self, conn: &mut Conn) -> QueryResult<Vec<Drift<T::Key>>>
    where
        R: IntoUpdateTarget<Table = T, WhereClause = W> + Clone,
        C: IntegerField<DB, Table = T>,
        Q: LoadQuery<'q, Conn, (T::Key, i64)> + Clone,
        T: KeyedTable<DB, Key: Eq + Hash>,
        W: QueryFragment<DB> + QueryId,
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        now(self.repair_drifts(&mut Link::blocking(conn)))
    }
}

/// Totals beside a recount, awaited.
#[cfg(feature = "async")]
pub mod asynchronous {
    use std::hash::Hash;

    use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};
    use diesel::result::QueryResult;
    use diesel_async::AsyncConnection;
    use diesel_async::methods::LoadQuery;

    use super::{Drift, Verify};
    use crate::backend::BackendOf;
    use crate::connection::{Async, BoxFuture, Link};
    use crate::engine::KeyedTable;
    use crate::model::ShardedColumn;
    use crate::operation::row_counter::IntegerField;
    use crate::operation::update::UpdateSource;

    /// Compares totals with a recount on a connection of `diesel_async`; see [`verify`](crate::verify()). The
    /// recount is a query that borrows nothing.
    pub fn verify<Source, Kind, C, Q>(
        source: Source,
        column: C,
        expected: Q,
    ) -> Verify<Source::Query, C, Q, Async>
    where
        Source: UpdateSource<Kind>,
        Source::Query: IntoUpdateTarget<Table = C::Table>,
        C: ShardedColumn,
    {
        Verify::of(source, column, expected)
    }

    impl<R, C, Q, T, W> Verify<R, C, Q, Async>
    where
        R: IntoUpdateTarget<Table = T, WhereClause = W>,
    {
        /// The totals that are not as expected; see [`Verify::drifts`](crate::operation::Verify::drifts).
        ///
        /// # Errors
        /// As there.
        pub fn drifts<'c, Conn, DB>(
            self,
            conn: &'c mut Conn,
        ) -> BoxFuture<'c, QueryResult<Vec<Drift<T::Key>>>>
        where
            R: Send + 'c,
            C: IntegerField<DB, Table = T> + Send + Sync + 'c,
            Q: LoadQuery<'static, Conn, (T::Key, i64)> + Clone + Send + Sync + 'static,
            T: KeyedTable<DB, Key: Eq + Hash>,
            W: QueryFragment<DB> + QueryId + Send + Sync + 'c,
            Conn: AsyncConnection<Backend = DB>,
            DB: BackendOf<Conn>,
        {
            Box::pin(async move { self.find_drifts(&mut Link::awaited(conn)).await })
        }

        /// Repairs the totals that are not as expected; see [`Verify::repair`](crate::operation::Verify::repair).
        ///
        /// # Errors
        /// As there.
        pub fn repair<'c, Conn, DB>(
            self,
            conn: &'c mut Conn,
        ) -> BoxFuture<'c, QueryResult<Vec<Drift<T::Key>>>>
        where
            R: Clone + Send + 'c,
            C: IntegerField<DB, Table = T> + Send + Sync + 'c,
            Q: LoadQuery<'static, Conn, (T::Key, i64)> + Clone + Send + Sync + 'static,
            T: KeyedTable<DB, Key: Eq + Hash>,
            W: QueryFragment<DB> + QueryId + Send + Sync + 'c,
            Conn: AsyncConnection<Backend = DB>,
            DB: BackendOf<Conn>,
        {
            Box::pin(async move { self.repair_drifts(&mut Link::awaited(conn)).await })
        }
    }
}

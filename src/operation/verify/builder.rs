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
use crate::operation::update::UpdateSource;
use crate::policy::RetryPolicy;

use super::drift::Drift;
use super::fields::VerifiedFields;
use super::number::RecountQuery;

/// Begins to compare the totals of a field, or of a tuple of up to 4 fields, with `expected`: a query for keys and numbers, such as a
/// recount returns. A row that the query leaves out is expected to have 0, and so is a number that is NULL. Keys of other rows in
/// the query's result are ignored.
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
/// Keys are compared as the key's own column compares them: where it ignores case, the numbers of `Rust` and `rust` are added up. A recount
/// that returns two numbers for one and the same key is an error.
///
/// # Numbers
/// The recount gives a number for each field, as Diesel gives counts and sums: an integer, a `Double`, or with the feature `numeric` a
/// `Numeric`, each also as NULL. Diesel's `sum(..)` of a `BigInt` is a `Numeric`. (On SQLite Diesel reads that as a double, so such
/// a sum is exact up to 2⁵³.) An integer field is compared with integers; any fraction is an error.
///
/// Sums of doubles depend on the order of addition. So a field of type `Double`, and on SQLite one of type `Numeric`, has drifted only
/// if its total differs from the recount by more than 1e-9 of the greater of the two.
///
/// ```
/// # mod schema {
/// #     diesel::table! { shops (id) { id -> BigInt, orders -> BigInt, items -> BigInt, } }
/// #     diesel::table! { orders (id) { id -> Integer, shop_id -> BigInt, items -> Integer, } }
/// # }
/// # use schema::{orders, shops};
/// # use diesel::prelude::*;
/// # #[derive(diesel_sharded::ShardedField)]
/// # struct Shop { id: i64, #[sharded] orders: i64, #[sharded] items: i64 }
/// # fn main() -> QueryResult<()> {
/// # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
/// # diesel::sql_query("CREATE TABLE shops (id INTEGER PRIMARY KEY, orders BIGINT NOT NULL, items BIGINT NOT NULL)").execute(conn)?;
/// # diesel::sql_query("CREATE TABLE orders (id INTEGER PRIMARY KEY, shop_id BIGINT NOT NULL, items INTEGER NOT NULL)").execute(conn)?;
/// # diesel::insert_into(shops::table).values((shops::id.eq(7), shops::orders.eq(2), shops::items.eq(1))).execute(conn)?;
/// # diesel::insert_into(orders::table).values([(orders::shop_id.eq(7), orders::items.eq(3)), (orders::shop_id.eq(7), orders::items.eq(1))]).execute(conn)?;
/// # diesel_sharded::ShardsTable::of(shops::table).create(conn)?;
/// use diesel::dsl::{count_star, sum};
/// use diesel_sharded::verify;
///
/// let recount = orders::table
///     .group_by(orders::shop_id)
///     .select((orders::shop_id, count_star(), sum(orders::items)));
/// let drifts = verify(shops::table, (shops::orders, shops::items), recount).repair(conn)?;
/// assert_eq!((drifts[0].total, drifts[0].expected), ((2, 1), (2, 4)));
/// # Ok(())
/// # }
/// ```
///
/// Named counters are verified by their table, `verify(counters::table, counters::value, recount)`, with names as bytes. A counter
/// that does not exist yet has no row to be repaired; `increment` and `decrement` in one transaction leave it there with 0.
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
pub fn verify<Source, Kind, C, Fields, Q>(
    source: Source,
    _fields: C,
    expected: Q,
) -> Verify<Source::Query, C, Q>
where
    Source: UpdateSource<Kind>,
    Source::Query: IntoUpdateTarget<Table = C::Table>,
    C: VerifiedFields<Fields>,
{
    Verify::of(source, expected)
}

/// A comparison that was not made yet; made by [`verify`].
#[derive(Debug, Clone)]
#[must_use = "nothing is compared until `.drifts(conn)` or `.repair(conn)`"]
pub struct Verify<Rows, C, Q, Run = Blocking> {
    pub(super) query: Rows,
    pub(super) fields: PhantomData<fn() -> C>,
    pub(super) expected: Q,
    pub(super) retry: Option<RetryPolicy>,
    pub(super) run: PhantomData<fn() -> Run>,
}

impl<R, C, Q, Run> Verify<R, C, Q, Run> {
    pub(crate) fn of<Source, Kind>(source: Source, expected: Q) -> Self
    where
        Source: UpdateSource<Kind, Query = R>,
    {
        Self::of_query(source.into_query(), expected)
    }

    pub(crate) fn of_query(query: R, expected: Q) -> Self {
        Verify {
            query,
            fields: PhantomData,
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
    /// SELECT "videos"."id", CAST(total AS TEXT) FROM "videos" WHERE …;
    /// COMMIT
    /// ```
    ///
    /// # Errors
    /// As [`update`](crate::update())'s; [`AlreadyInTransaction`](diesel::result::Error::AlreadyInTransaction) inside a
    /// transaction, which might not read from one snapshot. A total that does not fit its column's type causes the database's own
    /// error.
    pub fn drifts<'q, Conn, DB, Fields, T, W>(
        self,
        conn: &mut Conn,
    ) -> QueryResult<Vec<Drift<T::Key, C::Total>>>
    where
        R: IntoUpdateTarget<Table = T, WhereClause = W>,
        C: VerifiedFields<Fields, Table = T>,
        Q: RecountQuery<T::Key> + LoadQuery<'q, Conn, <Q as RecountQuery<T::Key>>::Row> + Clone,
        T: KeyedTable<DB, Key: Eq + Hash>,
        W: QueryFragment<DB> + QueryId,
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        now(self.find_drifts::<Fields, _, _, _, _, _>(&mut Link::blocking(conn)))
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
    /// SELECT "videos"."id", CAST(total AS TEXT) FROM "videos" WHERE …;             -- 100 keys at once
    /// UPDATE "videos" SET "likes" = ("videos"."likes" + $1) WHERE …;               -- for each difference
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
    pub fn repair<'q, Conn, DB, Fields, T, W>(
        self,
        conn: &mut Conn,
    ) -> QueryResult<Vec<Drift<T::Key, C::Total>>>
    where
        R: IntoUpdateTarget<Table = T, WhereClause = W> + Clone,
        C: VerifiedFields<Fields, Table = T>,
        Q: RecountQuery<T::Key> + LoadQuery<'q, Conn, <Q as RecountQuery<T::Key>>::Row> + Clone,
        T: KeyedTable<DB, Key: Eq + Hash>,
        W: QueryFragment<DB> + QueryId,
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        now(self.repair_drifts::<Fields, _, _, _, _, _>(&mut Link::blocking(conn)))
    }
}

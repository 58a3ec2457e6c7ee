//! Requests for comparisons, and for repairs.

use std::hash::Hash;
use std::marker::PhantomData;

use diesel::associations::HasTable;
use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};
use diesel::query_dsl::methods::LoadQuery;
use diesel::result::Error as DieselError;

use crate::backend::{BackendOf, Isolation, ShardedBackend, Strength};
#[cfg(feature = "async")]
use crate::connection::{Async, BoxFuture};
use crate::connection::{
    Blocking, Io, Link, LoadIo, TransactionOptions, in_transaction, now, paired,
};
use crate::counting::update::UpdateSource;
use crate::engine::{KeyedTable, LockedRows, RetryLoop, explain, field, in_chunks, retry_loop};
use crate::error::Error;
use crate::model::{Amount, FieldType, ShardedColumn, ShardedTable, TotalValue};
use crate::policy::RetryPolicy;

use super::number::RecountQuery;
use super::recount::{
    Recount, by_key, by_parent, compare, lacks, refuse_cut_recounts, refuse_padded_keys,
};

pub use self::blocking::verify;

paired! {
    /// Begins to compare the totals of a field with `expected`: a query for keys and numbers, such as a recount returns. A row that the
    /// query leaves out, or for which it gives NULL, is expected to have 0. Keys of other rows in the query's result are ignored, and so
    /// are keys that are NULL.
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
    /// Keys are compared as the key's own column compares them: where it ignores case, the numbers of `Rust` and `rust` are added up. A
    /// recount that returns two numbers for the same key is an error.
    ///
    /// # Numbers
    /// The recount gives the number as Diesel gives counts and sums: an integer, a `Double`, or with the feature `numeric` a
    /// `Numeric`, each also as NULL. Diesel's `sum(..)` of a `BigInt` is a `Numeric`. (On SQLite Diesel reads that as a double, so such
    /// a sum is exact up to 2⁵³.) An integer field is compared with integers; any fraction is an error.
    ///
    /// Sums of doubles depend on the order of addition. So a field of type `Double`, and on SQLite one of type `Numeric`, has drifted only
    /// if its total differs from the recount by more than 1e-9 of the greater of the two.
    ///
    /// Named counters are verified by their table, `verify(counters::table, counters::value, recount)`, with names as bytes. A counter
    /// that does not exist yet has no row to be repaired; `increment` and `decrement` in one transaction leave it there with 0.
    ///
    /// # When it is exact
    /// Totals and recount are read from one snapshot. If the application writes the counted rows and the increments in one transaction,
    /// they differ only by real errors. If it counts afterwards, an increment that is still missing looks like a drift: repair only the
    /// drifts that [`drifts`](Verify::drifts) finds twice.
    ///
    /// # Backfill
    /// A new counter begins at 0 although rows to count already exist. First deploy the code that counts new rows in the transaction
    /// that writes them. Then [`repair`](Verify::repair) adds the earlier rows while the application runs. Process a large table in
    /// steps of some thousand keys, by a filter of the rows *and* of the recount (`videos.filter(id.between(1, 5000))`,
    /// `likes.filter(video_id.between(1, 5000))`): each step holds its keys and numbers in memory, and locks its rows.
    pub fn verify<Source, Kind, C, Q>(
        source: Source,
        _field: C,
        expected: Q,
    ) -> Verify<Source::Query, C, Q, Run>
    where
        Source: UpdateSource<Kind>,
        Source::Query: IntoUpdateTarget<Table = C::Table>,
        C: ShardedColumn,
    {
        Verify::of(source, expected)
    }
}

/// A comparison that has not run yet; made by [`verify`].
#[derive(Debug, Clone)]
#[must_use = "nothing is compared until `.drifts(conn)` or `.repair(conn)`"]
pub struct Verify<Rows, C, Q, Run = Blocking> {
    query: Rows,
    field: PhantomData<fn() -> C>,
    expected: Q,
    retry: Option<RetryPolicy>,
    run: PhantomData<fn() -> Run>,
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
            field: PhantomData,
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

/// A total that is not what it was expected to be: an `i64` (an `i128` of an `Unsigned<BigInt>`), an `f64` or a `BigDecimal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drift<K, N = i64> {
    /// The row's key.
    pub key: K,
    /// The total that was found.
    pub total: N,
    /// The total that was expected.
    pub expected: N,
}

/// The result of a comparison.
type Drifts<Key, Total> = QueryResult<Vec<Drift<Key, Total>>>;

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
    pub fn drifts<'q, Conn, DB, T, W>(self, conn: &mut Conn) -> Drifts<T::Key, TotalValue<C>>
    where
        R: IntoUpdateTarget<Table = T, WhereClause = W>,
        C: ShardedColumn<Table = T>,
        Q: RecountQuery<T::Key> + LoadQuery<'q, Conn, <Q as RecountQuery<T::Key>>::Row> + Clone,
        T: KeyedTable<DB, Key: Eq + Hash>,
        W: QueryFragment<DB> + QueryId,
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        let compared = now(self.find(&mut Link::blocking(conn)));
        drifts::<C, _>(compared?)
    }

    /// Adds the difference to every total that is not as expected, and returns the drifts that it repaired. Increments that arrive
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
    /// UPDATE "videos" SET "likes" = ("videos"."likes" + CASE WHEN ("videos"."id" = $1) THEN 5 … ELSE 0 END) WHERE …;
    /// COMMIT
    /// ```
    ///
    /// Increments on existing shards do not wait for a repair, except on SQLite, where every write waits. On MySQL, first increments on a
    /// shard of these rows wait, as do inserts of rows that refer to them. Do not repair a [bounded](crate::bounded) counter; set
    /// it.
    ///
    /// Its effect on the total: the difference.
    ///
    /// # Errors
    /// As [`drifts`](Self::drifts). [`Overflow`](crate::Error::Overflow) if a base cannot accept the difference. That happens to an
    /// unsigned base if most of the total is on shards: fold first.
    pub fn repair<'q, Conn, DB, T, W>(self, conn: &mut Conn) -> Drifts<T::Key, TotalValue<C>>
    where
        R: IntoUpdateTarget<Table = T, WhereClause = W> + Clone,
        C: ShardedColumn<Table = T>,
        Q: RecountQuery<T::Key> + LoadQuery<'q, Conn, <Q as RecountQuery<T::Key>>::Row> + Clone,
        T: KeyedTable<DB, Key: Eq + Hash>,
        W: QueryFragment<DB> + QueryId,
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        let compared = now(self.find_and_repair(&mut Link::blocking(conn)));
        drifts::<C, _>(compared?)
    }
}

// Apart from the blocking methods, because `LoadQuery` is another trait here.
#[cfg(feature = "async")]
impl<R, C, Q, T, W> Verify<R, C, Q, Async>
where
    R: IntoUpdateTarget<Table = T, WhereClause = W> + Send,
    C: ShardedColumn<Table = T>,
    TotalValue<C>: Send,
    Q: RecountQuery<T::Key, Row: Send> + Clone + Send + Sync + 'static,
    T: ShardedTable<Key: Eq + Hash>,
    W: QueryId + Send + Sync,
{
    /// The totals that are not as expected; see [`Verify::drifts`](crate::operation::Verify::drifts).
    ///
    /// # Errors
    /// As there.
    pub fn drifts<'c, Conn, DB>(
        self,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, Drifts<T::Key, TotalValue<C>>>
    where
        Self: 'c,
        Q: diesel_async::methods::LoadQuery<'static, Conn, <Q as RecountQuery<T::Key>>::Row>,
        T: KeyedTable<DB>,
        W: QueryFragment<DB> + 'c,
        Conn: diesel_async::AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        Box::pin(async move {
            let link = &mut Link::awaited(conn);
            drifts::<C, _>(self.find(link).await?)
        })
    }

    /// Repairs the totals that are not as expected; see [`Verify::repair`](crate::operation::Verify::repair).
    ///
    /// # Errors
    /// As there.
    pub fn repair<'c, Conn, DB>(
        self,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, Drifts<T::Key, TotalValue<C>>>
    where
        Self: 'c,
        R: Clone,
        Q: diesel_async::methods::LoadQuery<'static, Conn, <Q as RecountQuery<T::Key>>::Row>,
        T: KeyedTable<DB>,
        W: QueryFragment<DB> + 'c,
        Conn: diesel_async::AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        Box::pin(async move {
            let link = &mut Link::awaited(conn);
            drifts::<C, _>(self.find_and_repair(link).await?)
        })
    }
}

/// The rows of a sharded table, by which its key can be compared with that of a recount.
pub trait VerifiedRows<DB: ShardedBackend>:
    IntoUpdateTarget<Table: KeyedTable<DB, Key: Eq + Hash>, WhereClause: QueryFragment<DB> + QueryId>
{
}

impl<R, DB> VerifiedRows<DB> for R
where
    R: IntoUpdateTarget<
            Table: KeyedTable<DB, Key: Eq + Hash>,
            WhereClause: QueryFragment<DB> + QueryId,
        >,
    DB: ShardedBackend,
{
}

/// The key of such a row.
type Key<R> = <<R as HasTable>::Table as ShardedTable>::Key;

impl<R, C, Q, Run> Verify<R, C, Q, Run> {
    /// The rows whose totals are not as expected.
    async fn find<'q, M>(self, link: &mut Link<'_, M>) -> QueryResult<Vec<Drift<Key<R>, Amount>>>
    where
        R: VerifiedRows<M::Backend>,
        C: ShardedColumn<Table = R::Table>,
        Q: Clone,
        M: LoadIo + Recount<'q, Q, Key<R>>,
    {
        let filter = self.query.into_update_target().where_clause;
        let (field, query) = (field::<C>()?, self.expected);
        let repeated = in_a_snapshot(link, self.retry.unwrap_or_default(), false)?;
        let differ = retry_loop!(link, repeated, {
            refuse_padded_keys::<R::Table, _>(link).await?;
            refuse_cut_recounts(link).await?;
            let expected = by_key(M::recount(link.conn, query.clone()).await?, field)?;
            let expected = by_parent::<R::Table, _, _>(link, &filter, expected).await?;
            compare::<R::Table, _, _>(link, field, &filter, &expected).await
        });
        differ.map_err(|error| explain::<R::Table, M::Backend>(&link.backend(), error))
    }

    /// Repairs rows whose totals are not as expected, and returns them.
    async fn find_and_repair<'q, M>(
        self,
        link: &mut Link<'_, M>,
    ) -> QueryResult<Vec<Drift<Key<R>, Amount>>>
    where
        R: VerifiedRows<M::Backend> + Clone,
        C: ShardedColumn<Table = R::Table>,
        Q: Clone,
        M: LoadIo + Recount<'q, Q, Key<R>>,
    {
        let (table, field) = (*R::Table::TABLE, field::<C>()?);
        let query = self.expected.clone();
        let filter = self.query.clone().into_update_target().where_clause;
        let retry = self.retry.clone().unwrap_or_default();
        let suspects = self.find(link).await?;
        let suspects = suspects.into_iter().map(|compared| compared.key);
        let suspects = in_chunks::<R::Table, M::Backend>(suspects.collect());
        if suspects.is_empty() {
            return Ok(vec![]);
        }
        let repeated = in_a_snapshot(link, retry, true)?;
        let repaired = retry_loop!(link, repeated, {
            let mut all_locked = vec![];
            for keys in &suspects {
                let lock_all = LockedRows::<R::Table, M::Backend>::lock_all;
                all_locked.push(lock_all(table, link, keys, Strength::Exclusive).await?);
            }
            let expected = by_key(M::recount(link.conn, query.clone()).await?, field)?;
            let expected = by_parent::<R::Table, _, _>(link, &filter, expected).await?;
            let mut repaired = vec![];
            for locked in all_locked {
                let still = locked.on(link).matching(&filter).await?;
                if still.is_empty() {
                    continue;
                }
                let keys = &still.keys;
                let differ = compare::<R::Table, _, _>(link, field, keys, &expected).await?;
                let lacking = differ.iter().map(|drift| drift.key.clone()).collect();
                let lacking = LockedRows::<R::Table, M::Backend>::locked(table, lacking);
                let lacks = differ.iter().map(|drift| lacks(drift, field.column_type));
                let lacks = lacks.collect::<QueryResult<Vec<_>>>()?;
                if !lacks.is_empty() {
                    lacking.on(link).add_to_bases(field, &lacks).await?;
                }
                repaired.extend(differ);
            }
            Ok(repaired)
        });
        repaired.map_err(|error| explain::<R::Table, M::Backend>(&link.backend(), error))
    }
}

/// The drifts, as the caller gets them.
fn drifts<C, K>(compared: Vec<Drift<K, Amount>>) -> QueryResult<Vec<Drift<K, TotalValue<C>>>>
where
    C: ShardedColumn,
{
    let value = |amount: &Amount| {
        C::SqlType::of_amount(amount).ok_or_else(|| {
            let message = format!("a total of {} out of any range", C::NAME);
            DieselError::from(Error::overflow(message))
        })
    };
    let drifts = compared.into_iter().map(|compared| {
        Ok(Drift {
            total: value(&compared.total)?,
            expected: value(&compared.expected)?,
            key: compared.key,
        })
    });
    drifts.collect()
}

/// A transaction that reads from one snapshot.
///
/// # Errors
/// Inside another transaction, whose snapshot may be older.
fn in_a_snapshot<M: Io>(
    link: &mut Link<'_, M>,
    retry: RetryPolicy,
    writes: bool,
) -> QueryResult<RetryLoop> {
    if in_transaction(link)? {
        return Err(DieselError::AlreadyInTransaction);
    }
    let options = TransactionOptions {
        isolation: Some(Isolation::RepeatableRead),
        deferred: !writes,
        guarded: writes,
        outermost: true,
        own: false,
    };
    RetryLoop::transaction(link, retry, options)
}

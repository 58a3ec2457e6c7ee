//! `verify(..)`: totals beside a recount of what they count, repaired while the application goes on counting.

use std::collections::{BTreeMap, HashMap};
use std::future::{Ready, ready};
use std::hash::Hash;
use std::marker::PhantomData;

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, IntoUpdateTarget, Query, QueryFragment, QueryId};
use diesel::query_dsl::methods::LoadQuery;
use diesel::result::Error as DieselError;
use diesel::sql_types::Integer;

use crate::backend::{BackendOf, Isolation, ShardedBackend, Strength};
use crate::connection::{Blocking, Io, Link, LoadIo, TransactionOptions, in_transaction, now};
use crate::engine::{Held, KeyedTable, RetryLoop, Sums, explain, field, in_chunks, retry_loop};
use crate::error::Error;
use crate::model::{Amount, ColumnType, ShardedColumn, ShardedTable};
use crate::operation::row_counter::{AddTo, IntegerField};
use crate::operation::update::UpdateSource;
use crate::policy::RetryPolicy;
use crate::query_builder::push_column;
use crate::unfit::Unfit;

/// Begins to compare the totals of a field with `expected`: a query for keys and numbers, as a recount gives them. A row that
/// the query leaves out is expected to have 0; what the query says of other rows is not looked at.
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
/// Keys are compared as values of the key's Rust type. A recount that gives two numbers for one key is an error.
///
/// Named counters are verified by their table, `verify(counters::table, counters::value, recount)`, with names as bytes; one that
/// is not there yet is created by `add(0)`.
///
/// # When it is exact
/// Totals and recount are read from one snapshot: at one instant they differ only by what is really wrong, if the application
/// writes what is counted and the count in one transaction. If it counts afterwards, what is in between looks like
/// a drift: repair only what [`drifts`](Verify::drifts) finds twice.
///
/// # Backfill
/// A counter that is new begins at 0 while there are rows to count already. First deploy the code that counts new rows in
/// the transaction that writes them; then [`repair`](Verify::repair) brings in those from before, while it runs. For a large table
/// go in steps of some thousand keys, by a filter of the rows *and* of the recount (`videos.filter(id.between(1, 5000))`,
/// `likes.filter(video_id.between(1, 5000))`): each holds its keys and numbers in memory, and its rows locked.
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
    query: Rows,
    column: C,
    expected: Q,
    retry: Option<RetryPolicy>,
    run: PhantomData<fn() -> Run>,
}

/// A total that is not what it was expected to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drift<K> {
    /// The row's key.
    pub key: K,
    /// The total that was found.
    pub total: i64,
    /// The total that was expected.
    pub expected: i64,
}

impl<R, C, Q, Run> Verify<R, C, Q, Run> {
    pub(crate) fn of<Source, Kind>(source: Source, column: C, expected: Q) -> Self
    where
        Source: UpdateSource<Kind, Query = R>,
    {
        Verify {
            query: source.into_query(),
            column,
            expected,
            retry: None,
            run: PhantomData,
        }
    }

    /// Tries again by `policy` instead of the [process-wide](RetryPolicy::global) one.
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
    /// transaction, which may not read from one snapshot. A total that does not fit its column's type is the database's
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

    /// Adds to every total that is not as expected what it lacks, and gives what it has repaired. What is counted meanwhile
    /// stays counted.
    ///
    /// If there are [`drifts`](Self::drifts), it locks these rows, so that no other repair, fold or set comes in between,
    /// compares again in one snapshot, and corrects the bases. On PostgreSQL the snapshot is the one of the lock, and a row that
    /// was written since is a serialization failure, after which it is tried again.
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
    /// Counts on shards that are there do not wait for it, but on SQLite, where every write does. On MySQL, first counts on a
    /// shard of these rows wait, and inserts of rows that refer to them. A [bounded](crate::bounded) counter must not be
    /// repaired, but set.
    ///
    /// Its effect on the total: the difference.
    ///
    /// # Errors
    /// As [`drifts`](Self::drifts). [`Overflow`](crate::Error::Overflow) where a base does not take the difference, as an
    /// unsigned one most of whose total is on shards: fold first.
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

impl<R, C, Q, Run> Verify<R, C, Q, Run> {
    pub(crate) async fn find_drifts<'q, DB, T, W, M, Conn>(
        self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<Vec<Drift<T::Key>>>
    where
        R: IntoUpdateTarget<Table = T, WhereClause = W>,
        C: IntegerField<DB, Table = T>,
        Q: Clone,
        T: KeyedTable<DB, Key: Eq + Hash>,
        W: QueryFragment<DB> + QueryId,
        M: LoadIo<Conn, Backend = DB> + Recount<'q, Conn, Q, T::Key>,
        DB: ShardedBackend,
    {
        let filter = self.query.into_update_target().where_clause;
        let (column, query) = (self.column, self.expected);
        let repeated = in_a_snapshot(link, self.retry.unwrap_or_default(), false)?;
        let drifts = retry_loop!(link, repeated, {
            refuse_padded_keys::<T, _, _, _>(link).await?;
            refuse_cut_recounts::<DB, _, _>(link).await?;
            let expected = by_key(M::recount(link.conn, query.clone()).await?)?;
            compare(link, column, &filter, &expected).await
        });
        drifts.map_err(|error| explain::<T, DB>(&link.backend(), error))
    }

    pub(crate) async fn repair_drifts<'q, DB, T, W, M, Conn>(
        self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<Vec<Drift<T::Key>>>
    where
        R: IntoUpdateTarget<Table = T, WhereClause = W> + Clone,
        C: IntegerField<DB, Table = T>,
        Q: Clone,
        T: KeyedTable<DB, Key: Eq + Hash>,
        W: QueryFragment<DB> + QueryId,
        M: LoadIo<Conn, Backend = DB> + Recount<'q, Conn, Q, T::Key>,
        DB: ShardedBackend,
    {
        let (column, query) = (self.column, self.expected.clone());
        let fields = [field::<C>()?];
        let retry = self.retry.clone().unwrap_or_default();
        let suspects = self.find_drifts(link).await?;
        let suspects = suspects.into_iter().map(|drift| drift.key);
        let suspects = in_chunks::<T, DB>(suspects.collect());
        if suspects.is_empty() {
            return Ok(vec![]);
        }
        let repeated = in_a_snapshot(link, retry, true)?;
        let repaired = retry_loop!(link, repeated, {
            let mut held = vec![];
            for keys in &suspects {
                let strength = Strength::NoKeyUpdate;
                let locked = Held::<T, DB>::lock_parents(link, keys, strength).await?;
                locked.refuse_hidden_shards(link).await?;
                if let Some(key) = locked.not_locked(link, keys).await?.pop() {
                    return Err(Held::<T, DB>::unfit(key, Unfit::NotLocked));
                }
                held.push(locked);
            }
            let expected = by_key(M::recount(link.conn, query.clone()).await?)?;
            let mut repaired = vec![];
            for held in held.iter().filter(|held| !held.is_empty()) {
                let keys = held.keys();
                repaired.extend(compare(link, column, keys, &expected).await?);
            }
            let mut lacking = HashMap::new();
            for drift in &repaired {
                lacking.insert(&drift.key, drift.lacks()?);
            }
            for held in &held {
                let mut equal: BTreeMap<i64, Vec<T::Key>> = BTreeMap::new();
                for key in held.parents() {
                    if let Some(lacks) = lacking.get(key) {
                        equal.entry(*lacks).or_default().push(key.clone());
                    }
                }
                for (lacks, keys) in equal {
                    let held = Held::<T, DB>::locked(keys);
                    let before = held.states(link, &fields, Sums::Read).await?;
                    let mut expected = before.clone();
                    for state in expected.iter_mut().flatten() {
                        state.base += &Amount::Integer(lacks.into());
                    }
                    let add = AddTo::<C>::new(lacks);
                    held.write_bases(link, &add, &fields, false, &before, &expected)
                        .await?;
                }
            }
            Ok(repaired)
        });
        repaired.map_err(|error| explain::<T, DB>(&link.backend(), error))
    }
}

/// Refuses a table whose keys PostgreSQL pads with spaces where it gives them out: a recount may give them with the padding or
/// without, and the two would be compared as different keys.
async fn refuse_padded_keys<T, DB, M, Conn>(link: &mut Link<'_, M, Conn>) -> QueryResult<()>
where
    T: KeyedTable<DB>,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    let texts = T::KEY.iter().map(|column| column.column_type);
    let has_text = texts.into_iter().any(|column| column == ColumnType::Text);
    if !has_text || !link.dialect().pads_text() {
        return Ok(());
    }
    let find = FindPaddedKey::<T>(PhantomData);
    match link.load::<i32, _>(find).await?.is_empty() {
        true => Ok(()),
        false => Err(Error::PaddedKey {
            shards_table: T::SHARDS_TABLE,
        }
        .into()),
    }
}

/// Refuses a session whose `sql_select_limit` may cut the recount, which is the application's own query: what is cut off would
/// be taken for 0.
async fn refuse_cut_recounts<DB, M, Conn>(link: &mut Link<'_, M, Conn>) -> QueryResult<()>
where
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    if !link.dialect().cuts_queries() {
        return Ok(());
    }
    let limits = link.load::<i32, _>(FindSelectLimit).await?;
    match limits.is_empty() {
        true => Ok(()),
        false => Err(Error::RefusedBySetting {
            setting: "sql_select_limit",
            remedy: "it would cut the recount: `SET SESSION sql_select_limit = DEFAULT` before",
            source: DieselError::QueryBuilderError("a recount has to give all of its rows".into()),
        }
        .into()),
    }
}

/// Reads a row if the session has a limit for queries.
struct FindSelectLimit;

impl<DB: ShardedBackend> QueryFragment<DB> for FindSelectLimit {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql(
            "SELECT 1 FROM (SELECT 1) AS one WHERE @@sql_select_limit < 18446744073709551615",
        );
        out.push_sql(out.backend().dialect().all_rows());
        Ok(())
    }
}

impl Query for FindSelectLimit {
    type SqlType = Integer;
}

impl QueryId for FindSelectLimit {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

/// Reads a row if a key column is a `CHAR(n)` and the table is not empty.
///
/// ```sql
/// SELECT 1 FROM "videos" WHERE pg_typeof("videos"."slug") = 'character'::regtype LIMIT 1
/// ```
struct FindPaddedKey<T>(PhantomData<T>);

impl<T, DB> QueryFragment<DB> for FindPaddedKey<T>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT 1 FROM ");
        T::TABLE.walk_ast(out.reborrow())?;
        let texts = T::KEY.iter();
        let texts = texts.filter(|column| column.column_type == ColumnType::Text);
        for (i, column) in texts.enumerate() {
            out.push_sql(if i == 0 { " WHERE " } else { " OR " });
            out.push_sql("pg_typeof(");
            push_column::<T, DB>(column.name, out.reborrow())?;
            out.push_sql(") = 'character'::regtype");
        }
        out.push_sql(" LIMIT 1");
        Ok(())
    }
}

impl<T> Query for FindPaddedKey<T> {
    type SqlType = Integer;
}

impl<T: 'static> QueryId for FindPaddedKey<T> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

/// A transaction that reads from one snapshot.
///
/// # Errors
/// Inside another transaction, whose snapshot may be older.
fn in_a_snapshot<M, Conn>(
    link: &mut Link<'_, M, Conn>,
    retry: RetryPolicy,
    writes: bool,
) -> QueryResult<RetryLoop>
where
    M: Io<Conn>,
{
    if in_transaction(link)? {
        return Err(DieselError::AlreadyInTransaction);
    }
    let options = TransactionOptions {
        isolation: Some(Isolation::RepeatableRead),
        immediate: writes,
        guarded: writes,
        outermost: true,
    };
    RetryLoop::transaction(link, retry, options)
}

impl<K> Drift<K> {
    /// What has to be added to the total.
    fn lacks(&self) -> QueryResult<i64> {
        let lacks = self.expected.checked_sub(self.total);
        lacks.ok_or_else(|| {
            let source = DieselError::SerializationError("a drift beyond any integer".into());
            Error::Overflow { source }.into()
        })
    }
}

/// An [`Io`] that reads what an application's query has recounted.
pub trait Recount<'q, Conn, Q, K>: Io<Conn> {
    /// Reads the keys and their numbers.
    fn recount(conn: &mut Conn, query: Q) -> Self::Future<'_, QueryResult<Vec<(K, i64)>>>;
}

impl<'q, Conn, Q, K> Recount<'q, Conn, Q, K> for Blocking
where
    Conn: Connection,
    Conn::Backend: BackendOf<Conn>,
    Q: LoadQuery<'q, Conn, (K, i64)>,
    K: 'static,
{
    fn recount(conn: &mut Conn, query: Q) -> Ready<QueryResult<Vec<(K, i64)>>> {
        ready(query.internal_load(conn).and_then(Iterator::collect))
    }
}

/// The recounted numbers.
fn by_key<K: Eq + Hash>(recounted: Vec<(K, i64)>) -> QueryResult<HashMap<K, i64>> {
    let mut by_key = HashMap::new();
    for (key, number) in recounted {
        if by_key.insert(key, number).is_some() {
            let message = "a recount gives one number for each key; this one gave two: group it by the key alone";
            return Err(DieselError::DeserializationError(message.into()));
        }
    }
    Ok(by_key)
}

/// The drifts of the rows that `filter` matches.
async fn compare<C, T, W, DB, M, Conn>(
    link: &mut Link<'_, M, Conn>,
    column: C,
    filter: &W,
    expected: &HashMap<T::Key, i64>,
) -> QueryResult<Vec<Drift<T::Key>>>
where
    C: IntegerField<DB, Table = T>,
    T: KeyedTable<DB, Key: Eq + Hash>,
    W: QueryFragment<DB> + QueryId,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    let totals = column.load_totals(link, filter).await?;
    let compared = totals.into_iter().map(|(key, total)| Drift {
        expected: expected.get(&key).copied().unwrap_or(0),
        total: total.into(),
        key,
    });
    Ok(compared
        .filter(|drift| drift.total != drift.expected)
        .collect())
}

/// Totals beside a recount, awaited.
#[cfg(feature = "async")]
pub mod asynchronous {
    use std::hash::Hash;

    use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};
    use diesel::result::QueryResult;
    use diesel_async::methods::LoadQuery;
    use diesel_async::{AsyncConnection, RunQueryDsl};

    use crate::backend::BackendOf;
    use crate::connection::{Async, BoxFuture, Link};
    use crate::engine::KeyedTable;
    use crate::model::ShardedColumn;
    use crate::operation::row_counter::IntegerField;
    use crate::operation::update::UpdateSource;
    use crate::operation::verify::{Drift, Recount, Verify};

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

    impl<Conn, Q, K> Recount<'static, Conn, Q, K> for Async
    where
        Conn: AsyncConnection,
        Conn::Backend: BackendOf<Conn>,
        Q: LoadQuery<'static, Conn, (K, i64)> + 'static,
        K: Send + 'static,
    {
        fn recount(conn: &mut Conn, query: Q) -> BoxFuture<'_, QueryResult<Vec<(K, i64)>>> {
            Box::pin(query.load(conn))
        }
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

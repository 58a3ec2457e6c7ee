//! Requests to set totals.

use std::marker::PhantomData;

use diesel::connection::LoadConnection;
use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};

use crate::backend::BackendOf;
use crate::connection::{Blocking, Link, now};
use crate::engine::KeyedTable;
use crate::model::{ShardedColumn, ShardedTable, Value};
use crate::operation::idempotency::Idempotent;
use crate::operation::update::UpdateSource;
use crate::policy::RetryPolicy;

use super::assignment::{Assignment, ToValue, ToZero};

/// Begins to set the total of a field to a value, in rows by key, by any filter, or all.
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
/// use diesel_sharded::prelude::*;
/// use diesel_sharded::{reset, set_total, update};
///
/// update(all.find(7)).set(views.eq(views + 5)).execute(conn)?;
/// assert_eq!(set_total(all.find(7), views, 1000).execute(conn)?, 1);
/// update(all.find(7)).set(views.eq(views + 1)).execute(conn)?;
/// assert_eq!(all.find(7).select(views.total()).first::<i64>(conn)?, 1001);
/// reset(all.find(7)).execute(conn)?; // every sharded field
/// assert_eq!(all.find(7).select(views.total()).first::<i64>(conn)?, 0);
/// # Ok(())
/// # }
/// ```
///
/// # Statements
///
/// One transaction, which is retried after a conflict:
///
/// ```sql
/// BEGIN;                                                     -- READ COMMITTED; SQLite: BEGIN IMMEDIATE, and no FOR UPDATE
/// SELECT "videos"."id" FROM "videos" WHERE … ORDER BY "videos"."id";
/// SELECT "videos"."id" FROM "videos" WHERE … ORDER BY "videos"."id" FOR UPDATE;          -- 100 keys a statement
/// SELECT 1 FROM "videos_shards" AS "videos" WHERE … ORDER BY "videos"."id", "videos"."shard" FOR UPDATE;
/// SELECT "videos"."id" FROM (SELECT "videos"."id" FROM "videos" WHERE …) AS "videos" WHERE …;     -- still in the filter
/// SELECT base || ' ' || sum of shards FROM "videos" WHERE …;                             -- as texts; MySQL: CONCAT(…)
/// UPDATE "videos" SET "views" = $1 WHERE …;
/// UPDATE "videos_shards" AS "videos" SET "views" = 0 WHERE … AND ("videos"."views" <> 0);
/// SELECT base || ' ' || sum of shards FROM "videos" WHERE …;                             -- has to be what was set
/// COMMIT
/// ```
///
/// # Effect on the total
/// At one instant between the call and its return the total is the value. Counts that commit before that instant are gone, counts
/// that commit after it survive, and each count does one or the other as a whole (the set is linearizable). A row that is
/// inserted meanwhile may be left out. A row that stops matching the filter before it is locked is left out.
///
/// The set is one transaction for any number of rows, and counts on all of them wait until its end. Set large tables part by
/// part.
///
/// # Result
/// `.execute(conn)` returns the number of rows set. That is `Ok(0)` for an id that does not exist, and, on MySQL inside a
/// transaction in its default isolation, for an id that the transaction does not see yet.
///
/// # Inside a transaction
/// The set is part of the caller's transaction, in a savepoint, and holds its locks until that transaction ends. The isolation
/// level is the caller's. Above `READ COMMITTED` on PostgreSQL, a count that was committed since the caller first read causes a
/// serialization failure; if it was the first on its shard, it survives the set. On MySQL, read totals there in `READ COMMITTED`:
/// see [`fold`](crate::fold()).
///
/// # Errors
/// As [`update`](crate::update())'s, and [`Error::Unfit`](crate::Error::Unfit) if a row did not accept the value: its column
/// rounds or cuts it, or row security or a trigger prevents the update. No total was set then.
pub fn set_total<Source, Kind, C>(
    source: Source,
    _column: C,
    total: Value<C>,
) -> SetTotal<Source::Query, ToValue<C>>
where
    Source: UpdateSource<Kind>,
    Source::Query: IntoUpdateTarget<Table = C::Table>,
    C: ShardedColumn,
{
    SetTotal::of(source, ToValue(total))
}

/// Begins to set the totals of all counted fields to zero: [`set_total`] of each, at once, with the same locks, isolation,
/// effect and errors. A field with `#[sharded(max)]` or `#[sharded(min)]` stays as it is.
///
/// ```sql
/// UPDATE "videos" SET "views" = 0, "likes" = 0 WHERE …;
/// UPDATE "videos_shards" AS "videos" SET "views" = 0, "likes" = 0 WHERE … AND ("videos"."views" <> 0 OR "videos"."likes" <> 0)
/// ```
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
/// # diesel::insert_into(all).values([(id.eq(7), views.eq(100)), (id.eq(8), views.eq(0))]).execute(conn)?;
/// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
/// use diesel_sharded::reset;
///
/// assert_eq!(reset(all.filter(id.ge(7))).execute(conn)?, 2);
/// # Ok(())
/// # }
/// ```
pub fn reset<Source, Kind, T>(source: Source) -> SetTotal<Source::Query, ToZero<T>>
where
    Source: UpdateSource<Kind>,
    Source::Query: IntoUpdateTarget<Table = T>,
    T: ShardedTable,
{
    SetTotal::of(source, ToZero::new())
}

/// Totals to be set; made by [`set_total`] and [`reset`].
#[derive(Debug)]
#[must_use = "no total is set until it is `.execute(conn)`-d"]
pub struct SetTotal<Q, A, Run = Blocking> {
    pub(super) query: Q,
    pub(super) assignment: A,
    pub(super) retry: Option<RetryPolicy>,
    pub(super) run: PhantomData<fn() -> Run>,
}

impl<Q, A, Run> SetTotal<Q, A, Run> {
    pub(crate) fn of<Source, Kind>(source: Source, assignment: A) -> Self
    where
        Source: UpdateSource<Kind, Query = Q>,
    {
        SetTotal {
            query: source.into_query(),
            assignment,
            retry: None,
            run: PhantomData,
        }
    }

    /// Retries by `policy` instead of the [process-wide](RetryPolicy::global) one.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// Sets the totals only if nothing was done with this key before, in any process. A key has 1 to 255 bytes, such as a
    /// request's id. Only `.execute(conn)` may follow. See [`idempotency`](crate::idempotency).
    ///
    /// ```
    /// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
    /// # use schema::videos::{self, dsl::{id, videos as all, views}};
    /// # use diesel::prelude::*;
    /// # use diesel_migrations::MigrationHarness;
    /// # #[derive(diesel_sharded::ShardedField)]
    /// # #[diesel(table_name = videos)]
    /// # struct Video { id: i64, #[sharded] views: i64 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// # let conn = &mut SqliteConnection::establish(":memory:")?;
    /// # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, views BIGINT NOT NULL)").execute(conn)?;
    /// # diesel::insert_into(all).values((id.eq(7), views.eq(100))).execute(conn)?;
    /// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
    /// # conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
    /// use diesel_sharded::prelude::*;
    /// use diesel_sharded::{set_total, update};
    ///
    /// for _ in 0..2 {
    ///     set_total(all.find(7), views, 1000).idempotency_key("job 17").execute(conn)?;
    ///     update(all.find(7)).set(views.eq(views + 1)).execute(conn)?;
    /// }
    /// assert_eq!(all.find(7).select(views.total()).first::<i64>(conn)?, 1002);
    /// # Ok(())
    /// # }
    /// ```
    pub fn idempotency_key(self, key: impl AsRef<[u8]>) -> Idempotent<Self> {
        Idempotent::new(self, key)
    }
}

impl<Q, A> SetTotal<Q, A> {
    /// Sets the totals; see [`set_total`].
    ///
    /// # Errors
    /// As [`update`](crate::update())'s. No total was set then.
    pub fn execute<Conn, DB, T, W>(self, conn: &mut Conn) -> QueryResult<usize>
    where
        Q: IntoUpdateTarget<Table = T, WhereClause = W>,
        A: Assignment + QueryFragment<DB>,
        T: KeyedTable<DB>,
        T::PrimaryKey: Expression + QueryId,
        W: QueryFragment<DB> + QueryId,
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        now(self.ready().set::<T, DB, _, _>(&mut Link::blocking(conn)))
    }
}

/// Totals that are set, awaited.
#[cfg(feature = "async")]
pub mod asynchronous {
    use diesel::expression::Expression;
    use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};
    use diesel::result::QueryResult;
    use diesel_async::AsyncConnection;

    use super::{Assignment, SetTotal, ToValue, ToZero};
    use crate::backend::BackendOf;
    use crate::connection::{Async, BoxFuture, Link};
    use crate::engine::KeyedTable;
    use crate::model::{ShardedColumn, ShardedTable, Value};
    use crate::operation::update::UpdateSource;

    /// Sets the total of a field on a connection of `diesel_async`; see [`set_total`](crate::set_total()).
    pub fn set_total<Source, Kind, C>(
        source: Source,
        _column: C,
        total: Value<C>,
    ) -> SetTotal<Source::Query, ToValue<C>, Async>
    where
        Source: UpdateSource<Kind>,
        Source::Query: IntoUpdateTarget<Table = C::Table>,
        C: ShardedColumn,
    {
        SetTotal::of(source, ToValue(total))
    }

    /// Sets the totals of all sharded fields to zero on a connection of `diesel_async`; see [`reset`](crate::reset).
    pub fn reset<Source, Kind, T>(source: Source) -> SetTotal<Source::Query, ToZero<T>, Async>
    where
        Source: UpdateSource<Kind>,
        Source::Query: IntoUpdateTarget<Table = T>,
        T: ShardedTable,
    {
        SetTotal::of(source, ToZero::new())
    }

    impl<Q, A, T, W> SetTotal<Q, A, Async>
    where
        Q: IntoUpdateTarget<Table = T, WhereClause = W>,
    {
        /// Sets the totals and returns the number of rows.
        ///
        /// # Errors
        /// As [`SetTotal::execute`](crate::operation::SetTotal::execute)'s.
        pub fn execute<'c, Conn, DB>(self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<usize>>
        where
            Q: Send + 'c,
            A: Assignment + QueryFragment<DB> + Send + Sync + 'c,
            T: KeyedTable<DB>,
            T::PrimaryKey: Expression + QueryId,
            W: QueryFragment<DB> + QueryId + Send + Sync + 'c,
            Conn: AsyncConnection<Backend = DB>,
            DB: BackendOf<Conn>,
        {
            let ready = self.ready();
            Box::pin(async move { ready.set::<T, DB, _, _>(&mut Link::awaited(conn)).await })
        }
    }
}

//! `set_total(..)` and `reset(..)`: totals that are set, beside counts that go on.

use std::marker::PhantomData;

use diesel::connection::LoadConnection;
use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, IntoUpdateTarget, Query, QueryFragment, QueryId};
use diesel::result::Error as DieselError;

use crate::backend::{BackendOf, Binds, ShardedBackend};
use crate::connection::{Blocking, Link, LoadIo, now};
use crate::engine::{Held, KeyedTable, Sums, explain, holding, in_chunks, retry_loop};
use crate::error::Error;
use crate::model::{Amount, FieldType, ShardedColumn, ShardedTable, ShardsColumn, Value};
use crate::operation::update::UpdateSource;
use crate::policy::RetryPolicy;
use crate::query_builder::{
    KeysAre, PickKeys, push_bind, push_key, push_select_keys_as_parent, push_zeros,
};
use crate::unfit::FieldState;

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
/// # What it sends
///
/// One transaction, which is tried again after a conflict:
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
/// It is the value, at one instant between the call and its return: counts that were committed before are gone, counts that
/// are committed after it survive, and each is one or the other as a whole (it is linearizable). A row that is inserted
/// meanwhile may be left out, and one that leaves the filter before it is locked is.
///
/// It is one transaction, whatever the number of rows, and keeps counts on all of them waiting until its end: set large
/// tables part by part.
///
/// # What it gives back
/// `.execute(conn)` gives the number of rows set; `Ok(0)` for an id that is not there, or on MySQL inside a transaction in
/// its default isolation not yet there for it.
///
/// # Inside a transaction
/// It is part of the caller's, in a savepoint, and holds its locks until the caller's ends. The isolation level is the
/// caller's: above `READ COMMITTED`, a count that was committed since the caller first read is a serialization failure on
/// PostgreSQL, or, if it was the first on its shard, comes after the set. On MySQL read totals in `READ COMMITTED` there: see
/// [`fold`](crate::fold()).
///
/// # Errors
/// As [`update`](crate::update())'s, and [`Error::Unfit`] where a row did not take the value: one that its column rounds or cuts,
/// or that row security or a trigger keeps out. No total was set then.
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

/// Begins to set the totals of all sharded fields to zero: [`set_total`] of each, at once, with the same locks, isolation,
/// effect and errors.
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
    query: Q,
    assignment: A,
    retry: Option<RetryPolicy>,
    run: PhantomData<fn() -> Run>,
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

    /// Tries again by `policy` instead of the [process-wide](RetryPolicy::global) one.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
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
        now(self.set(&mut Link::blocking(conn)))
    }
}

impl<Q, A, Run> SetTotal<Q, A, Run> {
    pub(crate) async fn set<DB, T, W, M, Conn>(
        self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<usize>
    where
        Q: IntoUpdateTarget<Table = T, WhereClause = W>,
        A: Assignment + QueryFragment<DB>,
        T: KeyedTable<DB>,
        T::PrimaryKey: Expression + QueryId,
        W: QueryFragment<DB> + QueryId,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        self.assignment.check()?;
        let filter = self.query.into_update_target().where_clause;
        let assignment = self.assignment;
        let holding = holding(link, self.retry.unwrap_or_default())?;
        let set = retry_loop!(link, holding, {
            let pick = PickKeys::<T, W> {
                filter: &filter,
                table: PhantomData,
            };
            let mut set = 0;
            for keys in in_chunks::<T, DB>(T::load_keys(link, pick).await?) {
                let held = Held::<T, DB>::lock_all(link, &keys).await?;
                if held.is_empty() {
                    continue;
                }
                // What has left the filter since it was picked is not set.
                let again = PickAgain::<T, W, _> {
                    filter: &filter,
                    keys: held.keys(),
                    table: PhantomData,
                };
                let still = T::load_keys(link, again).await?;
                let still = Held::<T, DB>::locked(still);
                set += assign(link, &still, &assignment).await?;
            }
            Ok(set)
        });
        set.map_err(|error| explain::<T, DB>(&link.backend(), error))
    }
}

/// Sets the totals of parents that are held. The number of parents.
async fn assign<T, DB, A, M, Conn>(
    link: &mut Link<'_, M, Conn>,
    held: &Held<T, DB>,
    assignment: &A,
) -> QueryResult<usize>
where
    T: KeyedTable<DB>,
    DB: ShardedBackend,
    A: Assignment + QueryFragment<DB>,
    M: LoadIo<Conn, Backend = DB>,
{
    if held.is_empty() {
        return Ok(0);
    }
    let set = T::FIELDS.iter();
    let set = set.filter_map(|field| Some((field, assignment.sets(field)?)));
    let (fields, totals): (Vec<_>, Vec<_>) = set.unzip();
    let before = held.states(link, &fields, Sums::Replaced).await?;
    let parent = fields.iter().zip(totals).map(|(field, base)| FieldState {
        base,
        shards: Amount::zero(field.column_type),
    });
    let expected = vec![parent.collect(); before.len()];
    held.write_bases(link, assignment, &fields, true, &before, &expected)
        .await?;
    Ok(before.len())
}

/// Sets the total of the one parent that has `key`. The number of parents.
pub(crate) async fn set_by_key<C, DB, M, Conn>(
    link: &mut Link<'_, M, Conn>,
    key: <C::Table as ShardedTable>::Key,
    total: Value<C>,
) -> QueryResult<usize>
where
    C: ShardedColumn<Table: KeyedTable<DB>>,
    DB: ShardedBackend + Binds<C::SqlType, Value<C>>,
    M: LoadIo<Conn, Backend = DB>,
{
    let keys = KeysAre(vec![C::Table::key_is(key)]);
    let to_total = ToValue::<C>(total);
    let holding = holding(link, RetryPolicy::default())?;
    let set = retry_loop!(link, holding, {
        let held = Held::<C::Table, DB>::lock_all(link, &keys).await?;
        assign(link, &held, &to_total).await
    });
    set.map_err(|error| explain::<C::Table, DB>(&link.backend(), error))
}

/// Reads the keys of parents that are held and still match the filter.
///
/// ```sql
/// SELECT "videos"."id" FROM (SELECT "videos"."id" FROM "videos" WHERE …) AS "videos" WHERE ("videos"."id" = $1 OR …)
/// ORDER BY "videos"."id"
/// ```
struct PickAgain<'a, T, W, P> {
    filter: &'a W,
    keys: &'a KeysAre<P>,
    table: PhantomData<T>,
}

impl<T, W, P, DB> QueryFragment<DB> for PickAgain<'_, T, W, P>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    P: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_select_keys_as_parent::<T, W, DB>(self.filter, out.reborrow())?;
        self.keys.walk_ast(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        push_key::<T, DB>(out.reborrow())?;
        out.push_sql(out.backend().dialect().all_rows());
        Ok(())
    }
}

impl<T: Table, W, P> Query for PickAgain<'_, T, W, P> {
    type SqlType = <T::PrimaryKey as Expression>::SqlType;
}

impl<T, W, P> QueryId for PickAgain<'_, T, W, P> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

/// What [`SetTotal`] writes to the bases, and which fields that are.
pub trait Assignment {
    /// The total that it sets this field to, if it does.
    fn sets(&self, field: &ShardsColumn) -> Option<Amount>;

    /// An error if a total may not be set to that.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// `"views" = $1`
pub struct ToValue<C: ShardedColumn>(pub(crate) Value<C>);

impl<C: ShardedColumn> Assignment for ToValue<C> {
    fn sets(&self, field: &ShardsColumn) -> Option<Amount> {
        (field.name == C::NAME).then(|| <C::SqlType as FieldType>::amount(&self.0))
    }

    fn check(&self) -> Result<(), Error> {
        if <C::SqlType as FieldType>::is_finite(&self.0) {
            return Ok(());
        }
        let source = DieselError::SerializationError("a total is no finite number".into());
        Err(Error::Overflow { source })
    }
}

impl<C, DB> QueryFragment<DB> for ToValue<C>
where
    C: ShardedColumn,
    DB: ShardedBackend + Binds<C::SqlType, Value<C>>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_identifier(C::NAME)?;
        out.push_sql(" = ");
        push_bind::<C::SqlType, Value<C>, DB>(&self.0, out)
    }
}

/// `"views" = 0, "likes" = 0`
#[derive(Debug)]
pub struct ToZero<T>(PhantomData<T>);

impl<T> ToZero<T> {
    pub(crate) fn new() -> Self {
        ToZero(PhantomData)
    }
}

impl<T: ShardedTable> Assignment for ToZero<T> {
    fn sets(&self, field: &ShardsColumn) -> Option<Amount> {
        Some(Amount::zero(field.column_type))
    }
}

impl<T, DB> QueryFragment<DB> for ToZero<T>
where
    T: ShardedTable,
    DB: ShardedBackend,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_zeros(T::FIELDS.iter(), out.reborrow())
    }
}

/// Totals that are set, awaited.
#[cfg(feature = "async")]
pub mod asynchronous {
    use diesel::expression::Expression;
    use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};
    use diesel::result::QueryResult;
    use diesel_async::AsyncConnection;

    use crate::backend::BackendOf;
    use crate::connection::{Async, BoxFuture, Link};
    use crate::engine::KeyedTable;
    use crate::model::{ShardedColumn, ShardedTable, Value};
    use crate::operation::set_total::{Assignment, SetTotal, ToValue, ToZero};
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
        /// Sets the totals; gives the number of rows.
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
            Box::pin(async move { self.set(&mut Link::awaited(conn)).await })
        }
    }
}

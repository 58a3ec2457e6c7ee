//! The statement that `update` begins: its rows, changes and settings.

use std::marker::PhantomData;

use diesel::associations::HasTable;
use diesel::backend::Backend;
use diesel::dsl::Filter;
use diesel::prelude::*;
use diesel::query_builder::{
    AsChangeset, InsertStatement, IntoUpdateTarget, QueryFragment, QueryId,
};
use diesel::query_dsl::methods::FilterDsl;

use super::returning::{NoReturning, ReturningTotals, SelectTotals};
use super::source::{BoxedRows, UpdateSource};
use crate::connection::Blocking;
use crate::counting::combine::{Combine, Combiner};
#[cfg(doc)]
use crate::error::Error;
use crate::model::{CountingUpdate, Terms, are_distinct};
use crate::placement::ShardChoice;
use crate::policy::RetryPolicy;

/// Begins a counting update of sharded fields; replaces [`diesel::update`].
///
/// ```
/// # mod schema { diesel::table! { videos (id) { id -> BigInt, slug -> Text, views -> BigInt, likes -> Integer, } } }
/// # use schema::videos::{self, dsl::{id, likes, slug, videos as all, views}};
/// # use diesel::prelude::*;
/// # #[derive(Identifiable, diesel_sharded::ShardedField)]
/// # #[diesel(table_name = videos)]
/// # struct Video { id: i64, #[sharded] views: i64, #[sharded] likes: i32 }
/// # fn main() -> QueryResult<()> {
/// # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
/// # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, slug TEXT, views BIGINT NOT NULL, likes INTEGER NOT NULL)").execute(conn)?;
/// # diesel::insert_into(all).values((id.eq(7), slug.eq("zoo"), views.eq(0), likes.eq(0))).execute(conn)?;
/// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
/// use diesel_sharded::update;
///
/// // By key: one statement.
/// update(all.find(7)).set(views.eq(views + 1)).execute(conn)?;
/// // By any filter, and several fields at once.
/// update(all.filter(slug.eq("zoo")))
///     .set((views.eq(views + 1), likes.eq(likes - 1)))
///     .execute(conn)?;
/// // The counted rows come back with exact totals.
/// let counted = update(all.find(7)).set(views.eq(views + 1)).returning(views);
/// assert_eq!(counted.get_result::<i64>(conn)?, 3);
/// # Ok(())
/// # }
/// ```
///
/// # Arguments
///
/// The same as [`diesel::update`]: a table, a query with only filters, a reference to an `Identifiable` model. A filter
/// that compares the whole key with values and does nothing else is *by key*: `find(..)`, `filter(id.eq(..))`, a model.
///
/// # SQL
///
/// An increment by key is one statement, which neither reads nor locks the parent:
///
/// ```sql
/// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1)
/// WHERE ("videos"."id" = $2) AND "videos"."shard" = $3
/// ```
///
/// (On PostgreSQL a kept statement has one more bind, which distinguishes it from any other that a pooler may hold under its
/// name: `AND CAST(CASE WHEN $4 = decode('…', 'hex') THEN '1' ELSE '…' END AS BOOLEAN)`; see `docs/poolers.md`. A statement that
/// returns rows has it as an `OFFSET` of 0.)
///
/// (After an increment that may have waited for a lock, the next one probes first; see [`shard_choice`](crate::shard_choice).) If that
/// update finds no row, the shard or the parent is missing.
///
/// An increment by any other filter is one statement too, if the filter matches one parent and its shard exists:
///
/// ```sql
/// -- PostgreSQL, SQLite
/// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1)
/// FROM (SELECT "videos"."id" AS "sharded_key_0", COUNT(*) OVER () AS "sharded_parents" FROM "videos" WHERE …) AS "sharded_picked"
/// WHERE "sharded_picked"."sharded_key_0" = "videos"."id" AND "sharded_picked"."sharded_parents" = 1 AND "videos"."shard" = $2
/// -- MySQL, MariaDB
/// UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + ?)
/// WHERE `videos`.`id` = (SELECT MIN(`videos`.`id`) FROM `videos` WHERE … HAVING COUNT(*) = 1) AND `videos`.`shard` = ?
/// ```
///
/// On PostgreSQL a second statement counts on several parents, on all of them or on none:
///
/// ```sql
/// WITH "sharded_picked" AS MATERIALIZED (SELECT "videos"."id" AS "sharded_key_0" FROM "videos" WHERE …),
/// "sharded_locked" AS MATERIALIZED (SELECT "videos_shards"."id" AS "sharded_key_0" FROM "sharded_picked" JOIN "videos_shards" ON …
///     ORDER BY "videos_shards"."id" FOR NO KEY UPDATE OF "videos_shards")
/// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $3) FROM "sharded_locked"
/// WHERE … AND (SELECT COUNT(*) FROM "sharded_locked") = (SELECT COUNT(*) FROM "sharded_picked")
/// ```
///
/// If these find no row, a shard may be missing (PostgreSQL looks on the primary by `SELECT 1 FROM "videos" WHERE …`). Then one
/// transaction creates the missing shards and counts (on PostgreSQL, by key, two statements that commit); by a filter it reads the parents:
///
/// ```sql
/// INSERT INTO "videos_shards" ("id", "shard") SELECT "videos"."id", $1 FROM "videos" WHERE … ORDER BY "videos"."id"
/// ON CONFLICT ("id", "shard") DO UPDATE SET "shard" = excluded."shard" WHERE FALSE;
/// -- SQLite: ON CONFLICT … DO NOTHING; MySQL: ON DUPLICATE KEY UPDATE `shard` = `videos_shards`.`shard`
///
/// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1)
/// FROM (SELECT "videos"."id" AS "sharded_key_0" FROM "videos" WHERE …) AS "sharded_picked"
/// WHERE "sharded_picked"."sharded_key_0" = "videos"."id" AND "videos"."shard" = $2
/// -- MySQL: UPDATE (SELECT …) AS `sharded_picked` STRAIGHT_JOIN `videos_shards` AS `videos` ON … SET … WHERE …
/// ```
///
/// On MySQL that transaction is `READ COMMITTED`, so that it locks no gaps (the binary log has to be in `ROW` or `MIXED` format,
/// the defaults). A filter that is not by key takes shared locks there on the parents that it counts, and waits for any
/// transaction that writes one of them. In a session with `READ COMMITTED` the one statement above takes no such lock. An increment by
/// key takes none either, once its shard exists.
///
/// # Results
///
/// `.execute(conn)` returns the number of parents matched, as Diesel's does: `Ok(0)` for an id that does not exist. `.get_result(conn)` and
/// `.get_results(conn)` return the counted rows, or with `.returning(..)` a selection of their columns. Every sharded column in them is its total,
/// even on databases without `RETURNING`. The totals do not include increments that others have not committed by then, so two increments at once
/// may return the same total: do not use it as a ticket number. MySQL and SQLite read the rows in the transaction that counts (on MySQL its
/// first statement names the parents' table, `AND NOT EXISTS (SELECT 1 FROM videos WHERE FALSE)`, so that no `ALTER TABLE` comes between
/// the two). PostgreSQL counts and reads by one statement, if all shards are there:
///
/// ```sql
/// WITH "sharded_picked" AS MATERIALIZED (…), "sharded_locked" AS MATERIALIZED (…),
/// "sharded_counted" AS (UPDATE "videos_shards" AS "videos" SET … FROM "sharded_locked" WHERE …
///     RETURNING "videos"."id" AS "sharded_key_0", CAST("videos"."views" AS numeric) - "sharded_locked"."views" AS "views"),
/// "videos_shards" AS (SELECT … FROM "videos_shards" … UNION ALL SELECT "sharded_key_0", "views" FROM "sharded_counted")
/// SELECT … FROM "videos" JOIN "sharded_counted" ON "sharded_counted"."sharded_key_0" = "videos"."id"
/// ```
///
/// Each total there is the one before the statement plus the amount that it added. (Fields of type `Double` are counted in a
/// transaction, because differences between them round.)
///
/// # Inside a transaction
///
/// The update is part of the caller's transaction, and is not retried. Return the error of a conflict from the closure, and
/// [`retry::transaction`](crate::retry::transaction) retries the whole transaction. An update that returns rows and needs several
/// statements takes a savepoint: if one of them fails, nothing was counted. Outside a transaction each attempt commits by itself,
/// and a conflict is retried on another shard; see [`RetryPolicy`] and [`shard_choice`](crate::shard_choice).
///
/// # In generic functions
///
/// A function that is generic over connections to one backend needs nothing: `conn: &mut impl Connection<Backend = Pg>`. A
/// function that is also generic over backends needs a bound on the statement's type, which [`dsl`](crate::dsl) names:
///
/// ```
/// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
/// # use schema::videos::{self, dsl::{videos as all, views}};
/// # #[derive(diesel_sharded::ShardedField)]
/// # #[diesel(table_name = videos)]
/// # struct Video { id: i64, #[sharded] views: i64 }
/// use diesel::dsl::Find;
/// use diesel::prelude::*;
/// use diesel::query_dsl::methods::ExecuteDsl;
/// use diesel_sharded::dsl::{Count, Plus};
/// use diesel_sharded::update;
///
/// fn count<C>(conn: &mut C, video: i64) -> QueryResult<usize>
/// where
///     C: Connection,
///     Count<Find<videos::table, i64>, Plus<videos::views>>: ExecuteDsl<C>,
/// {
///     update(all.find(video)).set(views.eq(views + 1)).execute(conn)
/// }
/// ```
///
/// # Limits
///
/// - `.get_result(conn)` without `.returning(..)` reads at most 32 columns (64 with the feature `64-column-tables`), into a tuple or a
///   struct with Diesel's `Queryable`. A model with
///   [`ShardedSelectable`](derive@crate::ShardedSelectable) needs `.returning(Model::as_returning())`.
/// - A filter on a sharded field itself sees the base; filter on `field.total()`.
/// - A `table!` inside a schema (`analytics.videos`) is [named in the derive](crate::reference::shards_table#tables-in-a-schema) too; an
///   update of it that returns rows takes one more statement.
/// - Diesel does not know a transaction that was begun by hand (`BEGIN` in SQL). This crate notices it when it would begin one of its
///   own, and joins it. `.execute` never ends it.
///
/// # Errors
/// As [`diesel::update`]'s. The crate's own errors are inside Diesel's, and `Error::from(error)` finds them: see [`Error`]. If a
/// shard would leave the range of its column, or become NaN or infinite, the error is [`Overflow`](Error::Overflow), and nothing
/// is counted. Where the database itself would store such a value, the `CHECK`s of the [shards table](crate::ShardsTable) refuse
/// it.
pub fn update<Source, Kind>(source: Source) -> UpdateStatement<Source::Query, SetNotCalled>
where
    Source: UpdateSource<Kind>,
{
    UpdateStatement::of(source)
}

/// A counting update; made by [`update`].
///
/// Diesel's [`RunQueryDsl`](diesel::RunQueryDsl) runs it: `.execute(conn)` returns the number of rows counted,
/// `.get_result(conn)` and `.get_results(conn)` return the rows themselves; see its [results](crate::update#results). The methods
/// below that return futures are those of an [awaited](crate::asynchronous) update.
#[derive(Debug, Clone)]
#[must_use = "an update counts nothing until it is `.execute(conn)`-d or its rows are read"]
pub struct UpdateStatement<
    Query,
    Values = SetNotCalled,
    Ret = NoReturning,
    Ins = (),
    Run = Blocking,
> {
    pub(super) query: Query,
    pub(super) values: Values,
    pub(super) returning: Ret,
    /// The insert of `.or_insert(..)`.
    pub(super) insert: Option<Ins>,
    pub(super) settings: Settings,
    pub(super) run: PhantomData<fn() -> Run>,
}

/// `.set(..)` was not called yet.
#[derive(Debug, Clone, Copy)]
pub struct SetNotCalled;

/// The changes of `.set(..)`.
#[derive(Debug, Clone, Copy)]
pub struct Values<V> {
    pub(super) changes: V,
    /// The names of the fields that they count.
    pub(super) fields: &'static [&'static str],
    /// Whether all changes are `None`.
    pub(super) is_nothing: bool,
    pub(super) terms: Terms,
}

impl<Query, Run> UpdateStatement<Query, SetNotCalled, NoReturning, (), Run> {
    /// Begins an update of the rows that `source` names.
    pub(crate) fn of<Source, Kind>(source: Source) -> Self
    where
        Source: UpdateSource<Kind, Query = Query>,
    {
        UpdateStatement {
            query: source.into_query(),
            values: SetNotCalled,
            returning: NoReturning,
            insert: None,
            settings: Settings::default(),
            run: PhantomData,
        }
    }
}

impl<Query, Ret, Ins, Run> UpdateStatement<Query, SetNotCalled, Ret, Ins, Run> {
    /// Sets what to count: `column.eq(column + n)`, `column.eq(column - n)`, or a tuple of up to 8 of these.
    ///
    /// Each of them, and the tuple, may be an `Option` or a reference. `None` leaves its field as it is. If all are `None`, the update fails
    /// as Diesel's does, by a `QueryBuilderError` ("There are no changes to save"). A statement with an `Option` is prepared each time.
    ///
    /// ```
    /// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, likes -> BigInt, } } }
    /// # use schema::videos::{self, dsl::{id, likes, videos as all, views}};
    /// # use diesel::prelude::*;
    /// # use diesel_sharded::prelude::*;
    /// # #[derive(diesel_sharded::ShardedField)]
    /// # #[diesel(table_name = videos)]
    /// # struct Video { id: i64, #[sharded] views: i64, #[sharded] likes: i64 }
    /// # fn main() -> QueryResult<()> {
    /// # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
    /// # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, views BIGINT NOT NULL, likes BIGINT NOT NULL)").execute(conn)?;
    /// # diesel::insert_into(all).values((id.eq(7), views.eq(0), likes.eq(0))).execute(conn)?;
    /// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
    /// use diesel_sharded::update;
    ///
    /// for liked in [true, false] {
    ///     let changes = (views.eq(views + 1), liked.then(|| likes.eq(likes + 1)));
    ///     update(all.find(7)).set(&changes).execute(conn)?;
    /// }
    /// assert_eq!(all.select((views.total(), likes.total())).first(conn), Ok((2_i64, 1_i64)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Anything else does not compile: see [`CountingUpdate`]. A field that is counted twice does not compile either, because
    /// databases disagree on the sum:
    ///
    /// ```compile_fail
    /// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
    /// # use schema::videos::{self, dsl::{videos as all, views}};
    /// # use diesel::prelude::*;
    /// # #[derive(diesel_sharded::ShardedField)]
    /// # #[diesel(table_name = videos)]
    /// # struct Video { id: i64, #[sharded] views: i64 }
    /// let _ = diesel_sharded::update(all.find(7)).set((views.eq(views + 1), views.eq(views + 2)));
    /// ```
    ///
    /// ```compile_fail
    /// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
    /// # use schema::videos::{self, dsl::{videos as all, views}};
    /// # use diesel::prelude::*;
    /// # #[derive(diesel_sharded::ShardedField)]
    /// # #[diesel(table_name = videos)]
    /// # struct Video { id: i64, #[sharded] views: i64 }
    /// let twice = ((views.eq(views + 1),), views.eq(views + 2));
    /// let _ = diesel_sharded::update(all.find(7)).set(twice);
    /// ```
    pub fn set<V, Columns, Operations, Kind>(
        self,
        values: V,
    ) -> UpdateStatement<Query, Values<V::Changes>, Ret, Ins, Run>
    where
        Query: HasTable,
        V: CountingUpdate<Columns, Operations, Kind, Changes: AsChangeset<Target = Query::Table>>,
    {
        const {
            assert!(
                are_distinct(V::COLUMNS),
                "a sharded field is counted twice in one update: add the two amounts up"
            );
        }
        UpdateStatement {
            query: self.query,
            values: Values {
                is_nothing: values.is_nothing(),
                changes: values.into_changes(),
                fields: V::COLUMNS,
                terms: |terms| V::terms(0, terms),
            },
            returning: self.returning,
            insert: self.insert,
            settings: self.settings,
            run: PhantomData,
        }
    }
}

impl<Query, Values, Ret, Ins, Run> UpdateStatement<Query, Values, Ret, Ins, Run> {
    /// Counts only rows that match `predicate` too. A filter on a sharded field sees its base; filter on
    /// `field.total()` instead.
    pub fn filter<Predicate>(
        self,
        predicate: Predicate,
    ) -> UpdateStatement<Filter<Query, Predicate>, Values, Ret, Ins, Run>
    where
        Query: FilterDsl<Predicate>,
    {
        self.with(|query, values, returning, insert| {
            (query.filter(predicate), values, returning, insert)
        })
    }

    /// Boxes the filter, so that further filters do not change the type. The crate cannot see inside the box. So the filter
    /// is treated as one that is not by key, and the statements are prepared each time.
    pub fn into_boxed<'a, DB>(
        self,
    ) -> UpdateStatement<BoxedRows<'a, Query::Table, DB>, Values, Ret, Ins, Run>
    where
        Query: IntoUpdateTarget<Table: IntoUpdateTarget<WhereClause: QueryId>>,
        Query::WhereClause: QueryFragment<DB> + QueryId + Send + 'a,
        DB: Backend,
    {
        self.with(|query, values, returning, insert| {
            (BoxedRows::new(query), values, returning, insert)
        })
    }

    /// Retries by `policy` instead of the [process-wide](RetryPolicy::global) one when the update meets a conflict. It has no
    /// effect inside a transaction, where nothing is retried.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.settings.retry = Some(policy);
        self
    }

    /// Chooses the shard by `choice` instead of the [process-wide](ShardChoice::global) one.
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
    /// # diesel::insert_into(all).values((id.eq(7), views.eq(0))).execute(conn)?;
    /// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
    /// use diesel_sharded::shard_choice::ShardChoice;
    /// use diesel_sharded::update;
    ///
    /// update(all.find(7)).set(views.eq(views + 1)).shard_choice(ShardChoice::Random).execute(conn)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn shard_choice(mut self, choice: ShardChoice) -> Self {
        self.settings.shard_choice = Some(choice);
        self
    }

    /// Shares a statement and its commit with others who are counting on the same row through the same `combiner`; see
    /// [`combine`](crate::combine), which says what is combined and which connections may share a combiner.
    pub fn combine(mut self, combiner: &Combiner) -> Self {
        self.settings.combine = Combine::With(combiner.clone());
        self
    }

    /// Counts by itself, even if its connection is [admitted](Combiner::admit) to a combiner. Without an admission, use it inside a transaction
    /// that was begun by SQL text, which the library does not see.
    pub fn alone(mut self) -> Self {
        self.settings.combine = Combine::Alone;
        self
    }

    /// The same update, made of other parts.
    fn with<Q, V, R, I>(
        self,
        parts: impl FnOnce(Query, Values, Ret, Option<Ins>) -> (Q, V, R, Option<I>),
    ) -> UpdateStatement<Q, V, R, I, Run> {
        let (query, values, returning, insert) =
            parts(self.query, self.values, self.returning, self.insert);
        UpdateStatement {
            query,
            values,
            returning,
            insert,
            settings: self.settings,
            run: PhantomData,
        }
    }
}

impl<Query, Values, Ret, Run> UpdateStatement<Query, Values, Ret, (), Run> {
    /// Inserts `row` if no row matches, and then counts on it: for rows that may not exist yet, such as the downloads of one day.
    /// Racing callers lose no increments: one inserts the row, and the others count on it.
    ///
    /// ```
    /// # mod schema { diesel::table! { downloads (version, day) { version -> Integer, day -> Integer, number -> BigInt, } } }
    /// # use schema::downloads::{self, dsl::*};
    /// # use diesel::prelude::*;
    /// # #[derive(diesel_sharded::ShardedField)]
    /// # #[diesel(primary_key(version, day))]
    /// # struct Download { version: i32, day: i32, #[sharded] number: i64 }
    /// # fn main() -> QueryResult<()> {
    /// # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
    /// # diesel::sql_query("CREATE TABLE downloads (version INTEGER, day INTEGER, number BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (version, day))").execute(conn)?;
    /// # diesel_sharded::ShardsTable::of(downloads::table).create(conn)?;
    /// # let today = 20_000;
    /// use diesel_sharded::update;
    ///
    /// let counted = update(downloads.find((1, today)))
    ///     .set(number.eq(number + 1))
    ///     .or_insert((version.eq(1), day.eq(today)))
    ///     .execute(conn)?;
    /// assert_eq!(counted, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The insert is Diesel's own, sent only if nothing matched, in one transaction with the increment (inside the caller's, in
    /// a savepoint):
    ///
    /// ```sql
    /// INSERT INTO "downloads" ("version", "day", "number") VALUES ($1, $2, 0) -- PostgreSQL: ON CONFLICT DO NOTHING
    /// ```
    ///
    /// Its effect on the total: the value of the field that `row` has, 0 without one (whatever the column's default is), and the increment.
    ///
    /// # Errors
    /// As without it. Errors of the insert, as Diesel reports them: a unique key that is violated although no row matches, a
    /// value out of range. [`InsertedOther`](Error::InsertedOther) if the row does not match the update's filter.
    pub fn or_insert<I>(
        self,
        row: I,
    ) -> UpdateStatement<Query, Values, Ret, InsertStatement<Query::Table, I::Values>, Run>
    where
        Query: HasTable,
        I: Insertable<Query::Table>,
    {
        let insert = diesel::insert_into(Query::table()).values(row);
        self.with(|query, values, returning, _| (query, values, returning, Some(insert)))
    }
}

impl<Query, V, Ins, Run> UpdateStatement<Query, Values<V>, NoReturning, Ins, Run>
where
    Query: HasTable,
{
    /// Reads `selection` from the counted rows. Every sharded column in it is read as its total.
    pub fn returning<S, Kind>(
        self,
        selection: S,
    ) -> UpdateStatement<Query, Values<V>, ReturningTotals<S::Output>, Ins, Run>
    where
        S: SelectTotals<Query::Table, Kind>,
    {
        let selection = ReturningTotals(selection.with_totals());
        self.with(|query, values, _, insert| (query, values, selection, insert))
    }
}

/// Settings of an update, independent of its rows and values.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    pub(super) retry: Option<RetryPolicy>,
    pub(super) shard_choice: Option<ShardChoice>,
    pub(super) combine: Combine,
}

//! `update(..).set(..)`: Diesel's update statement, written to shards.

#[cfg(feature = "async")]
pub mod asynchronous;
mod boxed;
pub mod returning;

use std::marker::PhantomData;

pub use self::boxed::{BoxedFilter, BoxedRows};

use diesel::associations::HasTable;
use diesel::backend::Backend;
use diesel::connection::LoadConnection;
use diesel::deserialize::FromSqlRow;
use diesel::dsl::{Filter, Find, SqlTypeOf};
use diesel::expression::QueryMetadata;
use diesel::prelude::*;
use diesel::query_builder::{
    AsChangeset, InsertStatement, IntoUpdateTarget, QueryFragment, QueryId,
};
use diesel::query_dsl::methods::{ExecuteDsl, FilterDsl, FindDsl, LoadQuery};

use crate::backend::{BackendOf, ShardedBackend};
use crate::connection::{Blocking, Io, Link, LoadInto, in_transaction, now};
use crate::engine::{self, KeyedTable, Plan, Sender, Statement, explain, in_chunks};
#[cfg(doc)]
use crate::error::Error;
use crate::model::{CountingUpdate, ShardedTable, are_distinct};
use crate::operation::update::returning::{
    NoReturning, ReadAs, Returning, ReturningTotals, SelectTotals,
};
use crate::placement::ShardChoice;
use crate::policy::RetryPolicy;
use crate::query_builder::{
    CountByKey, CountPicked, CreateShards, FindMissing, FindParent, KeyIs, KeysAre, PickKeys,
    ProbeShard, SelectParents, UnlessThere,
};
use crate::{observe, placement as shard_choice, shard_counts};

/// Begins a counting update of sharded fields; takes the place of [`diesel::update`].
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
/// let total = update(all.find(7)).set(views.eq(views + 1)).returning(views).get_result::<i64>(conn)?;
/// assert_eq!(total, 3);
/// # Ok(())
/// # }
/// ```
///
/// # What it takes
///
/// Whatever [`diesel::update`] does: a table, a query with only filters, a reference to an `Identifiable` model. A filter
/// that compares the whole key with values and does nothing else is *by key*: `find(..)`, `filter(id.eq(..))`, a model.
///
/// # What it sends
///
/// By key, that is one statement, which neither reads nor locks the parent:
///
/// ```sql
/// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1)
/// WHERE ("videos"."id" = $2) AND "videos"."shard" = $3
/// ```
///
/// (On PostgreSQL a kept statement has one bind more, which tells it from any other that a pooler may hold under its name:
/// `AND CAST(CASE WHEN $4 = decode('…', 'hex') THEN '1' ELSE '…' END AS BOOLEAN)`; see `docs/poolers.md`. In a statement that ends in
/// its rows it stands as an `OFFSET` of 0.)
///
/// (After a count that may have waited for somebody, another one asks first whether it would have to:
/// [`shard_choice`](crate::shard_choice).) If that met no row, the shard or the parent is missing; by any other filter some shards may be there and some missing.
/// Then the missing ones are created first, in one transaction with the count, which by a filter looks at the parents:
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
/// On MySQL that transaction is `READ COMMITTED`, so that it locks no gaps (the binary log has to be in `ROW` or `MIXED`
/// format, the defaults). Even so a filter that is not by key takes shared locks there on the parents that it counts, for
/// the foreign key, and waits for whoever is writing one of them; a count by key does not, once its shard is there.
///
/// # What it gives back
///
/// `.execute(conn)` gives the number of parents matched, as Diesel's does: `Ok(0)` for an id that is not there.
/// `.get_result(conn)` and `.get_results(conn)` give the counted rows, with `.returning(..)` a selection of them, and in
/// these every sharded column is its total, also for databases without `RETURNING`. The rows are read in the transaction
/// that counts; what others have not committed by then is not in the totals.
///
/// # Inside a transaction
///
/// It is part of the caller's transaction, and nothing is tried again: return the error of a conflict from the closure, and
/// [`retry::transaction`](crate::retry::transaction) tries the whole again. Counted rows that are wanted back are counted and
/// read in a savepoint: if reading them fails, they were not counted. Outside, each attempt is committed by itself and a
/// conflict is tried again, on another shard; see [`RetryPolicy`] and [`shard_choice`](crate::shard_choice).
///
/// # In generic functions
///
/// A function that is generic over connections to one backend needs nothing: `conn: &mut impl Connection<Backend = Pg>`.
/// One that is generic over backends too bounds the statement's type, which [`dsl`](crate::dsl) names:
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
/// - `.get_result(conn)` without `.returning(..)` reads at most 32 columns.
/// - A filter on a sharded field itself sees the base; filter on `field.total()`.
/// - The `table!` must be without a schema (`videos`, not `analytics.videos`), since the shards table takes its name.
/// - A transaction that was begun by hand (`BEGIN` in SQL) is not known to Diesel, and so not to this crate.
///
/// # Errors
/// As [`diesel::update`]'s; of its own, inside Diesel's error and found by `Error::from(error)`: see [`Error`]. A shard that
/// would leave the range of its column, become NaN or infinite, is an [`Overflow`](Error::Overflow), and nothing is counted:
/// where the database itself would keep such a value, the `CHECK`s of the [shards table](crate::ShardsTable) refuse it.
pub fn update<Source, Kind>(source: Source) -> UpdateStatement<Source::Query, SetNotCalled>
where
    Source: UpdateSource<Kind>,
{
    UpdateStatement::of(source)
}

/// What [`update`] takes: a table, a query with only filters, or a model that is `Identifiable`.
///
/// `Kind` keeps the two impls apart and is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be updated",
    note = "only tables, queries with nothing but filters, and references to `Identifiable` models can be"
)]
pub trait UpdateSource<Kind> {
    /// A query for the rows to count.
    type Query: IntoUpdateTarget;

    /// The query for the rows to count.
    fn into_query(self) -> Self::Query;
}

/// The kind of [`UpdateSource`] that is a table or a query.
#[derive(Debug)]
pub struct Rows;
/// The kind of [`UpdateSource`] that is a model.
#[derive(Debug)]
pub struct Model;

impl<Query: IntoUpdateTarget + QueryDsl> UpdateSource<Rows> for Query {
    type Query = Self;

    fn into_query(self) -> Self {
        self
    }
}

impl<M> UpdateSource<Model> for M
where
    M: Identifiable,
    M::Table: FindDsl<M::Id>,
    Find<M::Table, M::Id>: IntoUpdateTarget,
{
    type Query = Find<M::Table, M::Id>;

    fn into_query(self) -> Self::Query {
        FindDsl::find(M::table(), self.id())
    }
}

/// A counting update; made by [`update`].
#[derive(Debug, Clone)]
#[must_use = "an update counts nothing until it is `.execute(conn)`-d or its rows are read"]
pub struct UpdateStatement<
    Query,
    Values = SetNotCalled,
    Ret = NoReturning,
    Ins = NoInsert,
    Run = Blocking,
> {
    query: Query,
    values: Values,
    returning: Ret,
    insert: Ins,
    options: Options,
    run: PhantomData<fn() -> Run>,
}

/// What holds whatever rows and values an update is about.
#[derive(Debug, Clone, Default)]
struct Options {
    retry: Option<RetryPolicy>,
    shard_choice: Option<ShardChoice>,
    /// Stands instead of the number of shards that the table's writers choose from.
    shards: Option<u16>,
}

/// `.set(..)` was not called yet.
#[derive(Debug, Clone, Copy)]
pub struct SetNotCalled;

/// The changes that `.set(..)` was given.
#[derive(Debug, Clone, Copy)]
pub struct Values<V> {
    changes: V,
    /// The names of the fields that they count.
    fields: &'static [&'static str],
}

/// `.or_insert(..)` was not called.
#[derive(Debug, Clone, Copy)]
pub struct NoInsert;

/// The row that `.or_insert(..)` was given.
#[derive(Debug, Clone, Copy)]
pub struct OrInsert<I>(I);

/// What an update does about a row that is not there.
pub trait InsertRow<T, DB: Backend> {
    /// The insert.
    type Statement: QueryFragment<DB> + QueryId;

    /// The insert, if there is one.
    fn statement(self) -> Option<Self::Statement>;
}

impl<T, DB: Backend> InsertRow<T, DB> for NoInsert {
    type Statement = ();

    fn statement(self) -> Option<()> {
        None
    }
}

impl<T, DB, I> InsertRow<T, DB> for OrInsert<I>
where
    T: Table + HasTable<Table = T>,
    DB: Backend,
    I: Insertable<T>,
    InsertStatement<T, I::Values>: QueryFragment<DB> + QueryId,
{
    type Statement = InsertStatement<T, I::Values>;

    fn statement(self) -> Option<Self::Statement> {
        Some(diesel::insert_into(T::table()).values(self.0))
    }
}

impl<Query, Run> UpdateStatement<Query, SetNotCalled, NoReturning, NoInsert, Run> {
    /// Begins an update of the rows that `source` names.
    pub(crate) fn of<Source, Kind>(source: Source) -> Self
    where
        Source: UpdateSource<Kind, Query = Query>,
    {
        UpdateStatement {
            query: source.into_query(),
            values: SetNotCalled,
            returning: NoReturning,
            insert: NoInsert,
            options: Options::default(),
            run: PhantomData,
        }
    }
}

impl<Query, Ret, Ins, Run> UpdateStatement<Query, SetNotCalled, Ret, Ins, Run> {
    /// Sets what to count: `column.eq(column + n)`, `column.eq(column - n)`, or a tuple of up to 8 of these.
    ///
    /// Anything else does not compile: see [`CountingUpdate`]. Nor does a field that is counted twice, since databases
    /// disagree on what that adds:
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
    /// let _ = diesel_sharded::update(all.find(7)).set(((views.eq(views + 1),), views.eq(views + 2)));
    /// ```
    pub fn set<V, Columns, Operations>(
        self,
        values: V,
    ) -> UpdateStatement<Query, Values<V>, Ret, Ins, Run>
    where
        Query: HasTable<Table: ShardedTable>,
        V: CountingUpdate<Columns, Operations, Target = Query::Table>,
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
                changes: values,
                fields: V::COLUMNS,
            },
            returning: self.returning,
            insert: self.insert,
            options: self.options,
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
        self.over(|query| query.filter(predicate))
    }

    /// Boxes the filter, so that further ones keep the type. What is in the box cannot be told, so it counts as a filter
    /// that is not by key, and the statements are prepared each time.
    pub fn into_boxed<'a, DB>(
        self,
    ) -> UpdateStatement<BoxedRows<'a, Query::Table, DB>, Values, Ret, Ins, Run>
    where
        Query: IntoUpdateTarget<Table: IntoUpdateTarget<WhereClause: QueryId>>,
        Query::WhereClause: QueryFragment<DB> + QueryId + Send + 'a,
        DB: Backend,
    {
        self.over(BoxedRows::new)
    }

    /// The same update over other rows.
    fn over<Other>(
        self,
        rows: impl FnOnce(Query) -> Other,
    ) -> UpdateStatement<Other, Values, Ret, Ins, Run> {
        UpdateStatement {
            query: rows(self.query),
            values: self.values,
            returning: self.returning,
            insert: self.insert,
            options: self.options,
            run: PhantomData,
        }
    }

    /// Tries again by `policy` instead of the [process-wide](RetryPolicy::global) one when the update meets a conflict.
    /// Without effect inside a transaction, where nothing is tried again.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.options.retry = Some(policy);
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
        self.options.shard_choice = Some(choice);
        self
    }
}

impl<Query, Values, Ret, Run> UpdateStatement<Query, Values, Ret, NoInsert, Run> {
    /// Inserts `row` if no row matches, and then counts on it: for rows that may not exist yet, such as the downloads of one
    /// day. What racing callers count is not lost: one inserts, the others count on its row.
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
    /// The insert is Diesel's own, sent only if nothing matched, in one transaction with the count (inside the caller's, in
    /// a savepoint):
    ///
    /// ```sql
    /// INSERT INTO "downloads" ("version", "day") VALUES ($1, $2)      -- PostgreSQL: ON CONFLICT DO NOTHING
    /// ```
    ///
    /// Its effect on the total: whatever the row brings, and the count.
    ///
    /// # Errors
    /// As without it; what keeps the row from being inserted, as Diesel reports it: a unique key that is violated although
    /// no row matches, a value out of range;
    /// [`InsertedOther`](Error::InsertedOther) if the row is none that the update is about.
    pub fn or_insert<I>(self, row: I) -> UpdateStatement<Query, Values, Ret, OrInsert<I>, Run>
    where
        Query: HasTable,
        I: Insertable<Query::Table>,
    {
        UpdateStatement {
            query: self.query,
            values: self.values,
            returning: self.returning,
            insert: OrInsert(row),
            options: self.options,
            run: PhantomData,
        }
    }
}

impl<Query, V, Ins, Run> UpdateStatement<Query, Values<V>, NoReturning, Ins, Run>
where
    Query: HasTable,
{
    /// Reads `selection` of the counted rows, in which every sharded column is given as its total.
    pub fn returning<S, Kind>(
        self,
        selection: S,
    ) -> UpdateStatement<Query, Values<V>, ReturningTotals<S::Output>, Ins, Run>
    where
        S: SelectTotals<Query::Table, Kind>,
    {
        UpdateStatement {
            query: self.query,
            values: self.values,
            returning: ReturningTotals(selection.with_totals()),
            insert: self.insert,
            options: self.options,
            run: PhantomData,
        }
    }
}

impl<Query, Values, Ret, Ins, Conn> RunQueryDsl<Conn> for UpdateStatement<Query, Values, Ret, Ins> {}

impl<Q, V, Ret, Ins, Conn, DB, T, W> ExecuteDsl<Conn, DB>
    for UpdateStatement<Q, Values<V>, Ret, Ins>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W>,
    V: AsChangeset<Target = T, Changeset: QueryFragment<DB>> + QueryId,
    T: ShardedTable + QueryFragment<DB> + QueryId,
    W: QueryFragment<DB> + QueryId,
    Ins: InsertRow<T, DB>,
    Conn: Connection<Backend = DB>,
    DB: BackendOf<Conn>,
{
    fn execute(update: Self, conn: &mut Conn) -> QueryResult<usize> {
        now(update.ready::<DB>().count(&mut Link::blocking(conn)))
    }
}

/// Counts `changes`, which are of the fields named, on the one parent that `key` names.
pub(crate) async fn count_by_key<T, V, DB, M, Conn>(
    link: &mut Link<'_, M, Conn>,
    key: KeyIs<T::KeyIs>,
    changes: V,
    fields: &'static [&'static str],
) -> QueryResult<usize>
where
    T: KeyedTable<DB>,
    V: AsChangeset<Target = T, Changeset: QueryFragment<DB>> + QueryId,
    M: Io<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    let mut ready = Ready::<T, V, _, ()>::by_key(key, changes, fields);
    ready.count(link).await
}

impl<'query, Q, V, Ret, Ins, Conn, DB, T, W, U> LoadQuery<'query, Conn, U>
    for UpdateStatement<Q, Values<V>, Ret, Ins>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W>,
    V: AsChangeset<Target = T, Changeset: QueryFragment<DB>> + QueryId,
    T: KeyedTable<DB>,
    W: QueryFragment<DB> + QueryId,
    Ins: InsertRow<T, DB>,
    Ret: Returning<T, Selection: ReadAs<U, DB> + QueryFragment<DB> + QueryId>,
    U: FromSqlRow<<Ret::Selection as ReadAs<U, DB>>::Row, DB>,
    T::PrimaryKey: QueryId,
    Conn: LoadConnection<Backend = DB>,
    DB: BackendOf<Conn> + QueryMetadata<SqlTypeOf<Ret::Selection>>,
{
    type RowIter<'conn>
        = std::vec::IntoIter<QueryResult<U>>
    where
        Conn: 'conn;

    fn internal_load(self, conn: &mut Conn) -> QueryResult<Self::RowIter<'_>> {
        let mut selection = self.selection();
        let mut ready = self.ready::<DB>();
        let rows = now(
            ready.count_and_load::<Ret, U, _, _, _>(&mut Link::blocking(conn), &mut selection)
        )?;
        Ok(rows.into_iter().map(Ok).collect::<Vec<_>>().into_iter())
    }
}

impl<Q, V, Ret, Ins, Run, T, W> UpdateStatement<Q, Values<V>, Ret, Ins, Run>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W>,
    V: AsChangeset<Target = T>,
{
    /// What is to be given back.
    pub(crate) fn selection(&self) -> Ret::Selection
    where
        Ret: Returning<T>,
    {
        self.returning.selection()
    }

    /// The update in the parts that its statements are made of.
    pub(crate) fn ready<DB>(self) -> Ready<T, V, W, Ins::Statement>
    where
        T: ShardedTable,
        W: QueryId,
        Ins: InsertRow<T, DB>,
        DB: Backend,
    {
        Ready {
            changes: Changes::new(self.values.changes),
            fields: self.values.fields,
            by_key: W::query_id().is_some_and(T::is_key_filter),
            filter: self.query.into_update_target().where_clause,
            insert: self.insert.statement(),
            options: self.options,
        }
    }
}

/// An update that can be carried out, more than once if need be.
pub(crate) struct Ready<T, V: AsChangeset, W, I> {
    pub(crate) changes: Changes<T, V>,
    /// The names of the fields that the changes count.
    fields: &'static [&'static str],
    /// The filter names the key and nothing else.
    by_key: bool,
    pub(crate) filter: W,
    insert: Option<I>,
    options: Options,
}

impl<T, V: AsChangeset, P, I> Ready<T, V, KeyIs<P>, I> {
    /// Counts `changes`, which are of the fields named, on the one parent that `key` names.
    pub(crate) fn by_key(key: KeyIs<P>, changes: V, fields: &'static [&'static str]) -> Self {
        Ready {
            changes: Changes::new(changes),
            fields,
            by_key: true,
            filter: key,
            insert: None,
            options: Options::default(),
        }
    }

    /// Inserts the parent by this statement if it is not there, and chooses from this number of shards, from 1 on.
    pub(crate) fn or_insert(mut self, insert: I, shards: u16) -> Self {
        self.insert = Some(insert);
        self.options.shards = Some(shards);
        self
    }
}

impl<T, V, W, I> Ready<T, V, W, I>
where
    T: ShardedTable,
    V: AsChangeset<Target = T> + QueryId,
{
    fn plan<DB, M, Conn>(&self, link: &mut Link<'_, M, Conn>) -> QueryResult<Plan>
    where
        W: QueryFragment<DB>,
        M: Io<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let dialect = link.dialect();
        let shard_choice = self.options.shard_choice;
        let shard_choice = shard_choice.unwrap_or_else(ShardChoice::global);
        let key = match shard_choice {
            ShardChoice::Adaptive if dialect.has_row_locks() => {
                shard_choice::hash_of::<DB>(T::SHARDS_TABLE, &self.filter)
            }
            _ => 0,
        };
        let shards = self.options.shards;
        Ok(Plan {
            by_key: self.by_key,
            returning: false,
            inserts: self.insert.is_some(),
            in_transaction: in_transaction(link)?,
            dialect,
            shard_choice,
            table: T::SHARDS_TABLE,
            keys: observe::Keys::of::<T>(dialect),
            key,
            shards: shards.unwrap_or_else(|| shard_counts::known::<T>(self.fields.iter().copied())),
        })
    }

    pub(crate) fn retry(&self) -> RetryPolicy {
        self.options.retry.clone().unwrap_or_default()
    }

    /// Gives the number of rows counted.
    pub(crate) async fn count<DB, M, Conn>(
        &mut self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<usize>
    where
        T: QueryFragment<DB> + QueryId,
        V::Changeset: QueryFragment<DB>,
        W: QueryFragment<DB> + QueryId,
        I: QueryFragment<DB> + QueryId,
        M: Io<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let plan = self.plan(link)?;
        let counted = engine::count(link, plan, self.retry(), self).await;
        counted.map_err(|error| explain::<T, DB>(&link.backend(), error))
    }

    /// Gives the rows counted.
    pub(crate) async fn count_and_load<Ret, U, DB, M, Conn>(
        &mut self,
        link: &mut Link<'_, M, Conn>,
        selection: &mut Ret::Selection,
    ) -> QueryResult<Vec<U>>
    where
        T: KeyedTable<DB>,
        T::PrimaryKey: QueryId,
        V::Changeset: QueryFragment<DB>,
        W: QueryFragment<DB> + QueryId,
        I: QueryFragment<DB> + QueryId,
        Ret: Returning<T, Selection: ReadAs<U, DB> + QueryFragment<DB> + QueryId>,
        M: LoadInto<Conn, Row<Ret, T, U, DB>, U, Backend = DB>,
        DB: ShardedBackend + QueryMetadata<SqlTypeOf<Ret::Selection>>,
    {
        let plan = Plan {
            returning: true,
            ..self.plan(link)?
        };
        let retry = self.retry();
        let mut returning = CountAndLoad::<_, _, _, _, _, _, Ret> {
            by_key: plan.by_key,
            ready: self,
            selection,
            picked: vec![],
            rows: vec![],
        };
        let counted = engine::count(link, plan, retry, &mut returning).await;
        let rows = returning.rows;
        counted.map_err(|error| explain::<T, DB>(&link.backend(), error))?;
        Ok(rows)
    }

    /// Gives the rows as they are, without counting.
    pub(crate) async fn load<Ret, U, DB, M, Conn>(
        &mut self,
        link: &mut Link<'_, M, Conn>,
        selection: &mut Ret::Selection,
    ) -> QueryResult<Vec<U>>
    where
        T: KeyedTable<DB>,
        W: QueryFragment<DB> + QueryId,
        Ret: Returning<T, Selection: ReadAs<U, DB> + QueryFragment<DB> + QueryId>,
        M: LoadInto<Conn, Row<Ret, T, U, DB>, U, Backend = DB>,
        DB: ShardedBackend + QueryMetadata<SqlTypeOf<Ret::Selection>>,
    {
        let rows = M::load_into(link.conn, select::<T, _, _>(&*selection, &self.filter)).await;
        rows.map_err(|error| explain::<T, DB>(&link.backend(), error))
    }
}

impl<M, Conn, DB, T, V, W, I> Sender<M, Conn> for Ready<T, V, W, I>
where
    M: Io<Conn, Backend = DB>,
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB> + QueryId,
    V: AsChangeset<Target = T, Changeset: QueryFragment<DB>> + QueryId,
    W: QueryFragment<DB> + QueryId,
    I: QueryFragment<DB> + QueryId,
{
    async fn send(
        &mut self,
        link: &mut Link<'_, M, Conn>,
        statement: Statement,
        shard: i32,
    ) -> QueryResult<usize> {
        match (&self.insert, statement) {
            (Some(insert), Statement::InsertUnlessThere) => link.execute(UnlessThere(insert)).await,
            (Some(insert), Statement::Insert) => link.execute(insert).await,
            _ => {
                let (changes, filter) = (&self.changes, &self.filter);
                changes.send(link, statement, filter, shard).await
            }
        }
    }
}

/// An update whose counted rows are wanted back.
struct CountAndLoad<
    'a,
    T: KeyedTable<DB>,
    V: AsChangeset,
    W,
    I,
    U,
    DB: ShardedBackend,
    Ret: Returning<T>,
> {
    ready: &'a mut Ready<T, V, W, I>,
    by_key: bool,
    selection: &'a mut Ret::Selection,
    /// The keys of the parents to count, where the filter is another.
    picked: Vec<KeysAre<T::KeyIs>>,
    rows: Vec<U>,
}

impl<M, Conn, DB, T, V, W, I, U, Ret> Sender<M, Conn> for CountAndLoad<'_, T, V, W, I, U, DB, Ret>
where
    M: LoadInto<Conn, Row<Ret, T, U, DB>, U, Backend = DB>,
    DB: ShardedBackend + QueryMetadata<SqlTypeOf<Ret::Selection>>,
    T: KeyedTable<DB>,
    T::PrimaryKey: QueryId,
    V: AsChangeset<Target = T, Changeset: QueryFragment<DB>> + QueryId,
    W: QueryFragment<DB> + QueryId,
    I: QueryFragment<DB> + QueryId,
    Ret: Returning<T, Selection: ReadAs<U, DB> + QueryFragment<DB> + QueryId>,
{
    async fn send(
        &mut self,
        link: &mut Link<'_, M, Conn>,
        statement: Statement,
        shard: i32,
    ) -> QueryResult<usize> {
        self.rows.clear(); // what an earlier attempt read was taken back with it
        match statement {
            Statement::Pick => {
                let pick = PickKeys::<T, _> {
                    filter: &self.ready.filter,
                    table: PhantomData,
                };
                let keys = T::load_keys(link, pick).await?;
                let met = keys.len();
                self.picked = in_chunks::<T, DB>(keys);
                Ok(met)
            }
            Statement::Load if self.by_key => {
                let query = select::<T, _, _>(&*self.selection, &self.ready.filter);
                self.rows = M::load_into(link.conn, query).await?;
                Ok(self.rows.len())
            }
            Statement::Load => {
                for keys in &self.picked {
                    let query = select::<T, _, _>(&*self.selection, keys);
                    self.rows.append(&mut M::load_into(link.conn, query).await?);
                }
                Ok(self.rows.len())
            }
            Statement::CountByKey | Statement::Create if !self.by_key => {
                let mut met = 0;
                for keys in &self.picked {
                    let changes = &self.ready.changes;
                    met += changes.send(link, statement, keys, shard).await?;
                }
                Ok(met)
            }
            statement => Sender::<M, Conn>::send(self.ready, link, statement, shard).await,
        }
    }
}

/// The SQL type of a row that `Ret` asks for.
type Row<Ret, T, U, DB> = <<Ret as Returning<T>>::Selection as ReadAs<U, DB>>::Row;

/// The changes of an update, as written (`V`) and as Diesel's tree.
pub(crate) struct Changes<T, V: AsChangeset> {
    pub(crate) changeset: V::Changeset,
    table: PhantomData<T>,
}

impl<T, V: AsChangeset> Changes<T, V> {
    pub(crate) fn new(changes: V) -> Self {
        Changes {
            changeset: changes.as_changeset(),
            table: PhantomData,
        }
    }

    /// Sends a statement about the parents that `filter` matches. `Probe`, `FindMissing` and `CountByKey` take only one by key.
    pub(crate) fn send<'c, W, DB, M, Conn>(
        &'c self,
        link: &'c mut Link<'_, M, Conn>,
        statement: Statement,
        filter: &'c W,
        shard: i32,
    ) -> M::Future<'c, QueryResult<usize>>
    where
        M: Io<Conn, Backend = DB>,
        DB: ShardedBackend,
        T: ShardedTable + QueryFragment<DB> + QueryId,
        W: QueryFragment<DB> + QueryId,
        V: QueryId,
        V::Changeset: QueryFragment<DB>,
    {
        let table = PhantomData::<T>;
        let types = PhantomData;
        match statement {
            Statement::Probe => link.execute(ProbeShard {
                filter,
                shard,
                table,
            }),
            Statement::FindMissing => link.execute_query(FindMissing {
                filter,
                shard,
                table,
            }),
            Statement::FindParent => link.execute_query(FindParent { filter, table }),
            Statement::Create => link.execute_kept(CreateShards {
                filter,
                shard,
                table,
            }),
            Statement::CountByKey => link.execute_kept(CountByKey::<T, _, V, _> {
                changes: &self.changeset,
                filter,
                shard,
                types,
            }),
            Statement::CountPicked => link.execute_kept(CountPicked::<T, _, V, _> {
                changes: &self.changeset,
                filter,
                shard,
                types,
            }),
            // These are the caller's, who has what they need.
            Statement::Insert
            | Statement::InsertUnlessThere
            | Statement::Pick
            | Statement::Load => M::nothing(link.conn),
        }
    }
}

fn select<'a, T, S, W>(selection: S, filter: &'a W) -> SelectParents<'a, T, W, S> {
    SelectParents {
        selection,
        filter,
        table: PhantomData,
    }
}

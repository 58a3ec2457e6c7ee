//! One sharded field of one row, as a value that can be passed around.

use std::fmt;
use std::marker::PhantomData;

use diesel::connection::LoadConnection;
use diesel::deserialize::FromSqlRow;
use diesel::dsl::SqlTypeOf;
use diesel::expression::{Expression, QueryMetadata};
use diesel::prelude::*;
use diesel::query_builder::{AsChangeset, AstPass, QueryFragment, QueryId};
use diesel::result::Error as DieselError;
use diesel::sql_types::BigInt;

use crate::backend::{BackendOf, ShardedBackend};
use crate::connection::{Io, Link, LoadIo, now};
use crate::engine::{KeyedTable, explain};
use crate::model::{ShardedColumn, ShardedTable, Value};
use crate::operation::cached::CachedCounter;
use crate::operation::idempotency::{Idempotent, Request, count_once};
use crate::operation::update::Ready;
use crate::query_builder::{
    KeyIs, SelectParents, ShardedExpressionMethods, Total, push_bind, push_column,
};

/// One sharded field of one row. [`Cached`](crate::cached::Cached) can keep its total, and it can be
/// [bounded](crate::bounded::Bounded).
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
/// use diesel_sharded::RowCounter;
///
/// let views_of_7 = RowCounter::of(views, 7);
/// views_of_7.add(5, conn)?;
/// assert_eq!(views_of_7.get(conn)?, Some(105));
/// # Ok(())
/// # }
/// ```
#[must_use = "a counter does nothing by itself"]
pub struct RowCounter<C: ShardedColumn> {
    pub(crate) column: C,
    pub(crate) key: Key<C>,
}

type Totals<K, R> = QueryResult<Vec<(K, R)>>;

type Key<C> = <<C as Column>::Table as ShardedTable>::Key;

impl<C: ShardedColumn> RowCounter<C> {
    /// The field `column` of the row with this key.
    pub fn of(column: C, key: Key<C>) -> Self {
        RowCounter { column, key }
    }

    /// Adds `n`, which may be negative. Returns the number of rows counted, 0 if there is no such row.
    /// [`update`](crate::update()) by key, with the same SQL and the same effect.
    ///
    /// # Errors
    /// As [`update`](crate::update())'s.
    pub fn add<Conn, DB>(&self, n: i64, conn: &mut Conn) -> QueryResult<usize>
    where
        C: IntegerField<DB>,
        Conn: Connection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        now(self.count(n, &mut Link::blocking(conn)))
    }

    /// The exact total; `None` if there is no such row.
    ///
    /// ```sql
    /// SELECT total FROM "videos" WHERE ("videos"."id" = $1)
    /// ```
    ///
    /// # Errors
    /// As [`update`](crate::update())'s.
    pub fn get<Conn, DB>(&self, conn: &mut Conn) -> QueryResult<Option<i64>>
    where
        C: IntegerField<DB>,
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        now(self.total(&mut Link::blocking(conn)))
    }

    /// The same counter, which counts only once for all additions with this key of 1 to 255 bytes. See
    /// [`idempotency`](crate::idempotency).
    pub fn idempotency_key(&self, key: impl AsRef<[u8]>) -> Idempotent<Self> {
        Idempotent::new(self.clone(), key)
    }

    /// Its name in a cache and under an idempotency key.
    pub(crate) fn cached_as(&self) -> String
    where
        Key<C>: fmt::Debug,
    {
        let table = <C::Table as ShardedTable>::SHARDS_TABLE;
        format!("{table}.{}:{:?}", C::NAME, self.key)
    }

    pub(crate) async fn count<DB, M, Conn>(
        &self,
        n: i64,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<usize>
    where
        C: IntegerField<DB>,
        M: Io<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        ready_to_add::<C, DB>(self.key.clone(), n).count(link).await
    }

    pub(crate) async fn total<DB, M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<Option<i64>>
    where
        C: IntegerField<DB>,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let key = self.key_is();
        let totals = self.column.load_totals(link, &key).await;
        let totals = totals.map_err(|error| explain::<C::Table, DB>(&link.backend(), error))?;
        Ok(totals.into_iter().next().map(|(_, total)| total.into()))
    }

    pub(crate) fn key_is<DB>(&self) -> KeyIs<<C::Table as KeyedTable<DB>>::KeyIs>
    where
        DB: ShardedBackend,
        C::Table: KeyedTable<DB>,
    {
        KeyIs(C::Table::key_is(self.key.clone()))
    }
}

/// As [`RowCounter`]'s own methods. The keys in the cache are the shards table's name, the field's and the row's.
impl<C, Conn, DB> CachedCounter<Conn> for RowCounter<C>
where
    C: IntegerField<DB>,
    Key<C>: fmt::Debug,
    Conn: LoadConnection<Backend = DB>,
    DB: BackendOf<Conn>,
{
    fn cache_key(&self) -> String {
        self.cached_as()
    }

    /// # Errors
    /// [`NotFound`](DieselError::NotFound) if there is no such row.
    fn read(&self, conn: &mut Conn) -> QueryResult<i64> {
        self.get(conn)?.ok_or(DieselError::NotFound)
    }

    fn add(&self, n: i64, conn: &mut Conn) -> QueryResult<usize> {
        RowCounter::add(self, n, conn)
    }

    fn add_once(&self, n: i64, key: &[u8], conn: &mut Conn) -> QueryResult<Option<(usize, bool)>> {
        let request = Request::to_add(key, &self.cached_as(), n)?;
        let add = ready_to_add::<C, DB>(self.key.clone(), n);
        now(count_once(&mut Link::blocking(conn), add, &request)).map(Some)
    }
}

impl<C: ShardedColumn> Clone for RowCounter<C> {
    fn clone(&self) -> Self {
        RowCounter::of(self.column, self.key.clone())
    }
}

impl<C: ShardedColumn> fmt::Debug for RowCounter<C>
where
    Key<C>: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = <C::Table as ShardedTable>::SHARDS_TABLE;
        write!(f, "RowCounter({table}.{} of {:?})", C::NAME, self.key)
    }
}

/// A sharded field of integers whose range fits into an `i64`, on a backend that binds and reads them. Every such field
/// implements the trait, which collects the necessary bounds.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a sharded field of integers that fit into an `i64`",
    note = "fields of type `SmallInt`, `Integer`, `BigInt` and MySQL's `Unsigned<SmallInt>` and `Unsigned<Integer>` are"
)]
pub trait IntegerField<DB: ShardedBackend>: ShardedColumn<Table: KeyedTable<DB>> + QueryId {
    /// Reads keys and totals of the rows that `filter` matches.
    #[doc(hidden)]
    type Row: Into<i64> + Send + 'static;

    #[doc(hidden)]
    fn load_totals<'c, W, M, Conn>(
        self,
        link: &'c mut Link<'_, M, Conn>,
        filter: &'c W,
    ) -> M::Future<'c, Totals<Key<Self>, Self::Row>>
    where
        M: LoadIo<Conn, Backend = DB>,
        W: QueryFragment<DB> + QueryId;
}

#[diagnostic::do_not_recommend]
impl<C, T, DB> IntegerField<DB> for C
where
    C: ShardedColumn<Table = T> + QueryId,
    T: KeyedTable<DB>,
    T::PrimaryKey: QueryFragment<DB> + QueryId,
    (T::PrimaryKey, Total<C>): Expression,
    DB: ShardedBackend + QueryMetadata<SqlTypeOf<(T::PrimaryKey, Total<C>)>>,
    (T::Key, Value<C>): FromSqlRow<(SqlTypeOf<T::PrimaryKey>, C::SqlType), DB>,
    Value<C>: Into<i64>,
{
    type Row = Value<C>;

    fn load_totals<'c, W, M, Conn>(
        self,
        link: &'c mut Link<'_, M, Conn>,
        filter: &'c W,
    ) -> M::Future<'c, Totals<T::Key, Value<C>>>
    where
        M: LoadIo<Conn, Backend = DB>,
        W: QueryFragment<DB> + QueryId,
    {
        type Row<T, C> = (SqlTypeOf<<T as Table>::PrimaryKey>, SqlTypeOf<C>);
        let select = SelectParents::<T, _, _> {
            selection: (T::TABLE.primary_key(), self.total()),
            filter,
            table: PhantomData,
        };
        M::load_kept::<Row<T, C>, (T::Key, Value<C>), _>(link.conn, select)
    }
}

/// The count of `n` on the row with this key, in its parts.
pub(crate) fn ready_to_add<C, DB>(key: Key<C>, n: i64) -> ReadyToAdd<C, DB>
where
    C: ShardedColumn<Table: KeyedTable<DB>>,
    DB: ShardedBackend,
{
    let key = KeyIs(C::Table::key_is(key));
    Ready::by_key(key, AddTo::new(n), const { &[C::NAME] })
}

pub(crate) type ReadyToAdd<C, DB, I = ()> = Ready<
    <C as Column>::Table,
    AddTo<C>,
    KeyIs<<<C as Column>::Table as KeyedTable<DB>>::KeyIs>,
    I,
>;

/// `"views" = ("videos"."views" + $1)`
///
/// The amount is bound as a `BigInt` for every type of column, because it may be negative even if the column is unsigned.
pub(crate) struct AddTo<C> {
    n: i64,
    column: PhantomData<C>,
}

impl<C: ShardedColumn> AddTo<C> {
    pub(crate) fn new(n: i64) -> Self {
        AddTo {
            n,
            column: PhantomData,
        }
    }

    /// Writes `("videos"."views" + $1)`.
    pub(crate) fn push_sum<'b, DB>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        C::Table: QueryFragment<DB>,
        DB: ShardedBackend,
    {
        out.push_sql("(");
        push_column::<C::Table, DB>(C::NAME, out.reborrow())?;
        out.push_sql(" + ");
        push_bind::<BigInt, i64, DB>(&self.n, out.reborrow())?;
        out.push_sql(")");
        Ok(())
    }
}

impl<C: ShardedColumn> AsChangeset for AddTo<C> {
    type Target = C::Table;
    type Changeset = Self;

    fn as_changeset(self) -> Self {
        self
    }
}

impl<C, DB> QueryFragment<DB> for AddTo<C>
where
    C: ShardedColumn<Table: QueryFragment<DB>>,
    DB: ShardedBackend,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_identifier(C::NAME)?;
        out.push_sql(" = ");
        self.push_sum(out)
    }
}

impl<C: ShardedColumn + QueryId> QueryId for AddTo<C> {
    type QueryId = AddToId<C::QueryId>;
    const HAS_STATIC_QUERY_ID: bool = C::HAS_STATIC_QUERY_ID;
}

/// The query id of [`AddTo`].
pub(crate) struct AddToId<C>(PhantomData<C>);

/// One sharded field of one row, on connections of `diesel_async`.
#[cfg(feature = "async")]
pub mod asynchronous {
    use std::fmt;

    use diesel::result::{Error as DieselError, QueryResult};
    use diesel_async::AsyncConnection;

    use crate::backend::BackendOf;
    use crate::connection::{BoxFuture, Link};
    use crate::model::{ShardedColumn, ShardedTable};
    use crate::operation::cached::asynchronous::CachedCounter;
    use crate::operation::row_counter::IntegerField;

    /// See [`RowCounter`](crate::RowCounter).
    #[derive(Clone)]
    #[must_use = "a counter does nothing by itself"]
    pub struct RowCounter<C: ShardedColumn>(pub(crate) crate::RowCounter<C>);

    impl<C: ShardedColumn> RowCounter<C> {
        /// The field `column` of the row with this key.
        pub fn of(column: C, key: <C::Table as ShardedTable>::Key) -> Self {
            RowCounter(crate::RowCounter::of(column, key))
        }

        /// Adds `n`; see [`RowCounter::add`](crate::RowCounter::add).
        ///
        /// # Errors
        /// As [`update`](crate::update())'s.
        pub fn add<'c, Conn, DB>(
            &'c self,
            n: i64,
            conn: &'c mut Conn,
        ) -> BoxFuture<'c, QueryResult<usize>>
        where
            C: IntegerField<DB> + Send + Sync,
            Conn: AsyncConnection<Backend = DB>,
            DB: BackendOf<Conn>,
        {
            Box::pin(async move { self.0.count(n, &mut Link::awaited(conn)).await })
        }

        /// The exact total; see [`RowCounter::get`](crate::RowCounter::get).
        ///
        /// # Errors
        /// As [`update`](crate::update())'s.
        pub fn get<'c, Conn, DB>(
            &'c self,
            conn: &'c mut Conn,
        ) -> BoxFuture<'c, QueryResult<Option<i64>>>
        where
            C: IntegerField<DB> + Send + Sync,
            Conn: AsyncConnection<Backend = DB>,
            DB: BackendOf<Conn>,
        {
            Box::pin(async move { self.0.total(&mut Link::awaited(conn)).await })
        }
    }

    impl<C, Conn, DB> CachedCounter<Conn> for RowCounter<C>
    where
        C: IntegerField<DB> + Send + Sync,
        <C::Table as ShardedTable>::Key: fmt::Debug,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        fn cache_key(&self) -> String {
            self.0.cached_as()
        }

        fn read<'c>(&'c self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<i64>> {
            Box::pin(async move { self.get(conn).await?.ok_or(DieselError::NotFound) })
        }

        fn add<'c>(&'c self, n: i64, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<usize>> {
            RowCounter::add(self, n, conn)
        }
    }

    impl<C: ShardedColumn> From<crate::RowCounter<C>> for RowCounter<C> {
        fn from(counter: crate::RowCounter<C>) -> Self {
            RowCounter(counter)
        }
    }
}

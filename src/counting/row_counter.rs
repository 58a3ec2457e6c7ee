//! One sharded field of one row, as a value that can be passed around; and counters as the operations see them.

use std::fmt;
use std::marker::PhantomData;

use diesel::dsl::SqlTypeOf;
use diesel::prelude::*;
use diesel::query_builder::{AsChangeset, Query, QueryFragment, QueryId};
use diesel::result::Error as DieselError;
use diesel::sql_types::BigInt;

use crate::backend::{BackendOf, Dialect, Reads, ShardedBackend};
use crate::connection::{Blocking, Link, LoadIo, paired, read};
use crate::counting::combine::{self, Combine, Combiner};
use crate::counting::idempotency::{Idempotent, Request, Requested, UpdateOnce, once};
use crate::counting::update::{Count, Fragments, NO_INSERT, TypedUpdate};
use crate::engine::{
    self, KeyedTable, RetryLoop, SendStatement, Statement, Step, explain, retry_loop,
};
#[cfg(doc)]
use crate::error::Error;
use crate::model::{IntegerFields, ShardedColumn, ShardedTable, Term, Value};
use crate::policy::RetryPolicy;
use crate::query_builder::{
    CountAllAndLoad, CountAllAndLoadId, FindParent, Identified, KeyIs, Names, OnPrimary,
    SelectParents, ShardedExpressionMethods, Total, UpdateId, bind, fragments, id, sql,
};
use crate::upkeep::shard_counts;

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
#[derive(Clone)]
#[must_use = "a counter does nothing by itself"]
pub struct RowCounter<C: Column<Table: ShardedTable>, Run = Blocking> {
    pub(crate) column: C,
    pub(crate) key: Key<C>,
    combine: Combine,
    run: PhantomData<fn() -> Run>,
}

paired! {
    impl<C: ShardedColumn> RowCounter<C, Run>
    where
        C: IntegerField<DB>,
        DB: BackendOf<Conn>,
    {
        /// Adds 1; see [`add`](Self::add).
        ///
        /// # Errors
        /// As [`update`](crate::update())'s.
        pub fn increment(&self, link: Link) -> QueryResult<usize> {
            self.count(1, link).await
        }

        /// Subtracts 1; see [`add`](Self::add).
        ///
        /// # Errors
        /// As [`update`](crate::update())'s.
        pub fn decrement(&self, link: Link) -> QueryResult<usize> {
            self.count(-1, link).await
        }

        /// Adds `n`, which may be negative. Returns the number of rows counted, 0 if there is no such row. It is
        /// [`update`](crate::update()) by key, with the same SQL and the same effect.
        ///
        /// Adding 0 writes nothing. It only checks that the row exists:
        ///
        /// ```sql
        /// -- PostgreSQL; its first line changes nothing, and keeps proxies from asking a replica. MySQL, SQLite: the second line
        /// WITH "sharded_primary" AS (UPDATE "videos_shards" SET "shard" = 0 WHERE FALSE)
        /// SELECT 1 FROM "videos" WHERE ("videos"."id" = $1)
        /// ```
        ///
        /// # Errors
        /// As [`update`](crate::update())'s.
        pub fn add(&self, link: Link, n: i64) -> QueryResult<usize> {
            self.count(n, link).await
        }

        /// The exact total; `None` if there is no such row.
        ///
        /// ```sql
        /// SELECT total FROM "videos" WHERE ("videos"."id" = $1)
        /// ```
        ///
        /// # Errors
        /// As [`update`](crate::update())'s.
        pub fn get(&self, link: Link) -> QueryResult<Option<i64>> {
            self.total(link).await
        }

        /// Adds `n`, which may be negative, and returns the new total; `None` if there is no such row. The increment and the read are one
        /// statement or one transaction, so the total contains `n`, and no increment that another connection has not committed by then. Two
        /// callers at once may get the same total: take numbers that have to be unique from a sequence or a plain column.
        ///
        /// The SQL is that of [`update`](crate::update#results) with `.returning(..)`. Adding 0 is [`get`](Self::get).
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
        /// assert_eq!(RowCounter::of(views, 7).add_and_get(5, conn)?, Some(105));
        /// assert_eq!(RowCounter::of(views, 8).add_and_get(5, conn)?, None);
        /// # Ok(())
        /// # }
        /// ```
        ///
        /// # Errors
        /// As [`update`](crate::update())'s.
        pub fn add_and_get(&self, link: Link, n: i64) -> QueryResult<Option<i64>> {
            self.count_and_total(n, link).await
        }
    }

    impl<C: ShardedColumn> Idempotent<RowCounter<C, Run>>
    where
        C: IntegerField<DB>,
        Key<C>: fmt::Debug,
        DB: BackendOf<Conn>,
    {
        /// Adds `n`, which may be negative, unless that was done with this key before. Returns the number of rows counted, now or
        /// then.
        ///
        /// # Errors
        /// Those of the counter; [`InvalidIdempotencyKey`](Error::InvalidIdempotencyKey) for a key that is empty or too long,
        /// [`IdempotencyKeyReused`](Error::IdempotencyKeyReused) for a key that came with another counter or amount before.
        pub fn add(&self, link: Link, n: i64) -> QueryResult<usize> {
            Ok(self.of.count_once(n, &self.key, link).await?.0)
        }

        /// Adds `n` in the same way, and returns the new total; `None` if there is no such row. A repeat adds nothing, and returns the
        /// current total.
        ///
        /// # Errors
        /// As [`add`](Self::add).
        pub fn add_and_get(&self, link: Link, n: i64) -> QueryResult<Option<i64>> {
            self.of.count_once_and_total(n, &self.key, link).await
        }
    }
}

impl<C: ShardedColumn, Run> RowCounter<C, Run> {
    /// The field `column` of the row with this key. A key of text may also be a `&str`.
    pub fn of(column: C, key: impl IntoKey<Key<C>>) -> Self {
        RowCounter {
            column,
            key: key.into_key(),
            combine: Combine::default(),
            run: PhantomData,
        }
    }

    /// The same counter, whose increments may share a commit with others through the same combiner; see [`combine`](crate::combine).
    pub fn combine(&self, combiner: &Combiner) -> Self {
        self.combined(Combine::With(combiner.clone()))
    }

    /// The same counter, which counts by itself, even if the connection is [admitted](Combiner::admit) to a combiner.
    pub fn alone(&self) -> Self {
        self.combined(Combine::Alone)
    }

    fn combined(&self, combine: Combine) -> Self {
        RowCounter {
            combine,
            ..Self::of(self.column, self.key.clone())
        }
    }

    /// The same counter, which counts only once for all additions with this key of 1 to 255 bytes. See
    /// [`idempotency`](crate::idempotency).
    pub fn idempotency_key(&self, key: impl AsRef<[u8]>) -> Idempotent<Self> {
        Idempotent::new(Self::of(self.column, self.key.clone()), key)
    }
}

#[cfg(feature = "async")]
impl<C: ShardedColumn> From<RowCounter<C>> for RowCounter<C, crate::connection::Async> {
    fn from(counter: RowCounter<C>) -> Self {
        RowCounter {
            combine: counter.combine,
            ..Self::of(counter.column, counter.key)
        }
    }
}

impl<C: ShardedColumn, Run> fmt::Debug for RowCounter<C, Run>
where
    Key<C>: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = <C::Table as ShardedTable>::SHARDS_TABLE;
        write!(f, "RowCounter({table}.{} of {:?})", C::NAME, self.key)
    }
}

/// The values that [`RowCounter::of`] accepts as a key of type `K`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no key of this table, whose keys are of type `{K}`",
    label = "no `{K}`"
)]
pub trait IntoKey<K> {
    #[doc(hidden)]
    fn into_key(self) -> K;
}

impl<K> IntoKey<K> for K {
    fn into_key(self) -> K {
        self
    }
}

#[diagnostic::do_not_recommend]
impl IntoKey<String> for &str {
    fn into_key(self) -> String {
        self.to_owned()
    }
}

/// The table that a field is in.
pub(super) type TableOf<C> = <C as Column>::Table;

/// The key of the row that a field is in.
pub(crate) type Key<C> = <TableOf<C> as ShardedTable>::Key;

/// A counter as the operations see it: a row's, or a named one. That is a row in the library's own table, inserted by the first increment.
pub(crate) trait OneCounter<M: LoadIo> {
    type Field: IntegerField<M::Backend>;

    /// Inserts the row.
    type Insert: QueryFragment<M::Backend> + QueryId;

    /// Whether its first increment inserts the row.
    const IS_INSERTED: bool;

    fn field(&self) -> Self::Field;

    /// The key of its row.
    fn key(&self) -> QueryResult<Key<Self::Field>>;

    /// The number of shards that writers of this process choose from.
    fn shards(&self) -> u16;

    /// The addition of `n`.
    fn adding(
        &self,
        n: i64,
        dialect: Dialect,
    ) -> QueryResult<Adding<Self::Field, M::Backend, Self::Insert>>;

    /// Prepares for an increment.
    async fn begin(&self, link: &mut Link<'_, M>) -> QueryResult<()>;

    /// Whether the counter exists, as an increment of 0 reports it.
    async fn is_there(&self, link: &mut Link<'_, M>) -> QueryResult<bool>;

    async fn total(&self, link: &mut Link<'_, M>) -> QueryResult<Option<i64>>;

    /// A clearer reason for an error.
    fn explained(&self, link: &Link<'_, M>, error: DieselError) -> DieselError;

    /// The total that a write depends on, or that it returns; `None` if there is no such row.
    async fn total_on_primary(&self, link: &mut Link<'_, M>) -> QueryResult<Option<i64>> {
        let key = KeyIs(TableOf::<Self::Field>::key_is(self.key()?));
        let query = OnPrimary {
            names: Names::of::<TableOf<Self::Field>>(),
            query: totals_of(self.field(), &key),
        };
        let totals = Self::Field::load(link, query).await?;
        Ok(totals.into_iter().next().map(|(_, total)| total.into()))
    }

    /// Inserts the row, by an increment of 0.
    async fn create(&self, link: &mut Link<'_, M>) -> QueryResult<()> {
        let mut count = self.adding(0, link.dialect())?;
        let (facts, retry) = (count.facts, count.retry.clone());
        engine::count(link, facts, retry, &mut count)
            .await
            .map(drop)
    }

    /// Adds `n`, and returns the number of rows counted.
    async fn count(&self, n: i64, link: &mut Link<'_, M>) -> QueryResult<usize> {
        if n == 0 {
            return Ok(self.is_there(link).await?.into());
        }
        self.begin(link).await?;
        combine::count(link, &mut self.adding(n, link.dialect())?).await
    }

    /// Adds `n`, and returns the new total; `None` if there is no such row.
    async fn count_and_total(&self, n: i64, link: &mut Link<'_, M>) -> QueryResult<Option<i64>> {
        if n == 0 {
            return self.total(link).await;
        }
        self.begin(link).await?;
        let mut counting = CountAndRead {
            column: self.field(),
            count: self.adding(n, link.dialect())?,
            total: None,
        };
        let mut facts = counting.count.facts;
        facts.returning = true;
        let retry = counting.count.retry.clone();
        let counted = engine::count(link, facts, retry, &mut counting).await;
        counted.map_err(|error| self.explained(link, error))?;
        Ok(counting.total)
    }

    /// Adds `n`, unless that was done with this idempotency key before. Returns the number of rows counted, now or then, and whether it
    /// was now.
    async fn count_once(
        &self,
        n: i64,
        key: &[u8],
        link: &mut Link<'_, M>,
    ) -> QueryResult<(usize, bool)>
    where
        Self: CachedAs,
    {
        let request = &Request::to_add(key, &self.cached_as(), n)?;
        if n == 0 {
            return once(link, request, RetryPolicy::default(), &mut AddNothing(self)).await;
        }
        self.begin(link).await?;
        let mut count = UpdateOnce(self.adding(n, link.dialect())?);
        let retry = count.0.retry.clone();
        once(link, request, retry, &mut count).await
    }

    /// As [`count_once`](Self::count_once), and reads the total in the same transaction. A repeat reads the current total.
    async fn count_once_and_total(
        &self,
        n: i64,
        key: &[u8],
        link: &mut Link<'_, M>,
    ) -> QueryResult<Option<i64>>
    where
        Self: CachedAs,
    {
        if n == 0 {
            self.count_once(n, key, link).await?;
            return self.total(link).await;
        }
        let request = &Request::to_add(key, &self.cached_as(), n)?;
        self.begin(link).await?;
        let count = UpdateOnce(self.adding(n, link.dialect())?);
        let retry = count.0.retry.clone().begun();
        let mut work = AndRead {
            work: count,
            counter: self,
            total: None,
        };
        let (_, is_now) = once(link, request, retry.clone(), &mut work).await?;
        if is_now {
            return Ok(work.total);
        }
        let reading = RetryLoop::decision(link, retry)?;
        retry_loop!(link, reading, self.total_on_primary(link).await)
    }
}

impl<C, Run, M, DB> OneCounter<M> for RowCounter<C, Run>
where
    C: IntegerField<DB>,
    M: LoadIo<Backend = DB>,
    DB: ShardedBackend,
{
    type Field = C;
    type Insert = ();

    const IS_INSERTED: bool = false;

    fn field(&self) -> C {
        self.column
    }

    fn key(&self) -> QueryResult<Key<C>> {
        Ok(self.key.clone())
    }

    fn shards(&self) -> u16 {
        shard_counts::known::<C::Table>([C::NAME].into_iter())
    }

    fn adding(&self, n: i64, dialect: Dialect) -> QueryResult<Adding<C, DB>> {
        let mut count = add(self.key.clone(), vec![n], NO_INSERT, dialect);
        count.combine = self.combine.clone();
        Ok(count)
    }

    async fn begin(&self, _: &mut Link<'_, M>) -> QueryResult<()> {
        Ok(())
    }

    async fn is_there(&self, link: &mut Link<'_, M>) -> QueryResult<bool> {
        let filter = &KeyIs(C::Table::key_is(self.key.clone()));
        let names = Names::of::<C::Table>();
        let found = read!(link, link.load::<i32, _>(FindParent { names, filter }));
        let found = found.map_err(|error| self.explained(link, error))?;
        Ok(!found.is_empty())
    }

    async fn total(&self, link: &mut Link<'_, M>) -> QueryResult<Option<i64>> {
        let key = KeyIs(C::Table::key_is(self.key.clone()));
        let totals = read!(link, C::load(link, totals_of(self.column, &key)));
        let totals = totals.map_err(|error| self.explained(link, error))?;
        Ok(totals.into_iter().next().map(|(_, total)| total.into()))
    }

    fn explained(&self, link: &Link<'_, M>, error: DieselError) -> DieselError {
        explain::<C::Table, DB>(&link.backend(), error)
    }
}

/// A counter that has a name in caches and under idempotency keys.
pub(crate) trait CachedAs {
    fn cached_as(&self) -> String;
}

impl<C, Run> CachedAs for RowCounter<C, Run>
where
    C: ShardedColumn<Table: ShardedTable<Key: fmt::Debug>>,
{
    fn cached_as(&self) -> String {
        let table = TableOf::<C>::SHARDS_TABLE;
        format!("{table}.{}:{:?}", C::NAME, self.key)
    }
}

/// Reads the counter's total in the transaction that counts, before the commit.
struct AndRead<'a, W, K: ?Sized> {
    work: W,
    counter: &'a K,
    total: Option<i64>,
}

impl<W, K, M> Requested<M> for AndRead<'_, W, K>
where
    W: Requested<M>,
    K: OneCounter<M> + ?Sized,
    M: LoadIo,
{
    async fn carry_out(&mut self, link: &mut Link<'_, M>) -> QueryResult<usize> {
        let counted = self.work.carry_out(link).await?;
        self.total = match counted {
            0 => None,
            _ => self.counter.total(link).await?,
        };
        Ok(counted)
    }
}

/// Writes an idempotency key alone, if the counter exists.
struct AddNothing<'a, K: ?Sized>(&'a K);

impl<K, M> Requested<M> for AddNothing<'_, K>
where
    K: OneCounter<M> + ?Sized,
    M: LoadIo,
{
    async fn carry_out(&mut self, link: &mut Link<'_, M>) -> QueryResult<usize> {
        Ok(self.0.is_there(link).await?.into())
    }
}

/// A sharded field of integers whose range fits into an `i64`, on a backend that binds and reads them. Every such field
/// implements the trait, which collects the necessary bounds.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a sharded field of integers that fit into an `i64`",
    note = "fields of type `SmallInt`, `Integer`, `BigInt` and MySQL's `Unsigned<SmallInt>` and `Unsigned<Integer>` are",
    note = "count what has fractions in its smallest unit, in a `BigInt`: money in cents"
)]
pub trait IntegerField<DB: ShardedBackend>:
    ShardedColumn<Table: KeyedTable<DB>>
    + IntegerFields<ParentTable = <Self as Column>::Table, Amounts = i64>
    + QueryId
{
    #[doc(hidden)]
    type Row: Into<i64> + Send + 'static;

    /// A row's key and its total.
    #[doc(hidden)]
    type Selection: Expression + QueryFragment<DB> + QueryId;

    #[doc(hidden)]
    fn selection(self) -> Self::Selection;

    /// Reads keys and totals.
    #[doc(hidden)]
    fn load<'c, Q, M>(
        link: &'c mut Link<'_, M>,
        query: Q,
    ) -> M::Future<'c, Totals<Key<Self>, Self::Row>>
    where
        M: LoadIo<Backend = DB>,
        Q: Query<SqlType = SqlTypeOf<Self::Selection>> + QueryFragment<DB> + QueryId + 'c;
}

type Totals<K, R> = QueryResult<Vec<(K, R)>>;

#[diagnostic::do_not_recommend]
impl<C, T, DB> IntegerField<DB> for C
where
    C: ShardedColumn<Table = T> + QueryId,
    T: KeyedTable<DB>,
    T::PrimaryKey: QueryFragment<DB> + QueryId,
    (T::PrimaryKey, Total<C>): Expression,
    DB: ShardedBackend + Reads<SqlTypeOf<(T::PrimaryKey, Total<C>)>, (T::Key, Value<C>)>,
    Value<C>: Into<i64>,
{
    type Row = Value<C>;
    type Selection = (T::PrimaryKey, Total<C>);

    fn selection(self) -> Self::Selection {
        (T::TABLE.primary_key(), self.total())
    }

    fn load<'c, Q, M>(
        link: &'c mut Link<'_, M>,
        query: Q,
    ) -> M::Future<'c, Totals<T::Key, Value<C>>>
    where
        M: LoadIo<Backend = DB>,
        Q: Query<SqlType = SqlTypeOf<Self::Selection>> + QueryFragment<DB> + QueryId + 'c,
    {
        link.load_prepared(query)
    }
}

/// `"views" = ("videos"."views" + $1)`
///
/// The amount is bound as a `BigInt` for every type of column, because it may be negative even if the column is unsigned.
#[derive(Debug, QueryId)]
pub struct AddTo<F> {
    amounts: Vec<i64>,
    fields: PhantomData<F>,
}

impl<F: IntegerFields> AddTo<F> {
    /// One amount for each field.
    pub(crate) fn new(amounts: Vec<i64>) -> Self {
        AddTo {
            amounts,
            fields: PhantomData,
        }
    }
}

impl<F: IntegerFields> AsChangeset for AddTo<F> {
    type Target = F::ParentTable;
    type Changeset = Self;

    fn as_changeset(self) -> Self {
        self
    }
}

fragments! {
    [F: IntegerFields<ParentTable: QueryFragment<DB>>,] AddTo<F>;
    |self, out| {
        let table = Names::<DB>::of::<F::ParentTable>();
        sql!(out; for (name, n) in (F::NAMES.iter().copied().zip(&self.amounts), ", ") {
            id(name), " = (", table.column(name), " + ", bind(BigInt, n), ")"
        })
    };
}

/// Adds an amount to each field of the row with this key. If the row is missing, the statement in `insert` inserts it. The number beside
/// the statement is that of the shards to choose from.
pub(crate) fn add<F, DB, I>(
    key: <F::ParentTable as ShardedTable>::Key,
    amounts: Vec<i64>,
    insert: Option<(I, u16)>,
    dialect: Dialect,
) -> Adding<F, DB, I>
where
    F: IntegerFields<ParentTable: KeyedTable<DB>>,
    DB: ShardedBackend,
{
    let key = KeyIs(F::ParentTable::key_is(key));
    let terms = |terms: &mut Vec<Term>| {
        terms.extend((0..F::NAMES.len()).map(Term::added_to));
        true
    };
    Count::by_key::<DB>(key, AddTo::new(amounts), F::NAMES, terms, insert, dialect)
}

/// The addition of amounts to the fields of a row.
pub(crate) type Adding<F, DB, I = ()> = Count<
    Fragments<
        <F as IntegerFields>::ParentTable,
        AddTo<F>,
        KeyIs<<<F as IntegerFields>::ParentTable as KeyedTable<DB>>::KeyIs>,
        I,
    >,
>;

/// Sends an increment's statements, and keeps the total that one of them reads.
struct CountAndRead<C: IntegerField<DB>, DB: ShardedBackend, I> {
    column: C,
    count: Adding<C, DB, I>,
    total: Option<i64>,
}

impl<M, DB, C, I> SendStatement<M> for CountAndRead<C, DB, I>
where
    C: IntegerField<DB>,
    I: QueryFragment<DB> + QueryId,
    M: LoadIo<Backend = DB>,
    DB: ShardedBackend,
{
    async fn send(&mut self, link: &mut Link<'_, M>, step: Step) -> QueryResult<usize> {
        self.total = None; // an earlier attempt was rolled back, with the total that it read
        let Step { statement, shard } = step;
        let totals = match statement {
            Statement::CountAndLoad => {
                let count = CountAllAndLoad {
                    clauses: TypedUpdate::<DB>::clauses(&self.count.update, shard),
                    selection: self.column.selection(),
                };
                C::load(link, Identified::<CountAndReadId<C, DB>, _>::new(count)).await?
            }
            Statement::Load => {
                C::load(link, totals_of(self.column, &self.count.update.filter)).await?
            }
            Statement::CountByKey => return self.count.count_before_load(link, shard).await,
            _ => return self.count.send(link, step).await,
        };
        let met = totals.len();
        self.total = totals.into_iter().next().map(|(_, total)| total.into());
        Ok(met)
    }
}

type CountAndReadId<C, DB> = CountAllAndLoadId<
    UpdateId<TableOf<C>, KeyIs<<TableOf<C> as KeyedTable<DB>>::KeyIs>, AddTo<C>>,
    <C as IntegerField<DB>>::Selection,
>;

/// The key and the total of the row that `filter` matches.
fn totals_of<C, W, DB>(column: C, filter: &W) -> SelectParents<TableOf<C>, &W, C::Selection>
where
    C: IntegerField<DB>,
    DB: ShardedBackend,
{
    SelectParents {
        selection: column.selection(),
        filter,
        table: PhantomData,
    }
}

//! One sharded field of one row, as a value that can be passed around.

use std::fmt;
use std::marker::PhantomData;

use diesel::prelude::*;

use crate::backend::{BackendOf, ShardedBackend};
use crate::connection::{Blocking, Link, LoadIo, paired};
use crate::engine::{KeyedTable, explain};
use crate::model::{ShardedColumn, ShardedTable};
use crate::operation::idempotency::Idempotent;
use crate::query_builder::{FindParent, KeyIs, Names};

use super::add::ready_to_add;
use super::add_and_get::add_and_get;
use super::field::{IntegerField, Key};

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
pub struct RowCounter<C: Column<Table: ShardedTable>, Run = Blocking> {
    pub(crate) column: C,
    pub(crate) key: Key<C>,
    run: PhantomData<fn() -> Run>,
}

paired! {
    impl<C: ShardedColumn> RowCounter<C, Run>
    where
        C: IntegerField<DB>,
        DB: BackendOf<Conn>,
    {
        /// Adds `n`, which may be negative. Returns the number of rows counted, 0 if there is no such row.
        /// [`update`](crate::update()) by key, with the same SQL and the same effect.
        ///
        /// Adding 0 writes nothing. It only looks whether there is such a row:
        ///
        /// ```sql
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

        /// Adds `n`, which may be negative, and returns the new total; `None` if there is no such row. The count and the read are one
        /// statement or one transaction, so the total contains `n`, and no count that another connection has not committed by then.
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
}

impl<C: ShardedColumn, Run> RowCounter<C, Run> {
    /// The field `column` of the row with this key.
    pub fn of(column: C, key: Key<C>) -> Self {
        RowCounter {
            column,
            key,
            run: PhantomData,
        }
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
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        if n == 0 {
            return Ok(self.is_there(link).await?.into());
        }
        let mut add = ready_to_add::<C, DB>(self.key.clone(), n);
        add.count(link).await
    }

    pub(crate) async fn count_and_total<DB, M, Conn>(
        &self,
        n: i64,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<Option<i64>>
    where
        C: IntegerField<DB>,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        if n == 0 {
            return self.total(link).await;
        }
        let mut add = ready_to_add::<C, DB>(self.key.clone(), n);
        add_and_get(self.column, &mut add, link).await
    }

    /// Whether there is such a row.
    pub(crate) async fn is_there<DB, M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<bool>
    where
        C: IntegerField<DB>,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let (names, filter) = (Names::of::<C::Table>(), &self.key_is());
        let found = link.load::<i32, _>(FindParent { names, filter }).await;
        let found = found.map_err(|error| explain::<C::Table, DB>(&link.backend(), error))?;
        Ok(!found.is_empty())
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

#[cfg(feature = "async")]
impl<C: ShardedColumn> From<RowCounter<C>> for RowCounter<C, crate::connection::Async> {
    fn from(counter: RowCounter<C>) -> Self {
        Self::of(counter.column, counter.key)
    }
}

impl<C: ShardedColumn, Run> Clone for RowCounter<C, Run> {
    fn clone(&self) -> Self {
        Self::of(self.column, self.key.clone())
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

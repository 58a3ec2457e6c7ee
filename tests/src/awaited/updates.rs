//! Counting updates.

#![expect(
    clippy::type_complexity,
    reason = "they wrap what the library's own builder gives"
)]

use diesel::associations::HasTable;
use diesel::backend::Backend;
use diesel::dsl::Filter;
use diesel::prelude::*;
use diesel::query_builder::{AsChangeset, IntoUpdateTarget, QueryFragment, QueryId};
use diesel::query_dsl::methods::FilterDsl;
use diesel::result::Error as DieselError;
use diesel_async::AsyncConnection;
use diesel_sharded::__bounds::{BoxedRows, InsertRow, NoInsert, OrInsert, SetNotCalled, Values};
use diesel_sharded::__bounds::{NoReturning, ReturningTotals};
use diesel_sharded::asynchronous::{self, Async, operation::LoadCounted};
use diesel_sharded::backend::BackendOf;
use diesel_sharded::idempotency::Idempotent;
use diesel_sharded::model::{CountingUpdate, ShardedTable};
use diesel_sharded::operation::SelectTotals;
use diesel_sharded::operation::{UpdateSource, UpdateStatement};
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::shard_choice::ShardChoice;

use super::wait;

pub struct Update<S>(S);

pub fn update<Source, Kind>(
    source: Source,
) -> Update<UpdateStatement<Source::Query, SetNotCalled, NoReturning, NoInsert, Async>>
where
    Source: UpdateSource<Kind>,
{
    Update(asynchronous::update(source))
}

impl<Q, R, I> Update<UpdateStatement<Q, SetNotCalled, R, I, Async>> {
    pub fn set<V, Columns, Operations, Kind>(
        self,
        values: V,
    ) -> Update<UpdateStatement<Q, Values<V::Changes>, R, I, Async>>
    where
        Q: HasTable<Table: ShardedTable>,
        V: CountingUpdate<Columns, Operations, Kind, Changes: AsChangeset<Target = Q::Table>>,
    {
        Update(self.0.set(values))
    }
}

impl<Q, V, R, I> Update<UpdateStatement<Q, V, R, I, Async>> {
    pub fn filter<P>(self, predicate: P) -> Update<UpdateStatement<Filter<Q, P>, V, R, I, Async>>
    where
        Q: FilterDsl<P>,
    {
        Update(self.0.filter(predicate))
    }

    pub fn into_boxed<'a, DB>(
        self,
    ) -> Update<UpdateStatement<BoxedRows<'a, Q::Table, DB>, V, R, I, Async>>
    where
        Q: IntoUpdateTarget<Table: IntoUpdateTarget<WhereClause: QueryId>>,
        Q::WhereClause: QueryFragment<DB> + QueryId + Send + 'a,
        DB: Backend,
    {
        Update(self.0.into_boxed())
    }

    builds! { Update:
        retry(policy: RetryPolicy);
        shard_choice(choice: ShardChoice);
    }
}

impl<Q, V, R> Update<UpdateStatement<Q, V, R, NoInsert, Async>> {
    pub fn or_insert<I>(self, row: I) -> Update<UpdateStatement<Q, V, R, OrInsert<I>, Async>>
    where
        Q: HasTable,
        I: Insertable<Q::Table>,
    {
        Update(self.0.or_insert(row))
    }
}

impl<Q, V, I> Update<UpdateStatement<Q, Values<V>, NoReturning, I, Async>>
where
    Q: HasTable,
{
    pub fn returning<S, Kind>(
        self,
        selection: S,
    ) -> Update<UpdateStatement<Q, Values<V>, ReturningTotals<S::Output>, I, Async>>
    where
        S: SelectTotals<Q::Table, Kind>,
    {
        Update(self.0.returning(selection))
    }
}

impl<Q, V, R, I> Update<UpdateStatement<Q, Values<V>, R, I, Async>> {
    pub fn idempotency_key(
        self,
        key: impl AsRef<[u8]>,
    ) -> Update<Idempotent<UpdateStatement<Q, Values<V>, R, I, Async>>> {
        Update(self.0.idempotency_key(key))
    }
}

impl<Q, V, R, I, T, W> Update<UpdateStatement<Q, Values<V>, R, I, Async>>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W>,
{
    waits! {
        {
            V: AsChangeset<Target = T, Changeset: QueryFragment<DB> + Send> + QueryId,
            T: ShardedTable + QueryFragment<DB> + QueryId,
            W: QueryFragment<DB> + QueryId + Send,
            I: InsertRow<T, DB, Statement: Send>,
        }
        execute(self: Self) -> usize;
    }
}

impl<Q, V, R, I, T, W> Update<Idempotent<UpdateStatement<Q, Values<V>, R, I, Async>>>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W>,
{
    waits! {
        {
            V: AsChangeset<Target = T, Changeset: QueryFragment<DB> + Send> + QueryId,
            T: ShardedTable + QueryFragment<DB> + QueryId,
            W: QueryFragment<DB> + QueryId + Send,
            I: InsertRow<T, DB, Statement: Send>,
        }
        execute(self: Self) -> usize;
    }
}

impl<S> Update<S> {
    pub fn load<'c, U>(self, conn: &'c mut impl LoadCounted<'c, S, U>) -> QueryResult<Vec<U>> {
        wait(conn.load_counted(self.0))
    }

    pub fn get_results<'c, U>(
        self,
        conn: &'c mut impl LoadCounted<'c, S, U>,
    ) -> QueryResult<Vec<U>> {
        self.load(conn)
    }

    pub fn get_result<'c, U>(self, conn: &'c mut impl LoadCounted<'c, S, U>) -> QueryResult<U> {
        let first = self.load(conn)?.into_iter().next();
        first.ok_or(DieselError::NotFound)
    }
}

//! Folds, totals that are set, and totals that are verified.

use std::hash::Hash;
use std::ops::ControlFlow;

use diesel::associations::HasTable;
use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};
use diesel_async::AsyncConnection;
use diesel_async::methods::LoadQuery;
use diesel_sharded::__bounds::{
    Assignment, InsertMissing, KeyedTable, NoInsert, OrInsertEach, ToValue, ToZero,
};
use diesel_sharded::asynchronous::{self, Async};
use diesel_sharded::backend::BackendOf;
use diesel_sharded::dsl::Value;
use diesel_sharded::idempotency::Idempotent;
use diesel_sharded::model::{ShardedColumn, ShardedTable};
use diesel_sharded::operation::{
    CountedMany, Drift, Folded, IntegerField, RecountQuery, UpdateSource, VerifiedFields,
};
use diesel_sharded::retry::RetryPolicy;

use super::wait;

pub struct Fold<Q: IntoUpdateTarget<Table: ShardedTable>>(
    diesel_sharded::operation::Fold<Q, Async>,
);

type Key<Q> = <<Q as HasTable>::Table as ShardedTable>::Key;

pub fn fold<Source, Kind>(source: Source) -> Fold<Source::Query>
where
    Source: UpdateSource<Kind>,
    Source::Query: IntoUpdateTarget<Table: ShardedTable>,
{
    Fold(asynchronous::fold(source))
}

impl<Q, T, W> Fold<Q>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W> + Send,
    T: ShardedTable,
    W: Send + Sync,
{
    builds! { Fold:
        batch(parents: usize);
        at_most_per_second(parents: u32);
        keep_shards(number: u16);
        after(key: impl Into<Option<Key<Q>>>);
        retry(policy: RetryPolicy);
    }

    waits! {
        { T: KeyedTable<DB>, T::PrimaryKey: Expression, W: QueryFragment<DB> + QueryId }
        run(self: Self) -> Folded<T>;
    }

    pub fn run_with<Conn, DB>(
        self,
        conn: &mut Conn,
        progress: impl FnMut(&Folded<T>) -> ControlFlow<()> + Send,
    ) -> QueryResult<Folded<T>>
    where
        T: KeyedTable<DB>,
        T::PrimaryKey: Expression,
        W: QueryFragment<DB> + QueryId,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        wait(self.0.run_with(conn, progress))
    }
}

pub struct CountMany<C: ShardedColumn, Ins>(diesel_sharded::operation::CountMany<C, Ins, Async>);

pub fn count_many<C, I>(column: C, amounts: I) -> CountMany<C, NoInsert>
where
    C: ShardedColumn<Table: ShardedTable<Key: Ord>>,
    I: IntoIterator<Item = (<C::Table as ShardedTable>::Key, i64)>,
{
    CountMany(asynchronous::count_many(column, amounts))
}

impl<C: ShardedColumn> CountMany<C, NoInsert> {
    pub fn or_insert<F, I>(self, row_of: F) -> CountMany<C, OrInsertEach<F, I>>
    where
        F: Fn(&<C::Table as ShardedTable>::Key) -> I,
        I: Insertable<C::Table>,
    {
        CountMany(self.0.or_insert(row_of))
    }
}

impl<C: ShardedColumn, Ins> CountMany<C, Ins> {
    waits! {
        {
            C: IntegerField<DB> + Send + Sync,
            C::Table: KeyedTable<DB> + ShardedTable<Key: Ord, KeyValues: QueryFragment<DB> + Send>,
            Ins: InsertMissing<C::Table, DB, Statement: Send> + Send + Sync,
        }
        run(self: Self) -> CountedMany<C::Table>;
    }
}

pub struct SetTotal<Q, A>(diesel_sharded::operation::SetTotal<Q, A, Async>);

pub fn set_total<Source, Kind, C>(
    source: Source,
    column: C,
    total: Value<C>,
) -> SetTotal<Source::Query, ToValue<C>>
where
    Source: UpdateSource<Kind>,
    Source::Query: IntoUpdateTarget<Table = C::Table>,
    C: ShardedColumn,
{
    SetTotal(asynchronous::set_total(source, column, total))
}

pub fn reset<Source, Kind, T>(source: Source) -> SetTotal<Source::Query, ToZero<T>>
where
    Source: UpdateSource<Kind>,
    Source::Query: IntoUpdateTarget<Table = T>,
    T: ShardedTable,
{
    SetTotal(asynchronous::reset(source))
}

impl<Q, A, T, W> SetTotal<Q, A>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W>,
{
    builds! { SetTotal: retry(policy: RetryPolicy); }

    pub fn idempotency_key(self, key: impl AsRef<[u8]>) -> IdempotentSet<Q, A> {
        IdempotentSet(self.0.idempotency_key(key))
    }

    waits! {
        {
            Q: Send,
            A: Assignment + QueryFragment<DB> + Send + Sync,
            T: KeyedTable<DB>,
            T::PrimaryKey: Expression + QueryId,
            W: QueryFragment<DB> + QueryId + Send + Sync,
        }
        execute(self: Self) -> usize;
    }
}

pub struct IdempotentSet<Q, A>(Idempotent<diesel_sharded::operation::SetTotal<Q, A, Async>>);

impl<Q, A, T, W> IdempotentSet<Q, A>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W>,
{
    waits! {
        {
            A: Assignment + QueryFragment<DB> + Send + Sync,
            T: KeyedTable<DB>,
            T::PrimaryKey: Expression + QueryId,
            W: QueryFragment<DB> + QueryId + Send + Sync,
        }
        execute(self: Self) -> usize;
    }
}

pub struct Verify<R, C, Q>(pub(super) diesel_sharded::operation::Verify<R, C, Q, Async>);

pub fn verify<Source, Kind, C, Fields, Q>(
    source: Source,
    column: C,
    expected: Q,
) -> Verify<Source::Query, C, Q>
where
    Source: UpdateSource<Kind>,
    Source::Query: IntoUpdateTarget<Table = C::Table>,
    C: VerifiedFields<Fields>,
{
    Verify(asynchronous::verify(source, column, expected))
}

impl<R, C, Q, T, W> Verify<R, C, Q>
where
    R: IntoUpdateTarget<Table = T, WhereClause = W>,
{
    builds! { Verify: retry(policy: RetryPolicy); }

    waits! {
        {
            R: Clone + Send,
            C: VerifiedFields<Fields, Table = T, Total: Send> + Send + Sync,
            Q: RecountQuery<T::Key, Row: Send>
                + LoadQuery<'static, Conn, <Q as RecountQuery<T::Key>>::Row>
                + Clone
                + Send
                + Sync
                + 'static,
            T: KeyedTable<DB, Key: Eq + Hash>,
            W: QueryFragment<DB> + QueryId + Send + Sync,
        }
        drifts<Fields>(self: Self) -> Vec<Drift<T::Key, C::Total>>;
        repair<Fields>(self: Self) -> Vec<Drift<T::Key, C::Total>>;
    }
}

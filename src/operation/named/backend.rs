//! A backend whose connections have named counters.

use std::ops::ControlFlow;

use diesel::connection::LoadConnection;
use diesel::dsl::Find;
use diesel::prelude::*;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment};
use diesel::result::Error as DieselError;
#[cfg(feature = "async")]
use diesel_async::AsyncConnection;

use super::sql::{DeleteCounter, InsertCounter, SelectCounters, SelectedRows, explain_counters};
use super::table::counters;
use crate::backend::{BackendOf, ShardedBackend};
#[cfg(feature = "async")]
use crate::connection::Async;
use crate::connection::{Blocking, Io, Link, TransactionOptions, done};
use crate::engine::{KeyedTable, RetryLoop, retry_loop};
use crate::operation::bounded::Bounded;
use crate::operation::fold::{Fold, Folded};
use crate::operation::idempotency::{Request, count_once};
use crate::operation::row_counter::{IntegerField, ReadyToAdd, add_and_get, ready_to_add};
use crate::operation::set_total::set_by_key;
use crate::operation::shard_counts;
use crate::operation::shard_counts::Number;
use crate::policy::RetryPolicy;

/// A backend whose connections have named counters. Every backend of the crate implements the trait, which collects the necessary
/// bounds.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no named counters on a `{Conn}`",
    note = "enable the feature `postgres`, `mysql` or `sqlite` of `diesel_sharded` (or `postgres_backend`, `mysql_backend`)",
    note = "for an enum with `#[derive(MultiConnection)]`, call `diesel_sharded::multi_connection!` beside it"
)]
pub trait CounterBackend<Conn, Run: Io<Conn> = Blocking>: BackendOf<Conn> {
    #[doc(hidden)]
    fn add(conn: &mut Conn, name: Vec<u8>, n: i64) -> Run::Future<'_, QueryResult<()>>;

    /// Adds `n` once for all requests with this key; see [`count_once`].
    #[doc(hidden)]
    fn add_once(
        conn: &mut Conn,
        name: Vec<u8>,
        n: i64,
        request: Request,
    ) -> Run::Future<'_, QueryResult<(usize, bool)>>;

    #[doc(hidden)]
    fn add_and_get(conn: &mut Conn, name: Vec<u8>, n: i64) -> Run::Future<'_, QueryResult<i64>>;

    #[doc(hidden)]
    fn add_within(
        conn: &mut Conn,
        bounded: Bounded<counters::value>,
        name: Vec<u8>,
        n: i64,
    ) -> Run::Future<'_, QueryResult<bool>>;

    #[doc(hidden)]
    fn set(conn: &mut Conn, name: Vec<u8>, total: i64) -> Run::Future<'_, QueryResult<()>>;

    #[doc(hidden)]
    fn fold(
        conn: &mut Conn,
        name: Vec<u8>,
        keep_shards: u16,
    ) -> Run::Future<'_, QueryResult<Folded<counters::table>>>;

    #[doc(hidden)]
    fn select(conn: &mut Conn, select: SelectCounters) -> Run::Future<'_, Found>;

    #[doc(hidden)]
    fn delete(conn: &mut Conn, name: Vec<u8>) -> Run::Future<'_, QueryResult<bool>>;
}

/// Names and their totals.
type Found = QueryResult<Vec<(Vec<u8>, i64)>>;

type ByName = Find<counters::table, Vec<u8>>;

/// A count of `n` on the counter of this name, which is inserted at 0 if it is not there.
fn count_of<DB>(name: Vec<u8>, n: i64) -> ReadyToAdd<counters::value, DB, InsertCounter>
where
    DB: ShardedBackend,
    counters::table: KeyedTable<DB>,
{
    let number = Number::of_counter::<counters::table>(&name).known();
    ready_to_add::<counters::value, DB>(name.clone(), n).or_insert(InsertCounter { name }, number)
}

/// The total of the counter of this name, or its base; 0 if it is not there.
pub(super) async fn total_of<DB, M, Conn>(
    name: Vec<u8>,
    exact: bool,
    link: &mut Link<'_, M, Conn>,
) -> QueryResult<i64>
where
    M: Io<Conn, Backend = DB>,
    DB: CounterBackend<Conn, M>,
{
    let rows = SelectedRows::Named(vec![name]);
    let found = DB::select(link.conn, SelectCounters { rows, exact }).await?;
    Ok(found.first().map_or(0, |(_, value)| *value))
}

/// How often a counter is created that another connection deletes at once.
const MOST_CREATED: u8 = 4;

/// Implements [`CounterBackend`] for one way of reaching a connection; `$done` makes its future of several steps.
macro_rules! counter_backend {
    ($io:ty, $connection:ident, $done:path) => {
        impl<Conn, DB> CounterBackend<Conn, $io> for DB
        where
            Conn: $connection<Backend = DB>,
            DB: BackendOf<Conn>,
            counters::table: KeyedTable<DB>,
            counters::value: IntegerField<DB>,
            <ByName as IntoUpdateTarget>::WhereClause: QueryFragment<DB>,
        {
            fn add(
                conn: &mut Conn,
                name: Vec<u8>,
                n: i64,
            ) -> <$io as Io<Conn>>::Future<'_, QueryResult<()>> {
                $done(async move {
                    if n == 0 {
                        return Ok(()); // nobody is told whether there is such a counter
                    }
                    let link = &mut Link::<$io, _>::new(conn);
                    shard_counts::keep_fresh(link).await?;
                    let mut count = count_of::<DB>(name, n);
                    count.count(link).await.map(drop)
                })
            }

            fn add_once(
                conn: &mut Conn,
                name: Vec<u8>,
                n: i64,
                request: Request,
            ) -> <$io as Io<Conn>>::Future<'_, QueryResult<(usize, bool)>> {
                $done(async move {
                    let link = &mut Link::<$io, _>::new(conn);
                    shard_counts::keep_fresh(link).await?;
                    count_once(link, count_of::<DB>(name, n), &request).await
                })
            }

            fn add_and_get(
                conn: &mut Conn,
                name: Vec<u8>,
                n: i64,
            ) -> <$io as Io<Conn>>::Future<'_, QueryResult<i64>> {
                $done(async move {
                    let link = &mut Link::<$io, _>::new(conn);
                    if n == 0 {
                        return total_of(name, true, link).await;
                    }
                    shard_counts::keep_fresh(link).await?;
                    let mut count = count_of::<DB>(name, n);
                    let total = add_and_get(counters::value, &mut count, link).await;
                    let total = total.map_err(|error| explain_counters(&link.backend(), error))?;
                    total.ok_or(DieselError::NotFound) // a trigger keeps the counter out
                })
            }

            fn add_within(
                conn: &mut Conn,
                bounded: Bounded<counters::value>,
                name: Vec<u8>,
                n: i64,
            ) -> <$io as Io<Conn>>::Future<'_, QueryResult<bool>> {
                $done(async move {
                    if n == 0 {
                        return Ok(true); // which leads out of no bounds
                    }
                    let link = &mut Link::<$io, _>::new(conn);
                    shard_counts::keep_fresh(link).await?;
                    for left in (0..MOST_CREATED).rev() {
                        match bounded.count(n, link).await {
                            Err(DieselError::NotFound) if !bounded.allows(0, n) => {
                                return Ok(false);
                            }
                            Err(DieselError::NotFound) if left > 0 => {
                                let mut create = count_of::<DB>(name.clone(), 0);
                                create.count(link).await?;
                            }
                            added => {
                                return added
                                    .map_err(|error| explain_counters(&link.backend(), error));
                            }
                        }
                    }
                    Err(DieselError::NotFound)
                })
            }

            fn set(
                conn: &mut Conn,
                name: Vec<u8>,
                total: i64,
            ) -> <$io as Io<Conn>>::Future<'_, QueryResult<()>> {
                $done(async move {
                    let link = &mut Link::<$io, _>::new(conn);
                    for left in (0..MOST_CREATED).rev() {
                        let key = name.clone();
                        let set = set_by_key::<counters::value, _, _, _>(link, key, total).await;
                        if set.map_err(|error| explain_counters(&link.backend(), error))? > 0 {
                            return Ok(());
                        }
                        if left > 0 {
                            let mut create = count_of::<DB>(name.clone(), 0);
                            create.count(link).await?;
                        }
                    }
                    Err(DieselError::NotFound)
                })
            }

            fn fold(
                conn: &mut Conn,
                name: Vec<u8>,
                keep_shards: u16,
            ) -> <$io as Io<Conn>>::Future<'_, QueryResult<Folded<counters::table>>> {
                $done(async move {
                    let link = &mut Link::<$io, _>::new(conn);
                    let fold =
                        Fold::<_, $io>::of(counters::table.find(name)).keep_shards(keep_shards);
                    let to_the_end = &mut |_: &Folded<_>| ControlFlow::Continue(());
                    let folded = fold.folded(link, to_the_end).await;
                    folded.map_err(|error| explain_counters(&link.backend(), error))
                })
            }

            fn select(
                conn: &mut Conn,
                select: SelectCounters,
            ) -> <$io as Io<Conn>>::Future<'_, QueryResult<Vec<(Vec<u8>, i64)>>> {
                $done(async move {
                    let link = &mut Link::<$io, _>::new(conn);
                    let found = link.load(select);
                    found
                        .await
                        .map_err(|error| explain_counters(&link.backend(), error))
                })
            }

            fn delete(
                conn: &mut Conn,
                name: Vec<u8>,
            ) -> <$io as Io<Conn>>::Future<'_, QueryResult<bool>> {
                $done(async move {
                    let link = &mut Link::<$io, _>::new(conn);
                    let number = Number::of_counter::<counters::table>(&name);
                    let options = TransactionOptions::guarded();
                    let repeated = RetryLoop::transaction(link, RetryPolicy::default(), options)?;
                    retry_loop!(link, repeated, {
                        number.forget(link).await?;
                        Ok(link.execute(DeleteCounter { name: name.clone() }).await? > 0)
                    })
                })
            }
        }
    };
}

counter_backend!(Blocking, LoadConnection, done);
#[cfg(feature = "async")]
counter_backend!(Async, AsyncConnection, Box::pin);

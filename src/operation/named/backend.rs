//! A backend whose connections have named counters.

use std::ops::ControlFlow;

use diesel::connection::LoadConnection;
use diesel::dsl::Find;
use diesel::prelude::*;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment};
use diesel::result::Error as DieselError;

use super::sql::{DeleteCounter, InsertCounter, SelectCounters, explain_counters};
use super::table::counters;
use crate::backend::{BackendOf, ShardedBackend};
use crate::connection::{Blocking, Io, Link, TransactionOptions, done};
use crate::engine::{KeyedTable, RetryLoop, retry_loop};
use crate::operation::fold::{Fold, Folded};
use crate::operation::idempotency::{Request, count_once};
use crate::operation::row_counter::{ReadyToAdd, ready_to_add};
use crate::operation::set_total::set_by_key;
use crate::operation::shard_counts;
use crate::operation::shard_counts::ShardCount;
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

pub(super) type ByName = Find<counters::table, Vec<u8>>;

/// The count of `n` in its parts.
pub(super) fn ready<DB>(name: Vec<u8>, n: i64) -> ReadyToAdd<counters::value, DB, InsertCounter>
where
    DB: ShardedBackend,
    counters::table: KeyedTable<DB>,
{
    let number = ShardCount::of_counter::<counters::table>(&name).known();
    ready_to_add::<counters::value, DB>(name.clone(), n).or_insert(InsertCounter { name }, number)
}

/// Implements [`CounterBackend`] for one way of reaching a connection; `$done` makes its future of several steps.
macro_rules! counter_backend {
    ($io:ty, $connection:ident, $done:path) => {
        impl<Conn, DB> CounterBackend<Conn, $io> for DB
        where
            Conn: $connection<Backend = DB>,
            DB: BackendOf<Conn>,
            counters::table: KeyedTable<DB>,
            <ByName as IntoUpdateTarget>::WhereClause: QueryFragment<DB>,
        {
            fn add(
                conn: &mut Conn,
                name: Vec<u8>,
                n: i64,
            ) -> <$io as Io<Conn>>::Future<'_, QueryResult<()>> {
                $done(async move {
                    let link = &mut Link::<$io, _>::new(conn);
                    shard_counts::keep_fresh(link).await?;
                    ready::<DB>(name, n).count(link).await.map(drop)
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
                    count_once(link, ready::<DB>(name, n), &request).await
                })
            }

            fn set(
                conn: &mut Conn,
                name: Vec<u8>,
                total: i64,
            ) -> <$io as Io<Conn>>::Future<'_, QueryResult<()>> {
                $done(async move {
                    let link = &mut Link::<$io, _>::new(conn);
                    // A counter that is deleted as soon as it is created is created again, but not for ever.
                    for left in (0..4).rev() {
                        let key = name.clone();
                        let set = set_by_key::<counters::value, _, _, _>(link, key, total).await;
                        if set.map_err(|error| explain_counters(&link.backend(), error))? > 0 {
                            return Ok(());
                        }
                        if left > 0 {
                            <Self as CounterBackend<Conn, $io>>::add(link.conn, name.clone(), 0)
                                .await?;
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
                    let number = ShardCount::of_counter::<counters::table>(&name);
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
pub(super) use counter_backend;

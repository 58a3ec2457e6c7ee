//! Setting totals of parents that are held.

use std::marker::PhantomData;

use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, IntoUpdateTarget, Query, QueryFragment, QueryId};

use crate::backend::{Binds, Dialect, ShardedBackend};
use crate::connection::{Link, LoadIo};
use crate::engine::{KeyedTable, LockedParents, Sums, explain, in_chunks, locking, retry_loop};
use crate::model::{Amount, ShardedColumn, ShardedTable, Value};
use crate::policy::RetryPolicy;
use crate::query_builder::{KeysAre, Names, PickKeys, no_query_id, on, sql};
use crate::unfit::FieldState;

use super::assignment::{Assignment, ToValue};
use super::builder::SetTotal;

/// Totals that can be set, repeatedly if necessary.
pub(super) struct ReadyToSet<A, W> {
    pub(super) assignment: A,
    pub(super) filter: W,
    retry: RetryPolicy,
}

impl<Q, A, Run> SetTotal<Q, A, Run> {
    pub(super) fn ready<T, W>(self) -> ReadyToSet<A, W>
    where
        Q: IntoUpdateTarget<Table = T, WhereClause = W>,
    {
        ReadyToSet {
            assignment: self.assignment,
            filter: self.query.into_update_target().where_clause,
            retry: self.retry.unwrap_or_default(),
        }
    }
}

impl<A, W> ReadyToSet<A, W> {
    pub(super) fn retry(&self) -> RetryPolicy {
        self.retry.clone()
    }

    /// The number of parents whose totals were set.
    pub(super) async fn set<T, DB, M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<usize>
    where
        A: Assignment + QueryFragment<DB>,
        T: KeyedTable<DB>,
        T::PrimaryKey: Expression + QueryId,
        W: QueryFragment<DB> + QueryId,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        self.assignment.check()?;
        let (filter, assignment) = (&self.filter, &self.assignment);
        let locking = locking(link, self.retry())?;
        let set = retry_loop!(link, locking, {
            let pick = PickKeys::<T, W> {
                filter,
                table: PhantomData,
            };
            let mut set = 0;
            for keys in in_chunks::<T, DB>(T::load_keys(link, pick).await?) {
                let locked = LockedParents::<T, DB>::lock_all(*T::TABLE, link, &keys).await?;
                if locked.is_empty() {
                    continue;
                }
                // A row that has left the filter since it was picked is not set.
                let again = PickAgain::<T, W, _> {
                    filter,
                    keys: locked.keys(),
                    table: PhantomData,
                };
                let still = T::load_keys(link, again).await?;
                let still = LockedParents::<T, DB>::locked(*T::TABLE, still);
                set += assign(link, &still, assignment).await?;
            }
            Ok(set)
        });
        set.map_err(|error| explain::<T, DB>(&link.backend(), error))
    }
}

/// Sets the totals of parents that are held. The number of parents.
async fn assign<T, DB, A, M, Conn>(
    link: &mut Link<'_, M, Conn>,
    locked: &LockedParents<T, DB>,
    assignment: &A,
) -> QueryResult<usize>
where
    T: KeyedTable<DB>,
    DB: ShardedBackend,
    A: Assignment + QueryFragment<DB>,
    M: LoadIo<Conn, Backend = DB>,
{
    if locked.is_empty() {
        return Ok(0);
    }
    let set = T::FIELDS.iter();
    let set = set.filter_map(|field| Some((field, assignment.sets(field)?)));
    let (fields, totals): (Vec<_>, Vec<_>) = set.unzip();
    let before = locked.states(link, &fields, Sums::Replaced).await?;
    let parent = fields.iter().zip(totals).map(|(field, base)| FieldState {
        base,
        shards: Amount::zero(field.column_type),
    });
    let expected = vec![parent.collect(); before.len()];
    locked
        .write_bases(link, assignment, &fields, true, &before, &expected)
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
    let locking = locking(link, RetryPolicy::default())?;
    let set = retry_loop!(link, locking, {
        let locked = LockedParents::<C::Table, DB>::lock_all(*C::Table::TABLE, link, &keys).await?;
        assign(link, &locked, &to_total).await
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
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let table = Names::of::<T>();
        sql!(out;
            table.select_keys_as_parent(self.filter), table.aliased(self.keys),
            " ORDER BY ", table.under_alias().key(), on(Dialect::all_rows))
    }
}

impl<T: Table, W, P> Query for PickAgain<'_, T, W, P> {
    type SqlType = <T::PrimaryKey as Expression>::SqlType;
}

no_query_id!([T, W, P] PickAgain<'_, T, W, P>);

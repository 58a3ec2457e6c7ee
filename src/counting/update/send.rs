//! The fragments of an update's statements, and how a count sends them.

use std::marker::PhantomData;

use diesel::query_builder::{AsChangeset, QueryFragment, QueryId};
use diesel::result::QueryResult;

use super::count::Count;
use crate::backend::ShardedBackend;
use crate::connection::{Io, Link};
use crate::engine::{self, SendStatement, Statement, Step};
use crate::model::ShardedTable;
use crate::query_builder::{
    Clauses, CountBeforeLoad, CountBeforeLoadId, CountByKey, CountOne, FirstCount, Identified,
    Names, UpdateId,
};

/// The fragments of an update, with their types.
#[doc(hidden)]
pub trait TypedUpdate<DB: ShardedBackend> {
    /// The types on which the texts of its statements depend.
    type Id: QueryId;

    fn clauses(&self, shard: i32) -> Clauses<'_, DB>;
}

/// The fragments of an update of `T` by the changes `V`.
#[doc(hidden)]
#[allow(missing_debug_implementations)] // they cannot be shown
pub struct Fragments<T, V: AsChangeset, W, I> {
    pub(super) table: PhantomData<T>,
    pub(super) changes: V::Changeset,
    pub(crate) filter: W,
    pub(super) insert: Option<I>,
}

impl<T, V, W, I, DB> TypedUpdate<DB> for Fragments<T, V, W, I>
where
    T: ShardedTable + QueryFragment<DB> + QueryId,
    V: AsChangeset<Target = T, Changeset: QueryFragment<DB>> + QueryId,
    W: QueryFragment<DB> + QueryId,
    I: QueryFragment<DB> + QueryId,
    DB: ShardedBackend,
{
    type Id = UpdateId<T, W, V>;

    fn clauses(&self, shard: i32) -> Clauses<'_, DB> {
        Clauses {
            names: Names::of::<T>(),
            changes: &self.changes,
            filter: &self.filter,
            insert: self.insert.as_ref().map(|insert| insert as _),
            shard,
        }
    }
}

/// An update whose types are hidden, so that the code that counts it is compiled once for each connection.
pub(crate) trait Update<M: Io> {
    fn clauses(&self, shard: i32) -> Clauses<'_, M::Backend>;

    /// Sends the statement that an update sends most often. Diesel knows it by the update's types.
    fn send_first<'s>(
        &'s mut self,
        link: &'s mut Link<'_, M>,
        by_key: bool,
        shard: i32,
    ) -> M::Future<'s, QueryResult<usize>>;
}

impl<M, U> Update<M> for U
where
    M: Io,
    U: TypedUpdate<M::Backend>,
{
    fn clauses(&self, shard: i32) -> Clauses<'_, M::Backend> {
        TypedUpdate::clauses(self, shard)
    }

    fn send_first<'s>(
        &'s mut self,
        link: &'s mut Link<'_, M>,
        by_key: bool,
        shard: i32,
    ) -> M::Future<'s, QueryResult<usize>> {
        let clauses = TypedUpdate::clauses(self, shard);
        let count = match by_key {
            true => FirstCount::ByKey(CountByKey(clauses)),
            false => FirstCount::One(CountOne(clauses)),
        };
        link.execute_prepared(Identified::<U::Id, _>::new(count))
    }
}

impl<M, U> SendStatement<M> for Count<U>
where
    M: Io,
    U: Update<M> + ?Sized,
{
    async fn send(&mut self, link: &mut Link<'_, M>, step: Step) -> QueryResult<usize> {
        let Step { statement, shard } = step;
        let sent = match (statement, &self.sums) {
            (Statement::CountByKey | Statement::CountOne, None) => {
                self.update.send_first(link, self.facts.by_key, shard)
            }
            (_, None) => engine::send(link, statement, self.update.clauses(shard)),
            (_, Some(sums)) => {
                let changes = sums;
                let clauses = self.update.clauses(shard);
                engine::send(link, statement, Clauses { changes, ..clauses })
            }
        };
        sent.await
    }
}

impl<U> Count<U> {
    /// Counts by key in a transaction that reads the parents later.
    pub(crate) fn count_before_load<'c, M>(
        &'c mut self,
        link: &'c mut Link<'_, M>,
        shard: i32,
    ) -> M::Future<'c, QueryResult<usize>>
    where
        M: Io,
        U: TypedUpdate<M::Backend>,
    {
        let count = CountBeforeLoad(CountByKey(TypedUpdate::clauses(&self.update, shard)));
        link.execute_prepared(Identified::<CountBeforeLoadId<U::Id>, _>::new(count))
    }
}

//! An update in the parts that its statements are made of.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AsChangeset, IntoUpdateTarget, QueryFragment, QueryId};
use diesel::result::{EmptyChangeset, Error as DieselError};

use super::returning::Returning;
use super::statement::{InsertRow, Settings, UpdateStatement, Values};
use crate::backend::{Dialect, ShardedBackend};
use crate::connection::{Io, Link, in_transaction};
use crate::engine::{Plan, SendStep, Statement, Steps, explain_of};
use crate::model::ShardedTable;
use crate::operation::shard_counts;
use crate::placement::ShardChoice;
use crate::policy::RetryPolicy;
use crate::query_builder::{
    CountAll, CountBeforeLoad, CountBeforeLoadId, CountByKey, CountOne, CountPicked, CreateShards,
    FindMissing, FindParent, FirstCount, FirstCountId, Identified, InsertParent, KeyIs, Names,
    Parts, ProbeShard,
};
use crate::{engine, observe, placement};

impl<Q, V, Ret, Ins, Run, T, W> UpdateStatement<Q, Values<V>, Ret, Ins, Run>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W>,
    V: AsChangeset<Target = T>,
{
    /// The selection to return.
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
            changes: self.values.changes.as_changeset(),
            table: PhantomData,
            fields: self.values.fields,
            is_nothing: self.values.is_nothing,
            by_key: W::query_id().is_some_and(T::is_key_filter),
            filter: self.query.into_update_target().where_clause,
            insert: self.insert.statement(),
            settings: self.settings,
            alone: false,
        }
    }
}

/// An update that can be carried out, repeatedly if necessary.
pub(crate) struct Ready<T, V: AsChangeset, W, I> {
    table: PhantomData<T>,
    pub(crate) changes: V::Changeset,
    /// The names of the fields that the changes count.
    fields: &'static [&'static str],
    /// There are no changes.
    is_nothing: bool,
    /// The filter names the key and nothing else.
    by_key: bool,
    pub(crate) filter: W,
    insert: Option<I>,
    settings: Settings,
    /// See [`Plan::alone`].
    pub(crate) alone: bool,
}

impl<T, V: AsChangeset, P> Ready<T, V, KeyIs<P>, ()> {
    /// Counts `changes`, which are of the fields named, on the one parent that `key` names.
    pub(crate) fn by_key(key: KeyIs<P>, changes: V, fields: &'static [&'static str]) -> Self {
        Ready {
            changes: changes.as_changeset(),
            table: PhantomData,
            fields,
            is_nothing: false,
            by_key: true,
            filter: key,
            insert: None,
            settings: Settings::default(),
            alone: false,
        }
    }

    /// Inserts the parent by this statement if it is not there, and chooses from this number of shards, from 1 on.
    pub(crate) fn or_insert<I>(self, insert: I, shards: u16) -> Ready<T, V, KeyIs<P>, I> {
        Ready {
            table: PhantomData,
            changes: self.changes,
            fields: self.fields,
            is_nothing: self.is_nothing,
            by_key: self.by_key,
            filter: self.filter,
            insert: Some(insert),
            settings: Settings {
                shards: Some(shards),
                ..self.settings
            },
            alone: self.alone,
        }
    }
}

impl<T, V, W, I> Ready<T, V, W, I>
where
    T: ShardedTable,
    V: AsChangeset<Target = T> + QueryId,
{
    pub(crate) fn plan<DB, M, Conn>(&self, link: &mut Link<'_, M, Conn>) -> QueryResult<Plan>
    where
        W: QueryFragment<DB> + QueryId,
        M: Io<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        if self.is_nothing {
            return Err(DieselError::QueryBuilderError(Box::new(EmptyChangeset)));
        }
        let dialect = link.dialect();
        let shard_choice = self.settings.shard_choice;
        let shard_choice = shard_choice.unwrap_or_else(ShardChoice::global);
        let key = match shard_choice {
            ShardChoice::Adaptive if dialect.has_row_locks() => {
                placement::hash_of::<DB>(T::SHARDS_TABLE.as_str(), &self.filter)
            }
            _ => 0,
        };
        let shards = self.settings.shards;
        Ok(Plan {
            by_key: self.by_key,
            filter: W::query_id().filter(|_| !self.by_key),
            returning: false,
            loads_apart: T::SHARDS_TABLE.is_qualified(), // asked only where rows are wanted
            once: false,
            inserts: self.insert.is_some(),
            in_transaction: in_transaction(link)?,
            alone: self.alone,
            dialect,
            shard_choice,
            table: T::SHARDS_TABLE.as_str(),
            keys: observe::Keys::of::<T>(dialect),
            key,
            shards: shards.unwrap_or_else(|| shard_counts::known::<T>(self.fields.iter().copied())),
        })
    }

    /// See [`Plan::loads_apart`].
    pub(super) fn loads_apart(&self, dialect: Dialect) -> bool {
        T::SHARDS_TABLE.is_qualified()
            || T::FIELDS.iter().any(|field| {
                dialect.rounds_sums(field.column_type) && self.fields.contains(&&*field.name)
            })
    }

    pub(crate) fn retry(&self) -> RetryPolicy {
        self.settings.retry.clone().unwrap_or_default()
    }

    /// The parts of its statements.
    pub(crate) fn parts<DB>(&self, shard: i32) -> Parts<'_, DB>
    where
        T: QueryFragment<DB>,
        V::Changeset: QueryFragment<DB>,
        W: QueryFragment<DB>,
        DB: ShardedBackend,
    {
        self.parts_of(&self.filter, shard)
    }

    /// The parts of statements about other parents.
    pub(super) fn parts_of<'a, DB>(
        &'a self,
        filter: &'a dyn QueryFragment<DB>,
        shard: i32,
    ) -> Parts<'a, DB>
    where
        T: QueryFragment<DB>,
        V::Changeset: QueryFragment<DB>,
        DB: ShardedBackend,
    {
        Parts {
            names: Names::of::<T>(),
            changes: &self.changes,
            filter,
            shard,
        }
    }

    /// Counts by key in a transaction that reads the parents later.
    pub(crate) fn count_before_load<'c, DB, M, Conn>(
        &'c self,
        link: &'c mut Link<'_, M, Conn>,
        shard: i32,
    ) -> M::Future<'c, QueryResult<usize>>
    where
        T: QueryFragment<DB> + QueryId,
        V::Changeset: QueryFragment<DB>,
        W: QueryFragment<DB> + QueryId,
        M: Io<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let count = CountBeforeLoad(CountByKey(self.parts(shard)));
        link.execute_prepared(Identified::<CountBeforeLoadId<T, W, V>, _>::new(count))
    }

    /// Returns the number of rows counted.
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
        count(link, plan, self.retry(), self, Names::of::<T>()).await
    }
}

/// Counts as `plan` says. Returns the number of rows counted.
pub(super) async fn count<M, Conn, S>(
    link: &mut Link<'_, M, Conn>,
    plan: Plan,
    retry: RetryPolicy,
    sender: &mut S,
    names: Names<'_, M::Backend>,
) -> QueryResult<usize>
where
    M: Io<Conn>,
    S: SendStep<M, Conn> + ?Sized,
{
    let counted = engine::count(link, plan, retry, &mut Steps(sender)).await;
    counted.map_err(|error| explain_of(names, &link.backend(), error))
}

impl<M, Conn, DB, T, V, W, I> SendStep<M, Conn> for Ready<T, V, W, I>
where
    M: Io<Conn, Backend = DB>,
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB> + QueryId,
    V: AsChangeset<Target = T, Changeset: QueryFragment<DB>> + QueryId,
    W: QueryFragment<DB> + QueryId,
    I: QueryFragment<DB> + QueryId,
{
    fn send_step<'s>(
        &'s mut self,
        link: &'s mut Link<'_, M, Conn>,
        statement: Statement,
        shard: i32,
    ) -> M::Future<'s, QueryResult<usize>> {
        let parts = self.parts(shard);
        match statement {
            Statement::CountByKey | Statement::CountOne => {
                let count = match self.by_key {
                    true => FirstCount::ByKey(CountByKey(parts)),
                    false => FirstCount::One(CountOne(parts)),
                };
                link.execute_prepared(Identified::<FirstCountId<T, W, V>, _>::new(count))
            }
            _ => {
                let insert = self.insert.as_ref().map(|insert| insert as _);
                send(link, statement, parts, insert)
            }
        }
    }
}

/// Sends a statement about the parents that the filter of `parts` matches. `Probe`, `FindMissing` and `CountByKey` take only one by key.
///
/// It is compiled once for each connection, and Diesel knows such a statement by its text. The one that an update sends again and
/// again is [known by its types](crate::query_builder::Identified).
pub(super) fn send<'c, DB, M, Conn>(
    link: &'c mut Link<'_, M, Conn>,
    statement: Statement,
    parts: Parts<'c, DB>,
    insert: Option<&'c dyn QueryFragment<DB>>,
) -> M::Future<'c, QueryResult<usize>>
where
    M: Io<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    let Parts {
        names,
        changes,
        filter,
        shard,
    } = parts;
    match (statement, insert) {
        (Statement::Probe, _) => link.execute(ProbeShard(parts)),
        (Statement::FindMissing, _) => link.execute_query(FindMissing(parts)),
        (Statement::FindParent, _) => link.execute_query(FindParent { names, filter }),
        (Statement::Create, _) => link.execute_prepared(CreateShards {
            names,
            filter,
            shard,
        }),
        (Statement::CountByKey, _) => link.execute_prepared(CountByKey(parts)),
        (Statement::CountOne, _) => link.execute_prepared(CountOne(parts)),
        (Statement::CountAll, _) => link.execute_prepared(CountAll(parts)),
        (Statement::CountPicked, _) => link.execute_prepared(CountPicked(parts)),
        (Statement::Insert | Statement::InsertUnlessThere, Some(insert)) => {
            link.execute(InsertParent {
                insert,
                changes,
                fields: names.fields,
                unless_there: statement == Statement::InsertUnlessThere,
            })
        }
        // These are the caller's, who has what they need.
        (
            Statement::Insert
            | Statement::InsertUnlessThere
            | Statement::Pick
            | Statement::CountAndLoad
            | Statement::CountOnce
            | Statement::Load,
            _,
        ) => M::nothing(link.conn),
    }
}

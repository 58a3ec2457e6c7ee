//! Updates that return the counted rows.

use std::marker::PhantomData;

use diesel::dsl::SqlTypeOf;
use diesel::expression::QueryMetadata;
use diesel::prelude::*;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};

use super::ready::{IntoReady, Sendable};
use super::returning::{ReadAs, Returning};
use super::statement::{UpdateStatement, Values};
use crate::backend::ShardedBackend;
use crate::connection::{Link, LoadInto};
use crate::counting::combine::Combined;
use crate::engine::{
    self, KeyedTable, Plan, SendStep, Sender, Statement, Step, explain, in_chunks, send,
};
use crate::query_builder::{
    CountAllAndLoad, CountAllAndLoadId, Identified, KeyIs, KeysAre, Names, OnPrimary, SelectKeys,
    SelectParents,
};

/// An update whose counted rows are read, each as a `U`. It stands for the bounds on the parts of an [`UpdateStatement`].
#[doc(hidden)]
pub trait IntoLoad<U, DB: ShardedBackend> {
    type Ready: Sendable<DB, Table: KeyedTable<DB, PrimaryKey: QueryId>>;
    type Selection: ReadAs<U, DB> + QueryFragment<DB> + QueryId;

    fn into_load(self) -> CountAndLoad<Self::Ready, Self::Selection, U, DB>;
}

/// The SQL type of a row that `S` reads.
pub(crate) type RowOf<S, U, DB> = <<S as IntoLoad<U, DB>>::Selection as ReadAs<U, DB>>::Row;

impl<Q, V, Ret, Ins, Run, U, DB> IntoLoad<U, DB> for UpdateStatement<Q, Values<V>, Ret, Ins, Run>
where
    Self: IntoReady<DB, Ready: Sendable<DB, Table = Q::Table>>,
    Q: IntoUpdateTarget<Table: KeyedTable<DB, PrimaryKey: QueryId>>,
    Ret: Returning<Q::Table, Selection: ReadAs<U, DB> + QueryFragment<DB> + QueryId>,
    DB: ShardedBackend,
{
    type Ready = <Self as IntoReady<DB>>::Ready;
    type Selection = Ret::Selection;

    fn into_load(self) -> CountAndLoad<Self::Ready, Self::Selection, U, DB> {
        CountAndLoad {
            selection: self.returning.selection(),
            ready: self.into_ready(),
            picked: Picked::Several(vec![]),
            rows: vec![],
        }
    }
}

/// An update that returns the counted rows.
#[doc(hidden)]
#[allow(missing_debug_implementations)] // the parts cannot be shown
pub struct CountAndLoad<R, S, U, DB>
where
    R: Sendable<DB, Table: KeyedTable<DB>>,
    DB: ShardedBackend,
{
    pub(crate) ready: R,
    selection: S,
    /// The parents to count, where the filter does not name them by key.
    picked: Picked<<R::Table as KeyedTable<DB>>::KeyIs>,
    pub(crate) rows: Vec<U>,
}

/// The parents that a filter matched, named by their keys.
enum Picked<P> {
    /// A statement about one stays prepared.
    One(KeyIs<P>),
    Several(Vec<KeysAre<P>>),
}

impl<R, S, U, DB> CountAndLoad<R, S, U, DB>
where
    R: Sendable<DB, Table: KeyedTable<DB, PrimaryKey: QueryId>>,
    S: ReadAs<U, DB> + QueryFragment<DB> + QueryId,
    DB: ShardedBackend + QueryMetadata<SqlTypeOf<S>>,
{
    /// Counts, and keeps the counted rows.
    pub(crate) async fn count<M, Conn>(&mut self, link: &mut Link<'_, M, Conn>) -> QueryResult<()>
    where
        M: LoadInto<Conn, S::Row, U, Backend = DB>,
    {
        let plan = Plan {
            returning: true,
            loads_apart: self.ready.loads_apart(link.dialect()),
            ..self.ready.plan(link)?
        };
        let retry = self.ready.ready().retry();
        let counted = engine::count(link, plan, retry, self).await.map(drop);
        counted.map_err(|error| explain::<R::Table, DB>(&link.backend(), error))
    }
}

impl<M, Conn, R, S, U, DB> Sender<M, Conn> for CountAndLoad<R, S, U, DB>
where
    M: LoadInto<Conn, S::Row, U, Backend = DB>,
    R: Sendable<DB, Table: KeyedTable<DB, PrimaryKey: QueryId>>,
    S: ReadAs<U, DB> + QueryFragment<DB> + QueryId,
    DB: ShardedBackend + QueryMetadata<SqlTypeOf<S>>,
{
    async fn send(&mut self, link: &mut Link<'_, M, Conn>, step: Step) -> QueryResult<usize> {
        let Step { statement, shard } = step;
        self.rows.clear(); // what an earlier attempt read was taken back with it
        let by_key = self.ready.ready().by_key;
        match statement {
            Statement::Pick => {
                let names = Names::of::<R::Table>();
                let query = SelectKeys::new(names, &self.ready.ready().filter);
                let pick = OnPrimary { names, query };
                let mut keys = R::Table::load_keys(link, pick).await?;
                let met = keys.len();
                self.picked = match (keys.pop(), met) {
                    (Some(key), 1) => Picked::One(KeyIs(R::Table::key_is(key))),
                    (key, _) => {
                        let keys = keys.into_iter().chain(key).collect();
                        Picked::Several(in_chunks::<R::Table, DB>(keys))
                    }
                };
                Ok(met)
            }
            Statement::CountAndLoad => {
                let query = CountAllAndLoad {
                    parts: self.ready.parts(shard),
                    selection: &self.selection,
                };
                let id =
                    Identified::<CountAllAndLoadId<R::Table, R::Filter, R::Changes, S>, _>::new;
                self.rows = M::load_into(link.conn, id(query)).await?;
                Ok(self.rows.len())
            }
            Statement::Load => {
                match &self.picked {
                    _ if by_key => {
                        let filter = &self.ready.ready().filter;
                        let query = select::<R::Table, _, _>(&self.selection, filter);
                        self.rows = M::load_into(link.conn, query).await?;
                    }
                    Picked::One(key) => {
                        let query = select::<R::Table, _, _>(&self.selection, key);
                        self.rows = M::load_into(link.conn, query).await?;
                    }
                    Picked::Several(chunks) => {
                        for keys in chunks {
                            let query = select::<R::Table, _, _>(&self.selection, keys);
                            self.rows.append(&mut M::load_into(link.conn, query).await?);
                        }
                    }
                }
                Ok(self.rows.len())
            }
            Statement::CountByKey if by_key => self.ready.count_before_load(link, shard).await,
            Statement::FindMissing
            | Statement::Create
            | Statement::CountByKey
            | Statement::CountPicked
                if !by_key =>
            {
                match &self.picked {
                    Picked::One(key) => {
                        let parts = self.ready.parts_of(key, shard);
                        send(link, statement, parts, None).await
                    }
                    Picked::Several(chunks) => {
                        let mut met = 0;
                        for keys in chunks {
                            let parts = self.ready.parts_of(keys, shard);
                            met += send(link, statement, parts, None).await?;
                        }
                        Ok(met)
                    }
                }
            }
            _ => self.ready.send_step(link, step).await,
        }
    }
}

fn select<T, S, W>(selection: S, filter: &W) -> SelectParents<T, &W, S> {
    SelectParents {
        selection,
        filter,
        table: PhantomData,
    }
}

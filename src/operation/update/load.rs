//! Updates that return the counted rows.

use std::marker::PhantomData;

use diesel::dsl::SqlTypeOf;
use diesel::expression::QueryMetadata;
use diesel::prelude::*;
use diesel::query_builder::{AsChangeset, QueryFragment, QueryId};

use super::ready::{Ready, send};
use super::returning::{ReadAs, Returning};
use crate::backend::ShardedBackend;
use crate::connection::{Link, LoadInto};
use crate::engine::{self, KeyedTable, Plan, SendStep, Sender, Statement, explain, in_chunks};
use crate::model::ShardedTable;
use crate::query_builder::{
    CountAllAndLoad, CountAllAndLoadId, Identified, KeyIs, KeysAre, PickKeys, SelectParents,
};

impl<T, V, W, I> Ready<T, V, W, I>
where
    T: ShardedTable,
    V: AsChangeset<Target = T> + QueryId,
{
    /// Returns the rows counted.
    pub(crate) async fn count_and_load<Ret, U, DB, M, Conn>(
        &mut self,
        link: &mut Link<'_, M, Conn>,
        selection: &mut Ret::Selection,
    ) -> QueryResult<Vec<U>>
    where
        T: KeyedTable<DB>,
        T::PrimaryKey: QueryId,
        V::Changeset: QueryFragment<DB>,
        W: QueryFragment<DB> + QueryId,
        I: QueryFragment<DB> + QueryId,
        Ret: Returning<T, Selection: ReadAs<U, DB> + QueryFragment<DB> + QueryId>,
        M: LoadInto<Conn, Row<Ret, T, U, DB>, U, Backend = DB>,
        DB: ShardedBackend + QueryMetadata<SqlTypeOf<Ret::Selection>>,
    {
        let plan = Plan {
            returning: true,
            loads_apart: self.loads_apart(link.dialect()),
            ..self.plan(link)?
        };
        let retry = self.retry();
        let mut returning = CountAndLoad::<_, _, _, _, _, _, Ret> {
            by_key: plan.by_key,
            ready: self,
            selection,
            picked: Picked::Several(vec![]),
            rows: vec![],
        };
        let counted = engine::count(link, plan, retry, &mut returning).await;
        let rows = returning.rows;
        counted.map_err(|error| explain::<T, DB>(&link.backend(), error))?;
        Ok(rows)
    }

    /// Returns the rows as they are, without counting.
    pub(crate) async fn load<Ret, U, DB, M, Conn>(
        &mut self,
        link: &mut Link<'_, M, Conn>,
        selection: &mut Ret::Selection,
    ) -> QueryResult<Vec<U>>
    where
        T: KeyedTable<DB>,
        W: QueryFragment<DB> + QueryId,
        Ret: Returning<T, Selection: ReadAs<U, DB> + QueryFragment<DB> + QueryId>,
        M: LoadInto<Conn, Row<Ret, T, U, DB>, U, Backend = DB>,
        DB: ShardedBackend + QueryMetadata<SqlTypeOf<Ret::Selection>>,
    {
        let rows = M::load_into(link.conn, select::<T, _, _>(&*selection, &self.filter)).await;
        rows.map_err(|error| explain::<T, DB>(&link.backend(), error))
    }
}

/// An update that returns the counted rows.
struct CountAndLoad<
    'a,
    T: KeyedTable<DB>,
    V: AsChangeset,
    W,
    I,
    U,
    DB: ShardedBackend,
    Ret: Returning<T>,
> {
    ready: &'a mut Ready<T, V, W, I>,
    by_key: bool,
    selection: &'a mut Ret::Selection,
    /// The parents to count, where the filter does not name them by key.
    picked: Picked<T::KeyIs>,
    rows: Vec<U>,
}

/// The parents that a filter matched, named by their keys.
enum Picked<P> {
    /// A statement about one stays prepared.
    One(KeyIs<P>),
    Several(Vec<KeysAre<P>>),
}

impl<M, Conn, DB, T, V, W, I, U, Ret> Sender<M, Conn> for CountAndLoad<'_, T, V, W, I, U, DB, Ret>
where
    M: LoadInto<Conn, Row<Ret, T, U, DB>, U, Backend = DB>,
    DB: ShardedBackend + QueryMetadata<SqlTypeOf<Ret::Selection>>,
    T: KeyedTable<DB>,
    T::PrimaryKey: QueryId,
    V: AsChangeset<Target = T, Changeset: QueryFragment<DB>> + QueryId,
    W: QueryFragment<DB> + QueryId,
    I: QueryFragment<DB> + QueryId,
    Ret: Returning<T, Selection: ReadAs<U, DB> + QueryFragment<DB> + QueryId>,
{
    async fn send(
        &mut self,
        link: &mut Link<'_, M, Conn>,
        statement: Statement,
        shard: i32,
    ) -> QueryResult<usize> {
        self.rows.clear(); // what an earlier attempt read was taken back with it
        match statement {
            Statement::Pick => {
                let pick = PickKeys::<T, _> {
                    filter: &self.ready.filter,
                    table: PhantomData,
                };
                let mut keys = T::load_keys(link, pick).await?;
                let met = keys.len();
                self.picked = match (keys.pop(), met) {
                    (Some(key), 1) => Picked::One(KeyIs(T::key_is(key))),
                    (key, _) => {
                        Picked::Several(in_chunks::<T, DB>(keys.into_iter().chain(key).collect()))
                    }
                };
                Ok(met)
            }
            Statement::CountAndLoad => {
                let query = CountAllAndLoad {
                    parts: self.ready.parts(shard),
                    selection: &*self.selection,
                };
                let query = Identified::<CountAllAndLoadId<T, W, V, Ret::Selection>, _>::new(query);
                self.rows = M::load_into(link.conn, query).await?;
                Ok(self.rows.len())
            }
            Statement::Load => {
                match &self.picked {
                    _ if self.by_key => {
                        let query = select::<T, _, _>(&*self.selection, &self.ready.filter);
                        self.rows = M::load_into(link.conn, query).await?;
                    }
                    Picked::One(key) => {
                        let query = select::<T, _, _>(&*self.selection, key);
                        self.rows = M::load_into(link.conn, query).await?;
                    }
                    Picked::Several(chunks) => {
                        for keys in chunks {
                            let query = select::<T, _, _>(&*self.selection, keys);
                            self.rows.append(&mut M::load_into(link.conn, query).await?);
                        }
                    }
                }
                Ok(self.rows.len())
            }
            Statement::CountByKey if self.by_key => self.ready.count_before_load(link, shard).await,
            Statement::FindMissing
            | Statement::Create
            | Statement::CountByKey
            | Statement::CountPicked
                if !self.by_key =>
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
            statement => self.ready.send_step(link, statement, shard).await,
        }
    }
}

/// The SQL type of a row that `Ret` asks for.
type Row<Ret, T, U, DB> = <<Ret as Returning<T>>::Selection as ReadAs<U, DB>>::Row;

fn select<'a, T, S, W>(selection: S, filter: &'a W) -> SelectParents<'a, T, W, S> {
    SelectParents {
        selection,
        filter,
        table: PhantomData,
    }
}

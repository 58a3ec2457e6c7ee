//! Updates that return the counted rows.

use std::marker::PhantomData;

use diesel::dsl::SqlTypeOf;
use diesel::expression::QueryMetadata;
use diesel::prelude::*;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};

use super::count::{Count, IntoCount};
use super::returning::{ReadAs, Returning};
use super::send::TypedUpdate;
use super::statement::{UpdateStatement, Values};
use crate::backend::{Dialect, ShardedBackend};
use crate::connection::{Link, LoadInto};
use crate::engine::{self, KeyedTable, ReadInto, SendStatement, Statement, Step, in_chunks, send};
use crate::query_builder::{
    Clauses, CountAllAndLoad, CountAllAndLoadId, Identified, KeyIs, KeysAre, Names, OnPrimary,
    SelectKeys, SelectParents,
};

/// An update whose counted rows are read, each as a `U`. It stands for the bounds on the parts of an [`UpdateStatement`].
#[doc(hidden)]
pub trait IntoLoad<U, DB: ShardedBackend> {
    type Table: KeyedTable<DB, PrimaryKey: QueryId>;
    type Update: TypedUpdate<DB>;
    type Selection: ReadAs<U, DB> + QueryFragment<DB> + QueryId;

    /// Fails if there is nothing to count.
    fn into_load(self, dialect: Dialect) -> QueryResult<LoadOf<Self, U, DB>>;
}

/// The form of an update `S` whose counted rows are read, each as a `U`.
pub(crate) type LoadOf<S, U, DB> = CountAndLoad<
    <S as IntoLoad<U, DB>>::Table,
    <S as IntoLoad<U, DB>>::Update,
    <S as IntoLoad<U, DB>>::Selection,
    U,
    DB,
>;

/// The SQL type of a row that `S` reads.
pub(crate) type RowOf<S, U, DB> = <<S as IntoLoad<U, DB>>::Selection as ReadAs<U, DB>>::Row;

impl<Q, V, Ret, Ins, Run, U, DB> IntoLoad<U, DB> for UpdateStatement<Q, Values<V>, Ret, Ins, Run>
where
    Self: IntoCount<DB>,
    Q: IntoUpdateTarget<Table: KeyedTable<DB, PrimaryKey: QueryId>>,
    Ret: Returning<Q::Table, Selection: ReadAs<U, DB> + QueryFragment<DB> + QueryId>,
    DB: ShardedBackend,
{
    type Table = Q::Table;
    type Update = <Self as IntoCount<DB>>::Update;
    type Selection = Ret::Selection;

    fn into_load(self, dialect: Dialect) -> QueryResult<LoadOf<Self, U, DB>> {
        Ok(CountAndLoad {
            selection: self.returning.selection(),
            count: self.into_count(dialect)?,
            picked: Picked::Several(vec![]),
            rows: vec![],
        })
    }
}

/// An update that returns the counted rows.
#[doc(hidden)]
#[allow(missing_debug_implementations)] // the parts cannot be shown
pub struct CountAndLoad<T: KeyedTable<DB>, R, S, U, DB: ShardedBackend> {
    count: Count<R>,
    selection: S,
    /// The parents to count, where the filter does not name them by key.
    picked: Picked<T::KeyIs>,
    pub(crate) rows: Vec<U>,
}

/// The parents that a filter matched, named by their keys.
enum Picked<P> {
    /// A statement about one stays prepared.
    One(KeyIs<P>),
    Several(Vec<KeysAre<P>>),
}

impl<T, R, S, U, DB> CountAndLoad<T, R, S, U, DB>
where
    T: KeyedTable<DB, PrimaryKey: QueryId>,
    R: TypedUpdate<DB>,
    S: ReadAs<U, DB> + QueryFragment<DB> + QueryId,
    DB: ShardedBackend + QueryMetadata<SqlTypeOf<S>>,
{
    /// Counts, and keeps the counted rows.
    pub(crate) async fn count<M>(&mut self, link: &mut Link<'_, M>) -> QueryResult<()>
    where
        M: LoadInto<S::Row, U, Backend = DB>,
    {
        let mut facts = self.count.facts;
        facts.returning = true;
        let retry = self.count.retry.clone();
        engine::count(link, facts, retry, self).await.map(drop)
    }

    /// The clauses of statements about other parents.
    fn clauses_of<'a>(&'a self, filter: &'a dyn QueryFragment<DB>, shard: i32) -> Clauses<'a, DB> {
        Clauses {
            filter,
            ..self.count.update.clauses(shard)
        }
    }
}

impl<M, T, R, S, U, DB> SendStatement<M> for CountAndLoad<T, R, S, U, DB>
where
    M: LoadInto<S::Row, U, Backend = DB>,
    T: KeyedTable<DB, PrimaryKey: QueryId>,
    R: TypedUpdate<DB>,
    S: ReadAs<U, DB> + QueryFragment<DB> + QueryId,
    DB: ShardedBackend + QueryMetadata<SqlTypeOf<S>>,
{
    async fn send(&mut self, link: &mut Link<'_, M>, step: Step) -> QueryResult<usize> {
        let Step { statement, shard } = step;
        self.rows.clear(); // an earlier attempt was rolled back, with the rows that it read
        let by_key = self.count.facts.by_key;
        match statement {
            Statement::Pick => {
                let names = Names::of::<T>();
                let filter = self.count.update.clauses(shard).filter;
                let query = SelectKeys::new(names, filter);
                let pick = OnPrimary { names, query };
                let mut keys = T::KeySql::rows(link, pick).await?;
                let met = keys.len();
                self.picked = match (keys.pop(), met) {
                    (Some(key), 1) => Picked::One(KeyIs(T::key_is(key))),
                    (key, _) => {
                        let keys = keys.into_iter().chain(key).collect();
                        Picked::Several(in_chunks::<T, DB>(keys))
                    }
                };
                Ok(met)
            }
            Statement::CountAndLoad => {
                let query = CountAllAndLoad {
                    clauses: self.count.update.clauses(shard),
                    selection: &self.selection,
                };
                let id = Identified::<CountAllAndLoadId<R::Id, S>, _>::new;
                self.rows = M::load_into(link.conn, id(query)).await?;
                Ok(self.rows.len())
            }
            Statement::Load => {
                match &self.picked {
                    _ if by_key => {
                        let filter = self.count.update.clauses(shard).filter;
                        let query = select::<T, _, _>(&self.selection, filter);
                        let id = Identified::<(R::Id, S), _>::new;
                        self.rows = M::load_into(link.conn, id(query)).await?;
                    }
                    Picked::One(key) => {
                        let query = select::<T, _, _>(&self.selection, key);
                        self.rows = M::load_into(link.conn, query).await?;
                    }
                    Picked::Several(chunks) => {
                        for keys in chunks {
                            let query = select::<T, _, _>(&self.selection, keys);
                            self.rows.append(&mut M::load_into(link.conn, query).await?);
                        }
                    }
                }
                Ok(self.rows.len())
            }
            Statement::CountByKey if by_key => self.count.count_before_load(link, shard).await,
            Statement::FindMissing
            | Statement::Create
            | Statement::CountByKey
            | Statement::CountPicked
                if !by_key =>
            {
                match &self.picked {
                    Picked::One(key) => send(link, statement, self.clauses_of(key, shard)).await,
                    Picked::Several(chunks) => {
                        let mut met = 0;
                        for keys in chunks {
                            met += send(link, statement, self.clauses_of(keys, shard)).await?;
                        }
                        Ok(met)
                    }
                }
            }
            _ => self.count.send(link, step).await,
        }
    }
}

fn select<T, S, W>(selection: S, filter: W) -> SelectParents<T, W, S> {
    SelectParents {
        selection,
        filter,
        table: PhantomData,
    }
}

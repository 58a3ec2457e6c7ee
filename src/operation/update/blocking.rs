//! Counting updates on Diesel's own connections, by the methods of Diesel's `RunQueryDsl`.

use diesel::connection::LoadConnection;
use diesel::deserialize::FromSqlRow;
use diesel::dsl::SqlTypeOf;
use diesel::expression::QueryMetadata;
use diesel::prelude::*;
use diesel::query_builder::{AsChangeset, IntoUpdateTarget, QueryFragment, QueryId};
use diesel::query_dsl::methods::{ExecuteDsl, LoadQuery};

use super::ready::count;
use super::returning::{ReadAs, Returning};
use super::statement::{InsertRow, UpdateStatement, Values};
use crate::backend::BackendOf;
use crate::connection::{Blocking, Link, now};
use crate::engine::{KeyedTable, SendStep};
use crate::model::ShardedTable;
use crate::query_builder::Names;

impl<Query, Values, Ret, Ins, Conn> RunQueryDsl<Conn> for UpdateStatement<Query, Values, Ret, Ins> {}

impl<Q, V, Ret, Ins, Conn, DB, T, W> ExecuteDsl<Conn, DB>
    for UpdateStatement<Q, Values<V>, Ret, Ins>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W>,
    V: AsChangeset<Target = T, Changeset: QueryFragment<DB>> + QueryId,
    T: ShardedTable + QueryFragment<DB> + QueryId,
    W: QueryFragment<DB> + QueryId,
    Ins: InsertRow<T, DB>,
    Conn: Connection<Backend = DB>,
    DB: BackendOf<Conn>,
{
    fn execute(update: Self, conn: &mut Conn) -> QueryResult<usize> {
        let (mut ready, link) = (update.ready::<DB>(), &mut Link::blocking(conn));
        let (plan, retry) = (ready.plan(link)?, ready.retry());
        let sender: &mut dyn SendStep<Blocking, Conn> = &mut ready;
        now(count(link, plan, retry, sender, Names::of::<T>()))
    }
}

impl<'query, Q, V, Ret, Ins, Conn, DB, T, W, U> LoadQuery<'query, Conn, U>
    for UpdateStatement<Q, Values<V>, Ret, Ins>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W>,
    V: AsChangeset<Target = T, Changeset: QueryFragment<DB>> + QueryId,
    T: KeyedTable<DB>,
    W: QueryFragment<DB> + QueryId,
    Ins: InsertRow<T, DB>,
    Ret: Returning<T, Selection: ReadAs<U, DB> + QueryFragment<DB> + QueryId>,
    U: FromSqlRow<<Ret::Selection as ReadAs<U, DB>>::Row, DB>,
    T::PrimaryKey: QueryId,
    Conn: LoadConnection<Backend = DB>,
    DB: BackendOf<Conn> + QueryMetadata<SqlTypeOf<Ret::Selection>>,
{
    type RowIter<'conn>
        = std::vec::IntoIter<QueryResult<U>>
    where
        Conn: 'conn;

    fn internal_load(self, conn: &mut Conn) -> QueryResult<Self::RowIter<'_>> {
        let mut selection = self.selection();
        let mut ready = self.ready::<DB>();
        let rows = now(
            ready.count_and_load::<Ret, U, _, _, _>(&mut Link::blocking(conn), &mut selection)
        )?;
        Ok(rows.into_iter().map(Ok).collect::<Vec<_>>().into_iter())
    }
}

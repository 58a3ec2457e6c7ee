//! Counting updates with an idempotency key.

use std::fmt::Write;

use diesel::connection::LoadConnection;
use diesel::deserialize::FromSqlRow;
use diesel::dsl::SqlTypeOf;
use diesel::expression::QueryMetadata;
use diesel::prelude::*;
use diesel::query_builder::{AsChangeset, IntoUpdateTarget, QueryFragment, QueryId};
use diesel::query_dsl::methods::{ExecuteDsl, LoadQuery};

use crate::dialect::{BackendOf, ShardedBackend};
use crate::field::ShardedTable;
use crate::keyed::KeyedTable;
use crate::returning::{ReadAs, Returning};
use crate::update::{InsertRow, Ready, UpdateStatement, Values};

use super::{Idempotent, Request, once};

impl<Query, V, Ret, Ins> UpdateStatement<Query, Values<V>, Ret, Ins> {
    /// Counts only if nothing was counted with this key before, in any process: 1 to 255 bytes, such as a request's id. What
    /// comes after it is only `.execute(conn)` and its kin. See [`idempotency`](crate::idempotency).
    pub fn idempotency_key(self, key: impl AsRef<[u8]>) -> Idempotent<Self> {
        Idempotent::new(self, key)
    }
}

impl<Of, Conn> RunQueryDsl<Conn> for Idempotent<Of> {}

impl<Q, V, Ret, Ins, Conn, DB, T, W> ExecuteDsl<Conn, DB>
    for Idempotent<UpdateStatement<Q, Values<V>, Ret, Ins>>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W>,
    V: AsChangeset<Target = T, Changeset: QueryFragment<DB>> + QueryId,
    T: ShardedTable + QueryFragment<DB> + QueryId,
    W: QueryFragment<DB> + QueryId,
    Ins: InsertRow<T, DB>,
    Conn: LoadConnection<Backend = DB>,
    DB: BackendOf<Conn>,
{
    fn execute(update: Self, conn: &mut Conn) -> QueryResult<usize> {
        let ready = update.of.ready::<DB>();
        let request = ready.request::<DB>(&update.key)?;
        once(conn, &request, ready.retry(), |conn, counted| {
            let counted = counted.map_or_else(|| ready.count(conn), Ok)?;
            Ok((counted, counted))
        })
    }
}

impl<'query, Q, V, Ret, Ins, Conn, DB, T, W, U> LoadQuery<'query, Conn, U>
    for Idempotent<UpdateStatement<Q, Values<V>, Ret, Ins>>
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
        let selection = self.of.selection();
        let ready = self.of.ready::<DB>();
        let request = ready.request::<DB>(&self.key)?;
        let rows = once(conn, &request, ready.retry(), |conn, counted| {
            let rows = match counted {
                None => ready.count_and_load::<Ret, U, Conn, DB>(conn, &selection)?,
                Some(_) => ready.load::<Ret, U, Conn, DB>(conn, &selection)?,
            };
            Ok((rows.len(), rows))
        })?;
        Ok(rows.into_iter().map(Ok).collect::<Vec<_>>().into_iter())
    }
}

impl<T, V, W, I> Ready<T, V, W, I>
where
    T: ShardedTable,
    V: AsChangeset<Target = T>,
{
    /// What the update is known by under its idempotency key.
    fn request<DB>(&self, key: &[u8]) -> QueryResult<Request>
    where
        V::Changeset: QueryFragment<DB>,
        W: QueryFragment<DB>,
        DB: ShardedBackend,
    {
        Ok(Request::new(key, |text| {
            text.write_str(T::SHARDS_TABLE)?;
            text.write_fragment::<DB>(&self.changes.changeset)?;
            text.write_fragment::<DB>(&self.filter)
        })?)
    }
}

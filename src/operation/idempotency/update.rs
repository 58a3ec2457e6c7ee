//! Counting updates with an idempotency key.

use std::fmt::Write;
use std::marker::PhantomData;

use diesel::connection::LoadConnection;
use diesel::deserialize::FromSqlRow;
use diesel::dsl::SqlTypeOf;
use diesel::expression::QueryMetadata;
use diesel::prelude::*;
use diesel::query_builder::{AsChangeset, IntoUpdateTarget, QueryFragment, QueryId};
use diesel::query_dsl::methods::{ExecuteDsl, LoadQuery};

use crate::backend::{BackendOf, ShardedBackend};
use crate::connection::{Io, Link, LoadInto, LoadIo, now};
use crate::engine::KeyedTable;
use crate::model::ShardedTable;
use crate::operation::update::returning::{ReadAs, Returning};
use crate::operation::update::{InsertRow, Ready, UpdateStatement, Values};

use super::at_once::count_at_once;
use super::idempotent::Idempotent;
use super::once::{AndWhether, Requested, once};
use super::request::Request;

impl<Query, V, Ret, Ins, Run> UpdateStatement<Query, Values<V>, Ret, Ins, Run> {
    /// Counts only if nothing was counted with this key before, in any process. A key has 1 to 255 bytes, such as a request's id.
    /// Only `.execute(conn)` and its kin may follow. See [`idempotency`](crate::idempotency).
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
        let mut ready = update.of.ready::<DB>();
        let (request, retry) = (ready.request::<DB>(&update.key)?, ready.retry());
        now(once(&mut Link::blocking(conn), &request, retry, &mut ready))
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
        let mut selection = self.of.selection();
        let mut ready = self.of.ready::<DB>();
        let (request, retry) = (ready.request::<DB>(&self.key)?, ready.retry());
        let mut counted = Counted::<_, _, _, _, Ret, U> {
            ready: &mut ready,
            selection: &mut selection,
            rows: PhantomData,
        };
        let rows = now(once(
            &mut Link::blocking(conn),
            &request,
            retry,
            &mut counted,
        ))?;
        Ok(rows.into_iter().map(Ok).collect::<Vec<_>>().into_iter())
    }
}

impl<M, Conn, DB, T, V, W, I> Requested<M, Conn> for Ready<T, V, W, I>
where
    T: ShardedTable + QueryFragment<DB> + QueryId,
    V: AsChangeset<Target = T, Changeset: QueryFragment<DB>> + QueryId,
    W: QueryFragment<DB> + QueryId,
    I: QueryFragment<DB> + QueryId,
    M: Io<Conn, Backend = DB>,
    DB: BackendOf<Conn>,
{
    type Outcome = usize;

    async fn count_at_once(
        &mut self,
        link: &mut Link<'_, M, Conn>,
        request: &Request,
    ) -> QueryResult<Option<usize>> {
        count_at_once(link, self, request).await
    }

    fn set_alone(&mut self, alone: bool) {
        self.alone = alone;
    }

    async fn carry_out(
        &mut self,
        link: &mut Link<'_, M, Conn>,
        counted: Option<usize>,
    ) -> QueryResult<(usize, usize)> {
        let counted = match counted {
            Some(counted) => counted,
            None => self.count(link).await?,
        };
        Ok((counted, counted))
    }
}

/// Counts once for all updates with the key of `request`. Returns the number of rows counted, now or then, and whether it was now.
pub(crate) async fn count_once<M, Conn, DB, T, V, W, I>(
    link: &mut Link<'_, M, Conn>,
    mut ready: Ready<T, V, W, I>,
    request: &Request,
) -> QueryResult<(usize, bool)>
where
    T: ShardedTable + QueryFragment<DB> + QueryId,
    V: AsChangeset<Target = T, Changeset: QueryFragment<DB>> + QueryId,
    W: QueryFragment<DB> + QueryId,
    I: QueryFragment<DB> + QueryId,
    M: LoadIo<Conn, Backend = DB>,
    DB: BackendOf<Conn>,
{
    let retry = ready.retry();
    once(link, request, retry, &mut AndWhether(&mut ready)).await
}

/// An update that returns the counted rows.
pub(super) struct Counted<'a, T, V: AsChangeset, W, I, Ret: Returning<T>, U> {
    pub(crate) ready: &'a mut Ready<T, V, W, I>,
    pub(crate) selection: &'a mut Ret::Selection,
    pub(crate) rows: PhantomData<fn() -> U>,
}

impl<M, Conn, DB, T, V, W, I, Ret, U> Requested<M, Conn> for Counted<'_, T, V, W, I, Ret, U>
where
    T: KeyedTable<DB>,
    T::PrimaryKey: QueryId,
    V: AsChangeset<Target = T, Changeset: QueryFragment<DB>> + QueryId,
    W: QueryFragment<DB> + QueryId,
    I: QueryFragment<DB> + QueryId,
    Ret: Returning<T, Selection: ReadAs<U, DB> + QueryFragment<DB> + QueryId>,
    M: LoadInto<Conn, <Ret::Selection as ReadAs<U, DB>>::Row, U, Backend = DB>,
    DB: BackendOf<Conn> + QueryMetadata<SqlTypeOf<Ret::Selection>>,
{
    type Outcome = Vec<U>;

    fn set_alone(&mut self, alone: bool) {
        self.ready.alone = alone;
    }

    async fn carry_out(
        &mut self,
        link: &mut Link<'_, M, Conn>,
        counted: Option<usize>,
    ) -> QueryResult<(usize, Vec<U>)> {
        let Counted {
            ready, selection, ..
        } = self;
        let rows = match counted {
            None => {
                ready
                    .count_and_load::<Ret, U, _, _, _>(link, selection)
                    .await?
            }
            Some(_) => ready.load::<Ret, U, _, _, _>(link, selection).await?,
        };
        Ok((rows.len(), rows))
    }
}

impl<T, V, W, I> Ready<T, V, W, I>
where
    T: ShardedTable,
    V: AsChangeset<Target = T>,
{
    /// The request that the idempotency key stands for.
    pub(crate) fn request<DB>(&self, key: &[u8]) -> QueryResult<Request>
    where
        V::Changeset: QueryFragment<DB>,
        W: QueryFragment<DB>,
        DB: ShardedBackend,
    {
        Ok(Request::new(key, |text| {
            text.write_str(T::SHARDS_TABLE.as_str())?;
            text.write_fragment::<DB>(&self.changes)?;
            text.write_fragment::<DB>(&self.filter)
        })?)
    }
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::videos::dsl::*;
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::sqlite::Sqlite;

    /// Another release must recognize the updates that this one has counted: as long as Diesel writes updates in the same way,
    /// these numbers stay.
    #[test]
    fn fingerprints_stay_what_they_are() {
        let added = Request::to_add(b"key", "videos.views:7", 1).map(|added| added.fingerprint);
        assert_eq!(added.unwrap(), 2168550578216979576);
        let update = || crate::update(videos.find(7)).set(views.eq(views + 1));
        let fingerprints = [
            update().ready::<Pg>().request::<Pg>(b"key"),
            update().ready::<Mysql>().request::<Mysql>(b"key"),
            update().ready::<Sqlite>().request::<Sqlite>(b"key"),
        ];
        assert_eq!(
            fingerprints.map(|request| request.unwrap().fingerprint),
            // MySQL and SQLite quote alike.
            [
                2366884638119216392,
                4743227850791024172,
                4743227850791024172
            ]
        );
    }

    #[test]
    fn other_updates_have_other_fingerprints() {
        macro_rules! fingerprint {
            ($target:expr, $changes:expr) => {{
                let ready = crate::update($target).set($changes).ready::<Pg>();
                ready.request::<Pg>(b"key").unwrap().fingerprint
            }};
        }
        let all = [
            fingerprint!(videos.find(7), views.eq(views + 1)),
            fingerprint!(videos.find(8), views.eq(views + 1)),
            fingerprint!(videos.find(7), views.eq(views + 2)),
            fingerprint!(videos.find(7), views.eq(views - 1)),
            fingerprint!(videos.find(7), likes.eq(likes + 1)),
            fingerprint!(videos.filter(slug.eq("7")), views.eq(views + 1)),
            fingerprint!(videos.filter(slug.eq("8")), views.eq(views + 1)),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{all:?}");
    }
}

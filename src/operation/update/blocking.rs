//! Counting updates on Diesel's own connections, by the methods of Diesel's `RunQueryDsl`.

use std::ops::DerefMut;

use diesel::connection::LoadConnection;
use diesel::deserialize::FromSqlRow;
use diesel::dsl::SqlTypeOf;
use diesel::expression::QueryMetadata;
use diesel::prelude::*;
use diesel::query_builder::{AsChangeset, IntoUpdateTarget, QueryFragment, QueryId};
use diesel::query_dsl::methods::{ExecuteDsl, LoadQuery};
use diesel::result::Error as DieselError;

use super::ready::count;
use super::returning::{ReadAs, Returning};
use super::statement::{InsertRow, UpdateStatement, Values};
use crate::backend::BackendOf;
use crate::connection::{Blocking, Link, now};
use crate::engine::KeyedTable;
use crate::model::ShardedTable;
use crate::operation::combine::{Combined, Role};
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
        let combinable = ready.combinable(plan.in_transaction, &link.backend());
        let sender: &mut dyn Combined<Blocking, Conn> = &mut ready;
        now(async {
            let role = Role::of::<Blocking, Conn>(combinable, &retry).await;
            count(link, plan, retry, sender, role, Names::of::<T>()).await
        })
    }
}

impl<Q, V, Ret, Ins, T, W> UpdateStatement<Q, Values<V>, Ret, Ins>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W>,
{
    /// Counts like `execute`, but acquires a connection only if it needs one: nobody does whose amount another caller counts. So threads that
    /// outnumber a pool's connections [combine](crate::combine) too. Returns the number of rows counted.
    ///
    /// ```no_run
    /// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
    /// # use schema::videos::{self, dsl::*};
    /// # use diesel::prelude::*;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// # use diesel_sharded::combine::Combiner;
    /// # use diesel_sharded::update;
    /// # #[derive(diesel_sharded::ShardedField)]
    /// # #[diesel(table_name = videos)]
    /// # struct Video { id: i64, #[sharded] views: i64 }
    /// # type Error = Box<dyn std::error::Error>;
    /// # type SqlitePool = Pool<ConnectionManager<SqliteConnection>>;
    /// # fn watch(pool: &SqlitePool, combiner: &Combiner) -> Result<(), Error> {
    /// let count = update(videos.find(7)).set(views.eq(views + 1)).combine(combiner);
    /// count.execute_with(|| Ok::<_, Error>(pool.get()?))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`update`](crate::update()), and of `acquire`.
    pub fn execute_with<Conn, DB, E, C>(
        self,
        acquire: impl FnOnce() -> Result<C, E>,
    ) -> Result<usize, E>
    where
        V: AsChangeset<Target = T, Changeset: QueryFragment<DB>> + QueryId,
        T: ShardedTable + QueryFragment<DB> + QueryId,
        W: QueryFragment<DB> + QueryId,
        Ins: InsertRow<T, DB>,
        Conn: Connection<Backend = DB>,
        DB: BackendOf<Conn>,
        E: From<DieselError>,
        C: DerefMut<Target = Conn>,
    {
        let mut ready = self.ready::<DB>();
        let retry = ready.retry();
        let combinable = ready.combinable(false, &DB::default());
        let role = now(Role::of::<Blocking, Conn>(combinable, &retry));
        if let Role::Counted(counted) = role {
            return Ok(counted?);
        }
        let conn = &mut *acquire()?;
        let link = &mut Link::blocking(conn);
        let plan = ready.plan(link)?;
        let sender: &mut dyn Combined<Blocking, Conn> = &mut ready;
        let counted = now(count(link, plan, retry, sender, role, Names::of::<T>()));
        Ok(counted?)
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

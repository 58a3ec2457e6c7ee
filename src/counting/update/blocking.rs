//! Counting updates on Diesel's own connections, by the methods of Diesel's `RunQueryDsl`.

use std::ops::{ControlFlow, DerefMut};
use std::time::Instant;

use diesel::connection::LoadConnection;
use diesel::deserialize::FromSqlRow;
use diesel::dsl::SqlTypeOf;
use diesel::expression::QueryMetadata;
use diesel::prelude::*;
use diesel::query_dsl::methods::{ExecuteDsl, LoadQuery};
use diesel::result::Error as DieselError;

use super::count::{Count, IntoCount};
use super::load::{IntoLoad, RowOf};
use super::send::Update;
use super::statement::{UpdateStatement, Values};
use crate::backend::BackendOf;
use crate::connection::{Blocking, Link, Over, now};
use crate::counting::combine::{Role, count};

impl<Query, Values, Ret, Ins, Conn> RunQueryDsl<Conn> for UpdateStatement<Query, Values, Ret, Ins> {}

impl<Q, V, Ret, Ins, Conn, DB> ExecuteDsl<Conn, DB> for UpdateStatement<Q, Values<V>, Ret, Ins>
where
    Self: IntoCount<DB>,
    Conn: Connection<Backend = DB>,
    DB: BackendOf<Conn>,
{
    fn execute(update: Self, conn: &mut Conn) -> QueryResult<usize> {
        let link = &mut Link::blocking(conn);
        let update: &mut Count<dyn Update<Over<Blocking, Conn>>> =
            &mut update.into_count(link.dialect())?;
        now(count(link, update))
    }
}

impl<Q, V, Ret, Ins> UpdateStatement<Q, Values<V>, Ret, Ins> {
    /// Counts like `execute`, but acquires a connection only if it needs one: a caller whose amount another one counts does not. So threads
    /// that outnumber a pool's connections [combine](crate::combine) too. Returns the number of rows counted.
    ///
    /// Without [`combine`](Self::combine) every caller acquires a connection, since only that knows where it is admitted. So does every
    /// caller with a `MultiConnection`, which alone knows its database.
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
        Self: IntoCount<DB>,
        Conn: Connection<Backend = DB>,
        DB: BackendOf<Conn>,
        E: From<DieselError>,
        C: DerefMut<Target = Conn>,
    {
        let Some(meeting) = self
            .settings
            .combine
            .anywhere()
            .filter(|_| DB::HAS_ONE_DIALECT)
        else {
            return Ok(self.execute(&mut *acquire()?)?);
        };
        let backend = DB::default();
        let update: &mut Count<dyn Update<Over<Blocking, Conn>>> =
            &mut self.into_count(backend.dialect())?;
        let mut role = match now(Role::of(update, &meeting, &backend)) {
            ControlFlow::Break(counted) => return Ok(counted?),
            ControlFlow::Continue(role) => role,
        };
        let deadline = update.retry.deadline();
        let left = role.waited.time_left(deadline)?;
        let began = Instant::now();
        let mut conn = acquire()?;
        role.waited.add(began.elapsed());
        if left.is_some() {
            role.waited.time_left(deadline)?;
        }
        let link = &mut Link::blocking(&mut *conn);
        Ok(now(role.carry_out(link, update))?)
    }
}

impl<'query, Q, V, Ret, Ins, Conn, DB, U> LoadQuery<'query, Conn, U>
    for UpdateStatement<Q, Values<V>, Ret, Ins>
where
    Self: IntoLoad<U, DB>,
    U: FromSqlRow<RowOf<Self, U, DB>, DB>,
    Conn: LoadConnection<Backend = DB>,
    DB: BackendOf<Conn> + QueryMetadata<SqlTypeOf<<Self as IntoLoad<U, DB>>::Selection>>,
{
    type RowIter<'conn>
        = std::vec::IntoIter<QueryResult<U>>
    where
        Conn: 'conn;

    fn internal_load(self, conn: &mut Conn) -> QueryResult<Self::RowIter<'_>> {
        let link = &mut Link::blocking(conn);
        let mut update = self.into_load(link.dialect())?;
        now(update.count(link))?;
        let rows: Vec<_> = update.rows.into_iter().map(Ok).collect();
        Ok(rows.into_iter())
    }
}

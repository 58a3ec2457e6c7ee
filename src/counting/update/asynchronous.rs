//! Counting updates that are awaited.

use std::ops::{ControlFlow, DerefMut};
use std::time::Instant;

use diesel::backend::Backend;
use diesel::deserialize::FromSqlRow;
use diesel::dsl::SqlTypeOf;
use diesel::expression::QueryMetadata;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::Error as DieselError;
use diesel_async::AsyncConnection;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::count::{Count, IntoCount};
use super::load::IntoLoad;
use super::returning::{NoReturning, ReadAs};
use super::send::Update;
use super::source::UpdateSource;
use super::statement::{SetNotCalled, UpdateStatement, Values};
use crate::backend::BackendOf;
use crate::connection::pause::within;
use crate::connection::{Async, BoxFuture, Link, Over};
use crate::counting::combine::{Role, count};
use crate::error::Error;
use crate::observe;

/// Begins a counting update on a connection of `diesel_async`; see [`update`](crate::update()).
pub fn update<Source, Kind>(
    source: Source,
) -> UpdateStatement<Source::Query, SetNotCalled, NoReturning, (), Async>
where
    Source: UpdateSource<Kind>,
{
    UpdateStatement::of(source)
}

impl<Q, V, Ret, Ins> UpdateStatement<Q, Values<V>, Ret, Ins, Async> {
    /// Counts and returns the number of rows. It has the same name as the method of `diesel_async::RunQueryDsl`.
    ///
    /// # Errors
    /// As [`update`](crate::update())'s.
    pub fn execute<'c, Conn, DB>(self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<usize>>
    where
        Self: IntoCount<DB, Update: Send + 'c>,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        let mut link = Link::awaited(conn);
        let update = self.into_count(link.dialect());
        Box::pin(async move {
            let update: &mut Count<dyn Update<Over<Async, Conn>> + Send> = &mut update?;
            count(&mut link, update).await
        })
    }

    /// Counts like [`execute`](Self::execute), but acquires a connection only if it needs one: a caller whose amount another one counts
    /// does not. So tasks that outnumber a pool's connections [combine](crate::combine) too. Returns the number of rows counted.
    ///
    /// On a multi-threaded runtime of tokio's, the caller spawns a task that counts. So a caller that is dropped meanwhile, such as a
    /// request whose client has gone, cancels nobody's increment. (On a runtime of one thread the caller itself counts.)
    ///
    /// ```text
    /// let count = update(videos.find(7)).set(views.eq(views + 1)).combine(&combiner);
    /// let pool = pool.clone();
    /// // An error that Diesel's and the pool's convert into.
    /// count.execute_with(async move || Ok::<_, Error>(pool.get().await?)).await?;
    /// ```
    ///
    /// # Errors
    /// Those of [`update`](crate::update()), and of `acquire`.
    pub fn execute_with<Conn, DB, E, C, F>(
        self,
        acquire: impl FnOnce() -> F + Send + 'static,
    ) -> BoxFuture<'static, Result<usize, E>>
    where
        Self: IntoCount<DB, Update: Send + 'static>,
        Conn: AsyncConnection<Backend = DB> + 'static,
        DB: BackendOf<Conn>,
        E: From<DieselError> + Send + 'static,
        C: DerefMut<Target = Conn> + Send + 'static,
        F: Future<Output = Result<C, E>> + Send + 'static,
    {
        let backend = DB::default();
        let meeting = self.settings.combine.anywhere();
        let meeting = meeting.filter(|_| DB::HAS_ONE_DIALECT);
        let update = self.into_count(backend.dialect());
        Box::pin(async move {
            let mut update = update?;
            let hidden: &mut Count<dyn Update<Over<Async, Conn>> + Send> = &mut update;
            let mut role = match &meeting {
                Some(meeting) => match Role::of(hidden, meeting, &backend).await {
                    ControlFlow::Break(counted) => return Ok(counted?),
                    ControlFlow::Continue(role) => role,
                },
                None => Role::default(),
            };
            let counts = async move {
                let update: &mut Count<dyn Update<Over<Async, Conn>> + Send> = &mut update;
                let left = role.waited.time_left(update.retry.deadline())?;
                let began = Instant::now();
                let acquired = match left {
                    Some(left) => within(left, acquire()).await,
                    None => Some(acquire().await),
                };
                role.waited.add(began.elapsed());
                let Some(acquired) = acquired else {
                    return Err(role.waited.error().into());
                };
                let mut conn = acquired?;
                let link = &mut Link::awaited(&mut *conn);
                update.facts.dialect = link.dialect(); // a backend of several databases does not know it
                Ok(match meeting {
                    Some(_) => role.carry_out(link, update).await?,
                    None => count(link, update).await?,
                })
            };
            // Only a runtime with its own threads polls a task after its caller has gone.
            let runtime = match Handle::try_current() {
                Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => runtime,
                _ => return counts.await,
            };
            let counts = observe::in_callers_span(counts);
            runtime.spawn(counts).await.unwrap_or_else(|ended| {
                let ended = match ended.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(cancelled) => Error::outcome_unknown(&cancelled.to_string()),
                };
                Err(DieselError::from(ended).into())
            })
        })
    }

    /// Counts and returns the counted rows; see [`update`](crate::update#results).
    ///
    /// # Errors
    /// As [`execute`](Self::execute)'s.
    pub fn load<'c, U>(
        self,
        conn: &'c mut impl LoadCounted<'c, Self, U>,
    ) -> BoxFuture<'c, QueryResult<Vec<U>>> {
        conn.load_counted(self)
    }

    /// The same as [`load`](Self::load).
    ///
    /// # Errors
    /// As [`execute`](Self::execute)'s.
    pub fn get_results<'c, U>(
        self,
        conn: &'c mut impl LoadCounted<'c, Self, U>,
    ) -> BoxFuture<'c, QueryResult<Vec<U>>> {
        conn.load_counted(self)
    }

    /// Counts and returns the first of the counted rows.
    ///
    /// # Errors
    /// As [`execute`](Self::execute)'s; [`NotFound`](diesel::result::Error::NotFound) if there is no such row.
    pub fn get_result<'c, U>(
        self,
        conn: &'c mut impl LoadCounted<'c, Self, U>,
    ) -> BoxFuture<'c, QueryResult<U>>
    where
        U: Send + 'c,
    {
        let rows = conn.load_counted(self);
        Box::pin(async move {
            let first = rows.await?.into_iter().next();
            first.ok_or(DieselError::NotFound)
        })
    }
}

/// A connection that returns the rows of the counting update `S`, each as a `U`.
///
/// It replaces a type parameter for the connection, so that `get_result::<i64>(conn)` names only the row's type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not give the rows of this update as `{U}`",
    note = "it has to be a connection of `diesel_async` to a database that `diesel_sharded` has a feature for",
    note = "what is sent and what comes back has to be `Send`"
)]
pub trait LoadCounted<'c, S, U> {
    /// Counts and returns the counted rows.
    fn load_counted(&'c mut self, update: S) -> BoxFuture<'c, QueryResult<Vec<U>>>;
}

impl<'c, Q, V, Ret, Ins, U, Conn, DB, S>
    LoadCounted<'c, UpdateStatement<Q, Values<V>, Ret, Ins, Async>, U> for Conn
where
    UpdateStatement<Q, Values<V>, Ret, Ins, Async>:
        IntoLoad<U, DB, Selection = S, Update: Send + 'c>,
    S: ReadAs<U, DB> + QueryFragment<DB> + QueryId + Send + 'c,
    U: FromSqlRow<S::Row, DB> + Send + 'static,
    Conn: AsyncConnection<Backend = DB> + 'c,
    DB: BackendOf<Conn> + QueryMetadata<SqlTypeOf<S>>,
{
    fn load_counted(
        &'c mut self,
        update: UpdateStatement<Q, Values<V>, Ret, Ins, Async>,
    ) -> BoxFuture<'c, QueryResult<Vec<U>>> {
        let mut link = Link::awaited(self);
        let update = update.into_load(link.dialect());
        Box::pin(async move {
            let mut update = update?;
            update.count(&mut link).await?;
            Ok(update.rows)
        })
    }
}

/// The mode of an update that is a query of its own; no update is: `diesel_async` tries to send a blocking update as one. So the message of
/// this trait appears where `diesel_sharded::update` meets a connection of `diesel_async`.
#[diagnostic::on_unimplemented(
    message = "an update of `diesel_sharded::update` cannot be awaited, and it is not a single query",
    label = "begin this update by `diesel_sharded::asynchronous::update`",
    note = "on a connection of `diesel_async`, import `diesel_sharded::asynchronous::update` instead of `diesel_sharded::update`"
)]
pub trait IsQuery {
    /// Of its rows.
    type SqlType;
}

impl<Q, V, Ret, Ins, Run: IsQuery> Query for UpdateStatement<Q, V, Ret, Ins, Run> {
    type SqlType = Run::SqlType;
}

impl<Q, V, Ret, Ins, Run: IsQuery> QueryId for UpdateStatement<Q, V, Ret, Ins, Run> {
    type QueryId = ();
}

impl<Q, V, Ret, Ins, Run, DB> QueryFragment<DB> for UpdateStatement<Q, V, Ret, Ins, Run>
where
    Run: IsQuery,
    DB: Backend,
{
    fn walk_ast<'b>(&'b self, _: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        Ok(())
    }
}

//! Folds that are to run at an interval.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use diesel::connection::LoadConnection;
use diesel::expression::Expression;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};

use crate::backend::BackendOf;
use crate::background::Background;
use crate::connection::{Blocking, Link, now};
use crate::engine::KeyedTable;
use crate::error::Error;
use crate::model::ShardedTable;

use super::builder::Fold;
use super::folder::{Folder, Worker};
use super::passes::{FolderState, OnError, PassError, PassOutcome, Passes};
use super::schedule::Schedule;

/// The shortest interval.
const SHORTEST: Duration = Duration::from_millis(10);

/// The longest interval: some years, and still a time that a clock can hold.
const LONGEST: Duration = Duration::from_secs(100_000_000);

/// Sets up a [`Folder`]; made by [`Fold::every`].
///
/// | setting | default | meaning |
/// |---|---|---|
/// | [`jitter`](Self::jitter) | 0.1 | the part of the interval by which each pause is at most shorter or longer |
/// | [`on_error`](Self::on_error) | none | called with each error |
///
/// The settings of the [`Fold`] hold for each pass.
#[must_use = "nothing is folded until it is started"]
pub struct FolderBuilder<Q: IntoUpdateTarget<Table: ShardedTable>, Run = Blocking> {
    fold: Fold<Q, Run>,
    interval: Duration,
    jitter: f64,
    on_error: Option<OnError>,
}

impl<Q: IntoUpdateTarget<Table: ShardedTable>, Run> Fold<Q, Run> {
    /// Folds at this interval, by itself, until the [`Folder`] is dropped.
    ///
    /// ```
    /// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
    /// # use schema::videos::{self, dsl::{videos as all, views}};
    /// # use diesel::prelude::*;
    /// # #[derive(diesel_sharded::ShardedField)]
    /// # #[diesel(table_name = videos)]
    /// # struct Video { id: i64, #[sharded] views: i64 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// # let file = std::env::temp_dir().join(format!("sharded_folder_{}.db", std::process::id()));
    /// # let url = file.display().to_string();
    /// # let conn = &mut SqliteConnection::establish(&url)?;
    /// # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, views BIGINT NOT NULL)").execute(conn)?;
    /// # diesel::insert_into(all).values((videos::id.eq(7), views.eq(100))).execute(conn)?;
    /// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
    /// use std::time::Duration;
    /// use diesel_sharded::{fold, update};
    ///
    /// // Once, when the process starts. With a pool of r2d2 it is `.start(move || pool.get())`.
    /// let folder = fold(all)
    ///     .at_most_per_second(5_000)
    ///     .every(Duration::from_millis(50))
    ///     .on_error(|error| eprintln!("{error}"))
    ///     .start(move || SqliteConnection::establish(&url))?;
    ///
    /// update(all.find(7)).set(views.eq(views + 5)).execute(conn)?;
    /// while folder.stats().parents == 0 {
    ///     std::thread::sleep(Duration::from_millis(10));
    /// }
    /// assert_eq!(all.find(7).select(views).first::<i64>(conn)?, 105);
    /// # drop(folder);
    /// # std::fs::remove_file(file)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A pass folds the rows that were counted on since the last one. For a whole table it reads only the shards table, so its
    /// cost depends on the rows that were counted on, not on those that exist. This requires that cold rows lose their shards: by
    /// default, a folder removes all shards of a row of which [fewer than 2](Self::cold_below) had something to move.
    ///
    /// The pause between two passes is the interval, up to 10 % shorter or longer so that processes do not fold in step. The
    /// first pass begins at a random moment of the interval. Any number of processes may have a folder of the same table. The
    /// lock on a row admits one folder at a time, and the next one finds nothing left to fold.
    ///
    /// No error stops a folder. Each is reported to [`on_error`](FolderBuilder::on_error), and the pauses double while passes
    /// fail, up to a minute.
    pub fn every(self, interval: Duration) -> FolderBuilder<Q, Run> {
        FolderBuilder {
            fold: self,
            interval: interval.clamp(SHORTEST, LONGEST),
            jitter: 0.1,
            on_error: None,
        }
    }
}

impl<Q: IntoUpdateTarget<Table: ShardedTable>, Run> FolderBuilder<Q, Run> {
    /// Makes each pause shorter or longer at random, by up to this part of it, from 0 to 1.
    pub fn jitter(mut self, part: f64) -> Self {
        self.jitter = match part.is_nan() {
            true => 0.0,
            false => part.clamp(0.0, 1.0),
        };
        self
    }

    /// Calls `on_error` with each error: of the connection, of the database, and [`Unfit`](crate::Error::Unfit) once a pass for
    /// each row whose base does not accept the values of its shards. Downcast the error to [`Error`](crate::Error) to tell these
    /// apart. The folder continues.
    pub fn on_error(
        mut self,
        on_error: impl Fn(&(dyn StdError + Send + Sync + 'static)) + Send + Sync + 'static,
    ) -> Self {
        self.on_error = Some(Box::new(on_error));
        self
    }

    /// The fold of each pass, and the series.
    fn passes(self) -> (Fold<Q, Run>, Passes) {
        let Fold { cold_below, .. } = self.fold;
        let fold = Fold {
            cold_below: cold_below.or(Some(COLD_BELOW)),
            ..self.fold
        };
        let passes = Passes {
            state: Arc::new(FolderState::default()),
            table: <Q::Table as ShardedTable>::SHARDS_TABLE.as_str(),
            schedule: Schedule {
                interval: self.interval,
                jitter: self.jitter,
                failures: 0,
            },
            on_error: self.on_error,
        };
        (fold, passes)
    }
}

/// See [`Fold::cold_below`].
const COLD_BELOW: u16 = 2;

impl<Q: IntoUpdateTarget<Table: ShardedTable>> FolderBuilder<Q> {
    /// Starts it, in a thread of its own, on a connection that `connect` makes or takes from a pool for each pass.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start<Conn, E, DB, T, W>(
        self,
        mut connect: impl FnMut() -> Result<Conn, E> + Send + 'static,
    ) -> io::Result<Folder>
    where
        Q: IntoUpdateTarget<Table = T, WhereClause = W> + Clone + Send + 'static,
        T: KeyedTable<DB>,
        T::PrimaryKey: Expression,
        W: QueryFragment<DB> + QueryId,
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let (fold, mut passes) = self.passes();
        let state = Arc::clone(&passes.state);
        let stopping = Arc::clone(&state);
        let mut pass = move || -> Result<PassOutcome, PassError> {
            let mut conn = connect().map_err(Into::into)?;
            let mut progress = |_: &_| match stopping.is_stopping() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            };
            let link = &mut Link::blocking(&mut conn);
            let folded = now(fold.again().folded(link, &mut progress)).map_err(Error::from)?;
            Ok(PassOutcome::of(*T::TABLE, folded))
        };
        let thread = Background::spawn("diesel_sharded folder", move |stopped| {
            let mut pause = passes.first();
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let began = Instant::now();
                let outcome = panic::catch_unwind(AssertUnwindSafe(&mut pass));
                pause = passes.ended(began, outcome);
            }
        })?;
        Ok(Folder::of(state, Worker::Thread(thread)))
    }
}

impl<Q, Run> fmt::Debug for FolderBuilder<Q, Run>
where
    Q: IntoUpdateTarget<Table: ShardedTable>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FolderBuilder")
            .field("interval", &self.interval)
            .field("jitter", &self.jitter)
            .finish_non_exhaustive()
    }
}

/// Folders in tasks.
#[cfg(feature = "async")]
mod asynchronous {
    use std::error::Error as StdError;
    use std::future::{Future, poll_fn};
    use std::io;
    use std::ops::ControlFlow;
    use std::panic::{self, AssertUnwindSafe};
    use std::sync::Arc;
    use std::task::Poll;
    use std::time::Instant;

    use diesel::expression::Expression;
    use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};
    use diesel_async::AsyncConnection;
    use tokio::runtime::Handle;

    use super::{Error, Fold, Folder, FolderBuilder, PassError, PassOutcome, ShardedTable, Worker};
    use crate::backend::BackendOf;
    use crate::connection::pause::pause;
    use crate::connection::{Async, BoxFuture};
    use crate::engine::KeyedTable;

    impl<Q, T, W> FolderBuilder<Q, Async>
    where
        Q: IntoUpdateTarget<Table = T, WhereClause = W> + Clone + Send + Sync + 'static,
        T: ShardedTable,
    {
        /// Starts it, in a task of the tokio runtime that this is called on, on a connection that `connect` makes or takes from a
        /// pool for each pass.
        ///
        /// # Errors
        /// Outside a tokio runtime.
        pub fn start<Conn, E, DB, F>(
            self,
            mut connect: impl FnMut() -> F + Send + 'static,
        ) -> io::Result<Folder>
        where
            T: KeyedTable<DB>,
            T::PrimaryKey: Expression,
            W: QueryFragment<DB> + QueryId + Send + Sync + 'static,
            Conn: AsyncConnection<Backend = DB> + Send + 'static,
            DB: BackendOf<Conn>,
            E: Into<Box<dyn StdError + Send + Sync>> + Send + 'static,
            F: Future<Output = Result<Conn, E>> + Send + 'static,
        {
            let runtime = Handle::try_current().map_err(io::Error::other)?;
            let (fold, mut passes) = self.passes();
            let state = Arc::clone(&passes.state);
            let task = runtime.spawn(async move {
                let mut wait = passes.first();
                loop {
                    pause(wait).await;
                    let began = Instant::now();
                    let outcome = match panic::catch_unwind(AssertUnwindSafe(&mut connect)) {
                        Ok(connecting) => caught(pass(connecting, fold.again())).await,
                        Err(panic) => Err(panic),
                    };
                    wait = passes.ended(began, outcome);
                }
            });
            Ok(Folder::of(state, Worker::Task(task.abort_handle())))
        }
    }

    fn pass<Q, T, W, Conn, E, DB>(
        connecting: impl Future<Output = Result<Conn, E>> + Send + 'static,
        fold: Fold<Q, Async>,
    ) -> BoxFuture<'static, Result<PassOutcome, PassError>>
    where
        Q: IntoUpdateTarget<Table = T, WhereClause = W> + Send + 'static,
        T: KeyedTable<DB>,
        T::PrimaryKey: Expression,
        W: QueryFragment<DB> + QueryId + Send + Sync + 'static,
        Conn: AsyncConnection<Backend = DB> + Send + 'static,
        DB: BackendOf<Conn>,
        E: Into<Box<dyn StdError + Send + Sync>> + Send + 'static,
    {
        Box::pin(async move {
            let mut conn = connecting.await.map_err(Into::into)?;
            let folding = fold.run_with(&mut conn, |_| ControlFlow::Continue(()));
            let folded = folding.await.map_err(Error::from)?;
            Ok(PassOutcome::of(*T::TABLE, folded))
        })
    }

    /// Awaits the future, or catches its panic.
    async fn caught<T>(mut future: BoxFuture<'static, T>) -> std::thread::Result<T> {
        poll_fn(|context| {
            let polled = panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
            match polled {
                Ok(polled) => polled.map(Ok),
                Err(panic) => Poll::Ready(Err(panic)),
            }
        })
        .await
    }
}

//! Folds that run by themselves, at an interval.

use std::error::Error as StdError;
use std::io;
use std::ops::ControlFlow;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::LoadConnection;
use diesel::expression::Expression;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};

use super::{Fold, Folded};
use crate::backend::{BackendOf, ShardedBackend};
use crate::background::Background;
use crate::connection::{Blocking, Link, now};
use crate::counting::idempotency::{Removable, remove};
use crate::engine::{KeyedTable, Parents};
use crate::error::Error;
use crate::model::{ShardedTable, shows};
use crate::observe;
use crate::per_process::{MadeIn, random_bits};

/// The shortest interval.
const SHORTEST: Duration = Duration::from_millis(10);

/// The longest interval: some years, and still a time that a clock can hold.
const LONGEST: Duration = Duration::from_secs(100_000_000);

/// Sets up a [`Folder`]; made by [`Fold::every`]. The settings of the [`Fold`] hold for each pass.
#[must_use = "nothing is folded until it is started"]
pub struct FolderBuilder<Q: IntoUpdateTarget<Table: ShardedTable>, Run = Blocking> {
    fold: Fold<Q, Run>,
    interval: Duration,
    on_error: Option<OnError>,
    removes_expired: bool,
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
    /// default, it removes all shards of a row of which [fewer than 2](Self::cold_below) had something to move.
    ///
    /// The pause between two passes is the interval, up to 10 % shorter or longer so that processes do not fold in step. The
    /// first pass begins at a random moment of the interval. Any number of processes may fold the same table in the
    /// background. The lock on a row admits one of them at a time, and the next one finds nothing left to fold.
    ///
    /// No error stops a background fold. Each is reported to [`on_error`](FolderBuilder::on_error), and the pauses double while passes
    /// fail, up to a minute.
    pub fn every(self, interval: Duration) -> FolderBuilder<Q, Run> {
        FolderBuilder {
            fold: self,
            interval: interval.clamp(SHORTEST, LONGEST),
            on_error: None,
            removes_expired: false,
        }
    }
}

impl<Q: IntoUpdateTarget<Table: ShardedTable>, Run> FolderBuilder<Q, Run> {
    /// Calls `on_error` with each error: of the connection, of the database, and [`Unfit`](crate::Error::Unfit) once a pass for
    /// each row whose base does not accept the values of its shards. Downcast the error to [`Error`](crate::Error) to tell these
    /// apart. The background fold continues.
    pub fn on_error(
        mut self,
        on_error: impl Fn(&(dyn StdError + Send + Sync + 'static)) + Send + Sync + 'static,
    ) -> Self {
        self.on_error = Some(Box::new(on_error));
        self
    }

    /// Also removes the rows of [unique counts](crate::unique) whose window is over, of all tables: before each fold at most 10,000, 1,000 in a
    /// transaction. One background fold of a database is enough. If the removal fails, the pass folds all the same, and has failed.
    ///
    /// ```no_run
    /// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
    /// # use schema::videos::{self, dsl::videos as all};
    /// # use diesel::prelude::*;
    /// # use std::time::Duration;
    /// # #[derive(diesel_sharded::ShardedField)]
    /// # #[diesel(table_name = videos)]
    /// # struct Video { id: i64, #[sharded] views: i64 }
    /// # fn main() -> std::io::Result<()> {
    /// # let url = "videos.db";
    /// let folder = diesel_sharded::fold(all)
    ///     .every(Duration::from_secs(1))
    ///     .remove_expired()
    ///     .start(move || SqliteConnection::establish(url))?;
    /// # drop(folder);
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove_expired(mut self) -> Self {
        self.removes_expired = true;
        self
    }

    /// How many transactions of a pass remove expired rows.
    fn removals(&self) -> usize {
        match self.removes_expired {
            true => REMOVALS,
            false => 0,
        }
    }

    /// The fold of each pass, and the series.
    fn passes(self) -> (Fold<Q, Run>, Passes) {
        let fold = Fold {
            cold_below: self.fold.cold_below.or(Some(COLD_BELOW)),
            ..self.fold
        };
        let passes = Passes {
            state: Arc::new(FolderState::default()),
            table: <Q::Table as ShardedTable>::SHARDS_TABLE.as_str(),
            schedule: Schedule {
                interval: self.interval,
                failures: 0,
            },
            on_error: self.on_error,
        };
        (fold, passes)
    }
}

/// How many transactions of a pass remove rows of unique counts.
const REMOVALS: usize = 10;

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
        let removals = self.removals();
        let (fold, mut passes) = self.passes();
        let state = Arc::clone(&passes.state);
        let shared = Arc::clone(&state);
        let mut pass = move || -> Result<Folded<T>, PassError> {
            let mut conn = connect().map_err(Into::into)?;
            let mut progress = |_: &_| match shared.stopping.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            };
            let link = &mut Link::blocking(&mut conn);
            let removed = now(remove(Removable::Expired, removals, link));
            let folded = now(fold.again().folded(link, &mut progress)).map_err(Error::from)?;
            removed.map_err(Error::from)?;
            Ok(folded)
        };
        let thread = Background::spawn("diesel_sharded folder", move |stopped| {
            let mut pause = passes.first();
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let began = Instant::now();
                let outcome = panic::catch_unwind(AssertUnwindSafe(&mut pass));
                pause = passes.ended::<T, DB>(began, outcome);
            }
        })?;
        Ok(Folder::of(state, Worker::Thread(thread)))
    }
}

shows!([Q: IntoUpdateTarget<Table: ShardedTable>, Run] FolderBuilder<Q, Run>: |self| FolderBuilder { interval: self.interval } finish_non_exhaustive);

/// Background folds in tasks.
#[cfg(feature = "async")]
mod asynchronous {
    use std::future::Future;

    use diesel_async::AsyncConnection;
    use futures_util::FutureExt;
    use tokio::runtime::Handle;

    use super::*;
    use crate::connection::Async;
    use crate::connection::pause::pause;

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
            let removals = self.removals();
            let (fold, mut passes) = self.passes();
            let state = Arc::clone(&passes.state);
            let task = runtime.spawn(async move {
                let mut wait = passes.first();
                loop {
                    pause(wait).await;
                    let began = Instant::now();
                    let outcome = match panic::catch_unwind(AssertUnwindSafe(&mut connect)) {
                        Ok(connecting) => {
                            let fold = fold.again();
                            let pass = async move {
                                let mut conn = connecting.await.map_err(Into::into)?;
                                let expired = Removable::Expired;
                                let removed =
                                    remove(expired, removals, &mut Link::awaited(&mut conn)).await;
                                let to_the_end = |_: &Folded<T>| ControlFlow::Continue(());
                                let folding = fold.run_with(&mut conn, to_the_end);
                                let folded = folding.await.map_err(Error::from)?;
                                removed.map_err(Error::from)?;
                                Ok::<_, PassError>(folded)
                            };
                            AssertUnwindSafe(pass).catch_unwind().await
                        }
                        Err(panic) => Err(panic),
                    };
                    wait = passes.ended::<T, DB>(began, outcome);
                }
            });
            Ok(Folder::of(state, Worker::Task(task.abort_handle())))
        }
    }
}

/// How long dropping a [`Folder`] waits for a pass that is under way.
const LAST_BATCH: Duration = Duration::from_secs(5);

/// Folds at an interval until it is dropped; made by [`every`](crate::operation::Fold::every).
///
/// Dropping it stops it. Dropping waits up to 5 s for a thread to finish its batch. A task is cancelled at once, which rolls its
/// batch back.
#[must_use = "dropping it stops folding"]
pub struct Folder {
    made_in: MadeIn,
    state: Arc<FolderState>,
    worker: Worker,
}

/// Where the passes run.
enum Worker {
    Thread(Background),
    #[cfg(feature = "async")]
    Task(tokio::task::AbortHandle),
}

impl Folder {
    fn of(state: Arc<FolderState>, worker: Worker) -> Self {
        Folder {
            made_in: MadeIn::this_process(),
            state,
            worker,
        }
    }

    /// Its work so far. In a child of the process that it folds in, [`last_error`](FolderStats::last_error) is
    /// [`MadeBeforeFork`](Error::MadeBeforeFork).
    pub fn stats(&self) -> FolderStats {
        match self.made_in.check("folder") {
            Ok(()) => self.state.stats().clone(),
            Err(error) => FolderStats {
                last_error: Some(error.to_string()),
                ..FolderStats::default()
            },
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.made_in.is_this_process() {
            return; // it continues in the parent process
        }
        self.state.stopping.store(true, Ordering::Relaxed); // the pass that is under way ends after its batch
        match &mut self.worker {
            Worker::Thread(thread) => thread.stop(LAST_BATCH),
            #[cfg(feature = "async")]
            Worker::Task(task) => task.abort(),
        }
    }
}

shows!([] Folder: |self| Folder { stats: self.stats() } finish_non_exhaustive);

/// An error of a pass, as it is reported.
type PassError = Box<dyn StdError + Send + Sync>;

/// Receives the errors of passes.
type OnError = Box<dyn Fn(&(dyn StdError + Send + Sync + 'static)) + Send + Sync>;

/// The work of a [`Folder`] since it was started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FolderStats {
    /// Passes that have ended.
    pub passes: u64,
    /// Passes that ended in an error.
    pub failed_passes: u64,
    /// Rows that had something to move, each once a pass.
    pub parents: u64,
    /// Empty shards that were removed.
    pub shards_removed: u64,
    /// Rows that were left for the next pass, because others had locked their shards.
    pub busy: u64,
    /// Rows whose base does not accept the values of their shards, each once a pass.
    pub unfit: u64,
    /// The time that the last pass took.
    pub last_pass: Duration,
    /// The time that the longest pass took.
    pub longest_pass: Duration,
    /// The last error that was reported.
    pub last_error: Option<String>,
}

/// The state that a background fold and its passes share.
#[derive(Debug, Default)]
struct FolderState {
    stopping: AtomicBool,
    stats: Mutex<FolderStats>,
}

impl FolderState {
    fn stats(&self) -> MutexGuard<'_, FolderStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The series of passes: it decides when the next begins, and keeps the numbers.
struct Passes {
    state: Arc<FolderState>,
    table: &'static str,
    schedule: Schedule,
    on_error: Option<OnError>,
}

impl Passes {
    /// The pause before the first pass.
    fn first(&self) -> Duration {
        self.schedule.first(random_part())
    }

    /// Records a pass that began then and has ended. Returns the pause before the next one.
    fn ended<T: KeyedTable<DB>, DB: ShardedBackend>(
        &mut self,
        began: Instant,
        outcome: thread::Result<Result<Folded<T>, PassError>>,
    ) -> Duration {
        let took = began.elapsed();
        let outcome = outcome.unwrap_or_else(|_| Err("the pass panicked".into()));
        {
            let mut stats = self.state.stats();
            stats.passes += 1;
            stats.last_pass = took;
            stats.longest_pass = stats.longest_pass.max(took);
            match &outcome {
                Ok(folded) => {
                    stats.parents += folded.parents;
                    stats.shards_removed += folded.shards_removed;
                    stats.busy += folded.busy.len() as u64;
                    stats.unfit += folded.unfit.len() as u64;
                }
                Err(_) => stats.failed_passes += 1,
            }
        }
        self.schedule.failures = match outcome {
            Ok(_) => 0,
            Err(_) => self.schedule.failures.saturating_add(1),
        };
        // A panic in the code of a recorder or of a key must not end the background fold.
        let passed = || observe::folder_passed(self.table, took, outcome.is_ok());
        let _ = panic::catch_unwind(AssertUnwindSafe(passed));
        let _ = panic::catch_unwind(AssertUnwindSafe(|| match outcome {
            Ok(folded) => {
                for (key, reason) in folded.unfit {
                    self.report(&T::TABLE.unfit(&key, reason).into());
                }
            }
            Err(error) => self.report(&error),
        }));
        self.schedule.next(random_part())
    }

    fn report(&self, error: &PassError) {
        self.state.stats().last_error = Some(error.to_string());
        if let Some(on_error) = &self.on_error {
            // A panic in it must not end the background fold.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| on_error(&**error)));
        }
    }
}

/// From 0 to 1.
fn random_part() -> f64 {
    random_bits() as f64 / u64::MAX as f64
}

/// The longest pause between failing passes, unless the interval is longer.
const LONGEST_AFTER_FAILURES: Duration = Duration::from_secs(60);

/// Each pause is shorter or longer by at most this part of it.
const JITTER: f64 = 0.1;

/// When the next pass of a background fold begins.
#[derive(Debug, Clone)]
struct Schedule {
    interval: Duration,
    /// How many passes in a row have failed.
    failures: u32,
}

impl Schedule {
    /// The pause before the first pass, anywhere in an interval: processes that start together do not fold together.
    fn first(&self, random: f64) -> Duration {
        self.interval.mul_f64(random)
    }

    /// The pause before the next pass, which doubles with each failure in a row. `random` is from 0 to 1.
    fn next(&self, random: f64) -> Duration {
        let longest = self.interval.max(LONGEST_AFTER_FAILURES);
        let doubled = 2_u32.saturating_pow(self.failures);
        let pause = self.interval.saturating_mul(doubled).min(longest);
        pause.mul_f64(1.0 + JITTER * (2.0 * random - 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(interval: u64, failures: u32, random: f64) -> f64 {
        let schedule = Schedule {
            interval: Duration::from_secs(interval),
            failures,
        };
        schedule.next(random).as_secs_f64()
    }

    #[test]
    fn pauses_differ_by_the_jitter_and_double_with_failures() {
        assert_eq!(
            [0.0, 0.5, 1.0].map(|r| seconds(10, 0, r)),
            [9.0, 10.0, 11.0]
        );
        assert_eq!(
            [1, 2, 3].map(|failures| seconds(10, failures, 0.5)),
            [20.0, 40.0, 60.0]
        );
        assert_eq!(
            [0, 100].map(|failures| seconds(300, failures, 0.5)),
            [300.0, 300.0]
        );
    }

    #[test]
    fn the_first_pass_begins_anywhere_in_the_interval() {
        let schedule = Schedule {
            interval: Duration::from_secs(10),
            failures: 0,
        };
        assert_eq!(schedule.first(0.25), Duration::from_millis(2_500));
    }
}

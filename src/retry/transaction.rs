//! Whole transactions that are tried again.

use std::error::Error as StdError;
use std::num::NonZeroU32;

use diesel::Connection;
use diesel::connection::TransactionManagerStatus;
use diesel::result::{DatabaseErrorKind, Error as DieselError, QueryResult};

use super::policy::{Attempts, Retry};
use super::raw::{self, Savepoint};
use crate::conflict::{Conflict, Failure, is_foreign_key_violation};
use crate::dialect::{BackendOf, Dialect, Guard, ShardedBackend, SurvivalCheck};
use crate::error::Error;
use crate::io::{Blocking, Io, now};
use crate::observe::{self, Scope, Work};
use crate::shard_choice::Stripe;

/// Runs `f` in a transaction, and again from the start when it meets a conflict.
///
/// What a counting update leaves to its caller inside `conn.transaction(..)`: there a conflict ends the whole transaction,
/// so only the whole can be tried again. `f` must therefore have no effects besides those on `conn`.
///
/// ```sql
/// BEGIN; …; SELECT 1; COMMIT;                                                            -- PostgreSQL
/// BEGIN; SAVEPOINT diesel_sharded; …; RELEASE SAVEPOINT diesel_sharded; COMMIT;          -- MySQL, MariaDB
/// BEGIN IMMEDIATE; …; COMMIT;                                                            -- SQLite
/// ```
///
/// The statements before `COMMIT` ask whether the transaction still lives. An error that the closure swallows may have ended
/// it; PostgreSQL would answer `COMMIT` with a rollback and no error, MySQL would already have committed what followed.
///
/// In a process that has a [`Stripe`], MySQL does so without autocommit, and nothing of what followed is committed.
///
/// Inside a transaction that is open already, `f` runs once, in a savepoint, as Diesel's own `transaction` does. For
/// an isolation level see [`Transaction`].
///
/// # Errors
/// Whatever `f` returns, also when it is a conflict and the policy is used up. The error type is any `std::error::Error`
/// that Diesel's converts into; a conflict is found behind it by its sources, or where it shows the database's text itself, as
/// `#[error(transparent)]` does. Of its own, as
/// [`diesel_sharded::Error`](crate::Error) inside Diesel's error: `TransactionAborted`, `ConnectionLost`,
/// `OutcomeUnknown`, and `ConflictPersisted` when `BEGIN` or `COMMIT` itself met the last conflict.
///
/// ```
/// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
/// # use schema::videos::{self, dsl::{id, videos as all, views}};
/// # use diesel::prelude::*;
/// # #[derive(diesel_sharded::ShardedField)]
/// # #[diesel(table_name = videos)]
/// # struct Video { id: i64, #[sharded] views: i64 }
/// # fn main() -> QueryResult<()> {
/// # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
/// # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, views BIGINT NOT NULL)").execute(conn)?;
/// # diesel::insert_into(all).values((id.eq(7), views.eq(0))).execute(conn)?;
/// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
/// use diesel_sharded::prelude::*;
/// use diesel_sharded::retry::{self, Retry};
/// use diesel_sharded::update;
///
/// let total = retry::transaction(conn, Retry::default(), |conn| {
///     update(all.find(7)).set(views.eq(views + 1)).execute(conn)?;
///     all.find(7).select(views.total()).first::<i64>(conn)
/// })?;
/// assert_eq!(total, 1);
/// # Ok(())
/// # }
/// ```
pub fn transaction<Conn, T, E, F>(conn: &mut Conn, policy: Retry, f: F) -> Result<T, E>
where
    Conn: Connection,
    Conn::Backend: BackendOf<Conn>,
    F: FnMut(&mut Conn) -> Result<T, E>,
    E: From<DieselError> + StdError + 'static,
{
    Transaction::new().retry(policy).run(conn, f)
}

/// How far concurrent transactions may see each other, as SQL names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// Each statement sees what was committed before it.
    ReadCommitted,
    /// All statements see what was committed before the first one.
    RepeatableRead,
    /// As if the transactions had run one after the other. SQLite's only level.
    Serializable,
}

/// [`transaction`] with an isolation level.
///
/// ```
/// # use diesel::prelude::*;
/// # fn main() -> QueryResult<()> {
/// # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
/// use diesel_sharded::retry::{Isolation, Transaction};
///
/// let answer = Transaction::new()
///     .isolation(Isolation::Serializable)
///     .run(conn, |conn| diesel::select(42.into_sql::<diesel::sql_types::Integer>()).get_result::<i32>(conn))?;
/// # assert_eq!(answer, 42);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a transaction does nothing until it is `run`"]
pub struct Transaction {
    retry: Retry,
    options: TransactionOptions,
}

/// How a transaction begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TransactionOptions {
    pub(crate) isolation: Option<Isolation>,
    pub(crate) immediate: bool,
    /// Has a [`Guard`] in any process, not only in one that has told by its stripe that other nodes write too. That costs
    /// several round trips.
    pub(crate) guarded: bool,
    /// Is refused inside another transaction.
    pub(crate) outermost: bool,
}

impl TransactionOptions {
    /// Those of the crate's own rare operations.
    pub(crate) fn guarded() -> Self {
        TransactionOptions {
            guarded: true,
            ..Default::default()
        }
    }
}

impl Default for TransactionOptions {
    fn default() -> Self {
        TransactionOptions {
            isolation: None,
            immediate: true,
            guarded: false,
            outermost: false,
        }
    }
}

impl Transaction {
    /// The database's own isolation level, the process-wide policy, and `BEGIN IMMEDIATE` on SQLite.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the policy by which the transaction is tried again.
    pub fn retry(mut self, policy: Retry) -> Self {
        self.retry = policy;
        self
    }

    /// Sets the isolation level. SQLite's transactions are serializable whatever is asked for.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.options.isolation = Some(isolation);
        self.options.outermost = true;
        self
    }

    /// On SQLite, begins without the write lock. A transaction that reads first and then writes may then end in
    /// BUSY_SNAPSHOT, which no `busy_timeout` waits for; it is tried again. No effect elsewhere.
    pub fn deferred(mut self) -> Self {
        self.options.immediate = false;
        self
    }

    /// Runs `f`; see [`transaction`].
    ///
    /// # Errors
    /// As [`transaction`]; also [`AlreadyInTransaction`](DieselError::AlreadyInTransaction) when an isolation level is
    /// asked for inside a transaction that is open already.
    pub fn run<Conn, T, E, F>(self, conn: &mut Conn, mut f: F) -> Result<T, E>
    where
        Conn: Connection,
        Conn::Backend: BackendOf<Conn>,
        F: FnMut(&mut Conn) -> Result<T, E>,
        E: From<DieselError> + StdError + 'static,
    {
        now(async {
            let mut repeated = self.repeated::<Blocking, _>(conn)?;
            loop {
                let outcome = match repeated.begin::<Blocking, _, _>(conn).await {
                    Ok(()) => repeated.scope().block(|| f(conn)).map_err(Failed::Body),
                    Err(failed) => Err(failed),
                };
                if let Some(done) = repeated.end::<Blocking, _, _, _>(conn, outcome).await {
                    return done;
                }
            }
        })
    }

    /// The attempts at it.
    pub(crate) fn repeated<M, Conn>(self, conn: &mut Conn) -> QueryResult<Repeated>
    where
        M: Io<Conn>,
    {
        if self.options.outermost && in_transaction::<M, _>(conn)? {
            return Err(DieselError::AlreadyInTransaction);
        }
        let survival = M::Backend::backend_of(conn).dialect().survival_check();
        let what = What::Transaction(self.options, survival);
        Repeated::new::<M, _>(conn, self.retry, what, Work::Closure)
    }
}

/// What is done until it succeeds, meets something else than a conflict, or no attempt is left: a transaction, or one statement.
/// Its loop is [`repeat!`].
///
/// Inside a caller's transaction it is done once, a transaction in a savepoint. What led to the rollback of a savepoint is told
/// also where the rollback fails, as it does after a conflict that ended the whole transaction.
#[derive(Debug)]
pub(crate) struct Repeated {
    what: What,
    dialect: Dialect,
    inside: bool,
    attempts: Attempts,
    begun: Option<Begun>,
    told: observe::Transaction,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Transaction(TransactionOptions, Option<SurvivalCheck>),
    /// Commits by itself.
    Statement,
    /// Commits nothing.
    Read,
}

/// Does `$body`, an expression with `?`, on the connection `$conn`, as often as `$repeated` has it.
macro_rules! repeat {
    ($io:ty, $conn:ident, $repeated:expr, $body:expr) => {{
        let mut repeated: $crate::retry::Repeated = $repeated;
        let mut held = $crate::io::InUse::<$io, _>::new($conn);
        let $conn = &mut *held.conn;
        let done = loop {
            let outcome = match repeated
                .begin::<$io, _, ::diesel::result::Error>($conn)
                .await
            {
                Ok(()) => {
                    held.inside |= repeated.is_inside();
                    let body = async { $body };
                    let outcome: ::diesel::result::QueryResult<_> =
                        repeated.scope().within(body).await;
                    outcome.map_err(|error| repeated.own_failure(error))
                }
                Err(failed) => Err(failed),
            };
            if let Some(done) = repeated
                .end::<$io, _, _, ::diesel::result::Error>($conn, outcome)
                .await
            {
                break done;
            }
        };
        held.answered();
        done
    }};
}
pub(crate) use repeat;

impl Repeated {
    /// One of the crate's own transactions.
    pub(crate) fn transaction<M, Conn>(
        conn: &mut Conn,
        retry: Retry,
        options: TransactionOptions,
    ) -> QueryResult<Self>
    where
        M: Io<Conn>,
    {
        // It returns every error that it sees: no question whether it survived.
        Self::new::<M, _>(conn, retry, What::Transaction(options, None), Work::Own)
    }

    /// A statement that commits by itself.
    pub(crate) fn statement<M, Conn>(conn: &mut Conn, retry: Retry) -> QueryResult<Self>
    where
        M: Io<Conn>,
    {
        Self::new::<M, _>(conn, retry, What::Statement, Work::Statement)
    }

    /// A query.
    pub(crate) fn read<M, Conn>(conn: &mut Conn, retry: Retry) -> QueryResult<Self>
    where
        M: Io<Conn>,
    {
        Self::new::<M, _>(conn, retry, What::Read, Work::Read)
    }

    fn new<M, Conn>(conn: &mut Conn, retry: Retry, what: What, work: Work) -> QueryResult<Self>
    where
        M: Io<Conn>,
    {
        let inside = in_transaction::<M, _>(conn)?;
        let (what, work) = match what {
            What::Transaction(options, _) if inside => {
                (What::Transaction(options, None), Work::Savepoint)
            }
            what => (what, work),
        };
        let dialect = M::Backend::backend_of(conn).dialect();
        Ok(Repeated {
            what,
            dialect,
            inside,
            attempts: Attempts::start(retry),
            begun: None,
            told: observe::Transaction::begin(dialect, work),
        })
    }

    /// Whether it is part of a caller's transaction, as far as that is known.
    pub(crate) fn is_inside(&self) -> bool {
        self.inside
    }

    /// What the attempt runs in.
    pub(crate) fn scope(&self) -> Scope {
        self.told.scope()
    }

    /// Begins an attempt.
    pub(crate) async fn begin<M, Conn, E>(&mut self, conn: &mut Conn) -> Result<(), Failed<E>>
    where
        M: Io<Conn>,
    {
        self.told.attempt(self.attempts.number());
        let What::Transaction(options, survival) = self.what else {
            return Ok(());
        };
        let scope = self.scope();
        let begun = scope
            .within(begin::<M, _>(conn, self.dialect, options))
            .await;
        let begun = begun.map_err(Failed::Begin)?;
        self.begun = Some(begun);
        if begun.is_in_anothers() {
            self.inside = true;
            self.what = What::Transaction(options, None);
            return Ok(());
        }
        let mark = survival.and_then(|check| check.at_begin);
        match mark.filter(|_| begun.guard.is_none()) {
            Some(mark) => {
                let marked = scope.within(async { M::batch_execute(conn, mark).await });
                marked.await.map_err(Failed::Begin)
            }
            None => Ok(()),
        }
    }

    /// How an error of the crate's own steps is told.
    pub(crate) fn own_failure<E>(&self, error: DieselError) -> Failed<E> {
        match self.what {
            What::Transaction(..) => Failed::Own(error),
            _ if self.inside => Failed::Raw(error),
            What::Statement => Failed::Commit(error),
            What::Read => Failed::Own(error),
        }
    }

    /// Ends an attempt: by what came of it all, or by `None` if it is to be made again.
    pub(crate) async fn end<M, Conn, T, E>(
        &mut self,
        conn: &mut Conn,
        outcome: Result<T, Failed<E>>,
    ) -> Option<Result<T, E>>
    where
        M: Io<Conn>,
        E: From<DieselError> + StdError + 'static,
    {
        let scope = self.scope();
        let failed = match outcome {
            // On a cluster's node that has aborted the transaction unheard, the states of another one were compared.
            Err(Failed::Own(error)) if is_unfit(&error) => Failed::Own(match &self.begun {
                Some(begun) => {
                    let alive = scope.within(begun.check::<M, _>(conn, self.dialect));
                    alive.await.err().unwrap_or(error)
                }
                None => error,
            }),
            Err(failed) => failed,
            Ok(value) => match scope.within(self.commit::<M, _, E>(conn)).await {
                Ok(()) => {
                    self.told.ended(self.attempts.number(), true);
                    return Some(Ok(value));
                }
                Err(failed) => failed,
            },
        };
        if let Some(begun) = self.begun.take() {
            scope.within(begun.roll_back::<M, _>(conn)).await;
        }
        if let (What::Statement | What::Read, false) = (self.what, self.inside) {
            if let Some(ended) = failed.ended_transaction(self.dialect) {
                let looking = raw::met_inside::<M, _>(conn, ended);
                // Where it cannot be told, nothing is tried again.
                self.inside = scope.within(looking).await.unwrap_or(true);
            }
        }
        let number = self.attempts.number();
        if self.inside {
            self.told
                .conflict(number, || failed.conflict(self.dialect), None);
            self.told.ended(number, false);
            return Some(Err(failed.inside(self.dialect)));
        }
        let Some(conflict) = failed.conflict(self.dialect) else {
            self.told.ended(number, false);
            return Some(Err(failed.given_up(self.dialect)));
        };
        let delay = self.attempts.after(conflict);
        self.told.conflict(number, || Some(conflict), delay);
        match delay {
            Some(delay) => {
                M::sleep(self.attempts.retry(), delay).await;
                None
            }
            None => {
                self.told.ended(number, false);
                Some(Err(failed.used_up(conflict, &self.attempts)))
            }
        }
    }

    async fn commit<M, Conn, E>(&mut self, conn: &mut Conn) -> Result<(), Failed<E>>
    where
        M: Io<Conn>,
    {
        let (What::Transaction(_, survival), Some(begun)) = (self.what, self.begun) else {
            return Ok(());
        };
        match survival {
            None => {
                let alive = begun.check::<M, _>(conn, self.dialect).await;
                alive.map_err(Failed::Own)?;
            }
            Some(check) => {
                let alive = M::batch_execute(conn, check.before_commit).await;
                alive.map_err(|e| match self.dialect.classify(&e) {
                    // A conflict of its own: what a cluster's node has met since the closure's last statement is told at the next.
                    Failure::ConnectionLost | Failure::NodeNotReady | Failure::Conflict(_) => {
                        Failed::Own(e)
                    }
                    // Not tried again, whatever guards it: the closure may have committed it.
                    _ => Failed::Aborted,
                })?;
            }
        }
        begun.commit::<M, _>(conn).await.map_err(Failed::Commit)
    }
}

/// Runs `f` once, in a transaction, or in a savepoint of the caller's. Errors are told as Diesel does.
pub(crate) fn enclosed<Conn, T>(
    conn: &mut Conn,
    options: TransactionOptions,
    f: impl FnOnce(&mut Conn) -> QueryResult<T>,
) -> QueryResult<T>
where
    Conn: Connection,
    Conn::Backend: BackendOf<Conn>,
{
    let dialect = Conn::Backend::backend_of(conn).dialect();
    now(async {
        let begun = begin::<Blocking, _>(conn, dialect, options).await?;
        let done = match f(conn) {
            Ok(value) => begun.commit::<Blocking, _>(conn).await.map(|()| value),
            Err(error) => Err(error),
        };
        if done.is_err() {
            begun.roll_back::<Blocking, _>(conn).await;
        }
        done
    })
}

/// Runs one of the crate's own operations: in a transaction that is tried again, or in a savepoint of the caller's, where
/// the options are the caller's too.
#[cfg(feature = "r2d2")]
pub(crate) fn own_transaction<Conn, T>(
    conn: &mut Conn,
    retry: Retry,
    options: TransactionOptions,
    mut f: impl FnMut(&mut Conn) -> QueryResult<T>,
) -> QueryResult<T>
where
    Conn: Connection,
    Conn::Backend: BackendOf<Conn>,
{
    now(async {
        let repeated = Repeated::transaction::<Blocking, _>(conn, retry, options)?;
        repeat!(Blocking, conn, repeated, f(conn))
    })
}

/// Runs one statement of the crate's own that commits by itself, and again after a conflict; inside a caller's transaction
/// once.
#[cfg(feature = "r2d2")]
pub(crate) fn own_statement<Conn, T>(
    conn: &mut Conn,
    retry: Retry,
    mut f: impl FnMut(&mut Conn) -> QueryResult<T>,
) -> QueryResult<T>
where
    Conn: Connection,
    Conn::Backend: BackendOf<Conn>,
{
    now(async {
        let repeated = Repeated::statement::<Blocking, _>(conn, retry)?;
        repeat!(Blocking, conn, repeated, f(conn))
    })
}

/// One attempt's error, and where it came from.
pub(crate) enum Failed<E> {
    /// From `BEGIN`: nothing had happened.
    Begin(DieselError),
    /// From the caller's closure.
    Body(E),
    /// The closure returned `Ok`, but the transaction is gone.
    Aborted,
    /// From a statement of this crate's own before `COMMIT`.
    Own(DieselError),
    /// From `COMMIT`.
    Commit(DieselError),
    /// From a statement of this crate's own that is part of a caller's transaction.
    Raw(DieselError),
}

impl<E: From<DieselError> + StdError + 'static> Failed<E> {
    /// Whether the conflict that a statement of this crate's own met is one that ends a transaction; `None` if it met none.
    fn ended_transaction(&self, dialect: Dialect) -> Option<bool> {
        match self {
            Failed::Begin(e) | Failed::Own(e) | Failed::Commit(e) | Failed::Raw(e) => {
                let is_conflict = matches!(dialect.classify(e), Failure::Conflict(_));
                is_conflict.then(|| dialect.ends_transaction(e))
            }
            Failed::Body(_) | Failed::Aborted => None,
        }
    }

    fn conflict(&self, dialect: Dialect) -> Option<Conflict> {
        match self {
            // Nothing but shards has one, as far as the crate's own statements go.
            Failed::Own(e) if is_foreign_key_violation(e) => Some(Conflict::ParentGone),
            Failed::Begin(e) | Failed::Own(e) | Failed::Commit(e) | Failed::Raw(e) => {
                conflict_behind(dialect, e)
            }
            Failed::Body(e) => conflict_behind(dialect, e),
            Failed::Aborted => None,
        }
    }

    /// The caller's error when no new attempt can help.
    fn given_up(self, dialect: Dialect) -> E {
        let (source, commits) = match self {
            Failed::Body(e) => return e,
            Failed::Aborted => return DieselError::from(Error::TransactionAborted).into(),
            Failed::Begin(e) | Failed::Own(e) | Failed::Raw(e) => (e, false),
            Failed::Commit(e) => (e, true),
        };
        let error = match dialect.classify(&source) {
            Failure::ConnectionLost if commits => Error::OutcomeUnknown { source },
            Failure::ConnectionLost => Error::ConnectionLost { source },
            Failure::NodeNotReady => Error::NodeNotReady { source },
            Failure::Overflow => Error::Overflow { source },
            Failure::DiskFull => Error::DiskFull { source },
            _ => Error::Diesel(source),
        };
        DieselError::from(error).into()
    }

    /// The error inside a caller's transaction: what it was told by Diesel so far it is told still, and so is what retries it.
    fn inside(self, dialect: Dialect) -> E {
        match self {
            Failed::Body(e) => e,
            Failed::Own(source) => match dialect.classify(&source) {
                Failure::Overflow => DieselError::from(Error::Overflow { source }).into(),
                Failure::DiskFull => DieselError::from(Error::DiskFull { source }).into(),
                _ => source.into(),
            },
            Failed::Begin(e) | Failed::Commit(e) | Failed::Raw(e) => e.into(),
            Failed::Aborted => DieselError::from(Error::TransactionAborted).into(),
        }
    }

    /// The caller's error when the policy allows no further attempt.
    fn used_up(self, conflict: Conflict, attempts: &Attempts) -> E {
        let source = match self {
            Failed::Body(e) => return e,
            Failed::Begin(e) | Failed::Own(e) | Failed::Commit(e) | Failed::Raw(e) => e,
            Failed::Aborted => return DieselError::from(Error::TransactionAborted).into(),
        };
        DieselError::from(attempts.used_up(conflict, source)).into()
    }
}

/// The conflict behind an application's error, if there is one.
///
/// An error with `#[error(transparent)]` shows the database's text but hands out no source to find it by, so that the text
/// has to do. Whatever it was, the attempt was rolled back, and trying again doubles nothing.
fn conflict_behind(dialect: Dialect, error: &(dyn StdError + 'static)) -> Option<Conflict> {
    let mut next = Some(error);
    while let Some(error) = next {
        let failure = match database_error(error) {
            Some(error) => dialect.classify(error),
            None => dialect.classify_text(&error.to_string()),
        };
        if let Failure::Conflict(conflict) = failure {
            return Some(conflict);
        }
        next = error.source();
    }
    None
}

/// Whether a row did not hold what was written to it.
fn is_unfit(error: &DieselError) -> bool {
    let DieselError::QueryBuilderError(boxed) = error else {
        return false;
    };
    matches!(boxed.downcast_ref(), Some(Error::Unfit { .. }))
}

/// The database's error that this one is, or holds without handing it out as its source.
fn database_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a DieselError> {
    match error.downcast_ref::<DieselError>() {
        Some(DieselError::QueryBuilderError(boxed)) => database_error(boxed.as_ref()),
        Some(error) => Some(error),
        None => match error.downcast_ref::<Error>()? {
            Error::Diesel(error) | Error::ConflictPersisted { source: error, .. } => Some(error),
            _ => None,
        },
    }
}

/// How deep the transactions on `conn` are nested, as far as Diesel knows; 0 outside of any. Diesel does not know after a
/// connection was lost: then nothing is sent on it.
pub(crate) fn depth<M: Io<Conn>, Conn>(conn: &mut Conn) -> QueryResult<u32> {
    depth_of(M::transaction_status(conn))
}

/// The same, of what Diesel knows.
pub(crate) fn depth_of(status: &TransactionManagerStatus) -> QueryResult<u32> {
    let depth = status.transaction_depth();
    let depth = depth.map_err(|source| Error::ConnectionLost { source })?;
    Ok(depth.map_or(0, NonZeroU32::get))
}

/// Whether a transaction is open on `conn`.
pub(crate) fn in_transaction<M: Io<Conn>, Conn>(conn: &mut Conn) -> QueryResult<bool> {
    Ok(depth::<M, _>(conn)? > 0)
}

/// Begins a transaction, or a savepoint inside one; on an error neither is open.
pub(crate) async fn begin<M: Io<Conn>, Conn>(
    conn: &mut Conn,
    dialect: Dialect,
    options: TransactionOptions,
) -> QueryResult<Begun> {
    let outer = depth::<M, _>(conn)?;
    let nothing = Begun {
        outer,
        guard: None,
        savepoint: None,
    };
    if outer > 0 {
        M::begin(conn).await?;
        return Ok(nothing);
    }
    let other_nodes_write = Stripe::process_wide() != Stripe::ALL;
    let guard = match options.guarded || other_nodes_write {
        true => dialect.guard(),
        false => None,
    };
    let isolation = options.isolation.and_then(|i| dialect.set_isolation(i));
    let (before, after) = match isolation {
        Some((sql, true)) => (Some(sql), None),
        Some((sql, false)) => (None, Some(sql)),
        None => (None, None),
    };
    if !prepare::<M, _>(conn, dialect, guard, before).await? {
        return savepoint::<M, _>(conn, nothing, options).await;
    }
    let begun = Begun { guard, ..nothing };
    match M::begin(conn).await {
        Ok(()) => {}
        Err(error) if raw::is_refused_inside(&error) => {
            return savepoint::<M, _>(conn, nothing, options).await;
        }
        Err(error) => {
            begun.roll_back::<M, _>(conn).await;
            return Err(error);
        }
    }
    match open::<M, _>(conn, dialect, options, guard, after).await {
        Ok(()) => Ok(begun),
        Err(error) => {
            begun.roll_back::<M, _>(conn).await;
            Err(error)
        }
    }
}

/// Sends what stands before `BEGIN`, unless a transaction is open that Diesel does not know.
async fn prepare<M: Io<Conn>, Conn>(
    conn: &mut Conn,
    dialect: Dialect,
    guard: Option<Guard>,
    isolation: Option<&'static str>,
) -> QueryResult<bool> {
    let told_by_begin = dialect == Dialect::Sqlite;
    if isolation.is_none() && !told_by_begin && raw::is_open::<M, _>(conn).await? {
        return Ok(false);
    }
    let sent = match (isolation, guard) {
        // The isolation first: inside a transaction nothing of it is done then.
        (Some(sql), Some(guard)) => {
            M::batch_execute(conn, &format!("{sql}; {}", guard.before)).await
        }
        (Some(sql), None) => M::batch_execute(conn, sql).await,
        (None, Some(guard)) => M::batch_execute(conn, guard.before).await,
        (None, None) => return Ok(true),
    };
    match sent {
        Ok(()) => Ok(true),
        Err(error) if raw::is_refused_inside(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes the place of a transaction inside one that Diesel does not know.
async fn savepoint<M: Io<Conn>, Conn>(
    conn: &mut Conn,
    nothing: Begun,
    options: TransactionOptions,
) -> QueryResult<Begun> {
    if options.outermost {
        return Err(DieselError::AlreadyInTransaction);
    }
    Ok(Begun {
        savepoint: Some(Savepoint::set::<M, _>(conn).await?),
        ..nothing
    })
}

/// Sends what follows `BEGIN`.
async fn open<M: Io<Conn>, Conn>(
    conn: &mut Conn,
    dialect: Dialect,
    options: TransactionOptions,
    guard: Option<Guard>,
    isolation: Option<&'static str>,
) -> QueryResult<()> {
    match isolation {
        Some(sql) => M::batch_execute(conn, sql).await?,
        // Diesel's transaction manager says `BEGIN` for every connection behind a generic `Conn`. This puts the immediate
        // transaction in its place: both are a transaction at depth one. Where it fails there is none, and Diesel notices.
        None if options.immediate && dialect.begins_immediate() => {
            M::batch_execute(conn, "COMMIT; BEGIN IMMEDIATE").await?
        }
        None => {}
    }
    match guard {
        Some(guard) => M::batch_execute(conn, guard.at_begin).await,
        None => Ok(()),
    }
}

/// A transaction or savepoint that was begun, and has to be ended by [`commit`](Self::commit), or else by
/// [`roll_back`](Self::roll_back).
#[derive(Debug, Clone, Copy)]
#[must_use]
pub(crate) struct Begun {
    outer: u32,
    guard: Option<Guard>,
    /// In the transaction that Diesel does not know.
    savepoint: Option<Savepoint>,
}

impl Begun {
    /// Whether it is a savepoint in a transaction that Diesel does not know.
    pub(crate) fn is_in_anothers(&self) -> bool {
        self.savepoint.is_some()
    }

    /// Asks, where there is a guard, whether the transaction still lives. If not it is a conflict: nothing was committed.
    pub(crate) async fn check<M: Io<Conn>, Conn>(
        &self,
        conn: &mut Conn,
        dialect: Dialect,
    ) -> QueryResult<()> {
        let Some(guard) = self.guard else {
            return Ok(());
        };
        let alive = M::batch_execute(conn, guard.before_commit).await;
        alive.map_err(|error| match dialect.classify(&error) {
            Failure::Other => DieselError::DatabaseError(
                DatabaseErrorKind::SerializationFailure,
                Box::new(format!("the transaction was aborted meanwhile: {error}")),
            ),
            _ => error,
        })
    }

    /// Commits it. After an error it is still to be rolled back.
    pub(crate) async fn commit<M: Io<Conn>, Conn>(&self, conn: &mut Conn) -> QueryResult<()> {
        if let Some(savepoint) = self.savepoint {
            return savepoint.release::<M, _>(conn).await;
        }
        M::commit(conn).await?;
        self.lift_guard::<M, _>(conn).await;
        Ok(())
    }

    /// Rolls it back if it still is open: Diesel has rolled back what it could not commit. A failure leaves the
    /// transaction manager in its error state, where a pool drops the connection; the error that led here says more than
    /// that one would.
    pub(crate) async fn roll_back<M: Io<Conn>, Conn>(&self, conn: &mut Conn) {
        if let Some(savepoint) = self.savepoint {
            let _ = savepoint.roll_back::<M, _>(conn).await; // it fails where a conflict has ended the whole transaction
            return;
        }
        if depth::<M, _>(conn).is_ok_and(|depth| depth > self.outer) {
            if let Some(guard) = self.guard {
                let _ = M::batch_execute(conn, guard.rollback).await; // the next one tells whether the connection is well
            }
            let _ = M::roll_back(conn).await;
        }
        self.lift_guard::<M, _>(conn).await;
    }

    /// Once there is no transaction any more. On a connection that stayed without autocommit, later statements would be lost:
    /// it is broken then.
    async fn lift_guard<M: Io<Conn>, Conn>(&self, conn: &mut Conn) {
        let Some(guard) = self.guard else {
            return;
        };
        let lifted = match depth::<M, _>(conn) {
            Ok(0) => M::batch_execute(conn, guard.after).await.is_ok(),
            _ => false,
        };
        if !lifted {
            M::transaction_status(conn).set_in_error();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diesel::result::DatabaseErrorKind;

    #[derive(Debug, thiserror::Error)]
    #[error("the application's own")]
    struct WithSource(#[from] DieselError);

    #[derive(Debug, thiserror::Error)]
    #[error(transparent)]
    struct Transparent(#[from] DieselError);

    #[derive(Debug, thiserror::Error)]
    #[error("around: {0}")]
    struct Around(#[source] Transparent);

    fn database_error(message: &str) -> DieselError {
        DieselError::DatabaseError(DatabaseErrorKind::Unknown, Box::new(message.to_owned()))
    }

    #[test]
    fn a_conflict_is_found_behind_the_applications_own_error() {
        let found = |error: &(dyn StdError + 'static)| conflict_behind(Dialect::Postgres, error);
        let deadlock = || database_error("deadlock detected");
        assert_eq!(found(&deadlock()), Some(Conflict::Deadlock));
        assert_eq!(found(&WithSource(deadlock())), Some(Conflict::Deadlock));
        assert_eq!(found(&Transparent(deadlock())), Some(Conflict::Deadlock));
        assert_eq!(
            found(&Around(Transparent(deadlock()))),
            Some(Conflict::Deadlock)
        );
        let serialization = DieselError::DatabaseError(
            DatabaseErrorKind::SerializationFailure,
            Box::new("could not serialize access due to concurrent update".to_owned()),
        );
        assert_eq!(
            found(&Transparent(serialization)),
            Some(Conflict::Serialization)
        );
        let persisted = DieselError::from(Error::ConflictPersisted {
            conflict: Conflict::Deadlock,
            attempts: 1,
            elapsed: Default::default(),
            source: deadlock(),
        });
        assert_eq!(found(&WithSource(persisted)), Some(Conflict::Deadlock));
    }

    /// A guard in words that SQLite understands.
    #[cfg(feature = "sqlite")]
    fn guarded(after: &'static str) -> (diesel::SqliteConnection, Begun) {
        use diesel::connection::SimpleConnection;
        let mut conn = diesel::SqliteConnection::establish(":memory:").unwrap();
        let mysqls = Dialect::Mysql.guard().unwrap();
        let guard = Guard { after, ..mysqls };
        let options = TransactionOptions::guarded();
        let begun = now(begin::<Blocking, _>(&mut conn, Dialect::Sqlite, options)).unwrap();
        assert!(begun.guard.is_none());
        conn.batch_execute(guard.at_begin).unwrap();
        let guard = Some(guard);
        (conn, Begun { guard, ..begun })
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn a_transaction_that_is_gone_is_a_conflict() {
        use diesel::connection::SimpleConnection;
        let (mut conn, begun) = guarded("SELECT 1");
        assert_eq!(
            now(begun.check::<Blocking, _>(&mut conn, Dialect::Mysql)),
            Ok(())
        );
        assert_eq!(now(begun.commit::<Blocking, _>(&mut conn)), Ok(()));
        let (mut conn, begun) = guarded("SELECT 1");
        conn.batch_execute("ROLLBACK; BEGIN").unwrap(); // as if without autocommit
        let gone = now(begun.check::<Blocking, _>(&mut conn, Dialect::Mysql)).unwrap_err();
        let conflict = Failure::Conflict(Conflict::Deadlock);
        assert_eq!(Dialect::Mysql.classify(&gone), conflict);
        now(begun.roll_back::<Blocking, _>(&mut conn));
        assert_eq!(in_transaction::<Blocking, _>(&mut conn), Ok(false));
    }

    /// What is committed stays so, and the connection takes no more.
    #[cfg(feature = "sqlite")]
    #[test]
    fn a_connection_whose_guard_stays_is_broken() {
        let (mut conn, begun) = guarded("no such statement");
        assert_eq!(now(begun.commit::<Blocking, _>(&mut conn)), Ok(()));
        assert!(in_transaction::<Blocking, _>(&mut conn).is_err());
        let (mut conn, begun) = guarded("no such statement");
        now(begun.roll_back::<Blocking, _>(&mut conn));
        assert!(in_transaction::<Blocking, _>(&mut conn).is_err());
    }

    #[test]
    fn other_errors_are_no_conflicts() {
        let found = |error: &(dyn StdError + 'static)| conflict_behind(Dialect::Sqlite, error);
        assert_eq!(found(&Transparent(DieselError::NotFound)), None);
        assert_eq!(
            found(&WithSource(database_error("no such table: videos"))),
            None
        );
        assert_eq!(found(&std::fmt::Error), None);
    }
}

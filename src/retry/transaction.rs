//! Whole transactions that are tried again.

use std::error::Error as StdError;
use std::num::NonZeroU32;

use diesel::Connection;
use diesel::connection::TransactionManager;
use diesel::result::{DatabaseErrorKind, Error as DieselError, QueryResult};

use super::policy::{Attempts, Retry};
use crate::conflict::{Conflict, Failure};
use crate::dialect::{BackendOf, Dialect, Guard, ShardedBackend, SurvivalCheck};
use crate::error::Error;
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
        if self.options.isolation.is_some() && in_transaction(conn)? {
            return Err(DieselError::AlreadyInTransaction.into());
        }
        let attempt = Attempt {
            options: self.options,
            survival: Conn::Backend::backend_of(conn).dialect().survival_check(),
            told_as: Failed::Body,
        };
        attempt.run(conn, self.retry, &mut f)
    }
}

/// Runs one of the crate's own operations: in a transaction that is tried again, or in a savepoint of the caller's, where
/// the options are the caller's too.
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
    let attempt = Attempt {
        options,
        survival: None, // it returns every error that it sees
        told_as: Failed::Own,
    };
    attempt.run(conn, retry, &mut f)
}

/// Runs one statement of the crate's own that commits by itself, and again after a conflict; inside a caller's transaction
/// once.
pub(crate) fn own_statement<Conn, T>(
    conn: &mut Conn,
    retry: Retry,
    f: impl FnMut(&mut Conn) -> QueryResult<T>,
) -> QueryResult<T>
where
    Conn: Connection,
    Conn::Backend: BackendOf<Conn>,
{
    alone(conn, retry, Failed::Commit, f)
}

/// The same for a query, which commits nothing.
pub(crate) fn own_read<Conn, T>(
    conn: &mut Conn,
    retry: Retry,
    f: impl FnMut(&mut Conn) -> QueryResult<T>,
) -> QueryResult<T>
where
    Conn: Connection,
    Conn::Backend: BackendOf<Conn>,
{
    alone(conn, retry, Failed::Own, f)
}

fn alone<Conn, T>(
    conn: &mut Conn,
    retry: Retry,
    told_as: fn(DieselError) -> Failed<DieselError>,
    mut f: impl FnMut(&mut Conn) -> QueryResult<T>,
) -> QueryResult<T>
where
    Conn: Connection,
    Conn::Backend: BackendOf<Conn>,
{
    if in_transaction(conn)? {
        return f(conn);
    }
    repeat(conn, retry, |conn, _| f(conn).map_err(told_as))
}

/// One attempt's error, and where it came from.
enum Failed<E> {
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
}

/// How each attempt is made.
struct Attempt<E> {
    options: TransactionOptions,
    survival: Option<SurvivalCheck>,
    /// What an error of the body is told as.
    told_as: fn(E) -> Failed<E>,
}

/// Makes attempts until one succeeds, meets something else than a conflict, or none is left.
fn repeat<Conn, T, E>(
    conn: &mut Conn,
    retry: Retry,
    mut attempt: impl FnMut(&mut Conn, Dialect) -> Result<T, Failed<E>>,
) -> Result<T, E>
where
    Conn: Connection,
    Conn::Backend: BackendOf<Conn>,
    E: From<DieselError> + StdError + 'static,
{
    let dialect = Conn::Backend::backend_of(conn).dialect();
    let mut attempts = Attempts::start(retry);
    loop {
        let error = match attempt(conn, dialect) {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let Some(conflict) = error.conflict(dialect) else {
            return Err(error.given_up(dialect));
        };
        match attempts.after(conflict) {
            Some(delay) => attempts.retry().sleep(delay),
            None => return Err(error.used_up(conflict, &attempts)),
        }
    }
}

impl<E: From<DieselError> + StdError + 'static> Attempt<E> {
    /// Makes attempts, or inside a caller's transaction one, in a savepoint. What led to the rollback of a savepoint is told
    /// also where the rollback fails, as it does after a conflict that ended the whole transaction.
    fn run<Conn, T>(
        self,
        conn: &mut Conn,
        retry: Retry,
        f: &mut impl FnMut(&mut Conn) -> Result<T, E>,
    ) -> Result<T, E>
    where
        Conn: Connection,
        Conn::Backend: BackendOf<Conn>,
    {
        if in_transaction(conn)? {
            let dialect = Conn::Backend::backend_of(conn).dialect();
            let savepoint = Attempt {
                survival: None,
                ..self
            };
            return savepoint
                .once(conn, dialect, f)
                .map_err(|failed| failed.inside(dialect));
        }
        repeat(conn, retry, |conn, dialect| self.once(conn, dialect, f))
    }

    fn once<Conn, T>(
        &self,
        conn: &mut Conn,
        dialect: Dialect,
        f: &mut impl FnMut(&mut Conn) -> Result<T, E>,
    ) -> Result<T, Failed<E>>
    where
        Conn: Connection,
    {
        let begun = begin(conn, dialect, self.options).map_err(Failed::Begin)?;
        let mark = self.survival.as_ref().and_then(|check| check.at_begin);
        if let Some(mark) = mark.filter(|_| begun.guard.is_none()) {
            conn.batch_execute(mark).map_err(|e| {
                begun.rollback(conn);
                Failed::Begin(e)
            })?;
        }
        let value = f(conn).map_err(|e| {
            begun.rollback(conn);
            (self.told_as)(e)
        })?;
        let survived = match &self.survival {
            None => begun.check(conn, dialect).map_err(Failed::Own),
            Some(check) => conn.batch_execute(check.before_commit).map_err(|e| {
                match dialect.classify(&e) {
                    // A conflict of its own: what a cluster's node has met since the closure's last statement is told at the next.
                    Failure::ConnectionLost | Failure::NodeNotReady | Failure::Conflict(_) => {
                        Failed::Own(e)
                    }
                    // Not tried again, whatever guards it: the closure may have committed it.
                    _ => Failed::Aborted,
                }
            }),
        };
        survived.inspect_err(|_| begun.rollback(conn))?;
        begun.commit(conn).map_err(|e| {
            begun.rollback(conn);
            Failed::Commit(e)
        })?;
        Ok(value)
    }
}

impl<E: From<DieselError> + StdError + 'static> Failed<E> {
    fn conflict(&self, dialect: Dialect) -> Option<Conflict> {
        match self {
            Failed::Begin(e) | Failed::Own(e) | Failed::Commit(e) => conflict_behind(dialect, e),
            Failed::Body(e) => conflict_behind(dialect, e),
            Failed::Aborted => None,
        }
    }

    /// The caller's error when no new attempt can help.
    fn given_up(self, dialect: Dialect) -> E {
        let (source, commits) = match self {
            Failed::Body(e) => return e,
            Failed::Aborted => return DieselError::from(Error::TransactionAborted).into(),
            Failed::Begin(e) | Failed::Own(e) => (e, false),
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
            Failed::Begin(e) | Failed::Commit(e) => e.into(),
            Failed::Aborted => DieselError::from(Error::TransactionAborted).into(),
        }
    }

    /// The caller's error when the policy allows no further attempt.
    fn used_up(self, conflict: Conflict, attempts: &Attempts) -> E {
        let source = match self {
            Failed::Body(e) => return e,
            Failed::Begin(e) | Failed::Own(e) | Failed::Commit(e) => e,
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
pub(crate) fn depth<Conn: Connection>(conn: &mut Conn) -> QueryResult<u32> {
    let status = Conn::TransactionManager::transaction_manager_status_mut(conn);
    let depth = status.transaction_depth();
    let depth = depth.map_err(|source| Error::ConnectionLost { source })?;
    Ok(depth.map_or(0, NonZeroU32::get))
}

/// Whether a transaction is open on `conn`.
pub(crate) fn in_transaction<Conn: Connection>(conn: &mut Conn) -> QueryResult<bool> {
    Ok(depth(conn)? > 0)
}

/// Begins a transaction, or a savepoint inside one; on an error neither is open.
pub(crate) fn begin<Conn: Connection>(
    conn: &mut Conn,
    dialect: Dialect,
    options: TransactionOptions,
) -> QueryResult<Begun> {
    let outer = depth(conn)?;
    if outer > 0 {
        Conn::TransactionManager::begin_transaction(conn)?;
        return Ok(Begun { outer, guard: None });
    }
    let other_nodes_write = Stripe::process_wide() != Stripe::ALL;
    let guard = match options.guarded || other_nodes_write {
        true => dialect.guard(),
        false => None,
    };
    let begun = Begun { outer, guard };
    let opened = open(conn, dialect, options, guard);
    opened.inspect_err(|_| begun.rollback(conn))?;
    Ok(begun)
}

fn open<Conn: Connection>(
    conn: &mut Conn,
    dialect: Dialect,
    options: TransactionOptions,
    guard: Option<Guard>,
) -> QueryResult<()> {
    let isolation = options.isolation.and_then(|i| dialect.set_isolation(i));
    let (before, after) = match isolation {
        Some((sql, true)) => (Some(sql), None),
        Some((sql, false)) => (None, Some(sql)),
        None => (None, None),
    };
    match (guard, before) {
        (Some(guard), Some(sql)) => conn.batch_execute(&format!("{}; {sql}", guard.before))?,
        (Some(Guard { before: sql, .. }), None) | (None, Some(sql)) => conn.batch_execute(sql)?,
        (None, None) => {}
    }
    Conn::TransactionManager::begin_transaction(conn)?;
    match after {
        Some(sql) => conn.batch_execute(sql)?,
        None if options.immediate && dialect.begins_immediate() => begin_immediate(conn)?,
        None => {}
    }
    match guard {
        Some(guard) => conn.batch_execute(guard.at_begin),
        None => Ok(()),
    }
}

/// Diesel's transaction manager says `BEGIN` for every connection behind a generic `Conn`. This puts the immediate
/// transaction in its place: both are a transaction at depth one. Where it fails there is none, and Diesel notices.
fn begin_immediate<Conn: Connection>(conn: &mut Conn) -> QueryResult<()> {
    conn.batch_execute("COMMIT; BEGIN IMMEDIATE")
}

/// A transaction or savepoint that was begun, and has to be ended by [`commit`](Self::commit), or else by
/// [`rollback`](Self::rollback).
#[derive(Debug, Clone, Copy)]
#[must_use]
pub(crate) struct Begun {
    outer: u32,
    guard: Option<Guard>,
}

impl Begun {
    /// Asks, where there is a guard, whether the transaction still lives. If not it is a conflict: nothing was committed.
    pub(crate) fn check<Conn: Connection>(
        &self,
        conn: &mut Conn,
        dialect: Dialect,
    ) -> QueryResult<()> {
        let Some(guard) = self.guard else {
            return Ok(());
        };
        conn.batch_execute(guard.before_commit)
            .map_err(|error| match dialect.classify(&error) {
                Failure::Other => DieselError::DatabaseError(
                    DatabaseErrorKind::SerializationFailure,
                    Box::new(format!("the transaction was aborted meanwhile: {error}")),
                ),
                _ => error,
            })
    }

    /// Commits it. After an error it is still to be rolled back.
    pub(crate) fn commit<Conn: Connection>(&self, conn: &mut Conn) -> QueryResult<()> {
        Conn::TransactionManager::commit_transaction(conn)?;
        self.lift_guard(conn);
        Ok(())
    }

    /// Rolls it back if it still is open: Diesel has rolled back what it could not commit. A failure leaves the
    /// transaction manager in its error state, where a pool drops the connection; the error that led here says more than
    /// that one would.
    pub(crate) fn rollback<Conn: Connection>(&self, conn: &mut Conn) {
        if depth(conn).is_ok_and(|depth| depth > self.outer) {
            if let Some(guard) = self.guard {
                let _ = conn.batch_execute(guard.rollback); // the next one tells whether the connection is well
            }
            let _ = Conn::TransactionManager::rollback_transaction(conn);
        }
        self.lift_guard(conn);
    }

    /// Once there is no transaction any more. On a connection that stayed without autocommit, later statements would be lost:
    /// it is broken then.
    fn lift_guard<Conn: Connection>(&self, conn: &mut Conn) {
        let Some(guard) = self.guard else {
            return;
        };
        let lifted = match depth(conn) {
            Ok(0) => conn.batch_execute(guard.after).is_ok(),
            _ => false,
        };
        if !lifted {
            Conn::TransactionManager::transaction_manager_status_mut(conn).set_in_error();
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
        let begun = begin(&mut conn, Dialect::Sqlite, options).unwrap();
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
        assert_eq!(begun.check(&mut conn, Dialect::Mysql), Ok(()));
        assert_eq!(begun.commit(&mut conn), Ok(()));
        let (mut conn, begun) = guarded("SELECT 1");
        conn.batch_execute("ROLLBACK; BEGIN").unwrap(); // as if without autocommit
        let gone = begun.check(&mut conn, Dialect::Mysql).unwrap_err();
        let conflict = Failure::Conflict(Conflict::Deadlock);
        assert_eq!(Dialect::Mysql.classify(&gone), conflict);
        begun.rollback(&mut conn);
        assert_eq!(in_transaction(&mut conn), Ok(false));
    }

    /// What is committed stays so, and the connection takes no more.
    #[cfg(feature = "sqlite")]
    #[test]
    fn a_connection_whose_guard_stays_is_broken() {
        let (mut conn, begun) = guarded("no such statement");
        assert_eq!(begun.commit(&mut conn), Ok(()));
        assert!(in_transaction(&mut conn).is_err());
        let (mut conn, begun) = guarded("no such statement");
        begun.rollback(&mut conn);
        assert!(in_transaction(&mut conn).is_err());
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

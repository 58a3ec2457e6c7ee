//! Whole transactions that are tried again.

use std::error::Error as StdError;

use diesel::Connection;
use diesel::result::{Error as DieselError, QueryResult};

use crate::backend::{BackendOf, Dialect, SurvivalCheck};
use crate::conflict::{Conflict, Failure, is_foreign_key_violation};
use crate::connection::{
    Io, Link, OpenTransaction, TransactionOptions, begin, in_transaction, met_inside, now,
};
use crate::error::Error;
use crate::observe::{self, Scope, Work};
use crate::policy::{Attempts, RetryPolicy};

/// What is done until it succeeds, meets something else than a conflict, or no attempt is left: a transaction, or one statement.
/// Its loop is [`retry_loop!`].
///
/// Inside a caller's transaction it is done once, a transaction in a savepoint. What led to the rollback of a savepoint is told
/// also where the rollback fails, as it does after a conflict that ended the whole transaction.
#[derive(Debug)]
pub(crate) struct RetryLoop {
    what: What,
    dialect: Dialect,
    inside: bool,
    attempts: Attempts,
    begun: Option<OpenTransaction>,
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

/// The loop of `$retry`, a [`RetryLoop`]: does `$body`, an expression with `?`, on the `$link`, until it succeeds or is not to be tried again.
macro_rules! retry_loop {
    ($link:expr, $retry:expr, $body:expr) => {{
        let mut retry: $crate::engine::RetryLoop = $retry;
        $link.enter();
        let done = loop {
            let outcome = match retry.begin($link).await {
                Ok(()) => {
                    let body = async { $body };
                    let outcome: ::diesel::result::QueryResult<_> =
                        retry.scope().within(body).await;
                    outcome.map_err(|error| retry.own_failure(error))
                }
                Err(failed) => Err(failed),
            };
            if let Some(done) = retry
                .end::<_, ::diesel::result::Error, _, _>($link, outcome)
                .await
            {
                break done;
            }
        };
        $link.leave();
        done
    }};
}
pub(crate) use retry_loop;

impl RetryLoop {
    /// An application's transaction.
    pub(crate) fn closure<M, Conn>(
        link: &mut Link<'_, M, Conn>,
        retry: RetryPolicy,
        options: TransactionOptions,
    ) -> QueryResult<Self>
    where
        M: Io<Conn>,
    {
        let survival = link.dialect().survival_check();
        let what = What::Transaction(options, survival);
        Self::new(link, retry, what, Work::Closure)
    }

    /// One of the crate's own transactions.
    pub(crate) fn transaction<M, Conn>(
        link: &mut Link<'_, M, Conn>,
        retry: RetryPolicy,
        options: TransactionOptions,
    ) -> QueryResult<Self>
    where
        M: Io<Conn>,
    {
        // It returns every error that it sees: no question whether it survived.
        Self::new(link, retry, What::Transaction(options, None), Work::Own)
    }

    /// A statement that commits by itself.
    pub(crate) fn statement<M, Conn>(
        link: &mut Link<'_, M, Conn>,
        retry: RetryPolicy,
    ) -> QueryResult<Self>
    where
        M: Io<Conn>,
    {
        Self::new(link, retry, What::Statement, Work::Statement)
    }

    /// A query.
    pub(crate) fn read<M, Conn>(
        link: &mut Link<'_, M, Conn>,
        retry: RetryPolicy,
    ) -> QueryResult<Self>
    where
        M: Io<Conn>,
    {
        Self::new(link, retry, What::Read, Work::Read)
    }

    fn new<M, Conn>(
        link: &mut Link<'_, M, Conn>,
        retry: RetryPolicy,
        what: What,
        work: Work,
    ) -> QueryResult<Self>
    where
        M: Io<Conn>,
    {
        let inside = in_transaction(link)?;
        let (what, work) = match what {
            What::Transaction(options, _) if inside => {
                (What::Transaction(options, None), Work::Savepoint)
            }
            what => (what, work),
        };
        let dialect = link.dialect();
        Ok(RetryLoop {
            what,
            dialect,
            inside,
            attempts: Attempts::start(retry),
            begun: None,
            told: observe::Transaction::begin(dialect, work),
        })
    }

    /// What the attempt runs in.
    pub(crate) fn scope(&self) -> Scope {
        self.told.scope()
    }

    /// Begins an attempt.
    pub(crate) async fn begin<E, M, Conn>(
        &mut self,
        link: &mut Link<'_, M, Conn>,
    ) -> Result<(), Failed<E>>
    where
        M: Io<Conn>,
    {
        self.told.attempt(self.attempts.number());
        let What::Transaction(options, survival) = self.what else {
            return Ok(());
        };
        let scope = self.scope();
        let begun = scope.within(begin(link, self.dialect, options)).await;
        let begun = begun.map_err(Failed::Begin)?;
        self.begun = Some(begun);
        if begun.is_in_anothers() {
            self.inside = true;
            link.is_inside();
            self.what = What::Transaction(options, None);
            return Ok(());
        }
        let mark = survival.and_then(|check| check.at_begin);
        match mark.filter(|_| !begun.is_guarded()) {
            Some(mark) => {
                let marked = scope.within(async { link.batch_execute(mark).await });
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
    pub(crate) async fn end<T, E, M, Conn>(
        &mut self,
        link: &mut Link<'_, M, Conn>,
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
                    let alive = scope.within(begun.check(link, self.dialect));
                    alive.await.err().unwrap_or(error)
                }
                None => error,
            }),
            Err(failed) => failed,
            Ok(value) => match scope.within(self.commit(link)).await {
                Ok(()) => {
                    self.told.ended(self.attempts.number(), true);
                    return Some(Ok(value));
                }
                Err(failed) => failed,
            },
        };
        if let Some(begun) = self.begun.take() {
            scope.within(begun.roll_back(link)).await;
        }
        if let (What::Statement | What::Read, false) = (self.what, self.inside) {
            if let Some(ended) = failed.ended_transaction(self.dialect) {
                let looking = met_inside(link, ended);
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

    async fn commit<E, M, Conn>(&mut self, link: &mut Link<'_, M, Conn>) -> Result<(), Failed<E>>
    where
        M: Io<Conn>,
    {
        let (What::Transaction(_, survival), Some(begun)) = (self.what, self.begun) else {
            return Ok(());
        };
        match survival {
            None => {
                let alive = begun.check(link, self.dialect).await;
                alive.map_err(Failed::Own)?;
            }
            Some(check) => {
                let alive = link.batch_execute(check.before_commit).await;
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
        begun.commit(link).await.map_err(Failed::Commit)
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
    let link = &mut Link::blocking(conn);
    now(async {
        let begun = begin(link, link.dialect(), options).await?;
        let done = match f(link.conn) {
            Ok(value) => begun.commit(link).await.map(|()| value),
            Err(error) => Err(error),
        };
        if done.is_err() {
            begun.roll_back(link).await;
        }
        done
    })
}

/// Runs one of the crate's own operations: in a transaction that is tried again, or in a savepoint of the caller's, where
/// the options are the caller's too.
#[cfg(feature = "r2d2")]
pub(crate) fn own_transaction<Conn, T>(
    conn: &mut Conn,
    retry: RetryPolicy,
    options: TransactionOptions,
    mut f: impl FnMut(&mut Conn) -> QueryResult<T>,
) -> QueryResult<T>
where
    Conn: Connection,
    Conn::Backend: BackendOf<Conn>,
{
    let link = &mut Link::blocking(conn);
    now(async {
        let retrying = RetryLoop::transaction(link, retry, options)?;
        retry_loop!(link, retrying, f(link.conn))
    })
}

/// Runs one statement of the crate's own that commits by itself, and again after a conflict; inside a caller's transaction
/// once.
#[cfg(feature = "r2d2")]
pub(crate) fn own_statement<Conn, T>(
    conn: &mut Conn,
    retry: RetryPolicy,
    mut f: impl FnMut(&mut Conn) -> QueryResult<T>,
) -> QueryResult<T>
where
    Conn: Connection,
    Conn::Backend: BackendOf<Conn>,
{
    let link = &mut Link::blocking(conn);
    now(async {
        let retrying = RetryLoop::statement(link, retry)?;
        retry_loop!(link, retrying, f(link.conn))
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

//! Work that is retried as a whole: transactions, statements, queries and counting updates.

use std::error::Error as StdError;
use std::time::Duration;

use diesel::result::{Error as DieselError, QueryResult};

use super::attempt_error::{AttemptError, is_unfit};
use crate::backend::{AsksPrimary, Dialect, SurvivalCheck};
use crate::conflict::{Conflict, ErrorClass};
use crate::connection::{
    Ending, Io, Link, OpenTransaction, TransactionOptions, begin, in_transaction, met_inside,
};
use crate::observe::{self, Observer, Scope};
use crate::policy::{Attempts, RetryPolicy};

/// The attempts at one piece of work, until it succeeds, fails for a reason other than a conflict, or no attempt is left. Its loop is
/// [`retry_loop!`].
///
/// Inside a caller's transaction there is one attempt, and a transaction becomes a savepoint. An error that led to the rollback of a
/// savepoint is reported even if the rollback fails, as it does after a conflict that ended the whole transaction.
#[derive(Debug)]
pub(crate) struct RetryLoop<O = observe::Transaction> {
    unit: Unit,
    /// In a transaction of the caller's.
    pub(super) inside: bool,
    pub(super) attempts: Attempts,
    /// The transaction or savepoint of the attempt.
    open: Option<OpenTransaction>,
    /// Whether the first missing parent is retried immediately, without using up an attempt: the retry finds the parent, or finds it
    /// missing.
    retries_at_once: bool,
    pub(super) observer: O,
}

/// The unit that is retried.
#[derive(Debug, Clone, Copy)]
enum Unit {
    Transaction(TransactionOptions, Option<SurvivalCheck>),
    /// Commits by itself, unless the attempt opens a transaction.
    Statement,
    /// Commits nothing.
    Read,
}

/// Loops over the attempts of `$retry`, a [`RetryLoop`]: runs `$body`, an expression with `?`, on the `$link`, until the loop ends. What the
/// body did is committed, unless it says `ending` and is an [`Ending`](crate::connection::Ending).
macro_rules! retry_loop {
    ($link:expr, $retry:expr, $body:expr) => {
        $crate::engine::retry_loop!($link, $retry, ending => {
            let outcome: ::diesel::result::QueryResult<_> = async { $body }.await;
            outcome.map($crate::connection::Ending::Commit)
        })
    };
    ($link:expr, $retry:expr, ending => $body:expr) => {{
        let mut retry: $crate::engine::RetryLoop = $retry;
        $link.enter();
        let done = $crate::engine::retry_loop!($link, retry => {
            let body = async { $body };
            let outcome: ::diesel::result::QueryResult<_> = retry.scope().within(body).await;
            match outcome {
                Ok(ending) => Ok(retry.value($link, ending).await),
                Err(error) => Err(retry.statement_failed::<::diesel::result::Error, _>($link, error)),
            }
        });
        $link.leave();
        done
    }};
    ($link:expr, $retry:ident => $attempt:expr) => {
        loop {
            let outcome = match $retry.begin($link).await {
                Ok(()) => $attempt,
                Err(error) => Err(error),
            };
            if let Some(done) = $retry.end($link, outcome).await {
                break done;
            }
        }
    };
}
pub(crate) use retry_loop;

impl RetryLoop {
    /// An application's transaction.
    pub(crate) fn closure<M: Io>(
        link: &mut Link<'_, M>,
        retry: RetryPolicy,
        options: TransactionOptions,
    ) -> QueryResult<Self> {
        let unit = Unit::Transaction(options, link.dialect().survival_check());
        Self::new(link, retry, unit, "closure")
    }

    /// One of the crate's own transactions.
    pub(crate) fn transaction<M: Io>(
        link: &mut Link<'_, M>,
        retry: RetryPolicy,
        options: TransactionOptions,
    ) -> QueryResult<Self> {
        // It returns every error that it sees, so no check has to ask whether it survived.
        Self::new(link, retry, Unit::Transaction(options, None), "own")
    }

    /// A statement that commits by itself.
    pub(crate) fn statement<M: Io>(
        link: &mut Link<'_, M>,
        retry: RetryPolicy,
    ) -> QueryResult<Self> {
        Self::new(link, retry, Unit::Statement, "statement")
    }

    /// A query.
    pub(crate) fn read<M: Io>(link: &mut Link<'_, M>, retry: RetryPolicy) -> QueryResult<Self> {
        Self::new(link, retry, Unit::Read, "read")
    }

    /// A query whose answer decides what is written; see [`Dialect::asks_primary`].
    pub(crate) fn decision<M: Io>(link: &mut Link<'_, M>, retry: RetryPolicy) -> QueryResult<Self> {
        let in_its_own = link.dialect().asks_primary() == AsksPrimary::InTransaction
            && !M::is_shared()
            && !in_transaction(link)?;
        let options = TransactionOptions {
            own: true,
            ..Default::default()
        };
        match in_its_own {
            true => Self::transaction(link, retry, options),
            false => Self::read(link, retry),
        }
    }

    fn new<M: Io>(
        link: &mut Link<'_, M>,
        retry: RetryPolicy,
        unit: Unit,
        kind: &'static str,
    ) -> QueryResult<Self> {
        let inside = in_transaction(link)?;
        let (unit, kind) = match unit {
            Unit::Transaction(options, _) if inside => {
                (Unit::Transaction(options, None), "savepoint")
            }
            unit => (unit, kind),
        };
        Ok(RetryLoop {
            unit,
            inside,
            attempts: Attempts::start(retry),
            open: None,
            retries_at_once: false,
            observer: observe::Transaction::begin(link.dialect(), kind),
        })
    }

    /// The scope of the attempt's own steps.
    pub(crate) fn scope(&self) -> Scope {
        self.observer.scope()
    }

    /// Begins an attempt.
    pub(crate) async fn begin<E, M: Io>(
        &mut self,
        link: &mut Link<'_, M>,
    ) -> Result<(), AttemptError<E>> {
        self.observer.attempt(self.attempts.number());
        link.failed_at_insert = false;
        let Unit::Transaction(options, survival) = self.unit else {
            return Ok(());
        };
        let begun = self.open(link, options).await;
        begun.map_err(AttemptError::Statement)?;
        if self.open.is_some_and(|open| open.is_in_anothers()) {
            self.unit = Unit::Transaction(options, None);
            return Ok(());
        }
        let mark = survival.and_then(|check| check.at_begin);
        match mark.filter(|_| !self.open.is_some_and(|open| open.is_guarded())) {
            Some(mark) => {
                let marking = self.scope().within(link.batch_execute(mark));
                marking.await.map_err(AttemptError::Statement)
            }
            None => Ok(()),
        }
    }

    /// The attempt's error after a statement of this crate's own failed.
    pub(crate) fn statement_failed<E: From<DieselError>, M: Io>(
        &self,
        link: &Link<'_, M>,
        error: DieselError,
    ) -> AttemptError<E> {
        match self.unit {
            // Only shards have a parent, as far as the crate's own statements go.
            Unit::Transaction(..)
                if !link.failed_at_insert && link.dialect().is_parent_gone(&error) =>
            {
                AttemptError::ParentGone(error)
            }
            Unit::Transaction(..) => AttemptError::Statement(error),
            _ if self.inside => AttemptError::Application(error.into()),
            Unit::Statement => AttemptError::Commit(error),
            Unit::Read => AttemptError::Statement(error),
        }
    }
}

impl<O: Observer> RetryLoop<O> {
    /// A counting update: a statement that commits by itself, or in a transaction that its attempts open. `inside`: in a transaction of the
    /// caller's.
    pub(super) fn counting(attempts: Attempts, inside: bool, observer: O) -> Self {
        RetryLoop {
            unit: Unit::Statement,
            inside,
            attempts,
            open: None,
            retries_at_once: true,
            observer,
        }
    }

    /// Whether the attempt has opened a transaction or a savepoint.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether the next statement commits by itself, as far as is known.
    pub(super) fn commits_by_itself(&self) -> bool {
        !self.is_open() && !self.inside
    }

    /// Opens a transaction, or a savepoint in the caller's.
    pub(super) async fn open<M: Io>(
        &mut self,
        link: &mut Link<'_, M>,
        options: TransactionOptions,
    ) -> QueryResult<()> {
        let scope = self.observer.step("begin");
        let begun = scope.within(begin(link, options)).await;
        self.observer.stepped(begun.as_ref().err());
        let open = begun?;
        if open.is_in_anothers() {
            self.inside = true;
            link.inside = true;
        }
        self.open = Some(open);
        Ok(())
    }

    /// Commits what the attempt has opened. After an error it is still open, to be rolled back.
    pub(super) async fn commit<E, M: Io>(
        &mut self,
        link: &mut Link<'_, M>,
    ) -> Result<(), AttemptError<E>> {
        let Some(mut open) = self.open else {
            return Ok(());
        };
        let dialect = link.dialect();
        let scope = self.observer.step("commit");
        let alive = match self.unit {
            Unit::Transaction(_, Some(check)) => {
                scope.within(link.batch_execute(check.before_commit)).await
            }
            _ => scope.within(open.check(link, dialect)).await,
        };
        let committed = match alive {
            Ok(()) => match scope.within(open.commit(link)).await {
                // SQLite has ended it at an error that the closure ignored.
                Err(error) if dialect.has_no_transaction(&error) => Err(AttemptError::Aborted),
                committed => committed.map_err(AttemptError::Commit),
            },
            Err(error) => Err(self.did_not_survive(dialect, error)),
        };
        self.open = Some(open);
        self.observer
            .stepped(committed.as_ref().err().and_then(AttemptError::source));
        committed?;
        self.open = None;
        Ok(())
    }

    /// The attempt's error after its transaction failed the check before `COMMIT`.
    fn did_not_survive<E>(&self, dialect: Dialect, error: DieselError) -> AttemptError<E> {
        match (self.unit, dialect.classify(&error)) {
            // Not retried, whatever guards it: the closure may have committed it.
            (
                Unit::Transaction(_, Some(_)),
                ErrorClass::Overflow | ErrorClass::DiskFull | ErrorClass::Other,
            ) => AttemptError::Aborted,
            // The check may have met a conflict of its own: a cluster's node reports at the next statement what happened after the
            // closure's last one.
            _ => AttemptError::Statement(error),
        }
    }

    /// Ends an attempt: with the outcome of the work, or with `None` if it is to be attempted again.
    pub(crate) async fn end<T, E, M>(
        &mut self,
        link: &mut Link<'_, M>,
        outcome: Result<T, AttemptError<E>>,
    ) -> Option<Result<T, E>>
    where
        M: Io,
        E: From<DieselError> + StdError + 'static,
    {
        let error = match outcome {
            Ok(value) => match self.commit(link).await {
                Ok(()) => {
                    self.observer.ended(self.attempts.number(), true);
                    return Some(Ok(value));
                }
                Err(error) => error,
            },
            // A cluster's node may have aborted the transaction without telling the client. Then the rows of another transaction were
            // compared.
            Err(AttemptError::Statement(error)) if is_unfit(&error) => {
                AttemptError::Statement(self.aborted_unheard(link).await.unwrap_or(error))
            }
            Err(error) => error,
        };
        let retried = self.recover(link, error).await;
        retried.err().map(Err)
    }

    /// The error of a transaction that was aborted without telling the client.
    async fn aborted_unheard<M: Io>(&mut self, link: &mut Link<'_, M>) -> Option<DieselError> {
        let (open, dialect) = (self.open?, link.dialect());
        let scope = self.observer.step("commit");
        scope.within(open.check(link, dialect)).await.err()
    }

    /// The value of work that succeeded. Its transaction is rolled back now if it ends that way; a commit is left to [`end`](Self::end).
    pub(crate) async fn value<T, M: Io>(&mut self, link: &mut Link<'_, M>, ending: Ending<T>) -> T {
        match ending {
            Ending::Commit(value) => value,
            Ending::RollBack(value) => {
                self.roll_back(link).await;
                value
            }
        }
    }

    /// Rolls back what the attempt has opened.
    async fn roll_back<M: Io>(&mut self, link: &mut Link<'_, M>) {
        if let Some(open) = self.open.take() {
            let scope = self.observer.step("rollback");
            scope.within(open.roll_back(link)).await;
            self.observer.stepped(None);
        }
    }

    /// Rolls a failed attempt back, and waits for the next one. Returns the error to report if there is none.
    async fn recover<E, M>(
        &mut self,
        link: &mut Link<'_, M>,
        error: AttemptError<E>,
    ) -> Result<(), E>
    where
        M: Io,
        E: From<DieselError> + StdError + 'static,
    {
        let dialect = link.dialect();
        let sent_by_itself =
            !matches!(self.unit, Unit::Transaction(..)) && self.commits_by_itself();
        self.roll_back(link).await;
        if sent_by_itself {
            if let Some(ended) = error.ended_transaction(dialect) {
                // If the answer is unknown, nothing is retried. On a shared connection another task may have ended the transaction
                // meanwhile.
                self.inside = M::is_shared() || {
                    let scope = self.observer.step("look_inside");
                    let found = scope.within(met_inside(link, ended)).await;
                    self.observer.stepped(found.as_ref().err());
                    found.unwrap_or(true)
                };
            }
        }
        let error = match error {
            AttemptError::Commit(error)
                if !self.inside && self.was_refused(link, &error, !sent_by_itself).await =>
            {
                AttemptError::Statement(error)
            }
            error => error,
        };
        let number = self.attempts.number();
        let conflict = error.conflict(dialect);
        let at_once = matches!(error, AttemptError::LostRace(_))
            || (!self.inside
                && conflict == Some(Conflict::ParentGone)
                && std::mem::take(&mut self.retries_at_once));
        let delay = match conflict {
            _ if at_once => {
                self.observer.failed(number, None, Some(Duration::ZERO));
                Duration::ZERO
            }
            Some(conflict) if !self.inside => {
                let delay = self.attempts.after(conflict);
                self.observer.failed(number, Some(conflict), delay);
                let Some(delay) = delay else {
                    self.observer.ended(number, false);
                    let persisted = |source| self.attempts.persisted(conflict, source);
                    return Err(error.report_as(persisted));
                };
                delay
            }
            conflict => {
                self.observer.failed(number, conflict, None);
                self.observer.ended(number, false);
                return Err(error.report(dialect, self.inside));
            }
        };
        M::sleep(self.attempts.retry(), delay).await;
        Ok(())
    }

    /// Whether the database is known to have refused what failed, so that nothing was committed.
    async fn was_refused<M: Io>(
        &mut self,
        link: &mut Link<'_, M>,
        error: &DieselError,
        is_commit: bool,
    ) -> bool {
        let dialect = link.dialect();
        if dialect.is_refusal(error, is_commit) {
            return true;
        }
        let proof = match dialect.classify(error) {
            ErrorClass::ConnectionLost | ErrorClass::Conflict(_) => None,
            _ => dialect.proves_refusal(is_commit),
        };
        let Some(proof) = proof else { return false };
        let scope = self.observer.step("look_inside");
        let answer = scope.within(link.batch_execute(proof)).await;
        self.observer.stepped(answer.as_ref().err());
        match answer {
            Ok(()) => true,
            // The session that met the error still exists, in a caller's transaction.
            Err(error) => dialect.refuses_after_errors() && dialect.may_succeed_again(&error),
        }
    }
}

//! A counting update, from its first statement to its end.
//!
//! | target | outside a transaction | inside the caller's |
//! |---|---|---|
//! | by key | Count; if that met no row: Begin, Create, Count, Commit; on PostgreSQL Create, Count | Count; if that met no row: Create, Count |
//! | by any filter | CountOne; if that met no row: Begin, Create, Count, Commit | the same without Begin and Commit; on MySQL Create, Count |
//! | by key, rows wanted | Begin, Count (Create, Count), Load, Commit | the same, in a savepoint |
//! | by any filter, rows wanted | Begin, Pick, Count (Create, Count), Load, Commit | the same, in a savepoint |
//!
//! PostgreSQL counts on several parents by one statement too, CountAll. If rows are wanted, the statement that counts also reads them,
//! CountAndLoad. There the rest of the table is only for missing shards.
//!
//! A count that claims an idempotency key is one statement, CountOnce. It counts nothing if that statement meets no row.
//!
//! With a row to insert, an attempt that meets no parent inserts it and counts again. Inside the caller's transaction such an attempt
//! begins a savepoint before Create.
//!
//! If others may hold the shard, Probe comes first; see [`shard_choice`](crate::shard_choice).
//!
//! Begin may turn out to be a savepoint in a transaction that Diesel does not know; from then on the update is inside the caller's. For
//! a statement that commits by itself, the [`RetryLoop`] finds that out after a conflict, before it retries.

use std::pin::pin;

use diesel::result::{DatabaseErrorKind, Error as DieselError, QueryResult};

use super::attempt_error::{AttemptError, explain_by, narrow_key};
use super::facts::{Facts, PartOf};
use super::retry_loop::RetryLoop;
use super::statement::{SendStatement, Statement, Step};
use crate::backend::{ErrorDetail, INTERRUPTED_UNHEARD, OnceForm, SHARD_REMOVED};
use crate::conflict::{Conflict, ErrorClass};
use crate::connection::{Io, Link, TransactionOptions};
use crate::error::{Error, database_error};
use crate::observe::{self, Observer};
use crate::placement::{Choice, CountKind, Process};
use crate::policy::{Attempts, RetryPolicy};

/// Runs a counting update to its end, and returns the number of parents that it counted on.
pub(crate) async fn count<M: Io>(
    link: &mut Link<'_, M>,
    mut facts: Facts,
    retry: RetryPolicy,
    update: &mut (impl SendStatement<M> + ?Sized),
) -> QueryResult<usize> {
    facts.part_of = PartOf::of(link)?;
    let observer = observe::Update::begin(facts.dialect, facts.shards_table.as_str(), facts.keys);
    link.enter();
    let counted = Counting::run(link, facts, retry, update, Process::this(), observer).await;
    link.leave();
    counted.map_err(|error| explain_by(facts.shards_table, facts.columns, facts.dialect, error))
}

/// How many times another connection may insert the missing parent first.
const MOST_LOST_RACES: u8 = 3;

/// How many times an attempt creates a shard that a fold removes before the count. Then it creates the shard in a transaction.
const MOST_CREATED: u8 = 3;

/// A counting update in progress.
struct Counting<'a, 'c, M: Io, S: ?Sized, O> {
    link: &'a mut Link<'c, M>,
    update: &'a mut S,
    facts: Facts,
    retry: RetryLoop<O>,
    choice: Choice,
    /// How many times another connection has inserted the missing parent.
    lost_races: u8,
}

impl<'a, 'c, M, S, O> Counting<'a, 'c, M, S, O>
where
    M: Io,
    S: SendStatement<M> + ?Sized,
    O: Observer,
{
    async fn run(
        link: &'a mut Link<'c, M>,
        facts: Facts,
        retry: RetryPolicy,
        update: &'a mut S,
        process: &'static Process,
        observer: O,
    ) -> QueryResult<usize> {
        let attempts = Attempts::start(retry);
        let inside = facts.part_of != PartOf::Nothing;
        let mut counting = Counting {
            link,
            update,
            facts,
            choice: Choice::new(facts.subject(), process, &attempts),
            retry: RetryLoop::counting(attempts, inside, observer),
            lost_races: 0,
        };
        loop {
            let outcome = counting.attempt().await;
            let (retry, choice) = (&mut counting.retry, &mut counting.choice);
            match &outcome {
                Ok(rows) => retry.observer.counted(*rows),
                // The next attempt takes a shard other than the one that met the conflict.
                Err(error) => match error.conflict(facts.dialect) {
                    None | Some(Conflict::ParentGone) => {}
                    Some(_) => choice.met_conflict(&retry.attempts),
                },
            }
            if let Some(counted) = retry.end(counting.link, outcome).await {
                return counted;
            }
            choice.again(&retry.attempts);
        }
    }

    /// One attempt, with its transaction if it needs one.
    async fn attempt(&mut self) -> Result<usize, AttemptError> {
        while self.choice.probes() {
            self.probe().await?;
        }
        let (number, shard) = (self.retry.attempts.number(), self.choice.shard());
        self.retry.observer.attempt(number, shard);
        let counted = if self.facts.once {
            self.count_timed(Statement::CountOnce).await?
        } else if self.facts.returning {
            self.count_and_load().await?
        } else if self.facts.by_key {
            let counted = self.count_by_key().await?;
            self.or_insert(counted).await?
        } else {
            self.count_by_filter().await?
        };
        self.retry.commit(self.link).await?;
        Ok(counted)
    }

    /// Asks whether the shard is locked, and chooses another one if it is.
    async fn probe(&mut self) -> Result<(), AttemptError> {
        let dialect = self.facts.dialect;
        let (statement, shard) = (Statement::Probe, self.choice.shard());
        let scope = self.retry.observer.probe(statement.name(), shard);
        let sent = pin!(self.update.send(self.link, Step { statement, shard }));
        let outcome = scope.within(sent).await;
        self.retry.observer.sent(&outcome);
        let locked = match outcome {
            // A missing shard is treated as locked; it existed a moment ago.
            Ok(rows) => rows == 0 && dialect.supports_skip_locked(),
            Err(error) => match dialect.classify(&error) {
                ErrorClass::ConnectionLost => return Err(AttemptError::Statement(error)),
                ErrorClass::Conflict(Conflict::LockTimeout) => true,
                _ => false, // the count meets the same error
            },
        };
        self.choice.probed(locked, &self.retry.attempts);
        Ok(())
    }

    /// Counts on the parents that a filter matches, and reads them.
    async fn count_and_load(&mut self) -> Result<usize, AttemptError> {
        if self.facts.dialect.counts_all_or_none() && !self.facts.loads_apart {
            let counted = self.count_timed(Statement::CountAndLoad).await?;
            if counted > 0 || self.matches_none().await? {
                return Ok(counted);
            }
        }
        // Inside the caller's transaction this is a savepoint: a failure after the count takes the count back.
        self.begin().await?;
        let counted = match self.facts.by_key {
            true => self.count_by_key().await?,
            false => self.pick_and_count().await?,
        };
        let counted = self.or_insert(counted).await?;
        if counted > 0 {
            self.send(Statement::Load).await?;
        }
        Ok(counted)
    }

    /// Counts on the parents that match a filter other than the key.
    async fn count_by_filter(&mut self) -> Result<usize, AttemptError> {
        let all_or_none = self.facts.dialect.counts_all_or_none();
        if !self.may_lock_gap() {
            let counted = match self.count_one().await? {
                0 if all_or_none => self.send(Statement::CountAll).await?,
                counted => counted,
            };
            if counted > 0 || self.matches_none().await? {
                return Ok(counted);
            }
        }
        if M::is_shared() && all_or_none && !self.facts.inserts {
            return self.create_and_count_all().await;
        }
        if self.facts.inserts || !self.retry.inside {
            self.begin().await?;
        }
        let counted = self.create_and_count_picked().await?;
        self.or_insert(counted).await
    }

    /// After a count that met no row: whether there is no parent to count on and none to insert.
    async fn matches_none(&mut self) -> Result<bool, AttemptError> {
        Ok(!self.facts.inserts
            && self.facts.dialect.tells_rows_of_queries()
            && self.send(Statement::FindParent).await? == 0)
    }

    /// Inserts the parent if none was counted on, and counts on it.
    async fn or_insert(&mut self, counted: usize) -> Result<usize, AttemptError> {
        match counted {
            0 if self.facts.inserts => self.insert_and_count().await,
            counted => Ok(counted),
        }
    }

    /// Counts on the one parent that a filter matches. If the database does not let the filter read what it needs, counts on none.
    async fn count_one(&mut self) -> Result<usize, AttemptError> {
        let dialect = self.facts.dialect;
        let refuses = |error: &DieselError| dialect.has_detail(error, ErrorDetail::TargetRead);
        match self.send(Statement::CountOne).await {
            Err(error) if error.source().is_some_and(refuses) => Ok(0),
            counted => counted,
        }
    }

    /// Counts on the parents that a filter matches, by their keys.
    async fn pick_and_count(&mut self) -> Result<usize, AttemptError> {
        match self.send(Statement::Pick).await? {
            0 => Ok(0),
            1 => self.count_by_key().await,
            _ => {
                self.create().await?;
                self.send(Statement::CountByKey).await
            }
        }
    }

    /// Counts on the parents that a filter matches, after their shards were created.
    async fn create_and_count_picked(&mut self) -> Result<usize, AttemptError> {
        let matched = self.create().await?;
        let counted = self.send(Statement::CountPicked).await?;
        self.is_whole(matched, counted).map(|()| counted)
    }

    /// Fails if an interrupted statement ended without an error, but counted on fewer rows than the statement before it met.
    fn is_whole(&mut self, matched: usize, counted: usize) -> Result<(), AttemptError> {
        if counted >= matched || !self.facts.dialect.joins_end_early() {
            return Ok(());
        }
        // No savepoint takes back what was counted.
        if counted > 0 && !self.retry.is_open() {
            self.link.transaction_status().set_in_error();
        }
        let error = database_error(DatabaseErrorKind::Unknown, INTERRUPTED_UNHEARD);
        Err(AttemptError::Statement(error))
    }

    /// Counts on a parent that is named by its key.
    async fn count_by_key(&mut self) -> Result<usize, AttemptError> {
        let is_missing = self.may_lock_gap() && self.send(Statement::FindMissing).await? > 0;
        if !is_missing {
            let counted = self.count_timed(Statement::CountByKey).await?;
            if counted > 0 {
                return Ok(counted);
            }
        }
        self.create_and_count().await
    }

    /// Whether a count that meets no row locks the gap until the caller's transaction ends.
    fn may_lock_gap(&self) -> bool {
        self.retry.inside && self.facts.dialect.missing_row_locks_gap()
    }

    /// Counts, and tells the choice of shards how long that took.
    async fn count_timed(&mut self, statement: Statement) -> Result<usize, AttemptError> {
        let sent = self.choice.is_timed().then(|| self.retry.attempts.now());
        let kind = CountKind {
            commits: self.retry.commits_by_itself(),
            loads: statement == Statement::CountAndLoad,
            claims: statement == Statement::CountOnce,
        };
        let counted = self.send(statement).await?;
        if let (Some(sent), 1..) = (sent, counted) {
            let now = self.retry.attempts.now();
            let time = now.saturating_duration_since(sent);
            self.choice.took(time, kind, now);
        }
        Ok(counted)
    }

    async fn begin(&mut self) -> Result<(), AttemptError> {
        let options = TransactionOptions {
            own: true,
            ..TransactionOptions::of_a_count(self.facts.dialect)
        };
        let begun = self.retry.open(self.link, options).await;
        begun.map_err(AttemptError::Statement)
    }

    /// Creates the missing shards, and returns the number of rows that the statement met.
    async fn create(&mut self) -> Result<usize, AttemptError> {
        let met = self.send(Statement::Create).await?;
        // MySQL also counts rows that existed before. By key none did, or nothing would be created.
        if self.facts.by_key || self.facts.dialect.counts_only_inserted() {
            self.retry.observer.created(met);
        }
        Ok(met)
    }

    /// Creates the shard of a parent named by its key, and counts on it.
    ///
    /// Creating a shard at zero changes no total and needs no transaction, but a fold may remove the shard before the count. Then it is
    /// created again, and finally in a transaction that locks it.
    async fn create_and_count(&mut self) -> Result<usize, AttemptError> {
        if self.creates_without_transaction() {
            for _ in 0..MOST_CREATED {
                let counted = match self.create().await? {
                    // Another connection has created it, or there is no such parent.
                    0 => self.send(Statement::CountPicked).await?,
                    _ => self.count_created().await?,
                };
                if counted > 0 || self.send(Statement::FindParent).await? == 0 {
                    return Ok(counted);
                }
            }
            if M::is_shared() {
                return Err(shard_removed());
            }
        }
        // The attempt may insert a row later, and has to take it back if the count fails.
        if !self.retry.is_open() && (!self.retry.inside || self.facts.inserts) {
            self.begin().await?;
        }
        self.create().await?;
        self.count_created().await
    }

    /// Counts by a filter without a transaction: either all parents have their shards, or none is counted on.
    async fn create_and_count_all(&mut self) -> Result<usize, AttemptError> {
        for _ in 0..MOST_CREATED {
            self.create().await?;
            let counted = self.send(Statement::CountAll).await?;
            if counted > 0 || self.send(Statement::FindParent).await? == 0 {
                return Ok(counted);
            }
        }
        Err(shard_removed())
    }

    fn creates_without_transaction(&self) -> bool {
        self.retry.commits_by_itself()
            && self.facts.dialect.creates_without_transaction()
            && !self.facts.inserts
    }

    /// Counts by key on a shard that was created.
    async fn count_created(&mut self) -> Result<usize, AttemptError> {
        match self.count_timed(Statement::CountByKey).await? {
            // Either the two tables compare keys in different ways, or there is no such parent.
            0 => self.send(Statement::CountPicked).await,
            counted => Ok(counted),
        }
    }

    /// Inserts the parent that is missing, and counts on it.
    async fn insert_and_count(&mut self) -> Result<usize, AttemptError> {
        loop {
            // If an insert does nothing although no parent is found, the second insert reports the reason.
            let insert = match self.facts.dialect.inserts_unless_there() && self.lost_races == 0 {
                true => Statement::InsertUnlessThere,
                false => Statement::Insert,
            };
            let inserted = self.send(insert).await? > 0;
            if !inserted {
                // A trigger kept the row out, or the inserting query found none: there is nothing to count on.
                if insert == Statement::Insert {
                    return Ok(0);
                }
                self.lost_races += 1;
                self.link.failed_at_insert = false; // the row is there
            }
            let counted = if self.facts.by_key {
                self.create().await?;
                self.count_created().await?
            } else if self.facts.returning {
                self.pick_and_count().await?
            } else {
                self.create_and_count_picked().await?
            };
            if counted > 0 {
                return Ok(counted);
            }
            if inserted {
                return Err(AttemptError::Application(Error::InsertedOther.into()));
            }
        }
    }

    /// Sends a statement, and returns the number of rows that it met.
    async fn send(&mut self, statement: Statement) -> Result<usize, AttemptError> {
        let scope = self.retry.observer.step(statement.name());
        let shard = self.choice.shard();
        let outcome = {
            let sent = pin!(self.update.send(self.link, Step { statement, shard }));
            scope.within(sent).await
        };
        self.retry.observer.sent(&outcome);
        outcome.map_err(|error| self.failed(statement, error))
    }

    fn failed(&mut self, statement: Statement, error: DieselError) -> AttemptError {
        let is_insert = matches!(statement, Statement::Insert | Statement::InsertUnlessThere);
        self.link.failed_at_insert = is_insert;
        match statement {
            Statement::Create
                if !self.retry.inside && self.facts.dialect.is_parent_gone(&error) =>
            {
                AttemptError::ParentGone(error)
            }
            Statement::Create if self.facts.dialect.classify(&error) == ErrorClass::Overflow => {
                let (table, key) = (self.facts.shards_table.as_str(), self.facts.key_columns);
                AttemptError::Application(narrow_key(table, key, error))
            }
            // Not forever: a unique key that is violated each time is not the parent's key.
            Statement::Insert
                if is_unique_violation(&error) && self.lost_races < MOST_LOST_RACES =>
            {
                self.lost_races += 1;
                AttemptError::LostRace(error)
            }
            // The caller's own row overflows, not a shard.
            _ if is_insert && self.facts.dialect.classify(&error) == ErrorClass::Overflow => {
                AttemptError::Application(error)
            }
            Statement::CountAndLoad
                if self.retry.commits_by_itself()
                    && matches!(error, DieselError::DeserializationError(_)) =>
            {
                AttemptError::Application(Error::CountedNotRead { source: error }.into())
            }
            // The sender has looked the key up: nothing was committed.
            Statement::CountOnce
                if self.facts.dialect.counts_once_by() == Some(OnceForm::Compound)
                    && self.facts.dialect.classify(&error) != ErrorClass::ConnectionLost =>
            {
                AttemptError::Statement(error)
            }
            Statement::CountByKey
            | Statement::CountOne
            | Statement::CountAll
            | Statement::CountAndLoad
            | Statement::CountOnce
            | Statement::CountPicked
                if self.retry.commits_by_itself() =>
            {
                AttemptError::Commit(error)
            }
            _ => AttemptError::Statement(error),
        }
    }
}

/// No transaction can keep the shard on a connection that tasks share: the next attempt creates it again.
fn shard_removed() -> AttemptError {
    let error = database_error(DatabaseErrorKind::SerializationFailure, SHARD_REMOVED);
    AttemptError::ShardRemoved(error)
}

fn is_unique_violation(error: &DieselError) -> bool {
    matches!(
        error,
        DieselError::DatabaseError(DatabaseErrorKind::UniqueViolation, _)
    )
}

#[cfg(all(test, feature = "postgres_backend", feature = "mysql_backend"))]
mod tests;

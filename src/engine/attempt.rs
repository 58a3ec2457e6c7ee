//! The state machine of a counting update: it decides, and somebody else carries out.
//!
//! It is told what became of the last step and answers with the next one: begin, run this statement on shard 11, sleep 3 ms,
//! done. It neither holds a connection nor sleeps, so the synchronous and an asynchronous runner decide nothing, and a
//! test can walk it through any failure without a database.
//!
//! | target | outside a transaction | inside the caller's |
//! |---|---|---|
//! | by key | Count; if that met no row: Begin, Create, Count, Commit; on PostgreSQL Create, Count | Count; if that met no row: Create, Count |
//! | by any filter | Begin, Create, Count, Commit | Create, Count |
//! | by key, rows wanted | Begin, Count (Create, Count), Load, Commit | the same, in a savepoint |
//! | by any filter, rows wanted | Begin, Pick, Create, Count, Load, Commit | the same, in a savepoint |
//!
//! With a row to insert, what meets no parent goes on by Insert and then from the start; where a savepoint takes the
//! place of a transaction, Begin comes before Create.
//!
//! Where others may hold the shard, Probe comes before all that; see [`shard_choice`](crate::shard_choice).
//!
//! A count by key that met no row after Create is repeated by the parent's own comparison of keys (CountPicked). On MySQL,
//! FindMissing stands before the count by key inside the caller's.
//!
//! Create that commits by itself leaves a shard at zero, which changes no total. Whoever folds may remove it before the count.
//! So where that met no row, FindParent tells whether there is no such parent, or Create is repeated; after three times
//! in a transaction, in which the shard is locked.
//!
//! Begin may turn out to be a savepoint in a transaction that Diesel does not know; from then on it is inside the caller's. Of a
//! statement that commits by itself that is asked when it meets a conflict (LookInside), before it is tried again.

use std::time::{Duration, Instant};

use diesel::result::{DatabaseErrorKind, Error as DieselError};

use crate::backend::Dialect;
use crate::conflict::{Conflict, Failure, is_foreign_key_violation};
use crate::error::Error;
use crate::observe;
use crate::placement::{Choice, Process, ShardChoice, Stripe, Subject};
use crate::policy::{Attempts, RetryPolicy};

/// One statement of a counting update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Statement {
    /// Fails, or on PostgreSQL meets no row, if somebody holds the lock on the shard of a parent named by its key.
    Probe,
    /// Looks whether the shard of a parent named by its key is missing, without a lock: meets a row if it is.
    FindMissing,
    /// Looks whether a parent named by its key is there, without a lock.
    FindParent,
    /// Adds to the shards of parents that are named by their keys.
    CountByKey,
    /// Adds to the shards of parents that a filter matches, as the parents' table compares.
    CountPicked,
    /// Inserts the shards that are missing, at zero, and locks the others.
    Create,
    /// Inserts the parent that is missing, unless one is there by now.
    InsertUnlessThere,
    /// Inserts the parent that is missing.
    Insert,
    /// Reads the keys of the parents that a filter matches.
    Pick,
    /// Reads the counted parents with their totals.
    Load,
}

/// What the runner has to do next.
#[derive(Debug)]
pub(crate) enum Step {
    Begin,
    Run(Statement),
    Commit,
    Rollback,
    /// Finds out whether the statement that met a conflict was part of a transaction that Diesel does not know: one row, or none.
    LookInside {
        /// The conflict is one that ends a transaction.
        ended: bool,
    },
    Sleep(Duration),
    /// The end: the number of parents counted, or why none was.
    Finish(Result<usize, Error>),
}

/// What a counting update is about, as far as its steps depend on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// The filter names the key and nothing else.
    pub(crate) by_key: bool,
    /// The counted rows are wanted back.
    pub(crate) returning: bool,
    /// There is a row to insert if no parent matches.
    pub(crate) inserts: bool,
    /// The caller has a transaction open.
    pub(crate) in_transaction: bool,
    pub(crate) dialect: Dialect,
    pub(crate) shard_choice: ShardChoice,
    /// The shards table's name.
    pub(crate) table: &'static str,
    pub(crate) keys: observe::Keys,
    /// The filter's [hash](crate::shard_choice::hash_of), where the choice needs one.
    pub(crate) key: u64,
    /// How many shards there are to choose from, at least 1.
    pub(crate) shards: u16,
}

impl Plan {
    fn subject(&self) -> Subject {
        Subject {
            choice: self.shard_choice,
            table: self.table,
            key: self.key,
            shards: self.shards,
            stripe: Stripe::global(),
            one_writer: !self.dialect.has_row_locks(),
            in_transaction: self.in_transaction,
            timed: self.by_key,
        }
    }
}

#[derive(Debug)]
pub(crate) struct CountingAttempt {
    plan: Plan,
    attempts: Attempts,
    choice: Choice,
    /// When the count was sent, where it matters how long it takes.
    sent: Option<Instant>,
    /// The step that is being carried out.
    at: At,
    /// The missing shards were created in this attempt.
    created: bool,
    /// How often they were in this attempt, by a statement that commits by itself.
    created_alone: u8,
    /// The missing parent was inserted in this attempt.
    inserted: bool,
    /// A parent was deleted while its shard was being created, at least once.
    parent_gone: bool,
    /// How often somebody else has inserted the missing parent.
    inserted_by_others: u8,
    /// A transaction of our own is open.
    open: bool,
    counted: usize,
    /// What the attempt met.
    conflict: Option<Conflict>,
}

#[derive(Debug)]
enum At {
    Start,
    Begin,
    Run(Statement),
    Commit,
    /// Rolling back, and what comes after that.
    Rollback(Box<Step>),
    /// The conflict in question, and what the database said.
    LookInside(Conflict, DieselError),
    Sleep,
    End,
}

impl CountingAttempt {
    pub(crate) fn new(plan: Plan, retry: RetryPolicy) -> Self {
        Self::within(Process::this(), plan, retry)
    }

    fn within(process: &'static Process, plan: Plan, retry: RetryPolicy) -> Self {
        let attempts = Attempts::start(retry);
        CountingAttempt {
            choice: Choice::new(plan.subject(), process, &attempts),
            sent: None,
            plan,
            attempts,
            at: At::Start,
            created: false,
            created_alone: 0,
            inserted: false,
            parent_gone: false,
            inserted_by_others: 0,
            open: false,
            counted: 0,
            conflict: None,
        }
    }

    /// The shard of the current attempt.
    pub(crate) fn shard(&self) -> i32 {
        self.choice.shard()
    }

    pub(crate) fn attempts(&self) -> &Attempts {
        &self.attempts
    }

    /// The conflict that ended the last attempt, until the next one begins.
    pub(crate) fn conflict(&self) -> Option<Conflict> {
        self.conflict
    }

    /// The next step, after the last one ended with `outcome`: the number of rows that it met, where it met any.
    pub(crate) fn next(&mut self, outcome: Result<usize, DieselError>) -> Step {
        if let (Some(sent), Ok(1..)) = (self.sent.take(), &outcome) {
            let now = self.attempts.now();
            let commits = self.commits_by_itself();
            self.choice
                .took(now.saturating_duration_since(sent), commits, now);
        }
        let is_first = matches!(self.at, At::Start);
        let step = match outcome {
            Ok(rows) => self.succeeded(rows),
            Err(error) => self.failed(error),
        };
        self.at = match &step {
            Step::Begin => At::Begin,
            Step::Run(statement) => At::Run(*statement),
            Step::Commit => At::Commit,
            Step::Rollback | Step::LookInside { .. } => return step, // `at` holds what comes after it
            Step::Sleep(_) => At::Sleep,
            Step::Finish(_) => At::End,
        };
        if matches!(self.at, At::Run(Statement::CountByKey)) && self.choice.is_timed() {
            self.sent = Some(match is_first {
                true => self.attempts.started(),
                false => self.attempts.now(),
            });
        }
        step
    }

    fn succeeded(&mut self, rows: usize) -> Step {
        match std::mem::replace(&mut self.at, At::End) {
            At::Start => self.start(),
            At::Begin => {
                self.open = true;
                if self.plan.by_key && !self.plan.returning {
                    Step::Run(Statement::Create) // the count has met no row
                } else {
                    self.first_statement()
                }
            }
            At::Run(Statement::Probe) => {
                // A shard that is not there is taken for a locked one; it was there a moment ago.
                let locked = rows == 0 && self.plan.dialect.skips_what_is_locked();
                self.choice.probed(locked, &self.attempts);
                self.start()
            }
            At::Run(Statement::FindMissing) if rows > 0 => self.create(),
            At::Run(Statement::FindMissing) => Step::Run(self.count()),
            At::Run(Statement::Pick) if rows == 0 => self.after_count(),
            At::Run(Statement::Pick) => Step::Run(Statement::Create),
            At::Run(Statement::Create) => {
                self.created = true;
                match (self.creates_alone(), rows) {
                    // Another one has created it, or there is no such parent.
                    (true, 0) => Step::Run(Statement::CountPicked),
                    _ => Step::Run(self.count()),
                }
            }
            At::Run(Statement::FindParent) if rows > 0 => self.create(),
            At::Run(Statement::FindParent) => self.end(),
            // A trigger that keeps the row out, or a query that finds none: there is nothing to count on.
            At::Run(Statement::Insert) if rows == 0 => self.end(),
            At::Run(Statement::Insert | Statement::InsertUnlessThere) => {
                self.inserted = rows > 0;
                self.inserted_by_others += u8::from(rows == 0);
                self.created = false;
                if self.plan.by_key {
                    Step::Run(Statement::Create)
                } else {
                    self.first_statement()
                }
            }
            // The shards' table compares keys in another way than the parents' does, or there is no such parent.
            At::Run(Statement::CountByKey) if rows == 0 && self.created && self.plan.by_key => {
                Step::Run(Statement::CountPicked)
            }
            At::Run(Statement::CountByKey | Statement::CountPicked) => {
                self.counted = rows;
                self.after_count()
            }
            At::Run(Statement::Load) => self.end(),
            At::Commit => Step::Finish(Ok(self.counted)),
            At::Rollback(then) => *then,
            At::LookInside(_, error) if rows > 0 => Step::Finish(Err(Error::Diesel(error))),
            At::LookInside(conflict, error) => self.try_again(conflict, error),
            At::Sleep => {
                self.choice.again(&self.attempts);
                self.created = false;
                self.created_alone = 0;
                self.inserted = false;
                self.counted = 0;
                self.conflict = None;
                self.start()
            }
            At::End => Step::Finish(Ok(self.counted)),
        }
    }

    fn start(&mut self) -> Step {
        if self.choice.probes() {
            return Step::Run(Statement::Probe);
        }
        let Plan {
            by_key,
            returning,
            inserts,
            in_transaction,
            ..
        } = self.plan;
        // Inside the caller's: a savepoint, so that a failure after the count takes the count back.
        if returning || (!by_key && (inserts || !in_transaction)) {
            Step::Begin
        } else {
            self.first_statement()
        }
    }

    fn first_statement(&self) -> Step {
        let Plan {
            by_key,
            returning,
            in_transaction,
            dialect,
            ..
        } = self.plan;
        match (by_key, returning) {
            (true, _) if in_transaction && dialect.missing_row_locks_gap() => {
                Step::Run(Statement::FindMissing)
            }
            (true, _) => Step::Run(self.count()),
            (false, true) => Step::Run(Statement::Pick),
            (false, false) => Step::Run(Statement::Create),
        }
    }

    /// Rows that are wanted back were picked before, and have keys to count by.
    fn count(&self) -> Statement {
        if self.plan.by_key || self.plan.returning {
            Statement::CountByKey
        } else {
            Statement::CountPicked
        }
    }

    /// Creating needs a transaction with what follows where it does not commit by itself, and what may insert needs one that it
    /// can take back.
    fn create(&mut self) -> Step {
        if self.creates_alone() && self.created_alone < 3 {
            self.created_alone += 1;
            return Step::Run(Statement::Create);
        }
        if self.open || (self.plan.in_transaction && !self.plan.inserts) {
            Step::Run(Statement::Create)
        } else {
            Step::Begin
        }
    }

    fn creates_alone(&self) -> bool {
        self.commits_by_itself() && self.plan.dialect.creates_alone() && !self.plan.inserts
    }

    fn after_count(&mut self) -> Step {
        if self.counted > 0 {
            return if self.plan.returning {
                Step::Run(Statement::Load)
            } else {
                self.end()
            };
        }
        if self.plan.by_key && self.created && self.creates_alone() {
            Step::Run(Statement::FindParent)
        } else if self.plan.by_key && !self.created {
            self.create()
        } else if self.plan.inserts && !self.inserted {
            Step::Run(self.insert())
        } else if self.inserted {
            self.roll_back(Step::Finish(Err(Error::InsertedOther)))
        } else {
            self.end()
        }
    }

    /// What did nothing once for no parent to be found says why the second time.
    fn insert(&self) -> Statement {
        if self.plan.dialect.inserts_unless_there() && self.inserted_by_others == 0 {
            Statement::InsertUnlessThere
        } else {
            Statement::Insert
        }
    }

    fn roll_back(&mut self, then: Step) -> Step {
        self.open = false;
        self.at = At::Rollback(Box::new(then));
        Step::Rollback
    }

    fn end(&self) -> Step {
        if self.open {
            Step::Commit
        } else {
            Step::Finish(Ok(self.counted))
        }
    }

    fn failed(&mut self, error: DieselError) -> Step {
        let at = std::mem::replace(&mut self.at, At::End);
        match at {
            At::Rollback(then) => return *then,
            // Where it cannot be told, nothing is tried again.
            At::LookInside(_, error) => return Step::Finish(Err(Error::Diesel(error))),
            _ => {}
        }
        if matches!(at, At::Run(Statement::Probe)) {
            match self.plan.dialect.classify(&error) {
                Failure::ConnectionLost => {}
                // Whatever else it is, the count will tell.
                failure => {
                    let locked = failure == Failure::Conflict(Conflict::LockTimeout);
                    self.choice.probed(locked, &self.attempts);
                    return self.start();
                }
            }
        }
        let commits = match at {
            At::Commit => true,
            At::Run(Statement::CountByKey | Statement::CountPicked) => self.commits_by_itself(),
            _ => false,
        };
        let then = match at {
            At::Run(Statement::Create) if self.parent_may_be_gone(&error) => {
                let conflict = Conflict::ParentGone;
                self.conflict = Some(conflict);
                match self.commits_by_itself() {
                    true => self.look_inside(conflict, error),
                    false => self.try_again(conflict, error),
                }
            }
            At::Run(Statement::Insert) if self.others_may_insert(&error) => {
                Step::Sleep(Duration::ZERO)
            }
            At::Run(Statement::Insert | Statement::InsertUnlessThere)
                if self.plan.dialect.classify(&error) == Failure::Overflow =>
            {
                Step::Finish(Err(Error::Diesel(error))) // no shard's, but of the caller's own row
            }
            _ => self.after_failure(error, commits),
        };
        if self.open {
            self.roll_back(then)
        } else {
            then
        }
    }

    /// The step before has begun a savepoint, in a transaction of the caller's that Diesel does not know.
    pub(crate) fn is_inside(&mut self) {
        self.plan.in_transaction = true;
    }

    /// A statement of its own, as far as is known.
    fn commits_by_itself(&self) -> bool {
        !self.open && !self.plan.in_transaction
    }

    /// A parent that is deleted, or gets another key, while its shard is being created makes the foreign key fail.
    fn parent_may_be_gone(&self, error: &DieselError) -> bool {
        !self.plan.in_transaction && is_foreign_key_violation(error)
    }

    /// Not for ever: a unique key that is violated each time is another than the parent's.
    fn others_may_insert(&mut self, error: &DieselError) -> bool {
        is_unique_violation(error) && {
            self.inserted_by_others += 1;
            self.inserted_by_others <= 3
        }
    }

    /// `commits`: the step that failed would have committed the count.
    fn after_failure(&mut self, error: DieselError, commits: bool) -> Step {
        let Plan {
            dialect,
            in_transaction,
            ..
        } = self.plan;
        let failure = dialect.classify(&error);
        if let Failure::Conflict(conflict) = failure {
            self.conflict = Some(conflict);
            self.choice.met_conflict(&self.attempts);
            if self.commits_by_itself() {
                return self.look_inside(conflict, error);
            }
        }
        Step::Finish(Err(match failure {
            // The caller's transaction: what it was told by Diesel so far it is told still, and so is what retries it.
            Failure::Conflict(_) | Failure::ConnectionLost | Failure::NodeNotReady
                if in_transaction =>
            {
                Error::Diesel(error)
            }
            Failure::Conflict(conflict) => return self.try_again(conflict, error),
            Failure::ConnectionLost if commits => Error::OutcomeUnknown { source: error },
            Failure::ConnectionLost => Error::ConnectionLost { source: error },
            Failure::NodeNotReady => Error::NodeNotReady { source: error },
            Failure::Overflow => Error::Overflow { source: error },
            Failure::DiskFull => Error::DiskFull { source: error },
            Failure::Other => Error::Diesel(error),
        }))
    }

    fn look_inside(&mut self, conflict: Conflict, error: DieselError) -> Step {
        let ended = self.plan.dialect.ends_transaction(&error);
        self.at = At::LookInside(conflict, error);
        Step::LookInside { ended }
    }

    fn try_again(&mut self, conflict: Conflict, error: DieselError) -> Step {
        // The next attempt finds it, or that it is not there; that needs no leave to try again.
        if conflict == Conflict::ParentGone && !std::mem::replace(&mut self.parent_gone, true) {
            self.conflict = None;
            return Step::Sleep(Duration::ZERO);
        }
        match self.attempts.after(conflict) {
            Some(delay) => Step::Sleep(delay),
            None => Step::Finish(Err(self.attempts.used_up(conflict, error))),
        }
    }
}

fn is_unique_violation(error: &DieselError) -> bool {
    matches!(
        error,
        DieselError::DatabaseError(DatabaseErrorKind::UniqueViolation, _)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn plan(dialect: Dialect) -> Plan {
        Plan {
            by_key: true,
            returning: false,
            inserts: false,
            in_transaction: false,
            dialect,
            shard_choice: ShardChoice::Random,
            table: "videos_shards",
            keys: observe::Keys::of::<crate::test_schema::videos::table>(dialect),
            key: 7,
            shards: 4,
        }
    }

    fn error(message: &str) -> DieselError {
        DieselError::DatabaseError(DatabaseErrorKind::Unknown, Box::new(message.to_owned()))
    }

    fn deadlock() -> DieselError {
        error("deadlock detected")
    }

    fn lost() -> DieselError {
        DieselError::DatabaseError(DatabaseErrorKind::ClosedConnection, Box::new(String::new()))
    }

    /// Walks the machine through `outcomes` and writes down its steps.
    fn walk(
        plan: Plan,
        retry: RetryPolicy,
        outcomes: Vec<Result<usize, DieselError>>,
    ) -> Vec<String> {
        let mut machine = CountingAttempt::new(plan, retry);
        let mut steps = vec![machine.next(Ok(0))];
        steps.extend(outcomes.into_iter().map(|outcome| machine.next(outcome)));
        steps.iter().map(name).collect()
    }

    fn name(step: &Step) -> String {
        match step {
            Step::Run(Statement::CountByKey | Statement::CountPicked) => "Count".into(),
            Step::Run(statement) => format!("{statement:?}"),
            Step::LookInside { .. } => "LookInside".into(),
            Step::Sleep(_) => "Sleep".into(),
            Step::Finish(Ok(rows)) => format!("{rows} counted"),
            Step::Finish(Err(error)) => format!("{error:?}")
                .split([' ', '('])
                .next()
                .unwrap()
                .into(),
            step => format!("{step:?}"),
        }
    }

    #[test]
    fn a_shard_that_is_there_takes_one_statement() {
        let steps = walk(plan(Dialect::Postgres), RetryPolicy::new(), vec![Ok(1)]);
        assert_eq!(steps, ["Count", "1 counted"]);
    }

    #[test]
    fn a_missing_shard_is_created_in_one_transaction() {
        for dialect in [Dialect::Mysql, Dialect::Sqlite] {
            let outcomes = vec![Ok(0), Ok(0), Ok(1), Ok(1), Ok(0)];
            let steps = walk(plan(dialect), RetryPolicy::new(), outcomes);
            assert_eq!(
                steps,
                ["Count", "Begin", "Create", "Count", "Commit", "1 counted"]
            );
        }
    }

    /// PostgreSQL's transactions begin with a look whether there is one; a shard at zero needs none.
    #[test]
    fn a_missing_shard_is_created_by_a_statement_that_commits_by_itself() {
        let walked = |outcomes: &[usize]| {
            let outcomes = outcomes.iter().map(|rows| Ok(*rows)).collect();
            walk(plan(Dialect::Postgres), RetryPolicy::new(), outcomes)
        };
        assert_eq!(
            walked(&[0, 1, 1]),
            ["Count", "Create", "Count", "1 counted"]
        );
        // Another one has created it, or there is no such parent.
        assert_eq!(
            walked(&[0, 0, 1]),
            ["Count", "Create", "Count", "1 counted"]
        );
        assert_eq!(
            walked(&[0, 0, 0, 0]),
            ["Count", "Create", "Count", "FindParent", "0 counted"]
        );
        // A key that the shards' table compares in another way.
        assert_eq!(
            walked(&[0, 1, 0, 1]),
            ["Count", "Create", "Count", "Count", "1 counted"]
        );
    }

    #[test]
    fn a_shard_that_is_folded_away_before_the_count_is_created_again_and_then_held() {
        let mut outcomes = vec![Ok(0)];
        for _ in 0..3 {
            outcomes.extend([1, 0, 0, 1].map(Ok)); // it is removed each time
        }
        outcomes.extend([Ok(0), Ok(1), Ok(1), Ok(0)]);
        let steps = walk(plan(Dialect::Postgres), RetryPolicy::new(), outcomes);
        let round = ["Create", "Count", "Count", "FindParent"];
        let expected = [
            &["Count"][..],
            &round,
            &round,
            &round,
            &["Begin", "Create", "Count", "Commit", "1 counted"],
        ];
        assert_eq!(steps, expected.concat());
    }

    /// What is tried again must not run where a transaction of the caller's was, of which Diesel does not know.
    #[test]
    fn a_conflict_of_a_statement_by_itself_is_looked_into_first() {
        let retry = || RetryPolicy::new().with_attempts(2);
        for dialect in [Dialect::Postgres, Dialect::Mysql, Dialect::Sqlite] {
            let conflict = || match dialect {
                Dialect::Postgres => deadlock(),
                Dialect::Mysql => error("Lock wait timeout exceeded; try restarting transaction"),
                Dialect::Sqlite => error("database is locked"),
            };
            let outside = vec![Err(conflict()), Ok(0), Ok(0), Ok(1)];
            let steps = walk(plan(dialect), retry(), outside);
            assert_eq!(
                steps,
                ["Count", "LookInside", "Sleep", "Count", "1 counted"]
            );
            let inside = vec![Err(conflict()), Ok(1)];
            let steps = walk(plan(dialect), retry(), inside);
            assert_eq!(steps, ["Count", "LookInside", "Diesel"]);
            let cannot_be_told = vec![Err(conflict()), Err(lost())];
            let steps = walk(plan(dialect), retry(), cannot_be_told);
            assert_eq!(steps, ["Count", "LookInside", "Diesel"]);
        }
        let ends = |dialect, error| {
            let mut machine = CountingAttempt::new(plan(dialect), retry());
            machine.next(Ok(0));
            matches!(machine.next(Err(error)), Step::LookInside { ended: true })
        };
        assert!(ends(
            Dialect::Mysql,
            error("Deadlock found when trying to get lock")
        ));
        assert!(ends(
            Dialect::Mysql,
            error("Record has changed since last read in table 't'")
        ));
        assert!(!ends(Dialect::Mysql, error("Lock wait timeout exceeded")));
        assert!(!ends(Dialect::Postgres, deadlock()));
    }

    #[test]
    fn a_savepoint_in_a_transaction_that_diesel_does_not_know_is_inside_the_callers() {
        let by_filter = Plan {
            by_key: false,
            ..plan(Dialect::Postgres)
        };
        let mut machine = CountingAttempt::new(by_filter, RetryPolicy::new());
        assert_eq!(name(&machine.next(Ok(0))), "Begin");
        machine.is_inside();
        assert_eq!(name(&machine.next(Ok(0))), "Create");
        assert_eq!(name(&machine.next(Err(deadlock()))), "Rollback");
        assert_eq!(name(&machine.next(Ok(0))), "Diesel");
    }

    #[test]
    fn a_missing_parent_counts_nothing() {
        let nothing = (0..6).map(|_| Ok(0)).collect();
        let steps = walk(plan(Dialect::Sqlite), RetryPolicy::new(), nothing);
        // The second count compares the key as the parent's table does.
        assert_eq!(
            steps,
            [
                "Count",
                "Begin",
                "Create",
                "Count",
                "Count",
                "Commit",
                "0 counted"
            ]
        );
    }

    #[test]
    fn what_an_attempt_counted_is_forgotten_when_it_is_taken_back() {
        let returning = Plan {
            returning: true,
            by_key: false,
            ..plan(Dialect::Postgres)
        };
        let outcomes = vec![
            Ok(0),
            Ok(1),
            Ok(1),
            Ok(1),
            Ok(1),
            Err(deadlock()), // COMMIT
            Ok(0),
            Ok(0),
            Ok(0),
            Ok(0), // the second attempt picks no row
            Ok(0),
        ];
        let steps = walk(returning, RetryPolicy::new(), outcomes);
        assert_eq!(steps[steps.len() - 2..], ["Commit", "0 counted"]);
    }

    #[test]
    fn a_parent_deleted_meanwhile_is_looked_for_again() {
        let violation = || {
            let kind = DatabaseErrorKind::ForeignKeyViolation;
            DieselError::DatabaseError(kind, Box::new(String::new()))
        };
        let by_itself = vec![Ok(0), Err(violation()), Ok(0), Ok(0)];
        let steps = walk(plan(Dialect::Postgres), RetryPolicy::new(), by_itself);
        assert_eq!(steps, ["Count", "Create", "LookInside", "Sleep", "Count"]);
        let in_one = || vec![Ok(0), Ok(0), Err(violation()), Ok(0), Ok(0)];
        let steps = walk(plan(Dialect::Mysql), RetryPolicy::new(), in_one());
        assert_eq!(
            steps,
            ["Count", "Begin", "Create", "Rollback", "Sleep", "Count"]
        );
        // The first time that needs no leave to try again, then it does.
        let again = ["Sleep", "Count", "Begin", "Create", "Rollback"];
        for (attempts, times, end) in [(1, 1, "ConflictPersisted"), (3, 3, "ConflictPersisted")] {
            let mut outcomes = in_one();
            for _ in 0..times {
                outcomes.extend(in_one());
            }
            outcomes.pop();
            let retry = RetryPolicy::new().with_attempts(attempts);
            let steps = walk(plan(Dialect::Mysql), retry, outcomes);
            let expected = [
                &["Count", "Begin", "Create", "Rollback"][..],
                &again.repeat(times),
                &[end],
            ];
            assert_eq!(steps, expected.concat());
        }
        let inside = Plan {
            in_transaction: true,
            ..plan(Dialect::Postgres)
        };
        let steps = walk(inside, RetryPolicy::new(), vec![Ok(0), Err(violation())]);
        assert_eq!(steps, ["Count", "Create", "Diesel"]);
    }

    /// Whatever else goes wrong while a shard or a parent is made is told at once, and what ends inside a transaction of our own
    /// was not committed.
    #[test]
    fn only_a_race_is_looked_for_again() {
        let denied = || error("permission denied");
        let steps = walk(
            plan(Dialect::Mysql),
            RetryPolicy::new(),
            vec![Ok(0), Ok(0), Err(denied()), Ok(0)],
        );
        assert_eq!(steps, ["Count", "Begin", "Create", "Rollback", "Diesel"]);
        let by_itself = vec![Ok(0), Err(denied())];
        let steps = walk(plan(Dialect::Postgres), RetryPolicy::new(), by_itself);
        assert_eq!(steps, ["Count", "Create", "Diesel"]);
        let lost_by_itself = vec![Ok(0), Err(self::lost())];
        let steps = walk(plan(Dialect::Postgres), RetryPolicy::new(), lost_by_itself);
        assert_eq!(steps, ["Count", "Create", "ConnectionLost"]);
        let inserts = Plan {
            inserts: true,
            ..plan(Dialect::Mysql)
        };
        let until_insert = || vec![Ok(0), Ok(0), Ok(0), Ok(0), Ok(0)];
        for other in [
            denied(),
            DieselError::DatabaseError(
                DatabaseErrorKind::NotNullViolation,
                Box::new(String::new()),
            ),
            // A range of the caller's own columns, which Diesel tells.
            DieselError::DatabaseError(DatabaseErrorKind::CheckViolation, Box::new(String::new())),
            error("Out of range value for column 'x' at row 1"),
        ] {
            let mut outcomes = until_insert();
            outcomes.extend([Err(other), Ok(0)]);
            let steps = walk(inserts, RetryPolicy::new(), outcomes);
            assert_eq!(steps[5..], ["Insert", "Rollback", "Diesel"]);
        }
        let mut lost = vec![Ok(0), Ok(0), Ok(1)];
        lost.extend([Err(error("Server has gone away")), Ok(0)]);
        let steps = walk(plan(Dialect::Mysql), RetryPolicy::new(), lost);
        assert_eq!(
            steps,
            [
                "Count",
                "Begin",
                "Create",
                "Count",
                "Rollback",
                "ConnectionLost"
            ]
        );
    }

    /// On MySQL a count that meets no row locks the gap: a transaction looks first, and what is there is counted alone.
    #[test]
    fn a_shard_that_is_found_is_not_created() {
        let inside = Plan {
            in_transaction: true,
            ..plan(Dialect::Mysql)
        };
        let steps = walk(inside, RetryPolicy::new(), vec![Ok(0), Ok(1)]);
        assert_eq!(steps, ["FindMissing", "Count", "1 counted"]);
        let steps = walk(inside, RetryPolicy::new(), vec![Ok(1), Ok(1), Ok(1)]);
        assert_eq!(steps, ["FindMissing", "Create", "Count", "1 counted"]);
    }

    #[test]
    fn a_filter_needs_both_statements_in_a_transaction() {
        let plan = Plan {
            by_key: false,
            ..plan(Dialect::Postgres)
        };
        let steps = walk(plan, RetryPolicy::new(), vec![Ok(0), Ok(2), Ok(3), Ok(0)]);
        assert_eq!(steps, ["Begin", "Create", "Count", "Commit", "3 counted"]);
    }

    #[test]
    fn wanted_rows_are_read_before_the_commit() {
        let by_key = Plan {
            returning: true,
            ..plan(Dialect::Mysql)
        };
        let steps = walk(by_key, RetryPolicy::new(), vec![Ok(0), Ok(1), Ok(1), Ok(0)]);
        assert_eq!(steps, ["Begin", "Count", "Load", "Commit", "1 counted"]);
        let by_filter = Plan {
            by_key: false,
            dialect: Dialect::Postgres,
            ..by_key
        };
        let steps = walk(
            by_filter,
            RetryPolicy::new(),
            vec![Ok(0), Ok(3), Ok(0), Ok(3), Ok(3), Ok(0)],
        );
        assert_eq!(
            steps,
            [
                "Begin",
                "Pick",
                "Create",
                "Count",
                "Load",
                "Commit",
                "3 counted"
            ]
        );
        let steps = walk(by_filter, RetryPolicy::new(), vec![Ok(0), Ok(0), Ok(0)]);
        assert_eq!(steps, ["Begin", "Pick", "Commit", "0 counted"]);
    }

    fn unique_violation() -> DieselError {
        let kind = DatabaseErrorKind::UniqueViolation;
        DieselError::DatabaseError(kind, Box::new(String::new()))
    }

    #[test]
    fn a_missing_parent_is_inserted_and_then_counted_on() {
        let by_key = Plan {
            inserts: true,
            ..plan(Dialect::Postgres)
        };
        let outcomes = [0, 0, 0, 0, 0, 1, 1, 1, 0].map(Ok);
        let steps = walk(by_key, RetryPolicy::new(), outcomes.into());
        assert_eq!(
            steps,
            [
                "Count",
                "Begin",
                "Create",
                "Count",
                "Count",
                "InsertUnlessThere",
                "Create",
                "Count",
                "Commit",
                "1 counted"
            ]
        );
        // A savepoint takes the place of the transaction.
        let inside = Plan {
            in_transaction: true,
            ..by_key
        };
        let outcomes = [0, 0, 0, 0, 0, 1, 1, 1, 0].map(Ok);
        let steps = walk(inside, RetryPolicy::new(), outcomes.into());
        assert_eq!(steps[1], "Begin");
        let by_filter = Plan {
            by_key: false,
            returning: true,
            ..inside
        };
        let outcomes = [0, 0, 1, 1, 1, 1, 1, 0].map(Ok);
        let steps = walk(by_filter, RetryPolicy::new(), outcomes.into());
        assert_eq!(
            steps,
            [
                "Begin",
                "Pick",
                "InsertUnlessThere",
                "Pick",
                "Create",
                "Count",
                "Load",
                "Commit",
                "1 counted"
            ]
        );
    }

    #[test]
    fn a_parent_that_another_one_inserted_is_looked_for_again() {
        let by_key = Plan {
            inserts: true,
            ..plan(Dialect::Sqlite)
        };
        let racing = || {
            let mut outcomes: Vec<_> = [0, 0, 0, 0, 0].map(Ok).into();
            outcomes.extend([Err(unique_violation()), Ok(0)]);
            outcomes
        };
        let mut outcomes = racing();
        outcomes.extend([Ok(0), Ok(1)]);
        let steps = walk(by_key, RetryPolicy::never(), outcomes);
        assert_eq!(
            steps[5..],
            ["Insert", "Rollback", "Sleep", "Count", "1 counted"]
        );
        let mut again_and_again = racing();
        for _ in 0..3 {
            again_and_again.push(Ok(0));
            again_and_again.extend(racing());
        }
        let steps = walk(by_key, RetryPolicy::never(), again_and_again);
        assert_eq!(steps[steps.len() - 3..], ["Insert", "Rollback", "Diesel"]);
    }

    /// PostgreSQL's insert does nothing; the row is there for the next statement, or the next insert tells why not.
    #[test]
    fn a_parent_that_is_there_by_now_is_counted_on() {
        let by_key = Plan {
            inserts: true,
            ..plan(Dialect::Postgres)
        };
        let outcomes = [0, 0, 0, 0, 0, 0, 1, 1, 0].map(Ok);
        let steps = walk(by_key, RetryPolicy::new(), outcomes.into());
        assert_eq!(
            steps[5..],
            [
                "InsertUnlessThere",
                "Create",
                "Count",
                "Commit",
                "1 counted"
            ]
        );
        let outcomes = [0, 0, 0, 0, 0, 0, 0, 0, 0, 1].map(Ok);
        let steps = walk(by_key, RetryPolicy::new(), outcomes.into());
        assert_eq!(
            steps[5..],
            [
                "InsertUnlessThere",
                "Create",
                "Count",
                "Count",
                "Insert",
                "Create"
            ]
        );
    }

    #[test]
    fn a_parent_that_the_database_keeps_out_is_not_inserted_for_ever() {
        let by_key = Plan {
            inserts: true,
            ..plan(Dialect::Sqlite)
        };
        let steps = walk(by_key, RetryPolicy::new(), [0; 7].map(Ok).into());
        assert_eq!(steps[5..], ["Insert", "Commit", "0 counted"]);
        let by_key = Plan {
            dialect: Dialect::Postgres,
            ..by_key
        };
        let steps = walk(by_key, RetryPolicy::new(), [0; 11].map(Ok).into());
        assert_eq!(
            steps[5..],
            [
                "InsertUnlessThere",
                "Create",
                "Count",
                "Count",
                "Insert",
                "Commit",
                "0 counted"
            ]
        );
    }

    #[test]
    fn an_inserted_row_that_is_another_is_taken_back() {
        let by_key = Plan {
            inserts: true,
            ..plan(Dialect::Postgres)
        };
        let outcomes = [0, 0, 0, 0, 0, 1, 0, 0, 0, 0].map(Ok);
        let steps = walk(by_key, RetryPolicy::new(), outcomes.into());
        assert_eq!(
            steps[5..],
            [
                "InsertUnlessThere",
                "Create",
                "Count",
                "Count",
                "Rollback",
                "InsertedOther"
            ]
        );
    }

    #[test]
    fn inside_the_callers_transaction_none_is_begun_and_nothing_is_retried() {
        let inside = |dialect| Plan {
            in_transaction: true,
            ..plan(dialect)
        };
        let steps = walk(
            inside(Dialect::Postgres),
            RetryPolicy::new(),
            vec![Ok(0), Ok(1), Ok(1)],
        );
        assert_eq!(steps, ["Count", "Create", "Count", "1 counted"]);
        let steps = walk(
            inside(Dialect::Mysql),
            RetryPolicy::new(),
            vec![Ok(1), Ok(1), Ok(1)],
        );
        assert_eq!(steps, ["FindMissing", "Create", "Count", "1 counted"]);
        let steps = walk(
            inside(Dialect::Postgres),
            RetryPolicy::new(),
            vec![Err(deadlock())],
        );
        assert_eq!(steps, ["Count", "Diesel"]);
    }

    #[test]
    fn a_conflict_is_rolled_back_slept_on_and_tried_again() {
        let steps = walk(
            Plan {
                by_key: false,
                ..plan(Dialect::Postgres)
            },
            RetryPolicy::new(),
            vec![
                Ok(0),
                Err(deadlock()),
                Ok(0),
                Ok(0),
                Ok(0),
                Ok(1),
                Ok(1),
                Ok(0),
            ],
        );
        assert_eq!(
            steps,
            [
                "Begin",
                "Create",
                "Rollback",
                "Sleep",
                "Begin",
                "Create",
                "Count",
                "Commit",
                "1 counted"
            ]
        );
    }

    #[test]
    fn conflicts_end_with_the_attempts() {
        let steps = walk(
            plan(Dialect::Postgres),
            RetryPolicy::new().with_attempts(2),
            vec![Err(deadlock()), Ok(0), Ok(0), Err(deadlock()), Ok(0)],
        );
        assert_eq!(
            steps,
            [
                "Count",
                "LookInside",
                "Sleep",
                "Count",
                "LookInside",
                "ConflictPersisted"
            ]
        );
    }

    #[test]
    fn each_attempt_takes_a_fresh_shard() {
        static DRAWN: AtomicU64 = AtomicU64::new(0);
        let retry = RetryPolicy::new()
            .with_jitter(false)
            .with_random(|| DRAWN.fetch_add(1, Ordering::Relaxed));
        let mut machine = CountingAttempt::new(plan(Dialect::Postgres), retry);
        let mut shards = vec![];
        for _ in 0..3 {
            machine.next(Ok(0));
            shards.push(machine.shard());
            machine.next(Err(deadlock()));
            machine.next(Ok(0));
        }
        assert_eq!(shards, [0, 1, 2]);
    }

    /// Goes on by 5 ms each time it is read.
    fn slow_clock() -> Instant {
        static READ: AtomicU64 = AtomicU64::new(0);
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        let start = *START.get_or_init(Instant::now);
        start + Duration::from_millis(5) * READ.fetch_add(1, Ordering::Relaxed) as u32
    }

    /// A machine on a key whose last count was slow.
    fn suspicious(plan: Plan) -> CountingAttempt {
        let now = Instant::now();
        let process = Box::leak(Box::new(Process::new(4, now)));
        let attempts = Attempts::start(RetryPolicy::new());
        let mut choice = Choice::new(plan.subject(), process, &attempts);
        for micros in [10, 10_000] {
            choice.took(Duration::from_micros(micros), !plan.in_transaction, now);
        }
        drop(choice);
        CountingAttempt::within(process, plan, RetryPolicy::new())
    }

    #[test]
    fn a_key_that_others_may_count_on_is_probed() {
        let adaptive = Plan {
            shard_choice: ShardChoice::Adaptive,
            ..plan(Dialect::Postgres)
        };
        let locked = || error("could not obtain lock on row in relation \"videos_shards\"");
        let returning = Plan {
            returning: true,
            ..adaptive
        };
        for (plan, after) in [(adaptive, "Count"), (returning, "Begin")] {
            for (outcome, takes_first) in [(Ok(1), true), (Ok(0), false), (Err(locked()), false)] {
                let mut machine = suspicious(plan);
                assert_eq!(name(&machine.next(Ok(0))), "Probe");
                assert_eq!(machine.shard(), 0);
                assert_eq!(name(&machine.next(outcome)), after);
                assert_eq!(machine.shard() == 0, takes_first);
            }
        }
        let mut machine = suspicious(adaptive);
        machine.next(Ok(0));
        assert_eq!(name(&machine.next(Err(lost()))), "ConnectionLost");
        // What else may be wrong, the count tells.
        let mut machine = suspicious(adaptive);
        machine.next(Ok(0));
        assert_eq!(
            name(&machine.next(Err(error("permission denied")))),
            "Count"
        );
        assert_eq!(machine.shard(), 0);
        for never_probed in [
            Plan {
                in_transaction: true,
                ..adaptive
            },
            Plan {
                by_key: false,
                ..adaptive
            },
            Plan {
                shard_choice: ShardChoice::Striped,
                ..adaptive
            },
        ] {
            assert_ne!(name(&suspicious(never_probed).next(Ok(0))), "Probe");
        }
    }

    #[test]
    fn a_slow_count_makes_its_key_suspect() {
        let adaptive = Plan {
            shard_choice: ShardChoice::Adaptive,
            ..plan(Dialect::Postgres)
        };
        let process = Box::leak(Box::new(Process::new(4, Instant::now())));
        let count = |retry: RetryPolicy| {
            let mut machine = CountingAttempt::within(process, adaptive, retry);
            let first = name(&machine.next(Ok(0)));
            assert_eq!(name(&machine.next(Ok(1))), "1 counted");
            first
        };
        assert_eq!(count(RetryPolicy::new()), "Count");
        assert_eq!(count(RetryPolicy::new().with_clock(slow_clock)), "Count");
        let mut machine = CountingAttempt::within(process, adaptive, RetryPolicy::new());
        assert_eq!(name(&machine.next(Ok(0))), "Probe");
    }

    #[test]
    fn a_conflict_leads_to_another_shard() {
        let adaptive = Plan {
            shard_choice: ShardChoice::Adaptive,
            ..plan(Dialect::Postgres)
        };
        let process = Box::leak(Box::new(Process::new(4, Instant::now())));
        let mut machine = CountingAttempt::within(process, adaptive, RetryPolicy::new());
        let mut shards = vec![];
        for _ in 0..3 {
            machine.next(Ok(0));
            shards.push(machine.shard());
            assert_eq!(name(&machine.next(Err(deadlock()))), "LookInside");
            assert_eq!(name(&machine.next(Ok(0))), "Sleep");
        }
        assert_eq!(shards, [0, 2, 3]); // 1 + (4 + rank - 1) % 3
    }

    #[test]
    fn a_connection_lost_is_an_unknown_outcome_only_where_the_count_may_be_committed() {
        let steps = walk(
            plan(Dialect::Postgres),
            RetryPolicy::new(),
            vec![Err(lost())],
        );
        assert_eq!(steps, ["Count", "OutcomeUnknown"]);
        let filter = Plan {
            by_key: false,
            ..plan(Dialect::Postgres)
        };
        let steps = walk(
            filter,
            RetryPolicy::new(),
            vec![Ok(0), Ok(1), Err(lost()), Err(lost())],
        );
        assert_eq!(
            steps,
            ["Begin", "Create", "Count", "Rollback", "ConnectionLost"]
        );
        let steps = walk(
            filter,
            RetryPolicy::new(),
            vec![Ok(0), Ok(1), Ok(1), Err(lost()), Ok(0)],
        );
        assert_eq!(
            steps,
            [
                "Begin",
                "Create",
                "Count",
                "Commit",
                "Rollback",
                "OutcomeUnknown"
            ]
        );
    }

    #[test]
    fn a_node_that_refuses_has_changed_nothing_and_one_that_lost_its_majority_may_have() {
        let refused = || error("WSREP has not yet prepared node for application use");
        let lost = || error("Error while appending streaming replication fragment");
        let filter = Plan {
            by_key: false,
            ..plan(Dialect::Mysql)
        };
        for (failed, at_commit) in [
            (refused as fn() -> DieselError, "NodeNotReady"),
            (lost, "OutcomeUnknown"),
        ] {
            let steps = walk(
                plan(Dialect::Mysql),
                RetryPolicy::new(),
                vec![Err(failed())],
            );
            assert_eq!(steps, ["Count", at_commit]);
            let outcomes = vec![Ok(0), Ok(1), Ok(1), Err(failed()), Err(refused())];
            let steps = walk(filter, RetryPolicy::new(), outcomes);
            assert_eq!(steps[3..], ["Commit", "Rollback", at_commit]);
        }
    }

    #[test]
    fn a_conflict_at_commit_is_tried_again() {
        let commit = DieselError::DatabaseError(
            DatabaseErrorKind::SerializationFailure,
            Box::new(String::new()),
        );
        let filter = Plan {
            by_key: false,
            ..plan(Dialect::Postgres)
        };
        let steps = walk(
            filter,
            RetryPolicy::new(),
            vec![Ok(0), Ok(1), Ok(1), Err(commit), Ok(0)],
        );
        assert_eq!(
            steps,
            ["Begin", "Create", "Count", "Commit", "Rollback", "Sleep"]
        );
    }
}

//! The operations, each as the sequence of its statements.

mod application;
mod bounded;
mod coalescer;
mod count;
mod fold;
mod hold;
mod idempotent;
mod set_total;

pub use self::application::Application;
pub use self::bounded::Bounded;
pub use self::coalescer::Coalescer;
pub use self::count::Count;
pub use self::fold::Fold;
pub use self::idempotent::Idempotent;
pub use self::set_total::SetTotal;

use crate::outcome::{Failure, Outcome};
use crate::rules::{Fix, Rules};
use crate::session::{Session, Step};
use crate::turn::{Stepped, Turn};

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A counting update by key.
    Count(Count),
    /// `fold(..)`.
    Fold(Fold),
    /// `set_total(..)`.
    SetTotal(SetTotal),
    /// A bounded count.
    Bounded(Bounded),
    /// A count with an idempotency key.
    Idempotent(Idempotent),
    /// A coalescer's batch.
    Coalescer(Coalescer),
    /// Something else that the application does to the rows.
    Application(Application),
}

impl Operation {
    /// The first step.
    pub fn first(&self) -> Step {
        match self {
            Operation::Count(count) => count.first(),
            Operation::Fold(fold) => fold.first(),
            Operation::SetTotal(_) => Step::LockParents,
            Operation::Bounded(bounded) => bounded.first(),
            Operation::Idempotent(_) => Step::CountOnce,
            Operation::Coalescer(coalescer) => coalescer.first(),
            Operation::Application(application) => application.first(),
        }
    }

    /// Takes the session's step.
    ///
    /// # Errors
    /// The statement waits or fails.
    pub fn take(&self, turn: &mut Turn<'_>) -> Stepped {
        match self {
            Operation::Count(count) => count.take(turn),
            Operation::Fold(fold) => fold.take(turn),
            Operation::SetTotal(set) => set.take(turn),
            Operation::Bounded(bounded) => bounded.take(turn),
            Operation::Idempotent(idempotent) => idempotent.take(turn),
            Operation::Coalescer(coalescer) => coalescer.take(turn),
            Operation::Application(application) => application.take(turn),
        }
    }

    /// Goes on after a failure of the session's statement.
    pub fn failed(&self, turn: &mut Turn<'_>, failure: Failure) {
        if let Operation::Count(count) = self
            && turn.rules.swallows_errors
            && count.may_swallow(turn.session.step)
        {
            return count.swallow(turn);
        }
        turn.database.roll_back(turn.connection);
        self.rolled_back(turn.session, failure);
    }

    /// Goes on after a failure; nothing is left of the transaction.
    pub fn rolled_back(&self, session: &mut Session, failure: Failure) {
        match self {
            Operation::Coalescer(coalescer) => coalescer.failed(session, failure),
            _ => session.end(Outcome::Failed(failure)),
        }
    }

    /// Goes on after the connection was lost while this step's commit was in flight.
    pub fn cut(&self, session: &mut Session, rules: &Rules) {
        match self {
            Operation::Coalescer(coalescer) => coalescer.cut(session, rules.has(Fix::AsksMark)),
            // The client comes again with the same key.
            Operation::Idempotent(_) if session.attempt == 1 => session.again(self.first()),
            Operation::Count(_) if !rules.has(Fix::ReportsUnknown) && session.attempt == 1 => {
                session.again(self.first());
            }
            _ => session.end(Outcome::Unknown),
        }
    }

    /// Whether the session's step commits, so that a lost connection leaves its outcome unknown.
    pub fn commits(&self, session: &Session) -> bool {
        match (session.step, self) {
            (_, Operation::Application(_)) => false,
            (Step::Commit | Step::CommitAnswer | Step::CommitAtOnce | Step::CountOnce, _) => true,
            (Step::CountByKey, Operation::Count(count)) => !count.inside && !session.memory.created,
            (Step::AddWithin, Operation::Bounded(bounded)) => !bounded.inside,
            _ => false,
        }
    }

    /// The idempotency key.
    pub fn request(&self) -> Option<u8> {
        match self {
            Operation::Idempotent(idempotent) => Some(idempotent.request),
            _ => None,
        }
    }
}

impl Step {
    /// Whether the outcome of a batch is being asked for.
    pub fn resolves(self) -> bool {
        matches!(self, Step::Find | Step::StampBeyond | Step::CommitAnswer)
    }
}

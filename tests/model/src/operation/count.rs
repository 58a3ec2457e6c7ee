//! A counting update by key, as in `engine::count`.

use crate::outcome::{Failure, Outcome};
use crate::rows::{Key, Place};
use crate::rules::Fix;
use crate::session::Step;
use crate::turn::{Stepped, Turn};

/// `update(row).set(column.eq(column + n))`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Count {
    /// The parent.
    pub key: Key,
    /// The shard that `Choice` took.
    pub shard: u8,
    /// The amount.
    pub n: i8,
    /// In a transaction of the caller's, who has read the row before.
    pub inside: bool,
}

impl Count {
    /// A count outside a transaction.
    pub fn of(key: Key, shard: u8, n: i8) -> Self {
        Count {
            key,
            shard,
            n,
            inside: false,
        }
    }

    pub(super) fn first(&self) -> Step {
        match self.inside {
            true => Step::CallersBegin,
            false => Step::CountByKey,
        }
    }

    pub(super) fn take(&self, turn: &mut Turn<'_>) -> Stepped {
        match turn.session.step {
            Step::CallersBegin => {
                turn.begin(turn.rules.isolation);
                turn.read(Place::Parent(self.key));
                turn.next(Step::CountByKey);
            }
            Step::CountByKey if self.inside || turn.session.memory.created => {
                let counted = turn.count_by_key(self.key, self.shard, self.n)?;
                turn.session.memory.counted = counted;
                turn.next(match counted == 0 && !turn.session.memory.created {
                    true => Step::CreateShards,
                    false => self.last(turn),
                });
            }
            Step::CountByKey => {
                let counted =
                    turn.at_once(|turn| turn.count_by_key(self.key, self.shard, self.n))?;
                match counted == 0 && turn.has(Fix::CreatesMissingShards) {
                    true => turn.next(Step::CreateShards),
                    false => turn.session.end(Outcome::Counted(counted)),
                }
            }
            Step::CreateShards => {
                turn.begin(turn.rules.isolation);
                turn.create_shard(self.key, self.shard)?;
                turn.session.memory.created = true;
                turn.next(Step::CountByKey);
            }
            Step::CheckTransaction => match turn.database.transaction(turn.connection).is_aborted {
                true => turn.fail(Failure::TransactionAborted)?,
                false => turn.next(Step::Commit),
            },
            _ => turn.commit(Outcome::Counted(turn.session.memory.counted)),
        }
        Ok(())
    }

    /// `retry::transaction` checks the caller's transaction; the crate's own needs no check.
    fn last(&self, turn: &Turn<'_>) -> Step {
        match self.inside && turn.has(Fix::ChecksTransaction) {
            true => Step::CheckTransaction,
            false => Step::Commit,
        }
    }

    /// Whether the caller's closure sees a failure of this step.
    pub(super) fn may_swallow(&self, step: Step) -> bool {
        self.inside && matches!(step, Step::CountByKey | Step::CreateShards)
    }

    /// The caller's closure swallows the failure of a statement, and says that it has counted.
    pub(super) fn swallow(&self, turn: &mut Turn<'_>) {
        turn.database.abort(turn.connection);
        turn.session.memory.counted = 1;
        let last = self.last(turn);
        turn.next(last);
    }
}

//! A set, as in `set_by_key` and `assign`.

use crate::ledger::Change;
use crate::outcome::{Failure, Outcome};
use crate::rows::Key;
use crate::rules::Fix;
use crate::session::{State, Step};
use crate::turn::{Stepped, Turn};

use super::hold;

/// `set_total(row, total)`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SetTotal {
    /// The parent.
    pub key: Key,
    /// Its new total.
    pub total: i8,
}

impl SetTotal {
    pub(super) fn take(&self, turn: &mut Turn<'_>) -> Stepped {
        match turn.session.step {
            Step::LockParents => {
                hold::begin_holding(turn);
                hold::lock_parents(turn, &[self.key])?;
                turn.next(Step::LockShards);
            }
            Step::LockShards => {
                hold::lock_shards(turn, &turn.session.memory.held.clone())?;
                turn.next(Step::NotLocked);
            }
            Step::NotLocked => {
                let not_locked = hold::not_locked(turn, &[self.key]);
                match (not_locked, turn.session.memory.held.is_empty()) {
                    (true, _) => turn.fail(Failure::NotLocked)?,
                    (false, true) => turn.end(Outcome::Counted(0)),
                    (false, false) => turn.next(Step::WriteBases),
                }
            }
            Step::WriteBases => {
                let held = turn.session.memory.held.clone();
                hold::write_bases(turn, &held, |_, _, _| self.total)?;
                turn.record(self.key, Change::Set(self.total));
                let expected = State {
                    base: self.total,
                    shards: 0,
                };
                turn.session.memory.expected = vec![expected; held.len()];
                turn.session.memory.counted = held.len() as u8;
                turn.next(Step::EmptyShards);
            }
            Step::EmptyShards => {
                hold::empty_shards(turn)?;
                turn.next(match turn.has(Fix::ChecksWrites) {
                    true => Step::CheckExpected,
                    false => Step::Commit,
                });
            }
            Step::CheckExpected => {
                hold::check(turn)?;
                turn.next(Step::Commit);
            }
            _ => turn.commit(Outcome::Counted(turn.session.memory.counted)),
        }
        Ok(())
    }
}

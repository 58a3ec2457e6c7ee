//! A fold, as in `Folding::fold_held` and `Locked::fold`.

use crate::database::Stop;
use crate::outcome::{Failure, Outcome};
use crate::rows::{Key, Place};
use crate::rules::Fix;
use crate::session::{State, Step};
use crate::turn::{Stepped, Turn};

use super::hold;

/// `fold(table)`, of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fold {
    /// The parents that were picked, in the order of their keys.
    pub keys: &'static [Key],
    /// The shards from this number on are removed.
    pub keep: Option<u8>,
    /// `Shards::only`: this shard alone is folded.
    pub only: Option<u8>,
    /// `Shards::at_once`: a lock that cannot be acquired at once is an error.
    pub at_once: bool,
    /// In a transaction of the caller's, who has read the first row before.
    pub inside: bool,
}

impl Fold {
    /// A fold that waits for its locks and keeps all shards.
    pub fn of(keys: &'static [Key]) -> Self {
        Fold {
            keys,
            keep: None,
            only: None,
            at_once: false,
            inside: false,
        }
    }

    pub(super) fn first(&self) -> Step {
        match self.inside {
            true => Step::CallersBegin,
            false => Step::LockParents,
        }
    }

    pub(super) fn take(&self, turn: &mut Turn<'_>) -> Stepped {
        let locks = matches!(turn.session.step, Step::LockParents | Step::LockShards);
        match self.take_waiting(turn) {
            Err(Stop::Blocked(..)) if locks && self.at_once => turn.fail(Failure::LockTimeout),
            taken => taken,
        }
    }

    fn take_waiting(&self, turn: &mut Turn<'_>) -> Stepped {
        let shards_first = !turn.has(Fix::ParentsFirst);
        match turn.session.step {
            Step::CallersBegin => {
                turn.begin(turn.rules.isolation);
                turn.read(Place::Parent(self.keys[0]));
                turn.next(Step::LockParents);
            }
            Step::LockParents if shards_first && turn.session.memory.filled.is_none() => {
                hold::begin_holding(turn);
                hold::lock_shards(turn, self.keys)?;
                turn.next(Step::LockParents);
            }
            Step::LockParents => {
                hold::begin_holding(turn);
                turn.session.memory.only = self.only;
                hold::lock_parents(turn, self.keys)?;
                match turn.session.memory.held.is_empty() {
                    // The others that can be seen come back as `not_locked`; nothing is written.
                    true => turn.end(Outcome::Done),
                    false if shards_first => turn.next(Step::States),
                    false => turn.next(Step::LockShards),
                }
            }
            Step::LockShards => {
                hold::lock_shards(turn, &turn.session.memory.held.clone())?;
                turn.next(Step::States);
            }
            Step::States => {
                let before = hold::states(turn)?;
                let added = before.iter().map(|state| State {
                    base: state.base + state.shards,
                    ..*state
                });
                turn.session.memory.expected = added.collect();
                turn.session.memory.states = before;
                turn.next(Step::AddShardsToBases);
            }
            Step::AddShardsToBases => self.add_shards_to_bases(turn)?,
            Step::CheckAdded => {
                hold::check(turn)?;
                turn.next(Step::EmptyShards);
            }
            Step::EmptyShards => {
                hold::empty_shards(turn)?;
                let emptied = turn.session.memory.states.iter().map(|state| State {
                    base: state.base + state.shards,
                    shards: 0,
                });
                turn.session.memory.expected = emptied.collect();
                turn.next(match turn.has(Fix::ChecksWrites) {
                    true => Step::CheckExpected,
                    false => self.last(),
                });
            }
            Step::CheckExpected => {
                hold::check(turn)?;
                turn.next(self.last());
            }
            Step::RemoveShards => {
                hold::remove_shards(turn, self.keep.unwrap_or(0))?;
                turn.next(Step::Commit);
            }
            _ => turn.commit(Outcome::Done),
        }
        Ok(())
    }

    fn last(&self) -> Step {
        match self.keep {
            Some(_) => Step::RemoveShards,
            None => Step::Commit,
        }
    }

    fn add_shards_to_bases(&self, turn: &mut Turn<'_>) -> Stepped {
        let held = turn.session.memory.held.clone();
        hold::write_bases(turn, &held, |turn, key, base| {
            let connection = turn.connection;
            let shards = hold::shards_held(turn, &[key]).into_iter();
            let rows = shards.filter_map(|place| turn.database.find(connection, place));
            base + rows.map(|row| row.value).sum::<i8>()
        })?;
        let checks = turn.has(Fix::ChecksWrites) && turn.has(Fix::ChecksBetweenWrites);
        turn.next(match checks {
            true => Step::CheckAdded,
            false => Step::EmptyShards,
        });
        Ok(())
    }
}

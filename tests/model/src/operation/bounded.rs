//! A bounded count, as in `Bounded::try_add`: by its shard, or else by an exchange of room under the parent's lock.

use crate::database::{Mode, Stop};
use crate::ledger::Change;
use crate::outcome::{Failure, Outcome};
use crate::rows::{Key, Place};
use crate::rules::Fix;
use crate::session::{State, Step};
use crate::turn::{Stepped, Turn};

use super::hold;

/// The shard that holds the room down to the bound. The model has one for this direction, and no upper bound.
const SHARD: u8 = 0;

/// `counter.never_below(least).add(n)`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bounded {
    /// The parent.
    pub key: Key,
    /// The amount.
    pub n: i8,
    /// The lower bound.
    pub least: i8,
    /// In a transaction of the caller's, who has read the row before.
    pub inside: bool,
}

impl Bounded {
    /// A count outside a transaction, of a counter that never falls below 0.
    pub fn of(key: Key, n: i8) -> Self {
        Bounded {
            key,
            n,
            least: 0,
            inside: false,
        }
    }

    pub(super) fn first(&self) -> Step {
        match self.inside {
            true => Step::CallersBegin,
            false => Step::AddWithin,
        }
    }

    pub(super) fn take(&self, turn: &mut Turn<'_>) -> Stepped {
        match turn.session.step {
            Step::CallersBegin => {
                turn.begin(turn.rules.isolation);
                turn.read(Place::Parent(self.key));
                turn.next(Step::AddWithin);
            }
            Step::AddWithin if self.inside => match self.add_within(turn)? {
                0 => turn.next(Step::LockParents),
                _ => turn.next(Step::Commit),
            },
            Step::AddWithin => match turn.at_once(|turn| self.add_within(turn))? {
                0 => turn.next(Step::Total),
                _ => turn.session.end(Outcome::Counted(1)),
            },
            Step::Total => {
                let total = turn.at_once(|turn| Ok(self.total(turn)))?;
                match total {
                    None => turn.end(Outcome::Failed(Failure::NotFound)),
                    Some(total) if !self.allows(total) => turn.end(Outcome::Refused),
                    Some(_) => turn.next(Step::LockParents),
                }
            }
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
                match (
                    hold::not_locked(turn, &[self.key]),
                    turn.session.memory.held.is_empty(),
                ) {
                    (true, _) => turn.fail(Failure::NotLocked)?,
                    (false, true) => turn.fail(Failure::NotFound)?,
                    (false, false) => turn.next(Step::States),
                }
            }
            Step::States => self.decide(turn)?,
            Step::CreateShards => {
                turn.create_shard(self.key, SHARD)?;
                turn.next(Step::ToShares);
            }
            Step::ToShares => self.hand_out(turn)?,
            Step::StatesOfShares => {
                let total = turn.session.memory.total;
                let states = hold::states(turn)?.into_iter().map(|state| State {
                    base: total - state.shards,
                    ..state
                });
                turn.session.memory.expected = states.collect();
                turn.next(Step::WriteBases);
            }
            Step::WriteBases => {
                let expected = turn.session.memory.expected.clone();
                let base = expected.first().map_or(0, |state| state.base);
                hold::write_bases(turn, &[self.key], |_, _, _| base)?;
                self.record(turn);
                turn.next(match turn.has(Fix::ChecksWrites) {
                    true => Step::CheckExpected,
                    false => Step::Commit,
                });
            }
            Step::CheckExpected => {
                hold::check(turn)?;
                turn.next(Step::Commit);
            }
            _ => turn.commit(Outcome::Counted(1)),
        }
        Ok(())
    }

    /// `Bounds::allow`
    fn allows(&self, total: i8) -> bool {
        self.n >= 0 || total + self.n >= self.least
    }

    fn record(&self, turn: &mut Turn<'_>) {
        turn.record(self.key, Change::AddWithin(self.n, self.least));
    }

    fn add_within(&self, turn: &mut Turn<'_>) -> Result<u8, Stop> {
        let locked = turn.lock([Place::Shard(self.key, SHARD)], Mode::NoKeyUpdate)?;
        let gives = self.n > 0;
        let fits = |value: i8| match gives {
            true => value > 0 || !turn.has(Fix::GivesWhereRoomIs),
            false => value + self.n >= 0,
        };
        let Some((place, row)) = locked.into_iter().find(|(_, row)| fits(row.value)) else {
            return Ok(0);
        };
        turn.write(place, row, row.value + self.n);
        self.record(turn);
        Ok(1)
    }

    fn total(&self, turn: &mut Turn<'_>) -> Option<i8> {
        let base = turn.read(Place::Parent(self.key))?.value;
        let shards = turn.shards_of(&[self.key]).into_iter();
        let rows = shards.filter_map(|place| turn.read(place));
        Some(base + rows.map(|row| row.value).sum::<i8>())
    }

    fn decide(&self, turn: &mut Turn<'_>) -> Stepped {
        let states = hold::states(turn)?;
        let total: i8 = states.iter().map(|state| state.base + state.shards).sum();
        if !self.allows(total) {
            turn.end(Outcome::Refused);
            return Ok(());
        }
        turn.session.memory.total = total + self.n;
        let place = Place::Shard(self.key, SHARD);
        let there = turn.read(place).is_some(); // `Held::shards`, a plain read
        turn.next(match there || self.share(turn) == 0 {
            true => Step::ToShares,
            false => Step::CreateShards,
        });
        Ok(())
    }

    /// `Bounds::shares`
    fn share(&self, turn: &Turn<'_>) -> i8 {
        (turn.session.memory.total - self.least).max(0)
    }

    fn hand_out(&self, turn: &mut Turn<'_>) -> Stepped {
        let share = self.share(turn);
        let shards = turn.shards_of(&[self.key]);
        for (place, row) in turn.lock(shards, Mode::NoKeyUpdate)? {
            let is_for_room = place == Place::Shard(self.key, SHARD);
            turn.write(place, row, if is_for_room { share } else { 0 });
        }
        turn.next(Step::StatesOfShares);
        Ok(())
    }
}

//! Applications that write rows beside the library.

use crate::database::Mode;
use crate::ledger::Change;
use crate::outcome::{Failure, Outcome};
use crate::rows::{Key, Place};
use crate::session::Step;
use crate::turn::{Stepped, Turn};

/// An application's own transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Application {
    /// Deletes a parent, and by the foreign key its shards.
    Delete(Key),
    /// Inserts a parent with this base.
    Insert(Key, i8),
    /// Deletes a parent and inserts another one under the same key, in one transaction.
    Replace(Key, i8),
    /// Changes a parent's key, and by the foreign key that of its shards.
    Rename(Key, Key),
    /// Adds to a base by `diesel::update`.
    AddToBase(Key, i8),
    /// A coalescer whose clock is far ahead removes the rows of others.
    DeleteOldMarks,
}

impl Application {
    pub(super) fn first(&self) -> Step {
        match self {
            Application::Delete(_) | Application::Replace(..) => Step::DeleteParent,
            Application::Insert(..) => Step::InsertParent,
            Application::Rename(..) => Step::RenameParent,
            Application::AddToBase(..) => Step::AddToBase,
            Application::DeleteOldMarks => Step::DeleteOld,
        }
    }

    pub(super) fn take(&self, turn: &mut Turn<'_>) -> Stepped {
        turn.begin(turn.rules.isolation);
        match (turn.session.step, *self) {
            (Step::Commit, _) => turn.commit(Outcome::Done),
            (Step::Cascade, _) => self.cascade(turn)?,
            (_, Application::Delete(key) | Application::Replace(key, _))
                if turn.session.step == Step::DeleteParent =>
            {
                match turn.lock([Place::Parent(key)], Mode::Update)?.pop() {
                    Some((place, _)) => {
                        turn.database.write(turn.connection, place, None);
                        turn.next(Step::Cascade);
                    }
                    None => turn.end(Outcome::Done),
                }
            }
            (_, Application::Insert(key, base) | Application::Replace(key, base)) => {
                match turn
                    .database
                    .insert(turn.connection, Place::Parent(key), base)?
                {
                    true => turn.next(Step::Commit),
                    false => turn.end(Outcome::Done),
                }
            }
            (_, Application::Rename(from, to)) => {
                let to = Place::Parent(to);
                let Some((place, row)) = turn.lock([Place::Parent(from)], Mode::Update)?.pop()
                else {
                    turn.end(Outcome::Done);
                    return Ok(());
                };
                match turn.database.insert(turn.connection, to, row.value)? {
                    true => {
                        turn.database.write(turn.connection, to, Some(row));
                        turn.database.write(turn.connection, place, None);
                        turn.next(Step::Cascade);
                    }
                    false => turn.fail(Failure::Serialization)?, // a unique key
                }
            }
            (_, Application::AddToBase(key, n)) => {
                for (place, row) in turn.lock([Place::Parent(key)], Mode::NoKeyUpdate)? {
                    turn.write(place, row, row.value + n);
                    turn.record(key, Change::Add(n));
                }
                turn.commit(Outcome::Done);
            }
            (_, Application::DeleteOldMarks) => {
                for (place, _) in turn.lock([Place::Mark], Mode::Update)? {
                    turn.database.write(turn.connection, place, None);
                }
                turn.commit(Outcome::Done);
            }
            (_, Application::Delete(_)) => turn.end(Outcome::Done),
        }
        Ok(())
    }

    /// The foreign key's action sees the newest shards, whatever the isolation.
    fn cascade(&self, turn: &mut Turn<'_>) -> Stepped {
        let (key, to, next) = match *self {
            Application::Rename(from, to) => (from, Some(to), Step::Commit),
            Application::Replace(key, _) => (key, None, Step::InsertParent),
            Application::Delete(key)
            | Application::Insert(key, _)
            | Application::AddToBase(key, _) => (key, None, Step::Commit),
            Application::DeleteOldMarks => (0, None, Step::Commit),
        };
        for place in turn.shards_of(&[key]) {
            let Some(row) = turn.database.newest(turn.connection, place) else {
                continue;
            };
            turn.database
                .lock(turn.connection, place, row.id, Mode::Update)?;
            turn.database.write(turn.connection, place, None);
            if let (Some(to), Place::Shard(_, shard)) = (to, place) {
                turn.database
                    .write(turn.connection, Place::Shard(to, shard), Some(row));
            }
        }
        turn.next(next);
        Ok(())
    }
}

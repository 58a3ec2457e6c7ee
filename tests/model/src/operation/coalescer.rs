//! A coalescer's batch and its mark, as in `BatchSender::send`, `Worker::commit` and `Token::was_committed`.

use crate::database::{Mode, Stop};
use crate::outcome::{Failure, Outcome};
use crate::rows::{Key, Place};
use crate::rules::Fix;
use crate::session::{Session, Step};
use crate::turn::{Stepped, Turn};

/// The worker gives a batch up after so many attempts.
const MOST_ATTEMPTS: u8 = 3;

/// A batch of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Coalescer {
    /// The parent.
    pub key: Key,
    /// The shard.
    pub shard: u8,
    /// The sum of the callers' amounts.
    pub n: i8,
    /// The first attempt sends the batch and its mark in one statement.
    pub at_once: bool,
}

impl Coalescer {
    pub(super) fn first(&self) -> Step {
        match self.at_once {
            true => Step::CommitAtOnce,
            false => Step::Stamp,
        }
    }

    pub(super) fn take(&self, turn: &mut Turn<'_>) -> Stepped {
        match turn.session.step {
            Step::CommitAtOnce => self.commit_at_once(turn)?,
            Step::Stamp => {
                self.number(turn);
                turn.begin(turn.rules.isolation);
                match self.stamp(turn, turn.session.memory.batch)? {
                    true => turn.next(Step::CountByKey),
                    false => {
                        turn.database.roll_back(turn.connection);
                        turn.next(Step::Register);
                    }
                }
            }
            Step::Register => {
                let batch = turn.session.memory.batch;
                turn.at_once(|turn| turn.database.insert(turn.connection, Place::Mark, batch))?;
                turn.session.again(Step::Stamp);
            }
            Step::CountByKey => {
                let counted = turn.count_by_key(self.key, self.shard, self.n)?;
                turn.session.memory.counted = counted;
                turn.next(match counted == 0 && !turn.session.memory.created {
                    true => Step::CreateShards,
                    false => Step::Commit,
                });
            }
            Step::CreateShards => {
                turn.create_shard(self.key, self.shard)?;
                turn.session.memory.created = true;
                turn.next(Step::CountByKey);
            }
            Step::Find => self.find(turn)?,
            Step::StampBeyond => {
                self.stamp(turn, turn.session.memory.sent + 1)?;
                turn.next(Step::CommitAnswer);
            }
            Step::CommitAnswer => {
                turn.database.commit(turn.connection);
                self.send_again(turn.session);
            }
            _ => turn.commit(Outcome::Counted(turn.session.memory.counted)),
        }
        Ok(())
    }

    /// Gives the attempt its number, once.
    fn number(&self, turn: &mut Turn<'_>) {
        if turn.session.waiting.is_none() && turn.session.blocked_at.is_none() {
            turn.session.memory.batch += 1;
        }
    }

    /// `Stamp`. Returns whether the row exists and holds an earlier batch.
    fn stamp(&self, turn: &mut Turn<'_>, batch: i8) -> Result<bool, Stop> {
        let compares = turn.has(Fix::ComparesMark);
        let Some((place, row)) = turn.lock([Place::Mark], Mode::NoKeyUpdate)?.pop() else {
            return Ok(false);
        };
        if compares && row.value >= batch {
            return Ok(false);
        }
        turn.write(place, row, batch);
        Ok(true)
    }

    /// `CommitAtOnce`: writes the mark and counts, or does neither.
    fn commit_at_once(&self, turn: &mut Turn<'_>) -> Stepped {
        self.number(turn);
        let batch = turn.session.memory.batch;
        let shard = Place::Shard(self.key, self.shard);
        let sent = turn.at_once(|turn| {
            turn.note_parent(self.key);
            turn.find([Place::Mark, shard]);
            let locked = turn.lock_found(Mode::NoKeyUpdate)?;
            let compares = turn.has(Fix::ComparesMark);
            let ([(mark, of_mark), (_, of_shard)], true) = (
                &locked[..],
                locked
                    .first()
                    .is_some_and(|(_, row)| !compares || row.value < batch),
            ) else {
                return Ok(false);
            };
            turn.write(*mark, *of_mark, batch);
            turn.write(shard, *of_shard, of_shard.value + self.n);
            turn.record(self.key, crate::ledger::Change::Add(self.n));
            Ok(true)
        })?;
        match sent {
            true => turn.session.end(Outcome::Counted(1)),
            false => turn.session.again(Step::Stamp),
        }
        Ok(())
    }

    /// `Find`: was the last batch committed?
    fn find(&self, turn: &mut Turn<'_>) -> Stepped {
        turn.begin(turn.rules.isolation);
        let rows = match turn.has(Fix::LocksMark) {
            true => turn.lock([Place::Mark], Mode::Update)?,
            false => {
                let row = turn.read(Place::Mark);
                row.map(|row| (Place::Mark, row)).into_iter().collect()
            }
        };
        match rows.first() {
            None if turn.has(Fix::MissingMarkIsUnknown) => turn.end(Outcome::Unknown),
            None => {
                turn.database.roll_back(turn.connection);
                self.send_again(turn.session);
            }
            Some((_, row)) if row.value == turn.session.memory.sent => {
                turn.end(Outcome::Counted(1))
            }
            Some(_) => turn.next(match turn.has(Fix::StampsBeyond) {
                true => Step::StampBeyond,
                false => Step::CommitAnswer,
            }),
        }
        Ok(())
    }

    /// The last batch was not committed, and never will be.
    fn send_again(&self, session: &mut Session) {
        session.memory.batch = session.memory.sent + 1; // `next` took a number for the mark beyond
        match session.attempt < MOST_ATTEMPTS {
            true => session.again(Step::Stamp),
            false => session.end(Outcome::Failed(Failure::ConnectionLost)),
        }
    }

    /// A failure before COMMIT: nothing was counted.
    pub(super) fn failed(&self, session: &mut Session, failure: Failure) {
        match session.step {
            step if step.resolves() => session.restart(Step::Find),
            _ if session.attempt < MOST_ATTEMPTS => session.again(Step::Stamp),
            _ => session.end(Outcome::Failed(failure)),
        }
    }

    /// The connection was lost while the COMMIT was in flight: of the batch, or of the answer about it.
    pub(super) fn cut(&self, session: &mut Session, asks_mark: bool) {
        match session.step {
            step if step.resolves() => {}
            Step::CommitAtOnce => session.memory.sent = session.memory.batch + 1, // its statement may not have begun
            _ => session.memory.sent = session.memory.batch,
        }
        match asks_mark {
            true => session.restart(Step::Find),
            false => self.send_again(session),
        }
    }
}

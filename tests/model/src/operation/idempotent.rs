//! A count with an idempotency key, as in `idempotency::once` and `Statement::CountOnce`.

use crate::outcome::{Failure, Outcome};
use crate::rows::{Key, Place};
use crate::rules::Fix;
use crate::session::Step;
use crate::turn::{Stepped, Turn};

/// `update(row).set(column.eq(column + n)).idempotency_key(request)`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Idempotent {
    /// The idempotency key.
    pub request: u8,
    /// The parent.
    pub key: Key,
    /// The shard that `Choice` took.
    pub shard: u8,
    /// The amount, and so the hash of the request.
    pub n: i8,
}

impl Idempotent {
    pub(super) fn take(&self, turn: &mut Turn<'_>) -> Stepped {
        match turn.session.step {
            Step::CountOnce => self.count_once(turn)?,
            Step::Claim => self.claim(turn)?,
            Step::CountByKey => {
                turn.begin(turn.rules.isolation);
                let counted = turn.count_by_key(self.key, self.shard, self.n)?;
                turn.session.memory.counted = counted;
                turn.next(match (counted, turn.session.memory.created) {
                    (0, false) => Step::CreateShards,
                    (0, true) if turn.has(Fix::ReleasesKey) => Step::Release,
                    _ => Step::Commit,
                });
            }
            Step::CreateShards => {
                turn.create_shard(self.key, self.shard)?;
                turn.session.memory.created = true;
                turn.next(Step::CountByKey);
            }
            Step::Release => {
                let place = Place::Request(self.request);
                turn.database.write(turn.connection, place, None);
                turn.next(Step::Commit);
            }
            _ => {
                if !turn.has(Fix::ClaimsByInsert) {
                    let place = Place::Request(self.request);
                    turn.database.insert(turn.connection, place, self.n)?;
                }
                turn.commit(Outcome::Counted(turn.session.memory.counted));
            }
        }
        Ok(())
    }

    /// Claims the key and counts, or does neither, where the key is known or the shard is missing.
    fn count_once(&self, turn: &mut Turn<'_>) -> Stepped {
        let request = Place::Request(self.request);
        if !turn.has(Fix::ClaimsByInsert) || !turn.has(Fix::KeyBesideCount) {
            turn.next(Step::Claim); // the transaction alone
            return Ok(());
        }
        turn.begin(turn.rules.isolation);
        turn.note_parent(self.key);
        turn.find([Place::Shard(self.key, self.shard)]);
        let found = turn.session.waiting.as_ref();
        let has_shard = found.is_some_and(|found| !found.is_empty());
        // It may have inserted the key before it waited for the shard.
        let has_claimed = turn.database.has_inserted(turn.connection, request)
            || (has_shard && turn.database.insert(turn.connection, request, self.n)?);
        if !has_claimed {
            turn.database.commit(turn.connection);
            turn.next(Step::Claim);
            return Ok(());
        }
        let counted = turn.count_found(self.key, self.n)?;
        if counted == 0 && turn.has(Fix::MissingShardFails) {
            return turn.fail(Failure::Serialization);
        }
        turn.commit(Outcome::Counted(counted));
        Ok(())
    }

    fn claim(&self, turn: &mut Turn<'_>) -> Stepped {
        let request = Place::Request(self.request);
        turn.begin(turn.rules.isolation);
        let is_first = match turn.has(Fix::ClaimsByInsert) {
            true => turn.database.insert(turn.connection, request, self.n)?,
            false => turn.read(request).is_none(),
        };
        if !is_first {
            let known = turn.database.newest(turn.connection, request);
            if known.is_some_and(|row| row.value != self.n) {
                return turn.fail(Failure::IdempotencyKeyReused);
            }
            turn.end(Outcome::Repeated(1));
            return Ok(());
        }
        if !turn.has(Fix::KeyBesideCount) {
            turn.database.commit(turn.connection);
        }
        turn.next(Step::CountByKey);
        Ok(())
    }
}

//! The choice of a shard for each attempt.

use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use diesel::query_builder::QueryFragment;

use super::claims::{Holder, Wish};
use super::contention::{Contention, CountKind};
use super::process::{self, Process};
use super::shard_choice::ShardChoice;
use super::stripe::Stripe;
use crate::backend::{Hashed, ShardedBackend};
use crate::policy::Attempts;

/// The facts about a counting update that its shard depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) choice: ShardChoice,
    /// The shards table's name.
    pub(crate) table: &'static str,
    /// [`hash_of`] the table and the filter, for [`ShardChoice::Adaptive`] alone.
    pub(crate) key: u64,
    /// How many shards there are to choose from, at least 1; for a [`Choice`] those of the stripe alone.
    pub(crate) shards: u16,
    /// The part of the shards that the process keeps to.
    pub(crate) stripe: Stripe,
    /// The database has one writer at a time.
    pub(crate) one_writer: bool,
    /// The row stays locked until the caller's transaction ends.
    pub(crate) in_transaction: bool,
    /// It is one of a batch.
    pub(crate) in_batch: bool,
    /// The filter names the key and nothing else: the time that the count takes tells whether it waited for a lock, and a probe can ask.
    pub(crate) timed: bool,
}

/// A number for the rows that `filter` matches. It is the same as long as the process runs.
pub(crate) fn hash_of<DB: ShardedBackend>(table: &str, filter: &impl QueryFragment<DB>) -> u64 {
    let mut hash = Hashed(DefaultHasher::new());
    hash.0.write(table.as_bytes());
    // A filter that cannot be written takes the hash of its first part. The statement then reports the error.
    let _ = DB::show(filter, &mut hash);
    hash.0.finish()
}

/// The shard that an attempt counts on, and what holds it.
#[derive(Debug)]
pub(crate) struct Choice {
    subject: Subject,
    process: &'static Process,
    shard: i32,
    claim: Option<Claim>,
    /// The rank on which the last attempt met a conflict.
    avoided: Option<u16>,
    probes: bool,
}

impl Choice {
    pub(crate) fn new(
        mut subject: Subject,
        process: &'static Process,
        attempts: &Attempts,
    ) -> Self {
        subject.shards = subject.stripe.shards(subject.shards);
        let mut choice = Choice {
            subject,
            process,
            shard: 0,
            claim: None,
            avoided: None,
            probes: false,
        };
        choice.choose(attempts, attempts.started());
        choice
    }

    pub(crate) fn shard(&self) -> i32 {
        self.shard
    }

    /// Chooses for a further attempt.
    pub(crate) fn again(&mut self, attempts: &Attempts) {
        self.choose(attempts, attempts.now());
    }

    fn choose(&mut self, attempts: &Attempts, now: Instant) {
        let shards = self.subject.shards;
        self.claim = None; // frees its rank
        let place = match self.subject.choice {
            ShardChoice::Adaptive if self.subject.one_writer => 0,
            ShardChoice::Adaptive => self.claim_rank(shards, attempts, now),
            ShardChoice::Striped => process::place_of_this_thread(self.process.offset, shards),
            ShardChoice::Random => (attempts.retry().random() % u64::from(shards)) as u16,
        };
        self.shard = self.subject.stripe.shard(place);
    }

    fn claim_rank(&mut self, shards: u16, attempts: &Attempts, now: Instant) -> u16 {
        let Subject {
            table,
            key,
            in_transaction,
            in_batch,
            ..
        } = self.subject;
        let contention = self.process.contention.get(key, now);
        // Most keys of a batch are counted on seldom. They keep to the first shards in every process, where the next batch finds them. A batch in a
        // caller's transaction does not: nobody knows how long that holds its locks.
        let is_batch = in_batch && !in_transaction;
        let is_hot = contention == Contention::Hot
            || (is_batch && self.process.batches.counts_often(key, now));
        let holder = in_transaction.then(|| Holder {
            thread: process::number_of_this_thread(),
            clock: attempts.clock(),
        });
        let wish = Wish {
            ranks: shards,
            // Transactions hold several rows at once: processes that all began at the same shards would deadlock.
            first_comes_last: is_hot || in_transaction,
            avoided: self.avoided,
            holder: holder.map(|holder| holder.thread),
        };
        let (rank, crowded) = self.process.claims.claim(key, wish, now);
        if crowded {
            self.process.stats.crowded.fetch_add(1, Ordering::Relaxed);
            self.process.warnings.crowded(table, shards, now);
        }
        self.claim = Some(Claim {
            process: self.process,
            key,
            rank,
            holder,
        });
        self.probes = contention == Contention::Suspect
            && self.may_probe()
            && self.is_on_shared_shard()
            && self.process.probes.take(now);
        match is_batch && !is_hot {
            true => rank,
            false => self.process.place_of(rank, shards),
        }
    }

    fn may_probe(&self) -> bool {
        self.subject.timed && !self.subject.in_transaction
    }

    /// Whether other processes may well count on the same shard, and there is another one.
    fn is_on_shared_shard(&self) -> bool {
        self.subject.shards > 1 && self.claim.as_ref().is_some_and(|claim| claim.rank == 0)
    }

    /// Whether to ask first whether the shard is locked; true at most once for each choice.
    pub(crate) fn probes(&mut self) -> bool {
        std::mem::take(&mut self.probes)
    }

    /// Takes the answer to that question.
    pub(crate) fn probed(&mut self, locked: bool, attempts: &Attempts) {
        let now = attempts.now();
        self.process.stats.probes.fetch_add(1, Ordering::Relaxed);
        if locked {
            self.process.mark_hot(self.subject.key, now);
            self.choose(attempts, now);
        } else {
            self.process
                .contention
                .set(self.subject.key, Contention::Cold, now);
        }
    }

    /// Whether it matters how long the count takes: that tells whether it waited for a lock.
    pub(crate) fn is_timed(&self) -> bool {
        self.subject.timed && self.is_on_shared_shard()
    }

    /// Takes the time that the count took.
    pub(crate) fn took(&mut self, time: Duration, kind: CountKind, now: Instant) {
        let key = self.subject.key;
        let contention = &self.process.contention;
        let waited = self.process.shortest[kind.index()].is_exceeded_by(time);
        match (contention.get(key, now), waited) {
            (Contention::Cold, true) => contention.set(key, Contention::Suspect, now),
            (Contention::Suspect, true) if !self.may_probe() => self.process.mark_hot(key, now),
            (Contention::Suspect, false) => contention.set(key, Contention::Cold, now),
            _ => {}
        }
    }

    /// The attempt met a conflict; the next one on the key takes another shard.
    pub(crate) fn met_conflict(&mut self, attempts: &Attempts) {
        if self.subject.choice == ShardChoice::Striped {
            process::move_this_thread_on(self.subject.shards, attempts.retry().random());
        }
        let Some(claim) = self.claim.take() else {
            return;
        };
        self.avoided = Some(claim.rank);
        drop(claim);
        self.process.mark_hot(self.subject.key, attempts.now());
        if self.subject.in_transaction {
            self.again(attempts); // the next count of this thread finds nothing but the lease that this claim leaves
        }
    }
}

/// A rank of a key that no other count takes while there are free ones.
#[derive(Debug)]
struct Claim {
    process: &'static Process,
    key: u64,
    rank: u16,
    /// The thread that keeps the rank for a while after the count.
    holder: Option<Holder>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Elsewhere a thread that is not there may hold the lock, and nobody counts by these claims.
        if self.process.made_in.is_this_process() {
            let claims = &self.process.claims;
            claims.release(self.key, self.rank, self.holder);
        }
    }
}

#[cfg(all(test, feature = "postgres_backend"))]
mod key_tests {
    use super::*;

    #[test]
    fn filters_are_told_apart_by_their_values() {
        use crate::test_schema::videos::dsl::*;
        use diesel::pg::Pg;
        use diesel::prelude::*;
        use diesel::query_builder::IntoUpdateTarget;

        let of = |key: i64| {
            let filter = videos.find(key).into_update_target().where_clause;
            hash_of::<Pg>("videos_shards", &filter)
        };
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
        let by_filter = videos.filter(id.eq(7)).into_update_target().where_clause;
        assert_eq!(hash_of::<Pg>("videos_shards", &by_filter), of(7));
        assert_ne!(hash_of::<Pg>("others", &by_filter), of(7));
    }
}

#[cfg(test)]
mod tests;

//! The choice of a shard for each attempt.

use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use diesel::query_builder::QueryFragment;

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
    /// [`hash_of`] the table and the filter, only for [`ShardChoice::Adaptive`].
    pub(crate) key: u64,
    /// How many shards there are to choose from, at least 1; for a [`Choice`] only those of the stripe.
    pub(crate) shards: u16,
    /// The part of the shards that the process keeps to.
    pub(crate) stripe: Stripe,
    /// The database has one writer at a time.
    pub(crate) one_writer: bool,
    /// The row stays locked until the caller's transaction ends.
    pub(crate) in_transaction: bool,
    /// It is one of a batch.
    pub(crate) in_batch: bool,
    /// The filter names the key and nothing else: the time that the increment takes tells whether it waited for a lock, and a probe can ask.
    pub(crate) timed: bool,
}

/// A number for the rows that `filter` matches. It is the same as long as the process runs.
pub(crate) fn hash_of<DB: ShardedBackend>(table: &str, filter: &impl QueryFragment<DB>) -> u64 {
    let mut hash = Hashed(DefaultHasher::new());
    hash.0.write(table.as_bytes());
    // A filter that cannot be written gets the hash of its first part. The statement then reports the error.
    let _ = DB::default().show(filter, &mut hash);
    hash.0.finish()
}

/// The shard that an attempt counts on. With [`ShardChoice::Adaptive`] no other increment takes it while other shards are free.
#[derive(Debug)]
pub(crate) struct Choice {
    subject: Subject,
    process: &'static Process,
    shard: i32,
    /// The index of the shard that is reserved.
    reserved: Option<u16>,
    /// The thread that keeps the shard for a while after the increment.
    thread: Option<u64>,
    clock: fn() -> Instant,
    /// The index of the shard on which the last attempt met a conflict.
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
            reserved: None,
            thread: None,
            clock: attempts.clock(),
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
        self.release();
        let index = match self.subject.choice {
            ShardChoice::Adaptive if self.subject.one_writer => 0,
            ShardChoice::Adaptive => self.reserve(now),
            ShardChoice::Striped => process::shard_of_this_thread(self.process.offset, shards),
            ShardChoice::Random => (attempts.retry().random() % u64::from(shards)) as u16,
        };
        self.shard = self.subject.stripe.shard(index);
    }

    fn reserve(&mut self, now: Instant) -> u16 {
        let (subject, process) = (self.subject, self.process);
        let contention = process.contentions.get(subject.key, now);
        // Most keys of a batch are counted on seldom. They keep to the first shards in every process, where the next batch finds them. A
        // batch in a caller's transaction does not, because nobody knows how long the transaction holds its locks.
        let is_batch = subject.in_batch && !subject.in_transaction;
        let is_contended = contention == Contention::Contended
            || (is_batch && process.batches.counts_often(subject.key, now));
        let order = Order {
            shards: subject.shards,
            offset: match is_batch && !is_contended {
                true => 0,
                false => process.offset,
            },
            // Transactions hold several rows at once: processes that all began at the same shards would deadlock.
            first_comes_last: is_contended || subject.in_transaction,
            avoided: self.avoided,
        };
        self.thread = subject.in_transaction.then(process::id_of_this_thread);
        let reservations = &process.reservations;
        let (index, none_was_free) =
            reservations.reserve(subject.key, order.indexes(), self.thread, now);
        self.reserved = Some(index);
        if none_was_free {
            process.stats.crowded.fetch_add(1, Ordering::Relaxed);
            process.warnings.crowded(subject.table, subject.shards, now);
        }
        self.probes = contention == Contention::Slow
            && self.may_probe()
            && self.is_on_shared_shard()
            && lock(&process.probes).begins((), (), now);
        index
    }

    fn release(&mut self) {
        let Some(index) = self.reserved.take() else {
            return;
        };
        // A child process must not wait for a lock that a thread of its parent held, and no increment in the child uses these reservations.
        if !self.process.made_in.is_this_process() {
            return;
        }
        // The clock may be the application's code, so it is not called under the lock.
        let keeps = self.thread.map(|thread| (thread, (self.clock)()));
        let reservations = &self.process.reservations;
        reservations.release(self.subject.key, index, keeps);
    }

    fn may_probe(&self) -> bool {
        self.subject.timed && !self.subject.in_transaction
    }

    /// Whether other processes are likely to count on the same shard, and there is another shard.
    fn is_on_shared_shard(&self) -> bool {
        self.subject.shards > 1 && self.reserved == Some(0)
    }

    /// Whether to ask first whether the shard is locked; true at most once for each choice.
    pub(crate) fn probes(&mut self) -> bool {
        std::mem::take(&mut self.probes)
    }

    /// Records the answer to that question.
    pub(crate) fn probed(&mut self, locked: bool, attempts: &Attempts) {
        let now = attempts.now();
        self.process.stats.probes.fetch_add(1, Ordering::Relaxed);
        if locked {
            self.met_another(now);
            self.choose(attempts, now);
        } else {
            let contentions = &self.process.contentions;
            contentions.set(self.subject.key, Contention::Idle, now);
        }
    }

    /// An increment on the key met another one.
    fn met_another(&self, now: Instant) {
        let (key, contentions) = (self.subject.key, &self.process.contentions);
        if contentions.get(key, now) != Contention::Contended {
            self.process.stats.hot.fetch_add(1, Ordering::Relaxed);
        }
        contentions.set(key, Contention::Contended, now);
    }

    /// Whether to measure the time that the increment takes, which tells whether it waited for a lock.
    pub(crate) fn is_timed(&self) -> bool {
        self.subject.timed && self.is_on_shared_shard()
    }

    /// Records the time that the increment took.
    pub(crate) fn took(&mut self, time: Duration, kind: CountKind, now: Instant) {
        let key = self.subject.key;
        let contentions = &self.process.contentions;
        let waited = self.process.shortest[kind.index()].is_exceeded_by(time);
        match (contentions.get(key, now), waited) {
            (Contention::Idle, true) => contentions.set(key, Contention::Slow, now),
            (Contention::Slow, true) if !self.may_probe() => self.met_another(now),
            (Contention::Slow, false) => contentions.set(key, Contention::Idle, now),
            _ => {}
        }
    }

    /// The attempt met a conflict; the next one on the key takes another shard.
    pub(crate) fn met_conflict(&mut self, attempts: &Attempts) {
        if self.subject.choice == ShardChoice::Striped {
            process::move_this_thread_on(self.subject.shards, attempts.retry().random());
        }
        let Some(index) = self.reserved else {
            return;
        };
        self.release();
        self.avoided = Some(index);
        self.met_another(attempts.now());
        if self.subject.in_transaction {
            let reservations = &self.process.reservations;
            reservations.give_up(self.subject.key, index);
            self.again(attempts); // the next increment of this thread knows only the shard that the thread keeps
        }
    }
}

/// The order in which an increment takes the shards of its key.
#[derive(Debug, Clone, Copy)]
struct Order {
    /// How many there are, at least 1.
    shards: u16,
    /// Where it begins among those after the first.
    offset: u32,
    first_comes_last: bool,
    /// A shard that is left out if there is another.
    avoided: Option<u16>,
}

impl Order {
    /// The indexes of the shards.
    fn indexes(self) -> impl Iterator<Item = u16> + Clone {
        let behind = self.shards - 1;
        let begin = self.offset.checked_rem(u32::from(behind)).unwrap_or(0) as u16;
        let behind = (begin + 1..=behind).chain(1..=begin);
        let (first, last) = match self.first_comes_last {
            true => (None, Some(0)),
            false => (Some(0), None),
        };
        let all = first.into_iter().chain(behind).chain(last);
        all.filter(move |index| self.shards == 1 || self.avoided != Some(*index))
    }
}

impl Drop for Choice {
    fn drop(&mut self) {
        self.release();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

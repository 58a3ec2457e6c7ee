//! The choice of a shard for each attempt, and what this process remembers for it.

use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hasher};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use diesel::query_builder::QueryFragment;

use super::claims::{Claims, Holder, Wish};
use super::marks::{Mark, Marks};
use super::stripe::Stripe;
use super::threads::Place;
use super::waits::{Pace, ShortestTime};
use super::warnings::Warnings;
use crate::backend::ShardedBackend;
use crate::policy::Attempts;

/// How counting updates choose their shards; for all of the process, or for [one](crate::operation::UpdateStatement::shard_choice).
///
/// Any choice is right, since readers add up whatever shards there are. Processes may differ in it, and it may change at any
/// time.
///
/// ```
/// use diesel_sharded::shard_choice::ShardChoice;
///
/// ShardChoice::Striped.set_global();
/// assert_eq!(ShardChoice::global(), ShardChoice::Striped);
/// # ShardChoice::default().set_global();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ShardChoice {
    /// As many shards of a key as it has writers at once; see the [module](crate::shard_choice). On SQLite, which has one writer at a time,
    /// the first shard. The default.
    #[default]
    Adaptive,
    /// Each thread keeps to a shard of its own, the same for all keys, until it meets a conflict; then it keeps to another. The
    /// least work for the process; each key has as many shards as threads ever counted on it.
    Striped,
    /// A random shard for each attempt, by [`RetryPolicy::with_random`](crate::retry::RetryPolicy::with_random) where that was given. Each
    /// key comes to have all its shards.
    Random,
}

static PROCESS_WIDE: AtomicU8 = AtomicU8::new(ShardChoice::Adaptive as u8);

impl ShardChoice {
    /// Makes this the choice of every counting update in this process that is given none of its own.
    pub fn set_global(self) {
        PROCESS_WIDE.store(self as u8, Ordering::Relaxed);
    }

    /// The choice of counting updates that are given none of their own.
    pub fn global() -> Self {
        let number = PROCESS_WIDE.load(Ordering::Relaxed);
        [ShardChoice::Striped, ShardChoice::Random]
            .into_iter()
            .find(|choice| *choice as u8 == number)
            .unwrap_or_default()
    }

    /// What [`Adaptive`](Self::Adaptive) came across in this process so far.
    ///
    /// ```
    /// use diesel_sharded::shard_choice::ShardChoice;
    ///
    /// let before = ShardChoice::stats();
    /// // …
    /// let crowded = ShardChoice::stats().crowded - before.crowded;
    /// assert_eq!(crowded, 0, "more shards would help");
    /// ```
    pub fn stats() -> ShardChoiceStats {
        PROCESS.stats.get()
    }
}

/// What [`ShardChoice::Adaptive`] came across in this process; see [`ShardChoice::stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ShardChoiceStats {
    /// Counts that found every shard of their key taken by other counts of this process: more shards would help. A warning says
    /// so too, at most once a minute for each shards table: by `tracing` where a subscriber listens, else by `log`; see
    /// [`observability`](crate::observability).
    pub crowded: u64,
    /// How often a key became hot: somebody else was met on it.
    pub hot: u64,
    /// How often the first shard was asked whether it is locked.
    pub probes: u64,
}

#[derive(Debug, Default)]
struct Stats {
    crowded: AtomicU64,
    hot: AtomicU64,
    probes: AtomicU64,
}

impl Stats {
    fn get(&self) -> ShardChoiceStats {
        ShardChoiceStats {
            crowded: self.crowded.load(Ordering::Relaxed),
            hot: self.hot.load(Ordering::Relaxed),
            probes: self.probes.load(Ordering::Relaxed),
        }
    }
}

/// What a counting update is about, as far as its shard depends on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) choice: ShardChoice,
    /// The shards table's name.
    pub(crate) table: &'static str,
    /// [`hash_of`] the table and the filter; nobody but [`ShardChoice::Adaptive`] looks at it.
    pub(crate) key: u64,
    /// How many shards there are to choose from, at least 1; for a [`Choice`] those of the stripe alone.
    pub(crate) shards: u16,
    /// What the process keeps to.
    pub(crate) stripe: Stripe,
    /// The database has one writer at a time.
    pub(crate) one_writer: bool,
    /// The row stays locked until the caller's transaction ends.
    pub(crate) in_transaction: bool,
    /// The time that a count takes tells whether it waited: it is about one row.
    pub(crate) timed: bool,
}

/// Tells the rows that `filter` matches from others, as long as the process runs.
pub(crate) fn hash_of<DB: ShardedBackend>(table: &str, filter: &impl QueryFragment<DB>) -> u64 {
    let mut hash = Hash(DefaultHasher::new());
    hash.0.write(table.as_bytes());
    // What cannot be written takes the hash of what could: it shares a key's shards, and is told by the statement.
    let _ = write!(hash, "{}", diesel::debug_query::<DB, _>(filter));
    hash.0.finish()
}

struct Hash(DefaultHasher);

impl Write for Hash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// What a process knows, for [`ShardChoice::Adaptive`].
#[derive(Debug)]
pub(crate) struct Process {
    /// Where the process's ranks, and its threads' places, begin.
    offset: u32,
    claims: Claims,
    marks: Marks,
    /// Of counts that commit by themselves, and of those that do not.
    shortest: [ShortestTime; 2],
    probes: Pace,
    stats: Stats,
    warnings: Warnings,
}

static PROCESS: LazyLock<Process> = LazyLock::new(|| Process::new(rand::random(), Instant::now()));

impl Process {
    pub(crate) fn this() -> &'static Process {
        &PROCESS
    }

    pub(crate) fn new(offset: u32, now: Instant) -> Self {
        Process {
            offset,
            claims: Claims::default(),
            marks: Marks::new(now),
            shortest: [ShortestTime::default(), ShortestTime::default()],
            probes: Pace::new(now),
            stats: Stats::default(),
            warnings: Warnings::default(),
        }
    }

    /// Rank 0 is the first place everywhere; the others begin where the process does.
    fn place_of(&self, rank: u16, shards: u16) -> u16 {
        match (rank.checked_sub(1), u32::from(shards).checked_sub(1)) {
            (Some(behind), Some(others)) if others > 0 => {
                let place = (self.offset % others + u32::from(behind)) % others;
                place as u16 + 1 // not above `others`
            }
            _ => 0,
        }
    }

    fn mark_hot(&self, key: u64, now: Instant) {
        if self.marks.get(key, now) != Mark::Hot {
            self.stats.hot.fetch_add(1, Ordering::Relaxed);
        }
        self.marks.set(key, Mark::Hot, now);
    }
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
        self.claim = None; // its own rank is free again
        let place = match self.subject.choice {
            ShardChoice::Adaptive if self.subject.one_writer => 0,
            ShardChoice::Adaptive => self.claim_rank(shards, attempts, now),
            ShardChoice::Striped => Place::of_this_thread(self.process.offset, shards),
            ShardChoice::Random => (attempts.retry().random() % u64::from(shards)) as u16,
        };
        self.shard = self.subject.stripe.shard(place);
    }

    fn claim_rank(&mut self, shards: u16, attempts: &Attempts, now: Instant) -> u16 {
        let Subject {
            table,
            key,
            in_transaction,
            ..
        } = self.subject;
        let mark = self.process.marks.get(key, now);
        let holder = in_transaction.then(|| Holder {
            thread: super::threads::number(),
            clock: attempts.clock(),
        });
        let wish = Wish {
            ranks: shards,
            // Transactions hold several rows at once: processes that all began at the same shards would deadlock.
            first_comes_last: mark == Mark::Hot || in_transaction,
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
        self.probes = mark == Mark::Suspect
            && self.may_probe()
            && self.is_on_shared_shard()
            && self.process.probes.take(now);
        self.process.place_of(rank, shards)
    }

    fn may_probe(&self) -> bool {
        self.subject.timed && !self.subject.in_transaction
    }

    /// Whether other processes may well be on the same shard, and another one is left.
    fn is_on_shared_shard(&self) -> bool {
        self.subject.shards > 1 && self.claim.as_ref().is_some_and(|claim| claim.rank == 0)
    }

    /// Whether the shard is to be asked first whether it is locked; once.
    pub(crate) fn probes(&mut self) -> bool {
        std::mem::take(&mut self.probes)
    }

    /// The shard was asked whether it is locked, and was, or was not.
    pub(crate) fn probed(&mut self, locked: bool, attempts: &Attempts) {
        let now = attempts.now();
        self.process.stats.probes.fetch_add(1, Ordering::Relaxed);
        if locked {
            self.process.mark_hot(self.subject.key, now);
            self.choose(attempts, now);
        } else {
            self.process.marks.set(self.subject.key, Mark::Cold, now);
        }
    }

    /// Whether it matters how long the count takes.
    pub(crate) fn is_timed(&self) -> bool {
        self.subject.timed && self.is_on_shared_shard()
    }

    /// The count took so long. `commits`: with its COMMIT.
    pub(crate) fn took(&mut self, time: Duration, commits: bool, now: Instant) {
        let key = self.subject.key;
        let marks = &self.process.marks;
        let waited = self.process.shortest[usize::from(commits)].is_exceeded_by(time);
        match (marks.get(key, now), waited) {
            (Mark::Cold, true) => marks.set(key, Mark::Suspect, now),
            (Mark::Suspect, true) if !self.may_probe() => self.process.mark_hot(key, now),
            (Mark::Suspect, false) => marks.set(key, Mark::Cold, now),
            _ => {}
        }
    }

    /// The attempt met a conflict; the next one on the key takes another shard.
    pub(crate) fn met_conflict(&mut self, attempts: &Attempts) {
        if self.subject.choice == ShardChoice::Striped {
            Place::move_on(self.subject.shards, attempts.retry().random());
        }
        let Some(claim) = self.claim.take() else {
            return;
        };
        self.avoided = Some(claim.rank);
        drop(claim);
        self.process.mark_hot(self.subject.key, attempts.now());
        if self.subject.in_transaction {
            self.again(attempts); // for the next count of this thread, which knows of this one by its lease alone
        }
    }
}

/// A rank of a key that no other count takes while there are free ones.
#[derive(Debug)]
struct Claim {
    process: &'static Process,
    key: u64,
    rank: u16,
    /// Who keeps the rank for a while after the count.
    holder: Option<Holder>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.process
            .claims
            .release(self.key, self.rank, self.holder);
    }
}

/// A time so much later; the time itself where an application's clock goes no further.
pub(super) fn later(time: Instant, span: Duration) -> Instant {
    time.checked_add(span).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::RetryPolicy;

    const SUBJECT: Subject = Subject {
        choice: ShardChoice::Adaptive,
        table: "videos_shards",
        key: 1 << 50,
        shards: 8,
        stripe: Stripe::ALL,
        one_writer: false,
        in_transaction: false,
        timed: true,
    };
    const INSIDE: Subject = Subject {
        in_transaction: true,
        ..SUBJECT
    };

    /// A process that takes shards 5, 6, 7, 1, 2, … after the first one.
    fn process() -> &'static Process {
        Box::leak(Box::new(Process::new(4, Instant::now())))
    }

    fn attempts() -> Attempts {
        Attempts::start(RetryPolicy::new())
    }

    fn choose(process: &'static Process, subject: Subject) -> Choice {
        Choice::new(subject, process, &attempts())
    }

    /// Makes the shortest time 100 µs, and `key` suspect.
    fn suspect(process: &'static Process, subject: Subject) {
        let mut choice = choose(process, subject);
        let commits = !subject.in_transaction;
        choice.took(Duration::from_micros(100), commits, Instant::now());
        choice.took(Duration::from_millis(5), commits, Instant::now());
    }

    #[test]
    fn one_writer_at_a_time_keeps_to_the_first_shard_and_others_follow() {
        let process = process();
        for _ in 0..3 {
            assert_eq!(choose(process, SUBJECT).shard(), 0);
        }
        let at_once: Vec<_> = (0..8).map(|_| choose(process, SUBJECT)).collect();
        let shards: Vec<_> = at_once.iter().map(Choice::shard).collect();
        assert_eq!(shards, [0, 5, 6, 7, 1, 2, 3, 4]);
        assert_eq!(process.stats.get().crowded, 0);
        let ninth = choose(process, SUBJECT);
        assert_eq!((ninth.shard(), process.stats.get().crowded), (0, 1));
        drop((at_once, ninth));
        assert_eq!(choose(process, SUBJECT).shard(), 0);
    }

    #[test]
    fn a_conflict_makes_a_key_hot_and_the_next_attempt_takes_another_shard() {
        let process = process();
        let attempts = attempts();
        let mut choice = choose(process, SUBJECT);
        let mut shards = vec![];
        for _ in 0..3 {
            shards.push(choice.shard());
            choice.met_conflict(&attempts);
            choice.again(&attempts);
        }
        assert_eq!(shards, [0, 5, 6]);
        assert_eq!(process.stats.get().hot, 1);
        let other = Subject {
            key: 2 << 50,
            ..SUBJECT
        };
        assert_eq!(choose(process, other).shard(), 0);
        drop(choice);
        assert_eq!(choose(process, SUBJECT).shard(), 5);
    }

    #[test]
    fn a_slow_count_is_followed_by_a_probe_which_decides() {
        for locked in [true, false] {
            let process = process();
            suspect(process, SUBJECT);
            let mut choice = choose(process, SUBJECT);
            assert_eq!([choice.probes(), choice.probes()], [true, false]);
            choice.probed(locked, &attempts());
            assert_eq!(choice.shard(), if locked { 5 } else { 0 });
            assert!(!choice.probes());
            drop(choice);
            let mut next = choose(process, SUBJECT);
            assert_eq!((next.shard() == 0, next.probes()), (!locked, false));
            let stats = process.stats.get();
            assert_eq!((stats.probes, stats.hot), (1, u64::from(locked)));
        }
    }

    #[test]
    fn no_probe_but_at_its_pace_and_where_it_may_help() {
        let process = process();
        suspect(process, SUBJECT);
        assert!(choose(process, SUBJECT).probes());
        assert!(!choose(process, SUBJECT).probes()); // too early
        let process = self::process();
        suspect(process, SUBJECT);
        let first = choose(process, SUBJECT);
        let mut second = choose(process, SUBJECT);
        assert_eq!((second.shard(), second.probes()), (5, false)); // not on the first shard
        drop((first, second));
        let untimed = Subject {
            timed: false,
            ..SUBJECT
        };
        assert!(!choose(process, untimed).probes());
        let one_shard = Subject {
            shards: 1,
            ..SUBJECT
        };
        let mut choice = choose(process, one_shard);
        assert!(!choice.probes() && !choice.is_timed());
    }

    /// Of two shards, one is taken by another count, so that the first is left for a transaction.
    const INSIDE_OF_TWO: Subject = Subject {
        shards: 2,
        ..INSIDE
    };

    fn take_the_second_of_two(process: &'static Process) -> Choice {
        let outside = Subject {
            shards: 2,
            ..SUBJECT
        };
        let [_first, second] = [(); 2].map(|()| choose(process, outside));
        assert_eq!(second.shard(), 1);
        second
    }

    #[test]
    fn a_quick_count_clears_a_suspicion() {
        let process = process();
        let _second = take_the_second_of_two(process);
        suspect(process, INSIDE_OF_TWO);
        let mut choice = choose(process, INSIDE_OF_TWO);
        choice.took(Duration::from_micros(110), false, Instant::now());
        choice.took(Duration::from_millis(5), false, Instant::now());
        assert_eq!(process.stats.get().hot, 0);
    }

    #[test]
    fn inside_a_transaction_two_slow_counts_in_a_row_make_a_key_hot() {
        let process = process();
        let second = take_the_second_of_two(process);
        suspect(process, INSIDE_OF_TWO);
        let mut choice = choose(process, INSIDE_OF_TWO);
        assert_eq!((choice.shard(), choice.probes()), (0, false));
        assert!(choice.is_timed());
        choice.took(Duration::from_millis(5), false, Instant::now());
        drop((choice, second));
        assert_eq!(choose(process, SUBJECT).shard(), 5);
        assert_eq!(process.stats.get().hot, 1);
    }

    #[test]
    fn a_thread_keeps_its_shard_inside_transactions() {
        let process = process();
        assert_eq!(choose(process, INSIDE).shard(), 5);
        assert_eq!(choose(process, SUBJECT).shard(), 0); // the other row may be locked still
        let of_another = std::thread::spawn(move || choose(process, INSIDE).shard());
        assert_eq!(of_another.join().unwrap(), 6);
        assert_eq!(choose(process, INSIDE).shard(), 5);
        // After a conflict the next count of this thread goes elsewhere.
        choose(process, INSIDE).met_conflict(&attempts());
        assert_eq!(choose(process, INSIDE).shard(), 7);
    }

    /// Rows that several processes count on in transactions, in any order: none waits for another one's row, so none deadlocks.
    #[test]
    fn processes_begin_apart_inside_transactions() {
        let processes = [0, 1, 2, 3, 4, 5].map(|offset| {
            let process: &'static Process =
                Box::leak(Box::new(Process::new(offset, Instant::now())));
            process
        });
        let mut taken = std::collections::BTreeSet::new();
        for process in processes {
            for row in 0..5 {
                let of_row = |subject: Subject| Subject {
                    key: row << 50,
                    ..subject
                };
                let shard = choose(process, of_row(INSIDE)).shard();
                assert!(taken.insert((row, shard)), "row {row}, shard {shard}");
            }
            // Outside, all are at the first shard: a cold key has one row.
            let cold = Subject {
                key: 9 << 50,
                ..SUBJECT
            };
            assert_eq!(choose(process, cold).shard(), 0);
        }
    }

    #[test]
    fn other_choices_claim_nothing() {
        let process = process();
        let with = |choice| Subject { choice, ..SUBJECT };
        let random = RetryPolicy::new().with_random(|| 11);
        let attempts = Attempts::start(random);
        let choice = Choice::new(with(ShardChoice::Random), process, &attempts);
        assert_eq!(choice.shard(), 3);
        let striped = || Choice::new(with(ShardChoice::Striped), process, &attempts);
        let mut first = striped();
        assert_eq!(striped().shard(), first.shard());
        let before = first.shard();
        first.met_conflict(&attempts);
        first.again(&attempts);
        assert_ne!(first.shard(), before);
        assert_eq!(striped().shard(), first.shard());
        let sqlite = Subject {
            one_writer: true,
            ..SUBJECT
        };
        let at_once = [choose(process, sqlite), choose(process, sqlite)];
        assert_eq!(at_once.map(|choice| choice.shard()), [0, 0]);
        assert_eq!(process.stats.get(), ShardChoiceStats::default());
    }

    #[test]
    fn every_rank_has_a_place_of_its_own() {
        for shards in [1, 2, 3, 16, 4096] {
            for offset in [0, 1, 17, u32::MAX] {
                let process = Process::new(offset, Instant::now());
                let mut all: Vec<_> = (0..shards)
                    .map(|rank| process.place_of(rank, shards))
                    .collect();
                assert_eq!(all[0], 0);
                all.sort_unstable();
                assert_eq!(all, (0..shards).collect::<Vec<_>>());
            }
        }
    }

    /// Each choice, at once, after conflicts and inside transactions.
    #[test]
    fn a_process_keeps_to_its_stripe() {
        let stripe = Stripe::new(1, 3).unwrap();
        let process = process();
        for choice in [
            ShardChoice::Adaptive,
            ShardChoice::Striped,
            ShardChoice::Random,
        ] {
            for in_transaction in [true, false] {
                let subject = Subject {
                    choice,
                    stripe,
                    in_transaction,
                    ..SUBJECT
                };
                let attempts = attempts();
                let mut at_once: Vec<_> = (0..8)
                    .map(|_| Choice::new(subject, process, &attempts))
                    .collect();
                for choice in &mut at_once {
                    for _ in 0..8 {
                        assert!([1, 4, 7].contains(&choice.shard()), "{choice:?}");
                        choice.met_conflict(&attempts);
                        choice.again(&attempts);
                    }
                }
            }
        }
        let subject = Subject { stripe, ..SUBJECT };
        let process = self::process();
        let at_once = [(); 4].map(|()| choose(process, subject));
        let mut shards = at_once.each_ref().map(Choice::shard);
        assert_eq!(
            (shards[0], shards[3], process.stats.get().crowded),
            (1, 1, 1)
        );
        shards[..3].sort_unstable();
        assert_eq!(shards[..3], [1, 4, 7]);
        let sqlite = Subject {
            one_writer: true,
            ..subject
        };
        assert_eq!(choose(process, sqlite).shard(), 1);
    }

    #[test]
    #[cfg(feature = "postgres_backend")]
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

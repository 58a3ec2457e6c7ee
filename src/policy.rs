//! The retry policy: the number of attempts, the delays between them, and the deadline.

use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use diesel::result::Error as DieselError;

use crate::conflict::Conflict;
use crate::error::Error;
use crate::model::shows;
use crate::per_process::{PerProcess, inherited, random_bits};

/// How an operation is retried after a [`Conflict`]: with exponential backoff and full jitter, limited by a number of attempts *and* by a
/// deadline.
///
/// | setting | default | meaning |
/// |---|---|---|
/// | [`with_attempts`](Self::with_attempts) | 32; for a [busy](Conflict::Busy) SQLite, as many as the deadline allows | attempts in all, including the first; 1 means no retry |
/// | [`with_min_delay`](Self::with_min_delay) | 1 ms | the longest sleep before the second attempt; it doubles with each further attempt |
/// | [`with_max_delay`](Self::with_max_delay) | 100 ms | the longest sleep after any of the first 16 attempts; after the 17th twice that, after the 18th three times, and so on (not for a busy SQLite) |
/// | [`with_deadline`](Self::with_deadline) | 10 s | no attempt starts later than this after the first one; in a fold and a repair it applies to each transaction |
/// | [`with_jitter`](Self::with_jitter) | on | sleep a random time between zero and that longest sleep |
///
/// The deadline does not interrupt a statement that is waiting inside the database: `lock_timeout` (PostgreSQL),
/// `innodb_lock_wait_timeout` (MySQL) and `busy_timeout` (SQLite) do.
///
/// For full jitter see [Exponential Backoff And Jitter](https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
///
/// ```
/// use std::time::Duration;
/// use diesel_sharded::retry::RetryPolicy;
///
/// const PATIENT: RetryPolicy = RetryPolicy::new()
///     .with_attempts(100)
///     .with_deadline(Duration::from_secs(30));
/// PATIENT.set_global();
/// # RetryPolicy::new().set_global();
/// ```
#[derive(Clone)]
#[must_use = "a policy does nothing until it is given to `.retry(..)`, `retry::transaction` or `set_global`"]
pub struct RetryPolicy {
    /// `None` is the default.
    attempts: Option<u32>,
    base: Duration,
    cap: Duration,
    deadline: Duration,
    /// The start of the whole operation, if this policy retries only a part of it.
    began: Option<Instant>,
    jitter: bool,
    clock: fn() -> Instant,
    sleep: Option<Arc<dyn Fn(Duration) + Send + Sync>>,
    notify: Option<Notify>,
    random: Option<Arc<dyn Fn() -> u64 + Send + Sync>>,
}

type Notify = Arc<dyn Fn(&Attempted) + Send + Sync>;

/// An attempt that ended in a conflict and is followed by another; see [`RetryPolicy::with_notify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempted {
    /// The conflict that the attempt met.
    pub conflict: Conflict,
    /// The attempt's number, from 1.
    pub attempt: u32,
    /// The sleep before the next attempt.
    pub delay: Duration,
}

static PROCESS_WIDE: PerProcess<RwLock<RetryPolicy>> =
    PerProcess::new(|parents| RwLock::new(inherited(parents).unwrap_or_else(RetryPolicy::new)));

impl RetryPolicy {
    /// The policy with the defaults above.
    pub const fn new() -> Self {
        RetryPolicy {
            attempts: None,
            base: Duration::from_millis(1),
            cap: Duration::from_millis(100),
            deadline: Duration::from_secs(10),
            began: None,
            jitter: true,
            clock: Instant::now,
            sleep: None,
            notify: None,
            random: None,
        }
    }

    /// One attempt only: a conflict is reported at once.
    pub const fn never() -> Self {
        Self::new().with_attempts(1)
    }

    /// Sets the number of attempts, including the first. Zero counts as one.
    pub const fn with_attempts(mut self, attempts: u32) -> Self {
        self.attempts = Some(attempts);
        self
    }

    /// Sets the longest sleep before the second attempt.
    pub const fn with_min_delay(mut self, base: Duration) -> Self {
        self.base = base;
        self
    }

    /// Sets the longest sleep after any of the first 16 attempts. Callers who still meet conflicts then keep each other from finishing, and their
    /// sleeps grow.
    pub const fn with_max_delay(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// Sets the deadline: no attempt starts later than this after the first attempt's start.
    pub const fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sleeps a random part of each delay (`true`, the default), or the whole of it.
    pub const fn with_jitter(mut self, jitter: bool) -> Self {
        self.jitter = jitter;
        self
    }

    /// Reads the time from `clock` instead of [`Instant::now`].
    #[doc(hidden)]
    pub const fn with_clock(mut self, clock: fn() -> Instant) -> Self {
        self.clock = clock;
        self
    }

    /// Calls `sleep` instead of [`std::thread::sleep`]. Asynchronous operations do not use it, because it would block their threads.
    pub fn with_sleep(mut self, sleep: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        self.sleep = Some(Arc::new(sleep));
        self
    }

    /// Calls `notify` before each sleep, to log or count conflicts.
    pub fn with_notify(mut self, notify: impl Fn(&Attempted) + Send + Sync + 'static) -> Self {
        self.notify = Some(Arc::new(notify));
        self
    }

    /// Draws the jitter from `random` instead of the operating system; each call returns 64 evenly distributed bits. `random` also
    /// chooses the shards of [bounded](crate::bounded) counters, those of
    /// [`ShardChoice::Random`](crate::shard_choice::ShardChoice::Random), and the next shard after a conflict of `Striped`.
    #[doc(hidden)]
    pub fn with_random(mut self, random: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.random = Some(Arc::new(random));
        self
    }

    /// Makes this the policy of every operation in this process that has no other policy.
    pub fn set_global(self) {
        let mut policy = PROCESS_WIDE.write();
        let before = std::mem::replace(&mut *policy, self);
        drop(policy);
        drop(before); // outside the lock: a value in its closures may count when it is dropped
    }

    /// The policy of operations that have no other.
    pub fn global() -> Self {
        PROCESS_WIDE.read().clone()
    }

    /// See [`with_deadline`](Self::with_deadline).
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The same policy for each part of an operation that begins now. The parts share the operation's deadline.
    pub(crate) fn begun(mut self) -> Self {
        self.began = self.began.or_else(|| Some((self.clock)()));
        self
    }

    /// The same policy for an operation that has already waited this long.
    pub(crate) fn waited(mut self, waited: Duration) -> Self {
        self.began = (self.clock)().checked_sub(waited);
        self
    }

    /// The greatest number of attempts if this conflict ends each of them.
    pub(crate) fn most_attempts(&self, conflict: Conflict) -> u32 {
        self.attempts.unwrap_or(match conflict {
            Conflict::Busy => u32::MAX, // one writer at a time: without `busy_timeout`, attempts are the only way to wait
            _ => 32,
        })
    }

    /// The time of day, in seconds since 1970. It differs from the system's as much as the policy's clock does.
    pub(crate) fn seconds_since_1970(&self) -> i64 {
        let (real, clock) = (Instant::now(), (self.clock)());
        let system = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = (system.unwrap_or_default())
            .saturating_add(clock.saturating_duration_since(real))
            .saturating_sub(real.saturating_duration_since(clock));
        i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
    }

    /// Sleeps by [`with_sleep`](Self::with_sleep)'s function.
    pub(crate) fn sleep(&self, delay: Duration) {
        match &self.sleep {
            Some(sleep) => sleep(delay),
            None => std::thread::sleep(delay),
        }
    }

    pub(crate) fn random(&self) -> u64 {
        match &self.random {
            Some(random) => random(),
            None => random_bits(),
        }
    }
}

impl Default for RetryPolicy {
    /// The process-wide policy.
    fn default() -> Self {
        Self::global()
    }
}

shows!([] RetryPolicy: |self| RetryPolicy {
    attempts: self.attempts, base: self.base, cap: self.cap, deadline: self.deadline, jitter: self.jitter
} finish_non_exhaustive);

/// After this many attempts the cap grows with each further attempt.
const COLLISIONS: u32 = 16;

/// The attempts of one operation under a policy. It only decides; it neither sleeps nor runs anything.
#[derive(Debug)]
pub(crate) struct Attempts {
    retry: RetryPolicy,
    attempt: u32,
    started: Instant,
}

impl Attempts {
    pub(crate) fn start(retry: RetryPolicy) -> Self {
        Attempts {
            attempt: 1,
            started: (retry.clock)(),
            retry,
        }
    }

    /// The delay before the next attempt, or `None` if this attempt was the last.
    pub(crate) fn after(&mut self, conflict: Conflict) -> Option<Duration> {
        let left = self.retry.deadline.checked_sub(self.elapsed())?;
        if self.attempt >= self.retry.most_attempts(conflict) || left.is_zero() {
            return None;
        }
        let longest = self.longest_delay(conflict);
        let delay = if self.retry.jitter {
            let part = self.retry.random() as f64 / u64::MAX as f64;
            Duration::try_from_secs_f64(longest.as_secs_f64() * part).unwrap_or(longest)
        } else {
            longest
        };
        let delay = delay.min(left);
        if let Some(notify) = &self.retry.notify {
            notify(&Attempted {
                conflict,
                attempt: self.attempt,
                delay,
            });
        }
        self.attempt += 1;
        Some(delay)
    }

    /// Many callers whose transactions take longer than the usual delays deadlock again and again, and each keeps the others from finishing. So
    /// the delays of a caller whose [`COLLISIONS`] attempts have failed keep growing. A busy database is free for the next caller.
    fn longest_delay(&self, conflict: Conflict) -> Duration {
        let RetryPolicy { base, cap, .. } = self.retry;
        let doubled = 2_u32.saturating_pow(self.attempt - 1);
        let longest = base.saturating_mul(doubled).min(cap);
        match conflict {
            Conflict::Busy => longest,
            _ => longest.saturating_mul(self.attempt.saturating_sub(COLLISIONS - 1).max(1)),
        }
    }

    /// The operation's error after the last attempt ended in the conflict `source`.
    pub(crate) fn persisted(&self, conflict: Conflict, source: DieselError) -> Error {
        Error::ConflictPersisted {
            conflict,
            attempts: self.attempt,
            elapsed: self.elapsed(),
            source,
        }
    }

    /// The time since the operation began.
    fn elapsed(&self) -> Duration {
        let began = self.retry.began.unwrap_or(self.started);
        self.now().saturating_duration_since(began)
    }

    /// The number of the attempt, from 1.
    pub(crate) fn number(&self) -> u32 {
        self.attempt
    }

    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    pub(crate) fn now(&self) -> Instant {
        (self.retry.clock)()
    }

    pub(crate) fn clock(&self) -> fn() -> Instant {
        self.retry.clock
    }

    pub(crate) fn retry(&self) -> &RetryPolicy {
        &self.retry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn delays(retry: RetryPolicy) -> Vec<u64> {
        let mut attempts = Attempts::start(retry);
        std::iter::from_fn(|| attempts.after(Conflict::Deadlock))
            .take(20)
            .map(|delay| delay.as_millis() as u64)
            .collect()
    }

    fn attempts(attempts: u32) -> RetryPolicy {
        RetryPolicy::new().with_attempts(attempts)
    }

    #[test]
    fn delays_double_up_to_the_cap_and_end_with_the_attempts() {
        const CAP: Duration = Duration::from_millis(10);
        let retry = attempts(7).with_max_delay(CAP).with_jitter(false);
        assert_eq!(delays(retry), [1, 2, 4, 8, 10, 10]);
        // A caller that keeps meeting conflicts tries less often.
        let retry = attempts(20).with_max_delay(CAP).with_jitter(false);
        assert_eq!(delays(retry)[14..], [10, 10, 20, 30, 40]);
        // The cap also limits the first delay.
        let retry = attempts(3).with_max_delay(CAP).with_jitter(false);
        assert_eq!(delays(retry.with_min_delay(5 * CAP)), [10, 10]);
    }

    #[test]
    fn full_jitter_reaches_from_zero_to_the_whole_delay() {
        let with = |bits: u64| delays(attempts(4).with_random(move || bits));
        assert_eq!(with(0), [0, 0, 0]);
        assert_eq!(with(u64::MAX), [1, 2, 4]);
    }

    #[test]
    fn a_busy_database_is_awaited_until_the_deadline() {
        let next = |retry: RetryPolicy, conflict| {
            let mut attempts = Attempts::start(retry.with_deadline(Duration::MAX));
            attempts.attempt = 32;
            attempts.after(conflict).is_some()
        };
        assert!(next(RetryPolicy::new(), Conflict::Busy));
        assert!(!next(RetryPolicy::new(), Conflict::Deadlock));
        assert!(!next(attempts(32), Conflict::Busy));
    }

    #[test]
    fn no_delay_is_too_long() {
        let retry = attempts(4)
            .with_min_delay(Duration::MAX)
            .with_max_delay(Duration::MAX)
            .with_deadline(Duration::MAX)
            .with_random(|| u64::MAX);
        let mut attempts = Attempts::start(retry);
        for _ in 0..3 {
            let delay = attempts.after(Conflict::Deadlock);
            assert!(delay > Some(Duration::MAX / 2), "{delay:?}");
        }
    }

    #[test]
    fn one_attempt_or_none_is_never_followed_by_another() {
        assert_eq!(delays(RetryPolicy::never()), [0; 0]);
        assert_eq!(delays(attempts(0)), [0; 0]);
    }

    #[test]
    fn the_time_of_day_moves_with_the_clock() {
        const HOUR: Duration = Duration::from_secs(3_600);
        let at = |clock| RetryPolicy::new().with_clock(clock).seconds_since_1970();
        let now = at(Instant::now);
        assert!(now > 1_700_000_000, "{now}");
        let (later, earlier) = (at(|| Instant::now() + HOUR), at(|| Instant::now() - HOUR));
        assert!((3_600..4_000).contains(&(later - now)), "{later} {now}");
        assert!((3_000..3_601).contains(&(now - earlier)), "{earlier} {now}");
    }

    #[test]
    fn the_last_delay_ends_at_the_deadline() {
        static MILLIS: AtomicU64 = AtomicU64::new(0);
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        fn clock() -> Instant {
            *START.get_or_init(Instant::now) + Duration::from_millis(MILLIS.load(Ordering::Relaxed))
        }
        let retry = RetryPolicy::new()
            .with_min_delay(Duration::from_millis(60))
            .with_deadline(Duration::from_millis(100))
            .with_jitter(false)
            .with_clock(clock);
        let mut attempts = Attempts::start(retry);
        let mut next = || {
            let delay = attempts.after(Conflict::Busy).map(|d| d.as_millis() as u64);
            MILLIS.fetch_add(delay.unwrap_or(0), Ordering::Relaxed);
            delay
        };
        assert_eq!([next(), next(), next()], [Some(60), Some(40), None]);
    }
}

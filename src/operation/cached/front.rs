//! A cache in front of counters, its settings, and how it is asked.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::flights::Flights;
use super::pause::{Pause, Turn};
use super::total_cache::{CacheError, TotalCache};
use crate::observe;

/// A cache in front of counters. Clones share the cache and its state; each clone has its own settings.
///
/// Diesel's `begin_test_transaction` begins a transaction too: a test inside one never meets the cache.
///
/// | setting | default | meaning |
/// |---|---|---|
/// | [`with_ttl`](Self::with_ttl) | 60 s | how long a total is kept, and so the greatest age of an error in it |
/// | [`with_prefix`](Self::with_prefix) | `diesel_sharded:` | what every key begins with; each database needs one of its own |
/// | [`with_pause`](Self::with_pause) | 1 s | how long the cache is left out after a failure |
/// | [`with_wait`](Self::with_wait) | 1 s | how long a reader waits for another one's read of the same total |
/// | [`with_notify`](Self::with_notify) | none | is called at every failure of the cache |
#[must_use = "a cache does nothing until totals are read and counted through it"]
pub struct Cached<C> {
    pub(super) ttl: Duration,
    pause: Duration,
    wait: Duration,
    prefix: Arc<str>,
    notify: Option<Notify>,
    shared: Arc<Shared<C>>,
}

type Notify = Arc<dyn Fn(&CacheError) + Send + Sync>;

/// The state that all clones share.
struct Shared<C> {
    cache: C,
    flights: Flights,
    pause: Pause,
    failures: AtomicU64,
}

impl<C: TotalCache> Cached<C> {
    /// Puts `cache` in front of counters, with the defaults above.
    pub fn new(cache: C) -> Self {
        Cached {
            ttl: Duration::from_secs(60),
            pause: Duration::from_secs(1),
            wait: Duration::from_secs(1),
            prefix: "diesel_sharded:".into(),
            notify: None,
            shared: Arc::new(Shared {
                cache,
                flights: Flights::default(),
                pause: Pause::new(Instant::now()),
                failures: AtomicU64::new(0),
            }),
        }
    }

    /// Sets how long a total is kept.
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets what every key begins with.
    pub fn with_prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long the cache is left out after a failure.
    pub fn with_pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Sets how long a reader waits for another one's read of the same total before it reads for itself.
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Calls `notify` at every failure of the cache, to log it. The count or the read goes on when it returns.
    pub fn with_notify(mut self, notify: impl Fn(&CacheError) + Send + Sync + 'static) -> Self {
        self.notify = Some(Arc::new(notify));
        self
    }

    /// How often the cache has failed. Operations that skipped the cache after a failure are not counted.
    pub fn failures(&self) -> u64 {
        self.shared.failures.load(Ordering::Relaxed)
    }

    pub(super) fn increment(&self, key: &str, n: i64) {
        self.ask(&self.key(key), Question::IncrementIfPresent(n));
    }

    pub(super) fn remove(&self, key: &str) {
        self.ask(&self.key(key), Question::Remove);
    }

    /// Asks the cache something, unless it is left out; `None` if it failed.
    pub(super) fn ask(&self, key: &str, question: Question) -> Option<Option<i64>> {
        self.attempt(|cache| match question {
            Question::Get => cache.get(key),
            Question::AddIfAbsent(total, ttl) => {
                cache.add_if_absent(key, total, ttl).map(|()| None)
            }
            Question::IncrementIfPresent(n) => cache.increment_if_present(key, n).map(|()| None),
            Question::Remove => cache.remove(key).map(|()| None),
        })
    }

    /// The cache itself.
    #[cfg(feature = "async")]
    pub(super) fn cache(&self) -> &C {
        &self.shared.cache
    }

    /// The reads that are under way, and how long one waits for them.
    pub(super) fn flights(&self) -> (&Flights, Duration) {
        (&self.shared.flights, self.wait)
    }

    pub(super) fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// The answer of the cache, if it is in use and does not fail.
    fn attempt<T>(&self, operation: impl FnOnce(&C) -> Result<T, CacheError>) -> Option<T> {
        let Shared {
            cache,
            pause,
            failures,
            ..
        } = &*self.shared;
        let turn = pause.turn(Instant::now(), self.pause);
        if turn == Turn::LeaveOut {
            return None;
        }
        let result = operation(cache);
        match &result {
            Err(CacheError::Unavailable { .. }) => pause.begin(Instant::now(), self.pause),
            // A value that is no total was answered all the same.
            Ok(_) | Err(CacheError::NotATotal { .. }) if turn == Turn::Try => pause.ended(),
            _ => {}
        }
        if let Err(error) = &result {
            failures.fetch_add(1, Ordering::Relaxed);
            match error {
                CacheError::Unavailable { .. } => observe::cache_unavailable(error),
                CacheError::NotATotal { .. } => observe::not_a_total(error),
            }
            if let Some(notify) = &self.notify {
                notify(error);
            }
        }
        result.ok()
    }
}

impl<C> Clone for Cached<C> {
    fn clone(&self) -> Self {
        Cached {
            ttl: self.ttl,
            pause: self.pause,
            wait: self.wait,
            prefix: Arc::clone(&self.prefix),
            notify: self.notify.clone(),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<C> fmt::Debug for Cached<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached")
            .field("ttl", &self.ttl)
            .field("prefix", &self.prefix)
            .field("pause", &self.pause)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

/// A question to a cache about a key.
#[derive(Debug, Clone, Copy)]
pub enum Question {
    /// The total.
    Get,
    /// To keep a total for so long, if it has none.
    AddIfAbsent(i64, Duration),
    /// To add to the total, if it has one.
    IncrementIfPresent(i64),
    /// To forget the total.
    Remove,
}

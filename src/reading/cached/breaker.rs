//! A circuit breaker for a cache that failed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Skips a cache for a pause after it failed.
///
/// When a pause is over, one operation tries the cache and the others still skip it. So a cache that times out delays one operation in
/// each pause, not all of them.
#[derive(Debug)]
pub(super) struct CircuitBreaker {
    start: Instant,
    /// The end of the pause in nanoseconds after `start`, or [`NEVER`].
    end: AtomicU64,
}

/// There is no pause: nothing failed, or the try after the last failure succeeded.
const NEVER: u64 = 0;

/// Whether an operation may use the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Use the cache.
    Closed,
    /// Use the cache, and call [`CircuitBreaker::reset`] if it works again.
    HalfOpen,
    /// Skip the cache.
    Open,
}

impl CircuitBreaker {
    pub(super) fn new(now: Instant) -> Self {
        CircuitBreaker {
            start: now,
            end: AtomicU64::new(NEVER),
        }
    }

    /// The state for an operation at `now`. `length` is the length of the next pause.
    pub(super) fn state(&self, now: Instant, length: Duration) -> State {
        let end = self.end.load(Ordering::Relaxed);
        if end == NEVER {
            return State::Closed;
        }
        let next = self.end_of(now, length);
        let mine = end <= self.nanos(now)
            && self
                .end
                .compare_exchange(end, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if mine { State::HalfOpen } else { State::Open }
    }

    /// Begins a pause, because the cache failed at `now`.
    pub(super) fn trip(&self, now: Instant, length: Duration) {
        self.end.store(self.end_of(now, length), Ordering::Relaxed);
    }

    /// Ends the pauses, because the cache works again.
    pub(super) fn reset(&self) {
        self.end.store(NEVER, Ordering::Relaxed);
    }

    fn end_of(&self, now: Instant, length: Duration) -> u64 {
        let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        self.nanos(now).saturating_add(length).max(NEVER + 1)
    }

    fn nanos(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.start);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_failure_leaves_the_cache_out_until_it_works_again() {
        let start = Instant::now();
        let breaker = CircuitBreaker::new(start);
        assert_eq!(breaker.state(start, SECOND), State::Closed);
        breaker.trip(start, SECOND);
        let before = start + SECOND.mul_f64(0.99);
        assert_eq!(breaker.state(before, SECOND), State::Open);
        assert_eq!(breaker.state(start + SECOND, SECOND), State::HalfOpen);
        assert_eq!(breaker.state(start + SECOND, SECOND), State::Open);
        breaker.reset();
        assert_eq!(breaker.state(start + SECOND, SECOND), State::Closed);
    }

    #[test]
    fn an_attempt_that_never_ends_is_followed_by_another() {
        let start = Instant::now();
        let breaker = CircuitBreaker::new(start);
        breaker.trip(start, SECOND);
        assert_eq!(breaker.state(start + SECOND, SECOND), State::HalfOpen);
        assert_eq!(breaker.state(start + 2 * SECOND, SECOND), State::HalfOpen);
    }

    #[test]
    fn a_pause_may_have_any_length() {
        let start = Instant::now();
        let breaker = CircuitBreaker::new(start);
        breaker.trip(start, Duration::ZERO);
        let soon = start + Duration::from_nanos(1);
        assert_eq!(breaker.state(soon, Duration::MAX), State::HalfOpen);
        breaker.trip(soon, Duration::MAX);
        assert_eq!(breaker.state(start + SECOND, SECOND), State::Open);
    }
}

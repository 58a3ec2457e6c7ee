//! Where a process keeps what it knows of keys: behind many locks, and some of it only for a while.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use fnv::FnvBuildHasher;

use super::sync::{Mutex, MutexGuard, PoisonError};

/// A state for each part of all keys, so that threads that count on different keys rarely wait for each other.
#[derive(Debug)]
pub(super) struct ByKey<T>([Mutex<T>; 64]);

impl<T> ByKey<T> {
    pub(super) fn new(part: impl Fn() -> T) -> Self {
        ByKey(std::array::from_fn(|_| Mutex::new(part())))
    }

    pub(super) fn lock(&self, key: u64) -> MutexGuard<'_, T> {
        let part = &self.0[(key >> 32) as usize % self.0.len()];
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn sum(&self, of: impl Fn(&T) -> usize) -> usize {
        self.0.iter().map(|part| of(&part.lock().unwrap())).sum()
    }
}

/// The end of a span that starts at `begin`, or `begin` itself if the application's clock cannot go further.
pub(super) fn end_of(begin: Instant, span: Duration) -> Instant {
    begin.checked_add(span).unwrap_or(begin)
}

/// Whether the end of a span lies ahead, but no further than anybody would set it: an application's clock may have jumped ahead and back.
pub(super) fn is_ahead(end: Instant, span: Duration, now: Instant) -> bool {
    now < end && end.saturating_duration_since(now) <= 2 * span
}

/// How many entries a [`Recent`] has at most.
const MOST: usize = 1024;

/// Values that are remembered for a while.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    span: Duration,
    /// The values, and until when they are remembered.
    entries: HashMap<K, (V, Instant), FnvBuildHasher>,
}

impl<K: Hash + Eq, V: Copy> Recent<K, V> {
    pub(super) fn new(span: Duration) -> Self {
        let entries = HashMap::default();
        Recent { span, entries }
    }

    pub(super) fn get(&self, key: K, now: Instant) -> Option<V> {
        let (value, until) = self.entries.get(&key)?;
        is_ahead(*until, self.span, now).then_some(*value)
    }

    pub(super) fn insert(&mut self, key: K, value: V, now: Instant) {
        if self.entries.len() >= MOST {
            self.make_room(now);
        }
        self.entries.insert(key, (value, end_of(now, self.span)));
    }

    pub(super) fn remove(&mut self, key: K) {
        self.entries.remove(&key);
    }

    /// Whether nothing was remembered for the key. The value is from now on.
    pub(super) fn begins(&mut self, key: K, value: V, now: Instant) -> bool
    where
        K: Copy,
    {
        let begins = self.get(key, now).is_none();
        if begins {
            self.insert(key, value, now);
        }
        begins
    }

    /// If too much is remembered, forgets everything: the process finds out again.
    fn make_room(&mut self, now: Instant) {
        let span = self.span;
        self.entries
            .retain(|_, (_, until)| is_ahead(*until, span, now));
        if self.entries.len() > MOST / 2 {
            self.entries.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_millis(50);

    #[test]
    fn a_value_is_remembered_for_its_span() {
        let (mut recent, now) = (Recent::new(SPAN), Instant::now());
        recent.insert(1, 'a', now);
        let after = |millis| now + Duration::from_millis(millis);
        assert_eq!(
            [0, 49, 50].map(|ms| recent.get(1, after(ms))),
            [Some('a'), Some('a'), None]
        );
        assert_eq!(recent.get(2, now), None);
        recent.insert(1, 'b', after(40));
        assert_eq!(recent.get(1, after(89)), Some('b'));
        recent.remove(1);
        assert_eq!(recent.get(1, now), None);
    }

    #[test]
    fn a_value_begins_once_in_its_span() {
        let (mut recent, now) = (Recent::new(SPAN), Instant::now());
        let mut begins = |key, millis| recent.begins(key, (), now + Duration::from_millis(millis));
        let first = [
            begins("a", 0),
            begins("b", 1),
            begins("a", 49),
            begins("a", 50),
        ];
        assert_eq!(first, [true, true, false, true]);
        assert_eq!([begins("a", 51), begins("b", 51)], [false, true]);
    }

    #[test]
    fn a_clock_that_jumps_leaves_nothing_behind() {
        let (mut recent, now) = (Recent::new(SPAN), Instant::now());
        let ahead = now + Duration::from_secs(1 << 32);
        recent.insert(1, (), ahead);
        assert_eq!((recent.get(1, ahead), recent.get(1, now)), (Some(()), None));
        assert!(recent.begins(1, (), now) && !recent.begins(1, (), now));
    }

    #[test]
    fn not_too_much_is_remembered() {
        let (mut recent, now) = (Recent::new(SPAN), Instant::now());
        for key in 0..10 * MOST {
            recent.insert(key, (), now);
            assert!(recent.get(key, now).is_some() && recent.entries.len() <= MOST);
        }
        // Expired entries go first.
        let (mut recent, later) = (Recent::new(SPAN), now + SPAN);
        (0..MOST - 1).for_each(|key| recent.insert(key, (), now));
        (MOST..=MOST + 1).for_each(|key| recent.insert(key, (), later));
        assert_eq!(recent.entries.len(), 2);
    }
}

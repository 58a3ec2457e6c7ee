//! Totals kept in the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use moka::Expiry;
use moka::sync::Cache;

use super::{CacheError, TotalCache};

/// Keeps totals in this process. It never fails. Each process has its own totals, which lack the increments of other processes since the
/// totals were read, until they expire.
#[derive(Debug, Clone)]
pub struct MokaCache {
    totals: Cache<String, Arc<CacheEntry>>,
}

/// A total that many threads add to at once.
#[derive(Debug)]
struct CacheEntry {
    total: AtomicI64,
    ttl: Duration,
}

impl MokaCache {
    /// A cache of at most `max_entries` totals. If there are more, it keeps the most requested ones.
    pub fn new(max_entries: u64) -> Self {
        MokaCache {
            totals: Cache::builder()
                .max_capacity(max_entries)
                .expire_after(OwnTtl)
                .build(),
        }
    }
}

impl TotalCache for MokaCache {
    fn waits(&self) -> bool {
        false
    }

    fn get(&self, key: &str) -> Result<Option<i64>, CacheError> {
        let kept = self.totals.get(key);
        Ok(kept.map(|kept| kept.total.load(Ordering::Relaxed)))
    }

    fn add_if_absent(&self, key: &str, total: i64, ttl: Duration) -> Result<(), CacheError> {
        self.totals.entry_by_ref(key).or_insert_with(|| {
            Arc::new(CacheEntry {
                total: AtomicI64::new(total),
                ttl,
            })
        });
        Ok(())
    }

    fn increment_if_present(&self, key: &str, by: i64) -> Result<(), CacheError> {
        let Some(kept) = self.totals.get(key) else {
            return Ok(());
        };
        let added = kept
            .total
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_add(by));
        match added {
            Ok(_) => Ok(()),
            Err(_) => self.remove(key),
        }
    }

    fn remove(&self, key: &str) -> Result<(), CacheError> {
        self.totals.invalidate(key);
        Ok(())
    }
}

/// Lets each entry expire after its own TTL.
#[derive(Debug)]
struct OwnTtl;

impl Expiry<String, Arc<CacheEntry>> for OwnTtl {
    fn expire_after_create(
        &self,
        _: &String,
        kept: &Arc<CacheEntry>,
        _: Instant,
    ) -> Option<Duration> {
        Some(kept.ttl)
    }

    /// An entry is replaced only after it has expired.
    fn expire_after_update(
        &self,
        _: &String,
        kept: &Arc<CacheEntry>,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(kept.ttl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const LONG: Duration = Duration::from_secs(60);

    fn kept(cache: &MokaCache) -> Option<i64> {
        cache.get("a").unwrap()
    }

    #[test]
    fn threads_lose_no_increment() {
        let cache = MokaCache::new(10);
        cache.add_if_absent("a", 0, LONG).unwrap();
        thread::scope(|scope| {
            for by in [1, 1, 1, 1, 1, 1, -1, -1] {
                let cache = &cache;
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        cache.increment_if_present("a", by).unwrap();
                    }
                });
            }
        });
        assert_eq!(kept(&cache), Some(40_000));
    }

    #[test]
    fn an_overflow_removes_the_total() {
        for (total, by) in [(i64::MAX, 1), (i64::MIN, -1)] {
            let cache = MokaCache::new(10);
            cache.add_if_absent("a", total, LONG).unwrap();
            cache.increment_if_present("a", by).unwrap();
            assert_eq!(kept(&cache), None);
        }
    }

    #[test]
    fn increments_keep_the_expiry_and_a_new_entry_has_its_own() {
        let cache = MokaCache::new(10);
        let short = Duration::from_millis(200);
        cache.add_if_absent("a", 1, short).unwrap();
        let added = Instant::now();
        while added.elapsed() < short {
            cache.increment_if_present("a", 1).unwrap();
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(kept(&cache), None);
        cache.add_if_absent("a", 5, LONG).unwrap();
        thread::sleep(short);
        assert_eq!(kept(&cache), Some(5));
    }

    #[test]
    fn any_ttl_will_do() {
        let cache = MokaCache::new(10);
        cache.add_if_absent("a", 1, Duration::ZERO).unwrap();
        assert_eq!(kept(&cache), None);
        cache.add_if_absent("a", 2, Duration::MAX).unwrap();
        assert_eq!(kept(&cache), Some(2));
    }
}

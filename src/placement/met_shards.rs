//! Shards that this process has counted on.

use std::sync::atomic::{AtomicU64, Ordering};

const SLOTS: usize = 4096;

/// Shards that were there when they were last counted on. A fold may have removed one since. The table has a fixed size: a shard
/// replaces another one in its slot.
#[derive(Debug)]
pub(super) struct MetShards(Box<[AtomicU64]>);

impl Default for MetShards {
    fn default() -> Self {
        MetShards((0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl MetShards {
    pub(super) fn contain(&self, key: u64, shard: i32) -> bool {
        let id = id(key, shard);
        self.slot(id).load(Ordering::Relaxed) == id
    }

    pub(super) fn insert(&self, key: u64, shard: i32) {
        let id = id(key, shard);
        self.slot(id).store(id, Ordering::Relaxed);
    }

    pub(super) fn remove(&self, key: u64, shard: i32) {
        let id = id(key, shard);
        // If another one stands there by now, it stays.
        let _ = self
            .slot(id)
            .compare_exchange(id, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn slot(&self, id: u64) -> &AtomicU64 {
        &self.0[id as usize % SLOTS]
    }
}

/// Never zero, the number of an empty slot.
fn id(key: u64, shard: i32) -> u64 {
    let shard = u64::from(shard.unsigned_abs());
    (key ^ (shard + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_met_until_it_is_missing() {
        let met = MetShards::default();
        assert!(!met.contain(7, 0));
        met.insert(7, 0);
        assert!(met.contain(7, 0) && !met.contain(7, 1) && !met.contain(8, 0));
        met.remove(7, 1);
        assert!(met.contain(7, 0));
        met.remove(7, 0);
        assert!(!met.contain(7, 0));
    }
}

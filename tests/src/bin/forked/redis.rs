//! A cache in Redis that keeps its parent's connections: no child may read the answers of another.

use std::time::Duration;

use diesel_sharded::cached::{RedisCache, TotalCache};

use crate::{CHILDREN, KEYS, in_children};

pub fn read(address: &str) {
    let cache = RedisCache::open(address).expect("an address");
    assert_eq!(cache.get("parent").expect("an answer"), None);
    let well = in_children(|wait| {
        let own = std::process::id();
        let (key, total) = (own.to_string(), own.into());
        wait();
        let added = cache.add_if_absent(&key, total, Duration::from_secs(3600));
        added.expect("an answer");
        for _ in 0..10 * KEYS {
            assert_eq!(cache.get(&key).expect("an answer"), Some(total));
        }
    });
    println!("totals from Redis\t{well}\t{CHILDREN}");
}

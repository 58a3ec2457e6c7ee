//! A cache of totals that never answers well.

use std::time::Duration;

use diesel_sharded::cached::{CacheError, TotalCache};

/// Each answer is the error that the closure makes of the key.
#[derive(Debug)]
pub struct Refusing<F>(pub F);

impl<F: Fn(&str) -> CacheError + Send + Sync> TotalCache for Refusing<F> {
    fn get(&self, key: &str) -> Result<Option<i64>, CacheError> {
        Err(self.0(key))
    }

    fn add_if_absent(&self, key: &str, _: i64, _: Duration) -> Result<(), CacheError> {
        Err(self.0(key))
    }

    fn increment_if_present(&self, key: &str, _: i64) -> Result<(), CacheError> {
        Err(self.0(key))
    }

    fn remove(&self, key: &str) -> Result<(), CacheError> {
        Err(self.0(key))
    }
}

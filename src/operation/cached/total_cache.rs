//! The operations of a cache of totals, and its failures.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

/// A place where totals are kept for a while: in the process (`MokaCache`), or an application's own; the repository's
/// `examples/redis_cache` keeps them in a Redis server.
///
/// Each operation is one atomic step for everybody who uses the same cache; [`Cached`](super::Cached) relies on nothing else. No
/// operation may wait long: if it cannot be done soon, it must return an error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a cache of totals",
    note = "`MokaCache` (feature `cache`) is; implement `TotalCache` for one of your own"
)]
pub trait TotalCache: Send + Sync {
    /// The total that is kept under `key`.
    ///
    /// # Errors
    /// [`CacheError`]
    fn get(&self, key: &str) -> Result<Option<i64>, CacheError>;

    /// Keeps `total` for `ttl`, unless a total is kept under `key` already.
    ///
    /// # Errors
    /// [`CacheError`]
    fn add_if_absent(&self, key: &str, total: i64, ttl: Duration) -> Result<(), CacheError>;

    /// Adds `by`, which may be negative, to the total that is kept under `key`, also below zero; does nothing if none is. Its
    /// expiry does not change. A total that would leave the range of `i64` is removed.
    ///
    /// # Errors
    /// [`CacheError`]
    fn increment_if_present(&self, key: &str, by: i64) -> Result<(), CacheError>;

    /// Removes the total that is kept under `key`.
    ///
    /// # Errors
    /// [`CacheError`]
    fn remove(&self, key: &str) -> Result<(), CacheError>;

    /// Whether the cache may make its caller wait, as one in another process does. Tasks then ask it on a thread that may block.
    /// True by default.
    fn waits(&self) -> bool {
        true
    }
}

/// Why an operation of a cache failed. It is never the error of a count or a read: see
/// [`Cached::with_notify`](super::Cached::with_notify).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The cache could not be used. It is left out for a while.
    #[error("the cache could not be used ({source})")]
    Unavailable {
        /// The cache's own error.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The value under the key is no total; another application may use the same key. Other keys are not affected.
    #[error("what the cache keeps under `{key}` is no total ({source})")]
    NotATotal {
        /// The key, with its prefix.
        key: String,
        /// The cache's own error.
        source: Box<dyn StdError + Send + Sync>,
    },
}

macro_rules! forward {
    ($($pointer:ty),+) => {$(
        impl<C: TotalCache + ?Sized> TotalCache for $pointer {
            fn get(&self, key: &str) -> Result<Option<i64>, CacheError> {
                (**self).get(key)
            }

            fn add_if_absent(&self, key: &str, total: i64, ttl: Duration) -> Result<(), CacheError> {
                (**self).add_if_absent(key, total, ttl)
            }

            fn increment_if_present(&self, key: &str, by: i64) -> Result<(), CacheError> {
                (**self).increment_if_present(key, by)
            }

            fn remove(&self, key: &str) -> Result<(), CacheError> {
                (**self).remove(key)
            }

            fn waits(&self) -> bool {
                (**self).waits()
            }
        }
    )+};
}

forward!(&C, Box<C>, Arc<C>);

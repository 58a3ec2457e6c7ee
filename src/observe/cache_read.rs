//! Reads of totals through a cache.

/// The source of a total that was read through a cache.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CacheRead {
    /// The cache.
    Hit,
    /// The database.
    Miss,
    /// Another reader's read of the database.
    Shared,
    /// The database, inside a transaction.
    Bypassed,
}

//! Counters that a cache can stand before.

use diesel::result::QueryResult;

/// A counter that a cache can stand before.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a counter that can be cached on a `{Conn}`",
    note = "implement `CachedCounter<{Conn}>` for it: a key, how it is read and how it is added to"
)]
pub trait CachedCounter<Conn> {
    /// The name of this counter in the cache: another one for every other counter, the same one in every process.
    fn cache_key(&self) -> String;

    /// Reads the total from the database.
    ///
    /// # Errors
    /// The database's; an error is never cached.
    fn read(&self, conn: &mut Conn) -> QueryResult<i64>;

    /// Adds `n` to the total in the database, and returns the number of rows that it counted, as `execute` does: 0 if there is no
    /// such counter.
    ///
    /// # Errors
    /// The database's.
    fn add(&self, n: i64, conn: &mut Conn) -> QueryResult<usize>;
}

/// A counter of this crate, which takes an [idempotency key](crate::idempotency).
pub trait AddOnce<Conn>: CachedCounter<Conn> {
    /// Adds `n` once for all additions with this key. Returns the number of rows counted, now or then, and whether it was now.
    ///
    /// # Errors
    /// The database's.
    fn add_once(&self, n: i64, key: &[u8], conn: &mut Conn) -> QueryResult<(usize, bool)>;
}

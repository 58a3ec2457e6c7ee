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

    /// Adds `n` once for all additions with this idempotency key. Returns the number of rows counted, now or then, and whether it was
    /// now; `None` for a counter that does not count by an update of this crate.
    #[doc(hidden)]
    fn add_once(&self, _: i64, _: &[u8], _: &mut Conn) -> QueryResult<Option<(usize, bool)>> {
        Ok(None)
    }
}

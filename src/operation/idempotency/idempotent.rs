//! A counting update, or a counter, with an idempotency key.

use diesel::prelude::*;

#[cfg(feature = "r2d2")]
use super::request::Request;
#[cfg(feature = "r2d2")]
use crate::error::Error;
use crate::operation::cached::{AddOnce, CachedCounter};

/// A counting update, or a counter, with an idempotency key; see the [module](super).
///
/// Made by [`UpdateStatement::idempotency_key`](crate::operation::UpdateStatement::idempotency_key),
/// [`Counter::idempotency_key`](crate::Counter::idempotency_key) and
/// [`RowCounter::idempotency_key`](crate::RowCounter::idempotency_key). It takes the place of an update before `.execute(conn)`,
/// `.get_result(conn)` and `.get_results(conn)`, and of a counter in [`Coalescer::add`](crate::coalescer::Coalescer::add) and
/// [`Cached::add`](crate::cached::Cached::add).
#[derive(Debug, Clone)]
#[must_use = "nothing is counted until it is executed or added to"]
pub struct Idempotent<Of> {
    pub(crate) of: Of,
    pub(crate) key: Vec<u8>,
}

impl<Of> Idempotent<Of> {
    pub(crate) fn new(of: Of, key: impl AsRef<[u8]>) -> Self {
        Idempotent {
            of,
            key: key.as_ref().to_vec(),
        }
    }

    /// The request to add `n`, the same on every way to the database.
    #[cfg(feature = "r2d2")]
    pub(crate) fn request<Conn>(&self, n: i64) -> Result<Request, Error>
    where
        Of: CachedCounter<Conn>,
    {
        Request::to_add(&self.key, &self.of.cache_key(), n)
    }
}

/// A repeat adds to no row, and nothing to the cached total: `add` returns 0 for it.
impl<Of, Conn> CachedCounter<Conn> for Idempotent<Of>
where
    Of: AddOnce<Conn>,
{
    fn cache_key(&self) -> String {
        self.of.cache_key()
    }

    fn read(&self, conn: &mut Conn) -> QueryResult<i64> {
        self.of.read(conn)
    }

    fn add(&self, n: i64, conn: &mut Conn) -> QueryResult<usize> {
        let (counted, now) = self.of.add_once(n, &self.key, conn)?;
        Ok(if now { counted } else { 0 })
    }
}
